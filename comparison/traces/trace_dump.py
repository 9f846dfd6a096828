"""A dump of tensors, seen as the calls that its tensors belong to."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from comparison.schema.errors import BadInputError
from comparison.schema.tensor_names import is_operation_name, parse_tensor_name
from comparison.store.dump import Dump
from comparison.traces.engine_names import Key, calls_by_meaning
from comparison.traces.traced_call import TraceCall, TracedTensor

_OTHER_ENGINE = (
    "the dump's names are those of another engine; values of other rows of tokens than the trace's "
    "are not compared, as compare_tensors would do"
)
_ROOTS = ("", "model")  # what stands for the class of the model in a dump's names


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpCalls:
    """The calls of the first step of a dump.

    Attributes:
        calls: by the key that `TraceCall.key` gives.
        notes: what of the dump is left out.
    """

    calls: dict[Key, TraceCall]
    notes: tuple[str, ...]


def dump_calls(dump: Dump, traced: Iterable[TraceCall]) -> DumpCalls:
    """Group the tensors of a dump's first step by the call that they belong to.

    Names begin with `model` or with a part of the model, or are those of another engine; what fits
    the trace better is taken.

    Args:
        dump: any dump of one process.
        traced: the calls of the trace.

    Raises:
        BadInputError: a dump of several ranks.
    """
    calls = list(traced)
    if len({entry.rank for entry in dump.entries}) > 1:
        raise BadInputError(f"expected a dump of one rank, found several in {dump.path}: name one")
    step = min(entry.step for entry in dump.entries)
    grouped: dict[Key, dict[str, dict[str, TracedTensor]]] = {}
    for entry in dump.entries:
        name = parse_tensor_name(entry.name)
        if entry.step != step or name is None or is_operation_name(name.module):
            continue
        slot = name.side if name.slot is None else f"{name.side}_{name.slot}"
        sides = grouped.setdefault((name.module, name.call), {"input": {}, "output": {}})
        tensor = TracedTensor(shape=None, dtype="", load=partial(dump.read, entry))
        sides[name.side][slot] = tensor
    notes = (f"of the dump {dump.path} only step {step} is compared",)
    several = any(entry.step != step for entry in dump.entries)
    keys = {call.key for call in calls}
    first = [entry for entry in dump.entries if entry.step == step]
    tables = [_below(root, grouped) for root in _ROOTS]
    tables.append(calls_by_meaning(dump, first, calls))
    best = max(tables, key=lambda table: len(table.keys() & keys))
    by_meaning = (_OTHER_ENGINE,) if best is tables[-1] and best else ()
    return DumpCalls(calls=best, notes=(*(notes if several else ()), *by_meaning))


def _below(
    root: str, grouped: dict[Key, dict[str, dict[str, TracedTensor]]]
) -> dict[Key, TraceCall]:
    """Take `root` off the modules' names."""
    calls = {}
    for (module, number), sides in grouped.items():
        if root and module != root and not module.startswith(f"{root}."):
            continue
        path = module[len(root) :].lstrip(".") if root else module
        calls[path, number] = TraceCall(
            path=module, number=number, inputs=sides["input"], outputs=sides["output"]
        )
    return calls
