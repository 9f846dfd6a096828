"""Where an attention is wrong: in which heads, rows, steps or tokens."""

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from comparison.numerics.dtypes import Array
from diagnosis.causes.changes import with_attributes
from diagnosis.causes.scoped_search import in_scopes
from diagnosis.causes.scopes import Scope, Scopes, cause_in, head_sizes, scopes_of
from diagnosis.causes.trial import FittedTrial, OutputTrial, RunTrial
from diagnosis.causes.trying import Finding
from tests.diagnosis.causes.made_region import LENGTHS, MadeRegion, check_of, numbers

HEADS, SIZE = 3, 4
N = sum(LENGTHS)
EXACT = numbers(N, HEADS * SIZE)
WRONG = numbers(N, HEADS * SIZE, seed=1)  # what the change gives everywhere
ROWS = np.repeat([0, 1], LENGTHS)
TOKENS = np.concatenate([np.arange(n) for n in LENGTHS])
DECODE = np.array([5, 4])[ROWS] <= TOKENS


def attention() -> torch.nn.Module:
    module = torch.nn.Module()
    module.head_dim = SIZE  # type: ignore[assignment]  # a plain number
    return module


def region(holds: Array, **more: object) -> MadeRegion:
    """Make an attention that gives WRONG where something holds, [n, N]."""
    target = np.where(np.repeat(holds, SIZE, axis=1), WRONG, EXACT)
    first = check_of("model.layers.0.self_attn-output_0", EXACT, target)
    return MadeRegion(attention(), first, has_attention=True, **more)  # type: ignore[arg-type]  # of its own


def at(places: Array, heads: tuple[int, ...] = (0, 1, 2)) -> Array:
    return places[:, None] & np.isin(np.arange(HEADS), heads)


@pytest.mark.parametrize(
    ("holds", "says"),
    [
        (at(TOKENS >= 0, (1,)), ", in head 1 of 3 only"),
        (at(TOKENS >= 0, (0, 2)), ", in heads 0, 2 of 3 only"),
        (at(DECODE), ", in decode steps only"),
        (at(~DECODE), ", in the prefill only"),
        (at(TOKENS >= 2), ", from token 2 on"),
        (at(TOKENS <= 1), ", up to token 1"),
        (at(TOKENS + ROWS >= 3), ", from token 3 on, padding counted"),
        (at(ROWS == 1), ", in row 1 only"),
        (at((ROWS == 1) & DECODE), ", in decode steps of row 1 only"),
        (at(DECODE, (2,)), ", in head 2 of 3 only, in decode steps only"),
        (at(TOKENS >= 3, (0, 1)), ", in heads 0, 1 of 3 only, from token 3 on"),
    ],
)
def test_where_it_holds(holds: Array, says: str) -> None:
    scopes = scopes_of(region(holds))
    assert scopes is not None
    assert np.array_equal(scopes.wrong, holds)
    found = scopes.of(WRONG)
    assert found is not None
    assert found.says == says
    mixed = scopes.mixed(found, WRONG)
    np.testing.assert_array_equal(mixed, scopes._region.target)


def test_places_without_a_name() -> None:
    odd = at((TOKENS == 1) | (TOKENS == 3) & (ROWS == 0))
    scopes = scopes_of(region(odd))
    assert scopes is not None
    assert scopes.of(WRONG) is None
    assert scopes.of(WRONG + 1) is None  # that gives other values
    assert scopes.explained_by(WRONG, np.arange(N))
    assert not scopes.explained_by(WRONG[:, :5], np.arange(N))
    assert not scopes.explained_by(EXACT, np.arange(N))
    assert scopes.taken(WRONG, np.arange(N)).size == odd.sum() * SIZE
    assert scopes.right_heads(region(odd).target, np.arange(N)).all()


@pytest.mark.parametrize("holds", [at(TOKENS >= 0), at(TOKENS > 0), at(TOKENS < 0)])
def test_all_or_nothing_is_no_scope(holds: Array) -> None:
    assert scopes_of(region(holds)) is None


def test_what_has_no_heads() -> None:
    holds = at(DECODE)
    plain = region(holds)
    plain.module.head_dim = 5
    assert head_sizes(plain) is None
    assert scopes_of(plain) is None
    exact = np.arange(N)
    whole = MadeRegion(
        attention(), check_of("a-output", exact, exact, is_exact=True), has_attention=True
    )
    assert scopes_of(whole) is None
    other = region(holds)
    other.__dict__["has_attention"] = False
    assert scopes_of(other) is None


