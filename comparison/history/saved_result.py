"""A result that --json wrote, read back: its verdict, its faults, and what it checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from comparison.schema.comparison import RESULT_SCHEMA_VERSION, Finding, Verdict
from comparison.schema.diagnosis import DIAGNOSIS_SCHEMA_VERSION, Judgement
from comparison.schema.errors import BadInputError, UnsupportedFormatError
from comparison.schema.fault_history import UNKNOWN_CAUSE, Fault, ResultKind, SavedResult
from comparison.store.json_fields import JsonFields, read_json

_NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # as `strict_json_value` spells them


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
    verdict = _one_of(fields, "verdict", Verdict)
    found = [_one_of(pair, "finding", Finding) for _, pair in pairs]
    cut_short = fields.take("cut_short", bool)
    differing = found.count(Finding.DIFFERS)
    is_agreed = Finding.AGREES in found and not differing and not cut_short
    if (verdict == Verdict.DIFFER) != (differing > 0) or (
        verdict == Verdict.AGREE and not is_agreed
    ):
        cut = ", cut short" if cut_short else ""
        raise _contradiction(fields, verdict, f"{len(found)} pairs, {differing} that differ{cut}")
    return SavedResult(
        path=path,
        kind=ResultKind.COMPARISON,
        verdict=verdict,
        sentence="",
        conclusive=verdict != Verdict.INCONCLUSIVE and not cut_short,
        faults=tuple(
            _differing(name, pair)
            for (name, pair), finding in zip(pairs, found, strict=True)
            if finding == Finding.DIFFERS
        ),
        checked=frozenset(
            ("", name)
            for (name, _), finding in zip(pairs, found, strict=True)
            if finding not in (Finding.NOT_COMPARED, Finding.UNDECIDED)
        ),
        hides_later=False,
        tolerance=", ".join(_limits(fields.inner(tolerance, "tolerance"))),
    )


def _contradiction(fields: JsonFields, verdict: str, found: str) -> BadInputError:
    return fields.error(f"what leads to the verdict {verdict}", found)


def _limits(tolerance: JsonFields) -> Iterator[str]:
    for name in ("atol", "rtol"):
        value: Any = tolerance.take(name, (float, int), 0.0)
        yield f"{name} {value}"
    for name in ("equal_inf", "equal_nan"):
        yield f"{name} {tolerance.take(name, bool, False)}"


def _one_of(fields: JsonFields, key: str, known: type[StrEnum]) -> str:
    value = fields.text(key)
    if value not in list(known):
        raise fields.error(f"a {key} of {', '.join(known)}", value)
    return value


def _pair_name(pair: JsonFields) -> str:
    entry = pair.inner(pair.take("reference", dict), "reference")
    rank = entry.optional("rank", int)
    where = f"step {entry.integer('step')}" + ("" if rank is None else f", rank {rank}")
    return f"{entry.text('name')} ({where})"


def _differing(name: str, pair: JsonFields) -> Fault:
    outcome = pair.inner(pair.take("outcome", dict), "outcome")
    return Fault(
        candidate="",
        module="",
        tensor=name,
        place="",
        cause="",
        evidence=", ".join(_evidence(outcome)),
    )


def _evidence(outcome: JsonFields) -> Iterator[str]:
    """Say what a pair differs in: its numbers may be equal where a dtype or a NaN is not."""
    kind = outcome.text("kind")
    metrics = outcome.optional("metrics", dict)
    if metrics is None:
        yield kind.replace("_", " ")
        return
    if outcome.take("dtype_differs", bool, False):
        yield "dtypes differ"
    counts = outcome.inner(outcome.take("non_finite", dict, {}), "non_finite")
    if counts.optional("first_difference", list) is not None:
        yield "NaN or infinity differ"
    measured = outcome.inner(metrics, "metrics")
    if measured.text("kind", "measured") != "measured":
        yield "nothing finite to measure"
        return
    yield f"relative L2 {_figure(measured, 'relative_l2')}"


def _figure(fields: JsonFields, key: str) -> str:
    """Write a number as it is read: infinities come as words, and whole ones may be of any size."""
    value: Any = fields.take(key, (float, int, str))
    if isinstance(value, str) and value not in _NOT_FINITE:
        raise fields.error(f"a number as {key!r}", value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _diagnosis(path: Path, fields: JsonFields) -> SavedResult:
    verdict = _one_of(fields, "verdict", Judgement)
    several = fields.records("candidates", lambda one: one, [])
    each = several or (fields,)
    if several and verdict != _verdict_on_all(
        [_one_of(one, "verdict", Judgement) for one in several]
    ):
        raise _contradiction(fields, verdict, "candidates of other verdicts")
    names = list(_names_of(each))
    named = [(name if len(each) > 1 else "", one) for name, one in zip(names, each, strict=True)]
    for one in each:
        _require_grounds(one)
    return SavedResult(
        path=path,
        kind=ResultKind.DIAGNOSIS,
        verdict=verdict,
        sentence=fields.text("sentence"),
        conclusive=all(
            _one_of(one, "verdict", Judgement) != Judgement.INCONCLUSIVE for one in each
        ),
        faults=tuple(fault for name, one in named for fault in _faults(name, one)),
        checked=frozenset((name, tensor) for name, one in named for tensor in _replayed(one)),
        hides_later=any(_is_weak(one) for one in each),
        candidates=tuple(names),
    )


def _verdict_on_all(verdicts: Sequence[str]) -> str:
    """Join the verdicts on several candidates, as `diff_models` does."""
    worst = (Judgement.DIVERGE, Judgement.INCONCLUSIVE)
    return next((verdict for verdict in worst if verdict in verdicts), Judgement.AGREE)


def _require_grounds(one: JsonFields) -> None:
    """Refuse a verdict that what stands beside it contradicts.

    Raises:
        CorruptFileError: it does.
    """
    verdict = _one_of(one, "verdict", Judgement)
    coverage = one.inner(one.take("coverage", dict), "coverage")
    guilty = len(one.take("guilty", list, []))
    checked = coverage.integer("modules_checked")
    has_cause = bool(one.take("cause", (dict, type(None)), None))
    if verdict == Judgement.AGREE and (guilty or not checked or has_cause):
        raise _contradiction(one, verdict, f"{checked} modules checked, {guilty} of them guilty")
    if verdict == Judgement.DIVERGE and not guilty and not has_cause:
        raise _contradiction(one, verdict, "no guilty module and no cause")


def _names_of(each: Sequence[JsonFields]) -> Iterator[str]:
    """Name each candidate; of several with one name all but the first are numbered."""
    seen: Counter[str] = Counter()
    for one in each:
        name = one.text("candidate_name", "") or one.text("candidate_engine")
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"


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
    position = item.optional("position", int)
    place = f"step {item.integer('step')}, row {item.integer('row')}"
    return Fault(
        candidate=candidate,
        module=item.text("module"),
        tensor=item.text("tensor"),
        place=place if position is None else f"{place}, position {position}",
        cause="" if cause is None else item.inner(cause, "cause").text("id", UNKNOWN_CAUSE),
        evidence=f"local error {_figure(item, 'local_error')}",
    )


def _replayed(one: JsonFields) -> Iterator[str]:
    yield from one.records("growth", lambda item: item.text("tensor"), [])


def _is_weak(one: JsonFields) -> bool:
    """Tell a verdict without a replay, where only the first fault shows."""
    coverage = one.inner(one.take("coverage", dict), "coverage")
    return coverage.integer("replayed") == 0 and bool(one.take("guilty", list, []))
