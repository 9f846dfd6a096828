"""The metrics against an oracle of Python numbers, element by element."""

import itertools
import math
import tracemalloc
from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.blocks import Block
from comparison.numerics.dtypes import Array, dtype_of_name
from comparison.numerics.metrics import measure, measure_blocks
from comparison.schema.errors import UnsupportedFormatError
from comparison.schema.outcome import (
    Compared,
    Judged,
    KindDiffers,
    Metrics,
    NonFiniteCounts,
    NothingFinite,
    NotJudged,
    ShapeDiffers,
)
from comparison.schema.tolerance import Tolerance

FLOATS = [
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Oracle:
    """What the definitions give, by Python numbers one by one."""

    greatest_absolute: Fraction
    greatest_relative: Fraction
    mean_absolute: float
    relative_l2: float
    cosine: float
    failed: int


def ask_oracle(reference: Array, candidate: Array, tolerance: Tolerance) -> Oracle:
    exact = np.dtype(reference.dtype).kind in "iub"
    number = int if exact else float
    pairs = [
        (Fraction(number(r)), Fraction(number(c)))
        for r, c in zip(reference.ravel(), candidate.ravel(), strict=True)
        if math.isfinite(number(r)) and math.isfinite(number(c))
    ]
    floor = Fraction(1e-10)
    rtol, atol = (
        (Fraction(0), Fraction(0)) if exact else map(Fraction, (tolerance.rtol, tolerance.atol))
    )
    squares = [math.sqrt(sum(x * x for x in column)) for column in zip(*pairs, strict=True)]
    distance = math.sqrt(sum((c - r) ** 2 for r, c in pairs))
    product = float(sum(r * c for r, c in pairs))
    if 0 in squares:
        cosine = 1.0 if squares == [0, 0] else 0.0
    else:
        cosine = product / (squares[0] * squares[1])
    return Oracle(
        greatest_absolute=max(abs(c - r) for r, c in pairs),
        greatest_relative=max(abs(c - r) / max(abs(r), floor) for r, c in pairs),
        mean_absolute=float(sum(abs(c - r) for r, c in pairs) / len(pairs)),
        relative_l2=distance / max(squares[0], 1e-10),
        cosine=cosine,
        failed=sum(abs(c - r) > atol + rtol * abs(r) for r, c in pairs),
    )


def random_array(name: str, shape: tuple[int, ...], seed: int) -> Array:
    generator = np.random.default_rng(seed)
    dtype = dtype_of_name(name)
    if name == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if name.startswith("complex"):
        parts = generator.standard_normal((2, *shape))
        return (parts[0] + 1j * parts[1]).astype(dtype)
    if name in INTEGERS:
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    if name == "float8_e8m0fnu":  # powers of two only, and no sign
        return generator.integers(120, 134, shape).astype(np.uint8).view(dtype)
    values = generator.standard_normal(shape) * 2
    return values.astype(np.float32).astype(dtype)


def measured(reference: Array, candidate: Array, tolerance: Tolerance | None = None) -> Compared:
    outcome = measure(reference, candidate, tolerance=tolerance)
    assert isinstance(outcome, Compared)
    return outcome


def metrics_of(outcome: Compared) -> Metrics:
    assert isinstance(outcome.metrics, Metrics)
    return outcome.metrics


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool"])
def test_every_dtype_gives_what_the_oracle_gives(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comparison.numerics.blocks.CHUNK_ELEMENTS", 16)  # 77 = 4 * 16 + 13
    reference, candidate = random_array(name, (7, 11), 1), random_array(name, (7, 11), 2)
    tolerance = Tolerance(rtol=0.25, atol=0.125)
    oracle = ask_oracle(reference, candidate, tolerance)
    outcome = measured(reference, candidate, tolerance)
    metrics = metrics_of(outcome)
    assert metrics.elements == 77
    assert Fraction(metrics.greatest_absolute.value) == oracle.greatest_absolute
    assert metrics.greatest_relative.value == pytest.approx(
        float(oracle.greatest_relative), rel=1e-14
    )
    assert metrics.mean_absolute == pytest.approx(oracle.mean_absolute, rel=1e-13)
    assert metrics.relative_l2 == pytest.approx(oracle.relative_l2, rel=1e-12)
    assert metrics.cosine == pytest.approx(oracle.cosine, rel=1e-9, abs=1e-12)
    assert outcome.judgement == Judged(failed=oracle.failed, total=77)
    assert outcome.reference_dtype == outcome.candidate_dtype == name


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool", "complex64", "complex128"])
def test_extremes_are_where_they_are_said_to_be(name: str) -> None:
    reference, candidate = random_array(name, (3, 5, 2), 3), random_array(name, (3, 5, 2), 4)
    metrics = metrics_of(measured(reference, candidate))
    number = complex if "complex" in name else float if name in FLOATS else int
    for extreme in (metrics.greatest_absolute, metrics.greatest_relative):
        assert extreme.reference == number(reference[extreme.index])
        assert extreme.candidate == number(candidate[extreme.index])
    at = metrics.greatest_absolute
    assert abs(at.candidate - at.reference) == pytest.approx(at.value, rel=1e-14)
    at = metrics.greatest_relative
    assert abs(at.candidate - at.reference) / abs(at.reference or 1e-10) == pytest.approx(at.value)


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool", "complex64", "complex128"])
def test_a_tensor_agrees_with_itself(name: str) -> None:
    array = random_array(name, (9, 13), 5)
    outcome = measured(array, array.copy(), Tolerance())
    metrics = metrics_of(outcome)
    assert metrics.greatest_absolute.value == 0
    assert metrics.greatest_relative.value == 0
    assert (metrics.mean_absolute, metrics.relative_l2, metrics.cosine) == (0.0, 0.0, 1.0)
    assert outcome.judgement == Judged(failed=0, total=117)


LIMIT_PAIRS = [
    (np.array([0], np.uint64), np.array([2**64 - 1], np.uint64), 2**64 - 1),
    (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64), 1),
    (np.array([-(2**63)]), np.array([2**63 - 1]), 2**64 - 1),
    (np.array([2**63 - 1]), np.array([2**63 - 2]), 1),
    (np.array([-(2**63)]), np.array([2**64 - 1], np.uint64), 2**64 + 2**63 - 1),
    (np.array([2**63], np.uint64), np.array([-1]), 2**63 + 1),
    (np.array([2**53 + 1]), np.array([2**53]), 1),
    (np.array([-128], np.int8), np.array([255], np.uint8), 383),
    (np.array([-(2**31)], np.int32), np.array([2**32 - 1], np.uint32), 2**32 + 2**31 - 1),
    (np.array([-1], np.int8), np.array([2**64 - 1], np.uint64), 2**64),
]


@pytest.mark.parametrize(("reference", "candidate", "distance"), LIMIT_PAIRS)
def test_integers_are_exact_at_their_limits(
    reference: Array, candidate: Array, distance: int
) -> None:
    outcome = measured(reference, candidate, Tolerance(rtol=1, atol=1))
    assert metrics_of(outcome).greatest_absolute.value == distance
    assert outcome.judgement == Judged(failed=1, total=1)
    assert not outcome.dtype_differs


CLASS_VALUES = [NAN, INF, -INF, 0.0, 1.0]


@pytest.mark.parametrize(
    ("equal_nan", "equal_inf"), list(itertools.product([False, True], repeat=2))
)
def test_nan_and_infinity_by_class(equal_nan: bool, equal_inf: bool) -> None:
    pairs = list(itertools.product(CLASS_VALUES, repeat=2))
    reference, candidate = np.array(pairs, np.float32).T
    tolerance = Tolerance(rtol=1e30, atol=1e30, equal_nan=equal_nan, equal_inf=equal_inf)
    outcome = measured(reference, candidate, tolerance)
    assert outcome.non_finite == NonFiniteCounts(
        nan_both=1,
        nan_reference_only=4,
        nan_candidate_only=4,
        inf_same_sign=2,
        inf_opposite_sign=2,
        inf_reference_only=4,
        inf_candidate_only=4,
        first_difference=(1,),
    )
    passing = 4 + equal_nan + 2 * equal_inf
    assert outcome.judgement == Judged(failed=25 - passing, total=25)
    assert metrics_of(outcome).elements == 4


@pytest.mark.parametrize(
    ("reference", "candidate", "failed"),
    [(NAN, NAN, 1), (NAN, 1.0, 1), (INF, INF, 1), (INF, -INF, 1), (0.0, 0.0, 0), (0.0, 1e-9, 1)],
)
def test_nothing_passes_by_comparing_with_nan(
    reference: float, candidate: float, failed: int
) -> None:
    outcome = measured(np.array([reference]), np.array([candidate]), Tolerance(rtol=1e3))
    assert outcome.judgement == Judged(failed=failed, total=1)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"])
def test_nan_codes_of_narrow_floats(name: str) -> None:
    reference = np.array([1.0, NAN, 2.0], np.float32).astype(dtype_of_name(name))
    candidate = np.array([1.0, NAN, NAN], np.float32).astype(dtype_of_name(name))
    outcome = measured(reference, candidate)
    assert outcome.non_finite == NonFiniteCounts(
        nan_both=1, nan_candidate_only=1, first_difference=(2,)
    )


def test_complex_nan_in_one_part_and_infinite_in_the_other() -> None:
    reference = np.array([complex(NAN, 1), complex(INF, 1), complex(INF, 1), 1 + 1j])
    candidate = np.array([complex(1, NAN), complex(INF, 1), complex(-INF, 1), 4 + 5j])
    outcome = measured(reference, candidate, Tolerance(atol=5))
    assert outcome.non_finite.nan_both == 1
    assert outcome.non_finite.inf_same_sign == 1
    assert outcome.non_finite.inf_opposite_sign == 1
    assert metrics_of(outcome).greatest_absolute.value == 5.0
    assert outcome.judgement == Judged(failed=3, total=4)


def test_zero_excluded_elements_do_not_lend_their_place() -> None:
    metrics = metrics_of(measured(np.array([NAN, 3.0]), np.array([NAN, 3.0])))
    assert metrics.greatest_absolute.index == (1,)
    assert metrics.greatest_relative.index == (1,)


def test_no_element_finite_on_both_sides() -> None:
    outcome = measured(np.array([NAN, 1.0]), np.array([1.0, INF]), Tolerance())
    assert outcome.metrics == NothingFinite(reason="no element is finite on both sides")
    assert outcome.judgement == Judged(failed=2, total=2)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 4), (0, 0)])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_empty_tensors_agree(shape: tuple[int, ...], name: str) -> None:
    array = np.empty(shape, dtype_of_name(name))
    outcome = measured(array, array, Tolerance())
    assert outcome.metrics == NothingFinite(reason="the tensors are empty")
    assert outcome.judgement == Judged(failed=0, total=0)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2", "int64", "bool"])
