"""Layers of a stack of which one side has more."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from comparison.align.fused import FusedPart
from comparison.align.layer_shift import (
    Stack,
    shifted,
    shifted_from,
    uneven_stack,
    unmatched_layers,
)
from comparison.align.pairing import Listing, Pairing, PlannedPair, pair_tensors
from comparison.align.structure import indices_of
from comparison.schema.tensor_entry import TensorEntry


def entries(names: Iterable[str], step: int = 0) -> tuple[TensorEntry, ...]:
    return tuple(
        TensorEntry(name=name, step=step, order=order, path=Path(f"{order}.max"))
        for order, name in enumerate(names)
    )


def model(layers: Iterable[int], *parts: str) -> tuple[TensorEntry, ...]:
    names = [f"model.layers.{n}.{part}-output" for n in layers for part in parts or ("mlp",)]
    return entries(["model.embed-output", *names, "model.norm-output"])


def paired(reference: tuple[TensorEntry, ...], candidate: tuple[TensorEntry, ...]) -> Pairing:
    return pair_tensors(
        Listing(entries=reference, engine=None), Listing(entries=candidate, engine=None)
    )


STACK = Stack(
    reference="model.layers.", candidate="model.layers.", reference_layers=2, candidate_layers=3
)


@pytest.mark.parametrize(
    ("reference", "candidate", "found"),
    [
        (range(2), range(3), STACK),
        (range(2), range(2), None),
        (range(3), (0, 2), None),  # a layer was left out of the dump, not of the model
        (range(0), range(0), None),
    ],
)
def test_stacks(reference: Iterable[int], candidate: Iterable[int], found: Stack | None) -> None:
    mine, theirs = model(reference), model(candidate)
    assert uneven_stack(paired(mine, theirs), mine, theirs) == found


def test_layers_behind_the_new_one_are_paired_with_the_next() -> None:
    mine, theirs = model(range(2)), model(range(3))
    found = shifted(paired(mine, theirs), mine, theirs, stack=STACK, layers=shifted_from(STACK, 1))
    assert [(pair.reference.name, pair.candidate.name, pair.reason) for pair in found.pairs] == [
        ("model.embed-output", "model.embed-output", "same name"),
        ("model.layers.0.mlp-output", "model.layers.0.mlp-output", "same name"),
        (
            "model.layers.1.mlp-output",
            "model.layers.2.mlp-output",
            "same name; layer 2 is the reference's 1",
        ),
        ("model.norm-output", "model.norm-output", "same name"),
    ]
    # What the first pairing had used is no longer there, nor in its list of what is left over.
    assert {item.entry.name for item in found.unpaired} == set()


def _by_name(found: tuple[TensorEntry, ...]) -> dict[str, TensorEntry]:
    return {entry.name: entry for entry in found}


@pytest.mark.parametrize("fused_is_candidate", [True, False])
def test_parts_and_addends_move_with_their_layer(fused_is_candidate: bool) -> None:
    mine, theirs = model(range(2), "q", "k", "qkv", "add"), model(range(3), "q", "k", "qkv", "add")
    left, right = _by_name(mine), _by_name(theirs)
    parts = left if fused_is_candidate else right
    planned = PlannedPair(
        reference=left[f"model.layers.0.{'q' if fused_is_candidate else 'qkv'}-output"],
        candidate=right[f"model.layers.0.{'qkv' if fused_is_candidate else 'q'}-output"],
        reason="derived",
        fused=FusedPart(
            position=0,
            parts=(parts["model.layers.0.q-output"], None, parts["model.layers.0.k-output"]),
            fused_is_candidate=fused_is_candidate,
        ),
        addend=right["model.layers.0.add-output"],
    )
    pairing = Pairing(pairs=(planned,), unpaired=())
    found = shifted(pairing, mine, theirs, stack=STACK, layers={0: 0, 2: 1})
    last = found.pairs[-1]
    assert last.addend == right["model.layers.2.add-output"]
    number = 1 if fused_is_candidate else 2
    assert last.fused is not None
    assert [part and part.name for part in last.fused.parts] == [
        f"model.layers.{number}.q-output", None, f"model.layers.{number}.k-output",
    ]  # fmt: skip
    without = tuple(entry for entry in theirs if entry.name != "model.layers.2.add-output")
    fewer = shifted(pairing, mine, without, stack=STACK, layers={0: 0, 2: 1})
    assert len(fewer.pairs) == 1  # without what is added there, the sum means something else


@pytest.mark.parametrize(
    ("sizes", "layer", "said"),
    [
        ((3, 5), 1, "the candidate's c.1 to 2 has no counterpart in the reference"),
        ((3, 4), 0, "the candidate's c.0 has no counterpart in the reference"),
        ((3, 2), 1, "the reference's r.1 has no counterpart in the candidate's dump"),
        ((6, 3), 2, "the reference's r.2 to 4 has no counterpart in the candidate's dump"),
    ],
)
def test_words(sizes: tuple[int, int], layer: int, said: str) -> None:
    stack = Stack(
        reference="r.", candidate="c.", reference_layers=sizes[0], candidate_layers=sizes[1]
    )
    assert unmatched_layers(stack, layer) == said
    layers = shifted_from(stack, layer)
    assert len(layers) == min(sizes)
    assert sorted(layers.values()) == list(layers.values())


@pytest.mark.parametrize("number", ["9" * 5000, "\u00b2", "\u0663"])
def test_what_is_no_number_of_a_layer_is_passed_over(number: str) -> None:
    mine, theirs = (
        model(range(2)),
        (*model(range(2)), *entries([f"model.layers.{number}.x-output"])),
    )
    assert uneven_stack(paired(mine, theirs), mine, theirs) is None
    assert indices_of(f"model.layers.3.experts.{number}.up-output") == (3,)
