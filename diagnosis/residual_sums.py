"""Engines that pass the residual beside the hidden states, and add the two in the next norm.

    norm(x, residual) -> (norm(x + residual), x + residual)        layer(...) -> (hidden, residual)

What the reference's norm gets is the candidate's second output; what the reference's layer returns
is the sum of the candidate's two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from comparison.align.pairing import Pairing, PlannedPair
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import parse_tensor_name
from comparison.store.dump import Dump

Place = tuple[int | None, int]
_LAYER = re.compile(r"\.\d+$")
_REASON = "the candidate passes the residual apart; "


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """What one module takes and returns in a step, by slot."""

    inputs: dict[str, TensorEntry] = field(default_factory=dict)
    outputs: dict[str, TensorEntry] = field(default_factory=dict)


def with_residual_sums(pairing: Pairing, dump: Dump, reference: Sequence[TensorEntry]) -> Pairing:
    """Pair sums where the candidate keeps the residual apart.

    Args:
        pairing: as found.
        dump: the candidate's.
        reference: all of the reference's tensors.
    """
    calls = _calls(dump.entries)
    double = {key: call for key, call in calls.items() if _is_double(key[1], call, dump)}
    if not double:
        return pairing
    meaning = _Meaning(pairing, _calls(reference))
    added = [pair for key, call in double.items() for pair in meaning.pairs(key, call)]
    mended = {pair.reference for pair in added}
    kept = [pair for pair in pairing.pairs if pair.reference not in mended]
    pairs = (*kept, *added)
    used = {pair.reference for pair in pairs} | {pair.candidate for pair in pairs}
    used |= {pair.addend for pair in pairs if pair.addend is not None}
    return Pairing(
        pairs=pairs, unpaired=tuple(item for item in pairing.unpaired if item.entry not in used)
    )


def _calls(entries: Sequence[TensorEntry]) -> dict[tuple[Place, str], _Call]:
    found: dict[tuple[Place, str], _Call] = {}
    for entry in entries:
        parsed = parse_tensor_name(entry.name)
        if parsed is not None and parsed.call == 1:
            call = found.setdefault(((entry.rank, entry.step), parsed.module), _Call())
            side = call.inputs if parsed.side == "input" else call.outputs
            side[parsed.slot or "0"] = entry
    return found


def _is_double(module: str, call: _Call, dump: Dump) -> bool:
    """Tell a module that returns hidden states and the residual, of one shape."""
    if set(call.outputs) != {"0", "1"}:
        return False
    alike = [call.outputs["0"], call.outputs["1"]]
    if not _LAYER.search(module):
        if set(call.inputs) != {"0", "1"}:
            return False
        alike += [call.inputs["0"], call.inputs["1"]]
    if any(entry in dump.problems for entry in alike):
        return False
    return len({dump.read(entry).shape[-1:] for entry in alike}) == 1


class _Meaning:
    """Which of the reference's modules a candidate's module is."""

    def __init__(self, pairing: Pairing, reference: Mapping[tuple[Place, str], _Call]) -> None:
        self._reference = reference
        self._modules = {
            (_module(pair.candidate.name), _module(pair.reference.name)) for pair in pairing.pairs
        }

    def pairs(self, key: tuple[Place, str], call: _Call) -> Iterator[PlannedPair]:
        """Give the pairs of one module of the candidate."""
        place, module = key
        name = self._of_layer(module) if _LAYER.search(module) else self._of(module)
        own = self._reference.get((place, name)) if name is not None else None
        if own is None or set(own.outputs) != {"0"}:
            return
        hidden, residual = call.outputs["0"], call.outputs["1"]
        if not _LAYER.search(module):
            yield _pair(own.outputs["0"], hidden)
            if "0" in own.inputs:
                yield _pair(own.inputs["0"], residual)
            return
        yield _pair(own.outputs["0"], hidden, addend=residual)
        if {"0", "1"} <= set(call.inputs) and "0" in own.inputs:
            yield _pair(own.inputs["0"], call.inputs["0"], addend=call.inputs["1"])

    def _of(self, module: str) -> str | None:
        found = Counter(mine for theirs, mine in self._modules if theirs == module)
        return found.most_common(1)[0][0] if found else None

    def _of_layer(self, module: str) -> str | None:
        """Find a layer by what lies inside it."""
        found = Counter(
            mine.rsplit(".", theirs.removeprefix(module).count("."))[0]
            for theirs, mine in self._modules
            if theirs.startswith(f"{module}.")
        )
        return found.most_common(1)[0][0] if found else None


def _pair(
    reference: TensorEntry, candidate: TensorEntry, addend: TensorEntry | None = None
) -> PlannedPair:
    what = "this is the sum" if addend is None else f"summed with {addend.name}"
    return PlannedPair(
        reference=reference, candidate=candidate, reason=_REASON + what, addend=addend
    )


def _module(name: str) -> str:
    parsed = parse_tensor_name(name)
    return name if parsed is None else parsed.module