def test_scalars(name: str) -> None:
    reference = np.array(1, np.float32).astype(dtype_of_name(name))
    candidate = np.array(0, np.float32).astype(dtype_of_name(name))
    extreme = metrics_of(measured(reference, candidate)).greatest_absolute
    assert (extreme.value, extreme.index) == (1, ())


def test_all_zero_sides() -> None:
    zero, one = np.zeros(5), np.ones(5)
    assert metrics_of(measured(zero, zero)).cosine == 1.0
    metrics = metrics_of(measured(zero, one))
    assert metrics.cosine == 0.0
    assert metrics.greatest_relative.value == pytest.approx(1e10)
    assert metrics.relative_l2 == pytest.approx(math.sqrt(5) * 1e10)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "int64", "complex64"])
def test_non_contiguous_views_give_the_same(name: str) -> None:
    reference, candidate = random_array(name, (60, 90, 8), 6), random_array(name, (60, 90, 8), 7)
    views = [(a.transpose(2, 0, 1)[::-1, 1:, ::3]) for a in (reference, candidate)]
    assert not views[0].flags.c_contiguous
    tolerance = Tolerance(rtol=0.1)
    assert measured(*views, tolerance) == measured(*(v.copy() for v in views), tolerance)


@pytest.mark.parametrize("size", [1, 16383, 16384, 16385, 50001])
def test_chunks_give_the_same_as_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, candidate = random_array("float32", (size,), 8), random_array("float32", (size,), 9)
    chunked = measured(reference, candidate, Tolerance(rtol=0.5))
    monkeypatch.setattr("comparison.numerics.blocks.CHUNK_ELEMENTS", 1 << 20)
    whole = measured(reference, candidate, Tolerance(rtol=0.5))
    assert chunked.judgement == whole.judgement
    left, right = metrics_of(chunked), metrics_of(whole)
    assert left.greatest_absolute == right.greatest_absolute
    assert left.greatest_relative == right.greatest_relative
    assert left.relative_l2 == pytest.approx(right.relative_l2, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e308])
