"""A result that --json wrote, read back: its verdict, its faults, and what it checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comparison.schema.comparison import RESULT_SCHEMA_VERSION, Finding, Verdict
from comparison.schema.diagnosis import DIAGNOSIS_SCHEMA_VERSION, Judgement
from comparison.schema.errors import BadInputError, UnsupportedFormatError
from comparison.schema.fault_history import UNKNOWN_CAUSE, Fault, ResultKind, SavedResult
from comparison.store.json_fields import JsonFields, read_json


def read_result(path: Path) -> SavedResult:
    """Read the file of a --json option.

    Args:
        path: of compare_tensors or diff_models.

    Raises:
        CorruptFileError: no file, no JSON, or a value that is missing or of another type.
        UnsupportedFormatError: a later version of these tools wrote it.
        BadInputError: nothing was judged in it.
    """
    fields = JsonFields(path, read_json(path, "a result of --json"), "the result")
    is_comparison = fields.optional("counts", dict) is not None
    version = fields.integer("schema_version", least=1)
    known = RESULT_SCHEMA_VERSION if is_comparison else DIAGNOSIS_SCHEMA_VERSION
    if version > known:
        raise UnsupportedFormatError(
            f"{path}: expected schema_version {known} or less, found {version}; it was written by "
            "a later version of these tools, update them"
        )
    return _comparison(path, fields) if is_comparison else _diagnosis(path, fields)


def _comparison(path: Path, fields: JsonFields) -> SavedResult:
    tolerance = fields.optional("tolerance", dict)
    if tolerance is None:
        raise BadInputError(
            f"{path}: measured without a tolerance, so it names no faults; make it with --rtol or "
            "--atol"
        )
    pairs = fields.records("pairs", lambda pair: (_pair_name(pair), pair))
    verdict = fields.text("verdict")
    return SavedResult(
        path=path,
        kind=ResultKind.COMPARISON,
        verdict=verdict,
        sentence="",
        conclusive=verdict != Verdict.INCONCLUSIVE and not fields.take("cut_short", bool),
        faults=tuple(
            _differing(name, pair)
            for name, pair in pairs
            if pair.text("finding") == Finding.DIFFERS
        ),
        checked=frozenset(
            ("", name) for name, pair in pairs if pair.text("finding") != Finding.NOT_COMPARED
        ),
        hides_later=False,
        tolerance=", ".join(f"{name} {value}" for name, value in sorted(tolerance.items())),
    )


def _pair_name(pair: JsonFields) -> str:
    entry = pair.inner(pair.take("reference", dict), "reference")
    rank = entry.optional("rank", int)
    where = f"step {entry.integer('step')}" + ("" if rank is None else f", rank {rank}")
    return f"{entry.text('name')} ({where})"


def _differing(name: str, pair: JsonFields) -> Fault:
    outcome = pair.inner(pair.take("outcome", dict), "outcome")
    kind = outcome.text("kind")
    metrics = outcome.optional("metrics", dict) or {}
    distance = metrics.get("relative_l2")
    evidence = kind.replace("_", " ")
    if isinstance(distance, float | int):
        evidence = f"relative L2 {distance:.4g}"
    return Fault(candidate="", module="", tensor=name, place="", cause="", evidence=evidence)


def _diagnosis(path: Path, fields: JsonFields) -> SavedResult:
    verdict = fields.text("verdict")
    if verdict not in list(Judgement):
        raise fields.error(f"a verdict of {', '.join(Judgement)}", verdict)
    each = fields.records("candidates", lambda one: one, []) or (fields,)
    named = [(_name_of(one) if len(each) > 1 else "", one) for one in each]
    return SavedResult(
        path=path,
        kind=ResultKind.DIAGNOSIS,
        verdict=verdict,
        sentence=fields.text("sentence"),
        conclusive=all(one.text("verdict") != Judgement.INCONCLUSIVE for one in each),
        faults=tuple(fault for name, one in named for fault in _faults(name, one)),
        checked=frozenset((name, tensor) for name, one in named for tensor in _replayed(one)),
        hides_later=any(_is_weak(one) for one in each),
    )


def _name_of(one: JsonFields) -> str:
    return one.text("candidate_name", "") or one.text("candidate_engine")


def _faults(candidate: str, one: JsonFields) -> Iterator[Fault]:
    guilty = one.records("guilty", lambda item: _guilty(candidate, item), [])
    yield from guilty
    cause = one.optional("cause", dict)
    if not guilty and cause is not None:
        told = one.inner(cause, "cause")
        yield Fault(
            candidate=candidate,
            module="",
            tensor="",
            place="",
            cause=told.text("id", UNKNOWN_CAUSE),
            evidence=told.text("evidence", ""),
        )


def _guilty(candidate: str, item: JsonFields) -> Fault:
    cause = item.optional("cause", dict)
    error: Any = item.take("local_error", (int, float, str))
    position = item.optional("position", int)
    place = f"step {item.integer('step')}, row {item.integer('row')}"
    return Fault(
        candidate=candidate,
        module=item.text("module"),
        tensor=item.text("tensor"),
        place=place if position is None else f"{place}, position {position}",
        cause="" if cause is None else item.inner(cause, "cause").text("id", UNKNOWN_CAUSE),
        evidence=f"local error {error:.4g}" if isinstance(error, float) else f"local error {error}",
    )


def _replayed(one: JsonFields) -> Iterator[str]:
    yield from one.records("growth", lambda item: item.text("tensor"), [])


def _is_weak(one: JsonFields) -> bool:
    """Tell a verdict without a replay, where only the first fault shows."""
    coverage = one.inner(one.take("coverage", dict), "coverage")
    return coverage.integer("replayed") == 0 and bool(one.take("guilty", list, []))
