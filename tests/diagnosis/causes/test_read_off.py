"""What is read off a candidate's values: its mask, its frequencies, and words for them."""

import numpy as np
import pytest
import torch

from diagnosis.causes.cache_reads import reads
from diagnosis.causes.mask_read import _solved
from diagnosis.causes.mask_words import told
from diagnosis.causes.rope import TableRecipe, read_recipe
from diagnosis.causes.rope_bands import _least_squares

HEADS, TOKENS, SIZE = 3, 7, 5


def causal() -> np.ndarray:
    return np.tril(np.ones((TOKENS, TOKENS), dtype=bool))


def solved(mask: np.ndarray, *, size: int = SIZE) -> np.ndarray | None:
    random = np.random.default_rng(4)
    weights = random.uniform(0.01, 1.0, (HEADS, TOKENS))
    values = random.normal(size=(HEADS, TOKENS, size))
    kept = weights * mask
    y = np.einsum("ht,htd->hd", kept / kept.sum(-1, keepdims=True), values)
    return _solved(weights, values, y)


def test_mask_of_a_query_is_solved_for() -> None:
    mask = np.array([1, 0, 1, 1, 0, 0, 1])
    found = solved(mask)
    assert found is not None
    assert np.array_equal(found > 0.5, mask > 0)


def test_weights_that_are_no_mask_are_not_taken_for_one() -> None:
    assert solved(np.array([1, 0.5, 1, 1, 0, 0, 1])) is None


def test_more_keys_than_equations_have_no_solution() -> None:
    assert solved(np.array([1, 0, 1, 1, 0, 0, 1]), size=2) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m | (np.arange(TOKENS) < 4), "lets all queries see the first 4 tokens"),
        (lambda m: m & ~np.eye(TOKENS, dtype=bool), "hides from queries the key of their own"),
        (
            lambda m: m & (np.arange(TOKENS)[:, None] // 3 == np.arange(TOKENS) // 3),
            "keys of their own 3 tokens only, in chunks",
        ),
        (
            lambda m: m | (np.arange(TOKENS)[:, None] // 2 == np.arange(TOKENS) // 2),
            "all keys of their own chunk of 2 tokens",
        ),
        (lambda m: m & (np.arange(TOKENS) != 1), "the keys of tokens 1"),
    ],
)
def test_masks_are_told(change: object, says: str) -> None:
    there = np.ones((TOKENS, TOKENS), dtype=bool)
    assert says in told(change(causal()), causal(), there)  # type: ignore[operator]  # a lambda


@pytest.mark.parametrize("in_pairs", [False, True])
def test_recipe_is_read_off_tables_of_both_layouts(in_pairs: bool) -> None:
    frequencies = torch.tensor([1.0, 0.3, 0.02, 0.004], dtype=torch.float64)
    right = TableRecipe(
        positions=torch.arange(11, dtype=torch.float64),
        frequencies=frequencies,
        factor=1.25,
        in_pairs=in_pairs,
    )
    found = read_recipe(right.tables())
    assert found is not None
    assert (found.in_pairs, round(found.factor, 9)) == (in_pairs, 1.25)
    assert torch.allclose(found.frequencies, frequencies, rtol=1e-9)


def test_several_numbers_are_sought_together() -> None:
    right, places = np.array([0.9, 0.31, 0.0]), np.arange(9.0)[:, None]

    def residual(values: np.ndarray) -> np.ndarray:
        return (np.cos(places * values) - np.cos(places * right)).ravel()

    found = _least_squares(residual, np.array([0.95, 0.3, 0.01]))
    assert found is not None
    assert np.allclose(np.abs(found), right, atol=1e-3)


def test_numbers_that_explain_nothing_are_not_given() -> None:
    noise = np.random.default_rng(1).normal(size=9)
    assert _least_squares(lambda x: x[0] * np.ones(9) - noise, np.zeros(1)) is None


def test_reads_of_a_cache_change_it_and_keep_its_shape() -> None:
    x = torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(3))
    for says, _, read in reads():
        found = read(x)
        assert found.shape == x.shape, says
        assert not torch.equal(found, x), says
