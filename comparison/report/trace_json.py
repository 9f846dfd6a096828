"""A comparison of traces as JSON."""

import json
from dataclasses import asdict

from comparison.schema.json_values import strict_json_value
from comparison.schema.trace_comparison import TraceComparison


def trace_to_json(comparison: TraceComparison) -> str:
    """Write everything out, with the fields of `TraceComparison`, and the exit code."""
    fields = {"exit_code": comparison.exit_code, **asdict(comparison)}
    return json.dumps(strict_json_value(fields), indent=1) + "\n"
