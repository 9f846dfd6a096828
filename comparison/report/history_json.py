"""What became of faults, as JSON."""

import json
from dataclasses import asdict
from typing import Any

from comparison.schema.fault_history import Fault, FaultHistory, SavedResult

HISTORY_SCHEMA_VERSION = 1


def history_to_json(history: FaultHistory) -> str:
    """Write it as JSON text."""
    value = {
        "schema_version": HISTORY_SCHEMA_VERSION,
        "exit_code": history.exit_code,
        "old": _result(history.old),
        "new": _result(history.new),
        "fixed": [asdict(fault) for fault in history.fixed],
        "added": [asdict(fault) for fault in history.added],
        "moved": [_both(*pair) for pair in history.moved],
        "unchanged": [_both(*pair) for pair in history.unchanged],
        "unchecked": [asdict(fault) for fault in history.unchecked],
        "notes": list(history.notes),
    }
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=True) + "\n"


def _result(result: SavedResult) -> dict[str, Any]:
    return {
        "path": str(result.path),
        "kind": str(result.kind),
        "verdict": result.verdict,
        "sentence": result.sentence,
        "conclusive": result.conclusive,
    }


def _both(before: Fault, now: Fault) -> dict[str, Any]:
    return {"before": asdict(before), "now": asdict(now)}
