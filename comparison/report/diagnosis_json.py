"""A diagnosis as strict JSON."""

import json
from dataclasses import asdict, replace
from typing import Any

from comparison.schema.diagnosis import DIAGNOSIS_SCHEMA_VERSION, Diagnosis
from comparison.schema.json_values import strict_json_value


def diagnosis_to_json(diagnosis: Diagnosis) -> str:
    """Write a diagnosis as JSON text."""
    value = diagnosis_to_dict(diagnosis)
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=True) + "\n"


def diagnosis_to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Turn a diagnosis into JSON values.

    A culprit and each guilty module carry `step`, `row` and `position` beside their other fields.
    """
    result: dict[str, Any] = strict_json_value(_plain(diagnosis))
    return result


def _plain(diagnosis: Diagnosis) -> dict[str, Any]:
    value = {
        "schema_version": DIAGNOSIS_SCHEMA_VERSION,
        "exit_code": diagnosis.exit_code,
        **asdict(replace(diagnosis, candidates=())),
    }
    if value["culprit"] is not None:
        value["culprit"] = _with_spot(value["culprit"])
    for key in ("guilty", "choices"):
        value[key] = [_with_spot(item) for item in value[key]]
    for field, audited in zip(
        value["config_audit"] or [], diagnosis.config_audit or (), strict=True
    ):
        field["non_default"] = audited.non_default
    value["candidates"] = [_plain(candidate) for candidate in diagnosis.candidates]
    return value


def _with_spot(value: dict[str, Any]) -> dict[str, Any]:
    """Put the place beside the other fields."""
    spot = value.pop("spot")
    return {**value, **spot}
