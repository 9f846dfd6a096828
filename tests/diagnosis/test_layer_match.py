"""A candidate with a layer more or less: the rest is paired as it fits, and that one is named."""

import copy
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comparison.align.layer_shift import Stack, shifted_from, unmatched_layers
from comparison.schema.diagnosis import Diagnosis, Judgement
from comparison.store.manifest_file import read_manifest, write_manifest
from diagnosis.check import Check
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.layer_match import match_layers
from tests.diagnosis.causes.made_region import check_of, numbers
from tests.test_common.tiny_models import ROWS, tiny_llama


def _diagnose(reference: Any, candidate: Any, folder: Path) -> Diagnosis:
    """Diagnose by a dump without configuration, which would tell of the layers at once."""
    for number, layer in enumerate(candidate.model.layers):
        layer.self_attn.layer_idx = number
    candidate.config.num_hidden_layers = len(candidate.model.layers)
    diff_models(candidate, copy.deepcopy(candidate), ROWS, options=DiffOptions(output=folder))
    path = folder / "candidate" / "manifest.json"
    write_manifest(path, replace(read_manifest(path), config={}))
    return diff_models(reference, folder / "candidate", ROWS)


def _other_layer(model: Any) -> Any:
    layer = copy.deepcopy(model.model.layers[0])
    for parameter in layer.parameters():
        parameter.data = parameter.data.flip(0)
    return layer


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_inserted_layer_is_named_and_the_rest_is_right(tmp_path: Path, place: int) -> None:
    model = tiny_llama()
    longer = copy.deepcopy(model)
    longer.model.layers.insert(place, _other_layer(model))
    found = _diagnose(model, longer, tmp_path)
    assert found.verdict is Judgement.DIVERGE
    assert (
        f"the candidate's model.model.layers.{place} has no counterpart in the reference"
        in found.notes
    )
    assert {guilty.module for guilty in found.guilty} == {"model.model"}
    assert found.guilty[0].tensor == f"model.model.layers.{place}-input_0"


@pytest.mark.parametrize("place", [0, 1])
def test_a_missing_layer_is_named_and_the_rest_is_right(tmp_path: Path, place: int) -> None:
    model = tiny_llama()
    shorter = copy.deepcopy(model)
    del shorter.model.layers[place]
    found = _diagnose(model, shorter, tmp_path)
    assert found.verdict is Judgement.DIVERGE
    assert any(
        f"the reference's model.model.layers.{place} has no counterpart" in note
        for note in found.notes
    )
    assert {guilty.module for guilty in found.guilty} == {"model.model"}


def test_layers_are_shifted_behind_the_one_that_is_new() -> None:
    longer = Stack(reference="r.", candidate="c.", reference_layers=3, candidate_layers=5)
    assert shifted_from(longer, 1) == {0: 0, 3: 1, 4: 2}
    assert unmatched_layers(longer, 1).startswith("the candidate's c.1 to 2 has no counterpart")
    shorter = Stack(reference="r.", candidate="c.", reference_layers=3, candidate_layers=2)
    assert shifted_from(shorter, 1) == {0: 0, 1: 2}
    assert json.dumps(unmatched_layers(shorter, 1)).startswith("\"the reference's r.1 has")


def _listing(model: Any, change: Any) -> Any:
    """Let a model return its hidden states, as a changed list."""
    other = copy.deepcopy(model)
    usual = type(model).forward

    @functools.wraps(usual)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = usual(self, *args, **kwargs, output_hidden_states=True)
        output["hidden_states"] = change(output["hidden_states"])
        return output

    other.__class__ = type("Listing", (type(model),), {"forward": forward})
    return other


def test_a_list_of_hidden_states_that_is_off_by_one_does_no_harm() -> None:
    model = tiny_llama()
    whole = _listing(model, lambda states: states)
    found = diff_models(whole, _listing(model, lambda states: states[1:]), ROWS)
    assert found.verdict is Judgement.AGREE
    off = {item.tensor: item.reason for item in found.harmless}
    assert "model-output_hidden_states_0" in off
    assert "this is model.model.layers.0-output" in off["model-output_hidden_states_0"]


def test_a_wrong_hidden_state_is_no_shifted_list() -> None:
    model = tiny_llama()
    whole = _listing(model, lambda states: states)
    wrong = _listing(model, lambda states: (*states[:2], states[2] * 1.1, *states[3:]))
    assert diff_models(whole, wrong, ROWS).verdict is Judgement.DIVERGE


class Uneven:
    """A candidate of two layers where the reference has three, which fits otherwise or not."""

    def __init__(self, wrong: Sequence[Check], moved: Sequence[Check] = ()) -> None:
        self.checks_of, self._moved = wrong, moved

    def uneven_stack(self) -> Stack:
        return Stack(
            reference="model.layers.", candidate="net.h.", reference_layers=3, candidate_layers=2
        )

    def with_layers(self, stack: Stack, layers: Mapping[int, int]) -> "Uneven":
        del stack
        assert layers == {0: 0, 1: 2}
        return Uneven(self._moved)

    def checks(self) -> Sequence[Check]:
        return self.checks_of


def wrong(*names: str) -> list[Check]:
    exact = numbers(11, 6)
    return [replace(check_of(name, exact, exact + 1), order=n) for n, name in enumerate(names)]


LAYER = wrong("model.layers.1-output", "model.layers.2-output", "model.norm-output")


@pytest.mark.parametrize(
    ("candidate", "is_moved", "missing"),
    [
        (Uneven(LAYER), True, "the reference's model.layers.1 has no counterpart"),
        (Uneven(LAYER, LAYER), False, "the reference's model.layers.2 has no counterpart"),
        (
            Uneven(wrong("model.norm-output")),
            False,
            "the reference's model.layers.2 has no",
        ),
        (Uneven(wrong("model.layers.2-output")), False, "the reference's model.layers.2 has no"),
    ],
)
def test_layers_are_paired_otherwise_where_that_fits(
    candidate: Any, is_moved: bool, missing: str
) -> None:
    found, said = match_layers(candidate, lambda other: other)  # type: ignore[arg-type, return-value]  # as good as both
    assert (found is not candidate) == is_moved
    assert said[0] == "the candidate's dump holds 2 layers net.h, the reference has 3"
    assert said[1].startswith(missing)
