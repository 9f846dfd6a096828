"""Rounding is measured, and what it explains is no fault."""

import numpy as np

from diagnosis.rounding import excess_error, rounding_floor


def _values(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    exact = generator.standard_normal((13, 40))
    return exact, exact.astype(np.float32)


def test_another_rounding_of_the_same_values_is_about_one() -> None:
    exact, native = _values()
    floor = rounding_floor(native=native, exact=exact, dtype="float32", longest_sum=0)
    other = np.nextafter(native, np.float32(np.inf))
    excess = excess_error(other, exact, floor)
    assert 0.5 < excess.whole < 4


def test_one_wrong_channel_shows_by_channel_and_one_wrong_token_by_position() -> None:
    exact, native = _values()
    floor = rounding_floor(native=native, exact=exact, dtype="float32", longest_sum=0)
    wrong = native.copy()
    wrong[:, 7] *= 1.0001
    assert int(np.argmax(excess_error(wrong, exact, floor).by_channel)) == 7
    wrong = native.copy()
    wrong[5] *= 1.0001
    assert int(np.argmax(excess_error(wrong, exact, floor).by_position)) == 5


def test_long_sums_may_be_less_exact_than_the_reference_was() -> None:
    exact, native = _values()
    short, long = (
        rounding_floor(native=native, exact=exact, dtype="float32", longest_sum=terms)
        for terms in (8, 4096)
    )
    assert long.whole > 10 * short.whole


def test_what_is_no_number_in_the_reference_is_left_out_and_in_the_candidate_is_not() -> None:
    exact, native = _values()
    exact[0, 0] = np.nan
    floor = rounding_floor(native=native, exact=exact, dtype="float32", longest_sum=0)
    assert excess_error(native, exact, floor).whole < 2
    broken = native.copy()
    broken[2, 2] = np.inf
    assert not excess_error(broken, exact, floor).whole < 1e9
    broken[2, 2] = np.nan
    assert np.isnan(excess_error(broken, exact, floor).whole)


def test_all_zero_and_a_single_value() -> None:
    zero = np.zeros((1, 1))
    floor = rounding_floor(native=zero, exact=zero, dtype="float32", longest_sum=0)
    assert excess_error(zero, zero, floor).whole == 0
    assert excess_error(zero + 1e-3, zero, floor).whole > 1e6
