"""Reads two traces, or a trace and a dump, and pairs their calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from comparison.schema.errors import BadInputError, MissingPathError
from comparison.store.dump import open_dump
from comparison.traces.trace_dump import dump_calls
from comparison.traces.trace_file import read_trace
from comparison.traces.trace_folder import find_trace, find_traces
from comparison.traces.trace_tree import PairedCall, pair_or_alone, pair_traces, pair_with_dump
from comparison.traces.traced_call import TraceCall


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTraces:
    """What is compared.

    Attributes:
        calls: the model's calls, by number.
        is_whole: whether a call holds all of its values, as in two traces; a dump may lack some.
        notes: what a reader should know.
    """

    calls: Mapping[int, PairedCall]
    is_whole: bool = True
    notes: tuple[str, ...] = ()


def read_pairs(reference: Path, candidate: Path) -> PairedTraces:
    """Read two traces, or a trace and a dump, and pair their calls.

    Args:
        reference: file or folder of a trace, or a dump.
        candidate: the same.

    Raises:
        MissingPathError: nothing lies there.
        BadInputError: a trace or dump that cannot be read, or two dumps.
    """
    files = [_traces_at(reference), _traces_at(candidate)]
    if files[0] and files[1]:
        return _pair_calls(*files) if max(map(len, files)) > 1 else _pair_files(*files)
    if not files[0] and not files[1]:
        raise BadInputError(
            f"expected a trace (*_debug_tree_*.json) in {reference} or {candidate}, found none; "
            "compare_tensors compares two dumps"
        )
    trace_is_reference = bool(files[0])
    path = find_trace(reference if trace_is_reference else candidate)
    assert path is not None
    trace = read_trace(path)
    dump = open_dump(candidate if trace_is_reference else reference)
    found = dump_calls(dump, _walk(trace))
    root = pair_with_dump(trace, found.calls, trace_is_reference=trace_is_reference)
    return PairedTraces(calls={0: root}, is_whole=False, notes=(*dump.notes, *found.notes))


def _pair_files(reference: Mapping[int, Path], candidate: Mapping[int, Path]) -> PairedTraces:
    """Pair two traces of one call, whatever its numbers are."""
    traces = [read_trace(file) for files in (reference, candidate) for file in files.values()]
    return PairedTraces(calls={0: pair_traces(*traces)})


def _pair_calls(reference: Mapping[int, Path], candidate: Mapping[int, Path]) -> PairedTraces:
    """Pair the calls of two traces by their numbers."""
    if min(len(reference), len(candidate)) == 1:
        raise BadInputError(
            f"expected as many calls of the model in both traces, found {len(reference)} and "
            f"{len(candidate)}: {', '.join(map(str, _some(reference, candidate)))}; name one file "
            "of each"
        )
    calls = {}
    for number in sorted(reference.keys() | candidate.keys()):
        sides = [
            replace(read_trace(files[number]), number=number + 1) if number in files else None
            for files in (reference, candidate)
        ]
        calls[number] = pair_or_alone(*sides)
    return PairedTraces(calls=calls)


def _some(reference: Mapping[int, Path], candidate: Mapping[int, Path]) -> list[Path]:
    return [file for files in (reference, candidate) for file in files.values()][:4]


def _traces_at(path: Path) -> dict[int, Path]:
    try:
        if path.exists():
            return find_traces(path)
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from None
    raise MissingPathError(f"expected a trace or a dump, found nothing at {path}")


def _walk(call: TraceCall) -> Iterator[TraceCall]:
    yield call
    for child in call.children:
        yield from _walk(child)