def test_squares_of_float64_neither_overflow_nor_vanish(scale: float) -> None:
    reference = np.array([1.0, -1.0, 0.5] * 9000) * scale
    candidate = np.array([1.0, -0.5, 0.5] * 9000) * scale
    metrics = metrics_of(measured(reference, candidate))
    assert metrics.cosine == pytest.approx(1.75 / math.sqrt(2.25 * 1.5))
    if scale > 1:
        assert metrics.relative_l2 == pytest.approx(math.sqrt(0.25 / 2.25))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_a_mean_is_finite_where_the_sum_is_not(dtype: type[np.generic]) -> None:
    reference = np.zeros(40_000, dtype)
    candidate = np.full(40_000, 1.5e308, dtype)
    assert metrics_of(measured(reference, candidate)).mean_absolute == pytest.approx(1.5e308)


def test_a_later_chunk_may_be_far_greater() -> None:
    reference = np.concatenate([np.full(20000, 1e-160), np.full(20000, 1e200)])
    metrics = metrics_of(measured(reference, reference * 2))
    assert metrics.cosine == 1.0
    assert metrics.relative_l2 == pytest.approx(1.0)


def test_a_distance_beyond_float64_is_infinite_and_fails() -> None:
    outcome = measured(np.array([1e308]), np.array([-1e308]), Tolerance(rtol=1.0))
    assert metrics_of(outcome).greatest_absolute.value == INF
    assert outcome.judgement == Judged(failed=1, total=1)
    assert outcome.non_finite.total == 0


