"""A comparison as strict JSON.

JSON has no NaN and no infinity: such a number (an infinite element or an overflowing difference
of float64 tensors) is the text "NaN", "Infinity" or "-Infinity". A complex number is an object
of `real` and `imag`. Integers are written in full, up to 2**65: read them with a parser that
keeps integers.
"""

import json
from dataclasses import asdict
from typing import Any, assert_never

from comparison.schema.comparison import (
    RESULT_SCHEMA_VERSION,
    Comparison,
    DumpSummary,
    Pair,
    Unpaired,
    Unreadable,
)
from comparison.schema.estimate import Estimated
from comparison.schema.json_values import strict_json_value
from comparison.schema.outcome import (
    Compared,
    Extreme,
    Judged,
    KindDiffers,
    Metrics,
    NotComparable,
    NothingFinite,
    NotJudged,
    Scalar,
    ShapeDiffers,
)
from comparison.schema.tensor_entry import TensorEntry


def comparison_to_json(comparison: Comparison) -> str:
    """Write a comparison as JSON text."""
    value = comparison_to_dict(comparison)
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=True) + "\n"


def comparison_to_dict(comparison: Comparison) -> dict[str, Any]:
    """Turn a comparison into JSON values."""
    tolerance = comparison.tolerance
    differing = list(comparison.differing)
    value = {
        "schema_version": RESULT_SCHEMA_VERSION,
        "verdict": str(comparison.verdict),
        "exit_code": comparison.exit_code,
        "cut_short": comparison.cut_short,
        "order_known": comparison.order_known,
        "reference": _dump(comparison.reference),
        "candidate": _dump(comparison.candidate),
        "tolerance": None
        if tolerance is None
        else {
            "rtol": tolerance.rtol,
            "atol": tolerance.atol,
            "equal_nan": tolerance.equal_nan,
            "equal_inf": tolerance.equal_inf,
        },
        "counts": {
            "pairs": len(comparison.pairs),
            "compared": comparison.compared,
            "differing": len(differing),
            "unpaired": len(comparison.unpaired),
            "unreadable": len(comparison.unreadable),
        },
        "first_differing": _names(differing[0]) if differing else None,
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "unpaired": [_left_over(item) for item in comparison.unpaired],
        "unreadable": [_left_over(item) for item in comparison.unreadable],
        "notes": list(comparison.notes),
    }
    result: dict[str, Any] = strict_json_value(value)
    return result


def _dump(dump: DumpSummary) -> dict[str, Any]:
    return {
        "path": str(dump.path),
        "engine": dump.engine,
        "tensors": dump.tensors,
        "complete": dump.complete,
        "notes": list(dump.notes),
    }


def _names(pair: Pair) -> dict[str, Any]:
    return {
        "reference": pair.reference.name,
        "candidate": pair.candidate.name,
        "step": pair.reference.step,
        "rank": pair.reference.rank,
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "reference": _entry(pair.reference) | {"shape": pair.reference_shape},
        "candidate": _entry(pair.candidate) | {"shape": pair.candidate_shape},
        "reason": pair.reason,
        "adjustments": list(pair.adjustments),
        "finding": str(pair.finding),
        "outcome": _outcome(pair),
    }


def _entry(entry: TensorEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "step": entry.step,
        "order": entry.order,
        "rank": entry.rank,
        "path": str(entry.path),
        "key": entry.key,
    }


def _left_over(item: Unpaired | Unreadable) -> dict[str, Any]:
    return {"side": str(item.side), **_entry(item.entry), "reason": item.reason}


def _outcome(pair: Pair) -> dict[str, Any]:
    match pair.outcome:
        case Compared() as compared:
            return {"kind": "compared", **_compared(compared)}
        case Estimated() as estimated:
            return {"kind": "estimated", **asdict(estimated)}
        case ShapeDiffers(reason=reason):
            return {"kind": "shape_differs", "reason": reason}
        case KindDiffers(reference_dtype=reference, candidate_dtype=candidate):
            dtypes = {"reference_dtype": reference, "candidate_dtype": candidate}
            return {"kind": "dtype_kind_differs", **dtypes}
        case NotComparable(reason=reason):
            return {"kind": "not_comparable", "reason": reason}
        case _:
            assert_never(pair.outcome)


def _compared(compared: Compared) -> dict[str, Any]:
    counts = compared.non_finite
    return {
        "shape": compared.shape,
        "reference_dtype": compared.reference_dtype,
        "candidate_dtype": compared.candidate_dtype,
        "dtype_differs": compared.dtype_differs,
        "metrics": _metrics(compared.metrics),
        "non_finite": dict(counts.counts()) | {"first_difference": counts.first_difference},
        "judgement": _judgement(compared.judgement),
    }


def _metrics(metrics: Metrics | NothingFinite) -> dict[str, Any]:
    match metrics:
        case NothingFinite(reason=reason):
            return {"kind": "nothing_finite", "reason": reason}
        case Metrics():
            return {
                "kind": "measured",
                "elements": metrics.elements,
                "greatest_absolute": _extreme(metrics.greatest_absolute),
                "greatest_relative": _extreme(metrics.greatest_relative),
                "mean_absolute": metrics.mean_absolute,
                "relative_l2": metrics.relative_l2,
                "cosine": metrics.cosine,
                "snr_db": metrics.snr_db,
                "greatest_ulp": metrics.greatest_ulp,
                "worst_row": {
                    "index": metrics.worst_row.index,
                    "relative_l2": metrics.worst_row.relative_l2,
                },
            }
        case _:
            assert_never(metrics)


def _extreme(extreme: Extreme) -> dict[str, Any]:
    return {
        "value": extreme.value,
        "index": extreme.index,
        "reference": _scalar(extreme.reference),
        "candidate": _scalar(extreme.candidate),
    }


def _scalar(value: Scalar) -> Any:
    if isinstance(value, complex):
        return {"real": value.real, "imag": value.imag}
    return value


def _judgement(judgement: Judged | NotJudged) -> dict[str, Any]:
    match judgement:
        case Judged(failed=failed, total=total):
            return {"kind": "judged", "failed": failed, "total": total}
        case NotJudged():
            return {"kind": "not_judged"}
        case _:
            assert_never(judgement)