def test_values_of_no_error_have_no_scopes() -> None:
    scopes = Scopes(region(at(TOKENS < 0)), HEADS)
    assert [scope.says for scope in scopes._of_times()] == [
        ", in decode steps only",
        ", in the prefill only",
    ]
    assert list(scopes._of_heads()) == []


@pytest.mark.parametrize(
    ("options", "cause", "found"),
    [
        ({}, "scale", "scale"),
        ({"in_decode": True}, "mask", "decode_cache"),
        ({"in_decode": True}, "scale", "scale"),
        ({"by_row": True}, "scale", None),
        ({"by_row": True, "in_padding": True}, "mask", "padding"),
        ({"by_row": True, "in_padding": True}, "position_ids", "position_ids"),
        ({"by_row": True}, "sliding_window", "sliding_window"),
    ],
)
def test_causes_of_a_part(options: dict[str, bool], cause: str, found: str | None) -> None:
    assert cause_in(Scope(says="", holds=at(DECODE), **options), cause) == found  # type: ignore[arg-type]  # booleans


class Times(torch.nn.Module):
    """Multiplies what it is given; an attention is as good as that here."""

    factor = 1.0
    head_dim = SIZE

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.factor < 0:
            raise ValueError("not with this factor")
        return x * self.factor


def times(holds: Array, factor: float = 2.5) -> MadeRegion:
    """Make a region of which some heads, rows or steps are multiplied by a factor."""
    target = EXACT * np.where(np.repeat(holds, SIZE, axis=1), factor, 1.0)
    first = check_of("model.layers.0.self_attn-output_0", EXACT, target)
    return MadeRegion(Times(), first, inputs=EXACT, has_attention=True)


def with_factor(made: MadeRegion, value: float) -> AbstractContextManager[None]:
    return with_attributes(made.module, {"factor": value})


def found_in(made: MadeRegion, cause: str = "scale", factor: float = 2.5) -> list[Finding]:
    trial = RunTrial(cause=cause, says="multiplies", change=partial(with_factor, made, factor))
    return list(in_scopes(made, [trial]))


@pytest.mark.parametrize(
    ("holds", "says"),
    [
        (at(TOKENS >= 0, (1,)), "multiplies, in head 1 of 3 only"),
        (at(DECODE), "multiplies, in decode steps only"),
    ],
)
def test_a_change_is_named_with_where_it_holds(holds: Array, says: str) -> None:
    (found,) = found_in(times(holds))
    assert (found.cause, found.says, found.explained, found.numbers) == ("scale", says, True, 0)
    assert found.residual < 1


def test_a_number_is_sought_where_it_holds() -> None:
    made = times(at(TOKENS >= 0, (1,)))
    trial = FittedTrial(
        cause="scale",
        says="multiplies by {value}",
        change=partial(with_factor, made),
        starts=(1.5,),
        neutral=1.0,
    )
    (found,) = in_scopes(made, [trial])
    assert (found.says, found.value, found.numbers) == (
        "multiplies by 2.5, in head 1 of 3 only",
        2.5,
        1,
    )
    assert list(in_scopes(made, [replace(trial, neutral=2.5)])) == []
    none = replace(trial, change=lambda value: with_factor(made, -1.0))
    assert list(in_scopes(made, [none])) == []


@pytest.mark.parametrize(
    ("cause", "factor"), [("scale", 3.0), ("scale", -1.0), ("weights", 2.5), ("gqa_order", 1.0)]
)
def test_what_does_not_explain_it_is_no_finding(cause: str, factor: float) -> None:
    assert found_in(times(at(DECODE)), cause, factor) == []


def test_a_scope_that_a_cause_cannot_have() -> None:
    made = times(at(ROWS == 1))
    assert found_in(made) == []  # a factor does not depend on the row
    (found,) = found_in(made, "position_ids")
    assert found.says == "multiplies, in row 1 only"
    odd = times(at((TOKENS == 1) | (TOKENS == 3) & (ROWS == 0)))
    assert found_in(odd) == []


def test_outputs_that_are_changed_and_right_attentions_are_left_out() -> None:
    trial = OutputTrial(cause="scale", says="", predict=lambda y: y * 2.5)
    assert list(in_scopes(times(at(DECODE)), [trial])) == []
    assert found_in(times(at(TOKENS < 0))) == []
