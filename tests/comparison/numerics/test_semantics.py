"""Every number of a comparison, for all dtypes and classes of values, against an exact oracle."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from comparison.numerics.blocks import Block
from comparison.numerics.dtypes import Array
from comparison.numerics.fused import FusedKernel
from comparison.numerics.metrics import measure, measure_blocks
from comparison.schema.outcome import (
    Compared,
    Extreme,
    Judged,
    KindDiffers,
    Metrics,
    NothingFinite,
    NotJudged,
    Shape,
)
from comparison.schema.tolerance import Tolerance
from tests.comparison.numerics.number_oracle import (
    FORMATS,
    UNIT,
    Element,
    Expected,
    decoder,
    expected,
    number,
)

FLOATS = [*FORMATS, "float8_e8m0fnu"]
NARROW = [name for name in FLOATS if name.startswith(("float8", "float6_", "float4"))]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = {"complex64": "float32", "complex128": "float64"}
UNLIKE_FLOATS = [
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
    ("float16", "bfloat16"),
    ("float16", "float32"),
    ("float64", "float32"),
    ("float32", "float64"),
    ("float32", "float8_e4m3fn"),
    ("float8_e4m3fn", "bfloat16"),
    ("float8_e4m3fn", "float8_e4m3fnuz"),
    ("float8_e5m2", "float8_e4m3fn"),
    ("float8_e5m2fnuz", "float16"),
    ("float8_e8m0fnu", "float32"),
    ("float4_e2m1fn", "bfloat16"),
    ("float6_e3m2fn", "float6_e2m3fn"),
]
UNLIKE_INTEGERS = [
    ("int8", "int64"),
    ("uint8", "int8"),
    ("uint64", "int64"),
    ("int64", "uint64"),
    ("int32", "uint64"),
    ("uint32", "int16"),
]
# Both sides are squared on one scale, that of the greater; by more than this power of two between
# them (only float64 has that) the squares of the smaller may be lost.
ONE_SCALE = 480
TOLERANCES = [
    None,
    Tolerance(),
    Tolerance(rtol=0.125),
    Tolerance(atol=0.5, equal_nan=True),
    Tolerance(rtol=1e-3, atol=2.0**-20, equal_inf=True),
    Tolerance(rtol=0.5, atol=3.0, equal_nan=True, equal_inf=True),
]


@dataclass(frozen=True)
class Side:
    """A flat tensor: as an array, and as what its bits mean."""

    dtype: str
    array: Array
    elements: list[Element]


def floats(name: str, codes: Sequence[int]) -> Side:
    decode = {code: decoder(name)(code) for code in set(codes)}
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    array = np.array(codes, dtype=f"uint{8 * dtype.itemsize}").view(dtype)
    return Side(name, array, [(decode[code], 0) for code in codes])


def integers(name: str, values: Sequence[int]) -> Side:
    return Side(name, np.array(values, dtype=name), [(value * UNIT, 0) for value in values])


def complexes(name: str, codes: Sequence[tuple[int, int]]) -> Side:
    part = COMPLEX[name]
    flat = floats(part, [code for pair in codes for code in pair])
    parts = [element[0] for element in flat.elements]
    return Side(name, flat.array.view(name), list(zip(parts[::2], parts[1::2], strict=True)))


def edge_codes(name: str) -> list[int]:
    if name == "float8_e8m0fnu":
        return [0, 1, 126, 127, 128, 200, 254, 255]
    return list(FORMATS[name].edges().values())


def edge_values(name: str) -> list[int]:
    if name == "bool":
        return [0, 1]
    info = np.iinfo(name)
    least, greatest = int(info.min), int(info.max)
    middle = [least // 2, -3, -1, 0, 1, 2, 77, greatest // 2 + 1]
    edges = [least, least + 1, *middle, greatest - 1, greatest]
    return [value for value in edges if value >= least]


def every_pair(reference: Sequence[int], candidate: Sequence[int]) -> tuple[list[int], list[int]]:
    """Hold each of some codes against each of others; one is left out, for an odd number."""
    pairs = list(itertools.product(reference, candidate))
    pairs = pairs[: len(pairs) - 1 + len(pairs) % 2]
    return [r for r, _ in pairs], [c for _, c in pairs]


def random_codes(name: str, count: int, seed: int) -> list[int]:
    generator = random.Random(f"{name} {seed}")
    bits = 8 if name == "float8_e8m0fnu" else FORMATS[name].bits
    return [generator.getrandbits(bits) for _ in range(count)]


def neighbours(name: str, codes: Sequence[int]) -> list[int]:
    """Give codes at most three units away from finite numbers, none of them NaN or infinite."""
    decode = decoder(name)
    generator = random.Random(name)
    greatest = (1 << FORMATS[name].bits) - 1
    near = [min(max(0, code + generator.randint(-3, 3)), greatest) for code in codes]
    return [
        moved if isinstance(decode(moved), int) else code
        for moved, code in zip(near, codes, strict=True)
    ]


def finite_codes(name: str, count: int) -> list[int]:
    """Give codes of numbers of either sign from a 64th to 64, as activations are, or less far."""
    form, generator = FORMATS[name], random.Random(name)
    exponents = range(max(0, form.bias - 6), min(form.bias + 6, (1 << form.exponent) - 2) + 1)
    codes = []
    for _ in range(count):
        sign = generator.getrandbits(1) << (form.bits - 1)
        mantissa = generator.getrandbits(form.mantissa)
        codes.append(sign | generator.choice(exponents) << form.mantissa | mantissa)
    return codes


def in_order(position: int, shape: Shape) -> Shape:
    """Return the index of a row-major position."""
    index = []
    for size in reversed(shape):
        position, at = divmod(position, size)
        index.append(at)
    return tuple(reversed(index))


def position_of(index: Shape, shape: Shape) -> int:
    position = 0
    for at, size in zip(index, shape, strict=True):
        position = position * size + at
    return position


def unit_of(*names: str) -> tuple[int, int] | None:
    """Return mantissa and least exponent of the coarser dtype, the first of equals."""
    units = []
    for name in names:
        if name == "float8_e8m0fnu":
            units.append((0, -127))
        elif name in FORMATS:
            units.append((FORMATS[name].mantissa, 1 - FORMATS[name].bias))
        else:
            return None
    return min(units, key=lambda unit: unit[0])


def check(
    found: object, reference: Side, candidate: Side, shape: Shape, tolerance: Tolerance | None
) -> None:
    """Hold every field of an outcome against the oracle."""
    assert isinstance(found, Compared)
    how = tolerance or Tolerance()
    right = expected(
        reference.elements,
        candidate.elements,
        exact=reference.dtype in ("bool", *INTEGERS),
        unit=unit_of(reference.dtype, candidate.dtype),
        row=shape[-1] if shape else 1,
        rtol=how.rtol,
        atol=how.atol,
        equal_nan=how.equal_nan,
        equal_inf=how.equal_inf,
    )
    total = math.prod(shape)
    assert found.shape == shape
    assert (found.reference_dtype, found.candidate_dtype) == (reference.dtype, candidate.dtype)
    whole = {reference.dtype, candidate.dtype} <= set(INTEGERS)
    assert found.dtype_differs is (reference.dtype != candidate.dtype and not whole)
    assert found.judgement == (
        NotJudged() if tolerance is None else Judged(failed=right.failed, total=total)
    )
    check_classes(found, right, shape)
    if right.elements:
        assert isinstance(found.metrics, Metrics)
        check_metrics(found.metrics, right, reference, candidate, shape)
    else:
        reason = "no element is finite on both sides" if total else "the tensors are empty"
        assert found.metrics == NothingFinite(reason=reason)


def check_classes(found: Compared, right: Expected, shape: Shape) -> None:
    counts = found.non_finite
    assert dict(counts.counts()) == right.classes
    harmless = right.classes["nan_both"] + right.classes["inf_same_sign"]
    assert counts.total == sum(right.classes.values())
    assert counts.differing == counts.total - harmless
    first = right.first_difference
    assert counts.first_difference == (None if first is None else in_order(first, shape))


def check_metrics(
    metrics: Metrics, right: Expected, reference: Side, candidate: Side, shape: Shape
) -> None:
    assert metrics.elements == right.elements
    sides = reference, candidate
    check_extreme(metrics.greatest_absolute, right.distances, *sides, shape)
    check_extreme(metrics.greatest_relative, right.relatives, *sides, shape)
    assert close(metrics.mean_absolute, right.mean)
    assert metrics.greatest_ulp == right.ulp
    row = position_of(metrics.worst_row.index, shape[:-1])
    if right.apart > ONE_SCALE:  # squares of the smaller side are lost: no agreement may come of it
        assert metrics.relative_l2 >= min(right.l2, 1.0) * (1 - 1e-12)
        assert abs(metrics.cosine) <= abs(right.cosine) + 1e-12
        return
    assert close(metrics.relative_l2, right.l2)
    assert abs(metrics.cosine - right.cosine) <= 1e-12
    assert close(metrics.worst_row.relative_l2, max(right.rows))
    assert close(right.rows[row], max(right.rows))
    if len(set(right.rows)) == 1:
        assert row == 0
    if right.l2 not in (0.0, math.inf):
        assert math.isclose(metrics.snr_db, -20 * math.log10(right.l2), abs_tol=1e-9)


def check_extreme(
    found: Extreme, values: dict[int, float], reference: Side, candidate: Side, shape: Shape
) -> None:
    """Hold a greatest difference against all: its value, its place, and both elements there."""
    greatest = max(values.values())
    at = position_of(found.index, shape)
    if reference.dtype in COMPLEX:  # a magnitude is a root, of which the last bit is free
        assert close(found.value, greatest)
        assert close(values[at], greatest)
    else:
        assert found.value == greatest
        assert at == next(place for place, value in values.items() if value == greatest)
    for element, side in ((found.reference, reference), (found.candidate, candidate)):
        real, imaginary = side.elements[at]
        if side.dtype in COMPLEX:
            assert element == complex(number(real), number(imaginary))
        else:
            assert isinstance(element, int if side.dtype in ("bool", *INTEGERS) else float)
            assert element == (real // UNIT if isinstance(element, int) else number(real))


def close(found: float, right: float) -> bool:
    """Allow for the order in which float64 numbers are added."""
    return math.isclose(found, right, rel_tol=1e-12, abs_tol=1e-320)


@pytest.fixture(scope="module", params=["numpy", pytest.param("kernel", marks=pytest.mark.full)])
def kernel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> FusedKernel | None:
    """What measures what it takes; compiling it takes a while."""
    if request.param == "numpy":
        return None
    loaded = FusedKernel.load(tmp_path_factory.mktemp("kernel"))
    assert loaded is not None
    return loaded


def check_all(
    kernel: FusedKernel | None, reference: Side, candidate: Side, shape: Shape | None = None
) -> None:
    """Measure a pair by every tolerance."""
    shape = (len(reference.elements),) if shape is None else shape
    block = Block(
        reference=reference.array.reshape(shape), candidate=candidate.array.reshape(shape)
    )
    for tolerance in TOLERANCES:
        found = measure_blocks([block], shape=shape, tolerance=tolerance, kernel=kernel)
        check(found, reference, candidate, shape, tolerance)


def float_pairs(names: tuple[str, str]) -> Iterator[tuple[Side, Side]]:
    """Give tensors of all edges, of random bits, of neighbours, and of nothing finite."""
    first, second = names
    codes = every_pair(edge_codes(first), edge_codes(second))
    yield floats(first, codes[0]), floats(second, codes[1])
    yield floats(first, random_codes(first, 61, 1)), floats(second, random_codes(second, 61, 2))


@pytest.mark.parametrize("name", FLOATS)
def test_floats(kernel: FusedKernel | None, name: str) -> None:
    for reference, candidate in float_pairs((name, name)):
        check_all(kernel, reference, candidate)
    if name in FORMATS:
        codes = finite_codes(name, 77)
        check_all(kernel, floats(name, codes), floats(name, neighbours(name, codes)), (7, 11))
        check_all(kernel, floats(name, codes), floats(name, codes), (11, 7))


@pytest.mark.parametrize("name", NARROW)
def test_every_code_of_a_narrow_float_against_every_other(
    kernel: FusedKernel | None, name: str
) -> None:
    bits = 8 if name == "float8_e8m0fnu" else FORMATS[name].bits
    codes = list(range(1 << bits))
    generator = random.Random(name)
    for _ in range(3):
        others = generator.sample(codes, len(codes))
        check_all(kernel, floats(name, codes), floats(name, others))


@pytest.mark.parametrize("names", UNLIKE_FLOATS, ids="-".join)
def test_floats_of_unlike_precision(kernel: FusedKernel | None, names: tuple[str, str]) -> None:
    for reference, candidate in float_pairs(names):
        check_all(kernel, reference, candidate)


@pytest.mark.parametrize("name", ["bool", *INTEGERS])
def test_whole_numbers_and_truth_values(kernel: FusedKernel | None, name: str) -> None:
    values = every_pair(edge_values(name), edge_values(name))
    check_all(kernel, integers(name, values[0]), integers(name, values[1]))
    check_all(kernel, integers(name, values[0]), integers(name, values[0]))


@pytest.mark.parametrize("names", UNLIKE_INTEGERS, ids="-".join)
def test_whole_numbers_of_unlike_width(kernel: FusedKernel | None, names: tuple[str, str]) -> None:
    values = every_pair(edge_values(names[0]), edge_values(names[1]))
    check_all(kernel, integers(names[0], values[0]), integers(names[1], values[1]))


@pytest.mark.parametrize("names", [*itertools.product(COMPLEX, COMPLEX)], ids="-".join)
def test_complex_numbers(kernel: FusedKernel | None, names: tuple[str, str]) -> None:
    sides = []
    for seed, name in enumerate(names):
        codes = edge_codes(COMPLEX[name])
        generator = random.Random(seed)
        chosen = [(generator.choice(codes), generator.choice(codes)) for _ in range(201)]
        sides.append(complexes(name, chosen))
    check_all(kernel, *sides)
    check_all(kernel, *sides, shape=(3, 67))
    ordinary = [finite_codes(COMPLEX[name], 26) for name in names]
    pairs = [list(zip(codes[::2], codes[1::2], strict=True)) for codes in ordinary]
    check_all(kernel, complexes(names[0], pairs[0]), complexes(names[1], pairs[1]))


KINDS = ["bool", "int32", "uint8", "float32", "bfloat16", "float8_e4m3fn", "complex64"]


@pytest.mark.parametrize("names", [*itertools.permutations(KINDS, 2)], ids="-".join)
def test_kinds_are_told_apart(names: tuple[str, str]) -> None:
    sides = [np.zeros(3, getattr(ml_dtypes, name, name)) for name in names]
    found = measure(*sides, tolerance=Tolerance(rtol=9, atol=9, equal_nan=True, equal_inf=True))
    kinds = [next(k for k in ("bool", "int", "float", "complex") if k in name) for name in names]
    if kinds[0] == kinds[1]:
        assert isinstance(found, Compared)
    else:
        assert found == KindDiffers(reference_dtype=names[0], candidate_dtype=names[1])


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2", "int64", "bool"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5, 2)])
def test_tensors_without_elements(kernel: FusedKernel | None, name: str, shape: Shape) -> None:
    side = floats(name, []) if name in FORMATS else integers(name, [])
    check_all(kernel, side, side, shape)


@pytest.mark.parametrize("name", ["float32", "float16", "float8_e4m3fn", "float8_e5m2fnuz"])
def test_nothing_finite(kernel: FusedKernel | None, name: str) -> None:
    decode = decoder(name)
    codes = [code for code in edge_codes(name) if not isinstance(decode(code), int)]
    if not codes:
        codes = [1 << (FORMATS[name].bits - 1)]
    pairs = every_pair(codes, codes)
    check_all(kernel, floats(name, pairs[0]), floats(name, pairs[1]))


def test_scalars_and_other_strides(kernel: FusedKernel | None) -> None:
    one, two = floats("float32", [0x3F800000]), floats("float32", [0x40000000])
    check_all(kernel, one, two, ())
    codes = random_codes("bfloat16", 77, 3)
    moved = neighbours("bfloat16", finite_codes("bfloat16", 77))
    reference, candidate = floats("bfloat16", codes), floats("bfloat16", moved)
    rows = reference.array.reshape(7, 11), candidate.array.reshape(7, 11)
    for tolerance in TOLERANCES:
        strided = [np.asfortranarray(side) for side in rows]
        found = measure(*strided, tolerance=tolerance)
        check(found, reference, candidate, (7, 11), tolerance)
        found = measure(rows[0], strided[1], tolerance=tolerance)
        check(found, reference, candidate, (7, 11), tolerance)


def test_foreign_byte_order() -> None:
    codes = every_pair(edge_codes("float32"), edge_codes("float32"))
    reference, candidate = floats("float32", codes[0]), floats("float32", codes[1])
    found = measure(reference.array.astype(">f4"), candidate.array, tolerance=TOLERANCES[3])
    check(found, reference, candidate, (len(codes[0]),), TOLERANCES[3])


LONG = [
    ("float32", "float32", (3, 5479)),  # more than the 16384 elements of a chunk, in rows
    ("bfloat16", "float32", (16411,)),
    ("float64", "float64", (2, 8219)),
    ("float8_e4m3fn", "float8_e4m3fn", (5483, 3)),
]


@pytest.mark.parametrize(("first", "second", "shape"), LONG)
def test_tensors_longer_than_a_chunk(
    kernel: FusedKernel | None, first: str, second: str, shape: Shape
) -> None:
    count = math.prod(shape)
    sides = long_pair(first, second, count)
    arrays = [side.array.reshape(shape) for side in sides]
    cut = 1 if shape[0] < 10 else 5000
    blocks = [
        Block(reference=arrays[0][part], candidate=arrays[1][part], origin=origin)
        for part, origin in ((slice(None, cut), 0), (slice(cut, None), cut))
    ]
    found = measure_blocks(blocks, shape=shape, tolerance=TOLERANCES[4], kernel=kernel)
    check(found, *sides, shape, TOLERANCES[4])


def long_pair(first: str, second: str, count: int) -> tuple[Side, Side]:
    """Give ordinary numbers, with what is not finite and the greatest difference near the end."""
    codes = finite_codes(first, count)
    others = codes if first == second else finite_codes(second, count)
    others = neighbours(second, others)
    edges = every_pair(edge_codes(first), edge_codes(second))
    some = len(edges[0]) // 3 if "float64" not in (first, second) else 0
    codes[-some - 5 : -5], others[-some - 5 : -5] = edges[0][:some], edges[1][:some]
    return floats(first, codes), floats(second, others)
