"""What a projection of values tells."""

import tracemalloc

import numpy as np
import pytest

from comparison.align.fingerprint import fingerprint, likeness
from tests.comparison.dumps import numbers

TOKENS = np.arange(9)


def test_the_same_values_whatever_their_shape() -> None:
    values = numbers(9, 4, 6)
    found = likeness(fingerprint(TOKENS, values), fingerprint(TOKENS, values.reshape(9, 24)))
    assert found is not None
    assert (found.distance, found.cosine) == (0.0, pytest.approx(1.0))
    other = likeness(fingerprint(TOKENS, values), fingerprint(TOKENS, values[:, ::-1]))
    assert other is not None
    assert other.distance > 0.5


def test_complex_values_are_two_numbers_each() -> None:
    values = numbers(9, 5) + 1j * numbers(9, 5, seed=1)
    pairs = np.stack([values.real, values.imag], axis=-1)
    found = likeness(fingerprint(TOKENS, values), fingerprint(TOKENS, pairs))
    assert found is not None
    assert found.distance == 0.0
    apart = likeness(fingerprint(TOKENS, values), fingerprint(TOKENS, values.conj()))
    assert apart is not None
    assert apart.distance > 0.5


def test_only_shared_positions_count() -> None:
    values = numbers(9, 5)
    first, last = fingerprint(TOKENS[:6], values[:6]), fingerprint(TOKENS[4:], values[4:])
    found = likeness(first, last)
    assert found is not None
    assert found.distance == 0.0
    assert likeness(fingerprint(TOKENS[:4], values[:4]), last) is None


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_what_is_no_number_is_like_nothing(odd: float) -> None:
    values = numbers(9, 5)
    broken = values.copy()
    broken[3, 2] = odd
    assert likeness(fingerprint(TOKENS, values), fingerprint(TOKENS, broken)) is None


@pytest.mark.parametrize("size", [1, 5, 32, 513])
def test_constants(size: int) -> None:
    assert fingerprint(TOKENS, np.full((9, size), 1 / 3)).is_constant  # however rows are rounded
    assert fingerprint(TOKENS, np.zeros((9, size))).is_constant
    assert not fingerprint(TOKENS, numbers(9, size)).is_constant
    changed = np.full((9, size), 1 / 3)
    changed[4, -1] += 1e-6
    assert not fingerprint(TOKENS, changed).is_constant
    assert not fingerprint(TOKENS[:1], np.ones((1, size))).is_constant  # of one, it says nothing


def test_of_very_wide_positions_the_first_values_count() -> None:
    values = np.zeros((3, 1 << 19), np.uint8)
    values[:, ::7] = 3
    before = fingerprint(np.arange(3), values)
    tracemalloc.start()
    values[:, 1 << 18 :] = 9
    after = fingerprint(np.arange(3), values.reshape(3, 2, -1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(before.values, after.values)
    assert peak < 3 * 8 * (1 << 18) + (1 << 20)
    values[1, 5] = 200
    assert not np.array_equal(fingerprint(np.arange(3), values).values, after.values)