def test_one_tolerance_alone_leaves_the_other_at_zero() -> None:
    reference, candidate = np.array([0.0, 100.0]), np.array([0.5, 101.0])
    assert measured(reference, candidate, Tolerance(rtol=0.02)).judgement == Judged(
        failed=1, total=2
    )
    assert measured(reference, candidate, Tolerance(atol=0.6)).judgement == Judged(
        failed=1, total=2
    )


def test_the_reference_is_what_rtol_scales_with() -> None:
    small, great = np.array([1.0]), np.array([2.0])
    assert measured(great, small, Tolerance(rtol=0.5)).judgement == Judged(failed=0, total=1)
    assert measured(small, great, Tolerance(rtol=0.5)).judgement == Judged(failed=1, total=1)


def test_no_tolerance_no_verdict() -> None:
    assert measured(np.array([0.0]), np.array([9.0])).judgement == NotJudged()


@pytest.mark.parametrize(
    ("reference", "candidate", "differs"),
    [
        ("float32", "bfloat16", True),
        ("float32", "float64", True),
        ("complex64", "complex128", True),
        ("int32", "int64", False),
        ("uint32", "int64", False),
        ("float32", "float32", False),
    ],
)
def test_precision_is_an_attribute_and_integer_width_is_not(
    reference: str, candidate: str, differs: bool
) -> None:
    left, right = (np.ones(3, dtype_of_name(name)) for name in (reference, candidate))
    outcome = measured(left, right, Tolerance())
    assert outcome.dtype_differs is differs
    assert metrics_of(outcome).greatest_absolute.value == 0


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [("bool", "uint8"), ("int32", "float32"), ("float32", "complex64"), ("bool", "bfloat16")],
)
def test_other_kinds_of_numbers_are_not_measured(reference: str, candidate: str) -> None:
    left, right = (np.ones(3, dtype_of_name(name)) for name in (reference, candidate))
    expected = KindDiffers(reference_dtype=reference, candidate_dtype=candidate)
    assert measure(left, right) == expected


def test_shapes_are_checked_first() -> None:
    assert measure(np.ones(3), np.ones((3, 1))) == ShapeDiffers(reason="(3,) against (3, 1)")


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="expected numbers, found dtype <U3"):
        measure(np.array(["abc"]), np.array(["abc"]))


def test_big_endian_arrays() -> None:
    for code in (">f4", ">i8", ">u2", ">c8"):
        reference = np.array([1, 2, 3], code)
        metrics = metrics_of(measured(reference, np.array([1, 2, 5], code[1:])))
        assert metrics.greatest_absolute.value == 2


def test_blocks_keep_the_index_of_the_whole() -> None:
    reference, candidate = (
        random_array("float32", (21, 4), 10),
        random_array("float32", (21, 4), 11),
    )
    blocks = [
        Block(reference=reference[:12], candidate=candidate[:12]),
        Block(reference=reference[12:], candidate=candidate[12:], origin=12),
    ]
    joined = measure_blocks(blocks, shape=(21, 4))
    assert isinstance(joined, Compared)
    whole = measured(reference, candidate)
    assert metrics_of(joined).greatest_absolute == metrics_of(whole).greatest_absolute
    assert metrics_of(joined).greatest_relative == metrics_of(whole).greatest_relative


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_memory_does_not_grow_with_the_tensor(dtype: type) -> None:
    reference = np.ones((2000, 2001), dtype)
    candidate = reference.copy()
    tracemalloc.start()
    try:
        measure(reference, candidate, tolerance=Tolerance(rtol=1e-3))
        measure(reference.T, candidate.T, tolerance=Tolerance(rtol=1e-3))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
