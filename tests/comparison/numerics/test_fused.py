"""The compiled code against NumPy's way and against definitions, over dtypes, shapes and values."""

import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from comparison.numerics import kernel_object
from comparison.numerics.blocks import Block
from comparison.numerics.dtypes import Array, dtype_of_name
from comparison.numerics.fused import MEASURING, FusedKernel
from comparison.numerics.kernel_object import digest_of, load_kernel
from comparison.numerics.metrics import measure_blocks
from comparison.pipeline import CompareOptions, compare
from comparison.schema.outcome import Compared, Judged, Metrics
from comparison.schema.tolerance import Tolerance
from comparison.store.mapped_array import map_array
from comparison.store.mapping_guard import mappings_guarded
from comparison.store.max_file import write_max_file

FLOATS = (
    "float32",
    "bfloat16",
    "float16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
)
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
LEFT_TO_NUMPY = ("float64", "int64", "uint64", "complex64", "complex128")
SUMMED = ("mean_absolute", "relative_l2", "cosine", "snr_db")
# Odd sizes around a block of 1024 elements, long and short rows, one row, one column, a scalar.
SHAPES = ((), (1,), (7,), (1023,), (3, 5), (5, 1), (7, 131), (3, 1027), (2, 3, 257), (2049, 3))


@pytest.fixture(scope="session", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session", name="kernel")
def _kernel(folder: Path) -> FusedKernel:
    kernel = FusedKernel.load(folder)  # compiled once for all tests
    assert kernel is not None
    return kernel


def measured(
    reference: Array,
    candidate: Array,
    kernel: FusedKernel | None,
    tolerance: Tolerance | None = Tolerance(rtol=1e-2, atol=1e-3),  # noqa: B008  # frozen
) -> Compared:
    blocks = [Block(reference=reference, candidate=candidate)]
    outcome = measure_blocks(blocks, shape=reference.shape, tolerance=tolerance, kernel=kernel)
    assert isinstance(outcome, Compared)
    return outcome


def assert_same(left: Compared, right: Compared) -> None:
    """Everything is equal, and sums are but for their last digits."""
    _assert_same(asdict(left), asdict(right), "")


def _assert_same(left: Any, right: Any, where: str) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for name, value in left.items():
            if name == "worst_row":
                # Rows that are as bad as each other may trade places.
                assert right[name]["relative_l2"] == pytest.approx(value["relative_l2"], rel=1e-12)
                continue
            _assert_same(value, right[name], name)
    elif where in SUMMED:
        assert right == pytest.approx(left, rel=1e-12, abs=1e-15), where
    else:
        assert type(left) is type(right), where
        assert left == right, where


def bits_as(name: str, codes: Array) -> Array:
    """Read random bits as a dtype: all its values, NaN and infinity, zeros of both signs."""
    dtype = dtype_of_name(name)
    if name == "bool":
        return codes.astype(np.uint8) % 2 == 1
    if name.startswith(("float4", "float6")):
        width = 16 if name.startswith("float4") else 64
        return (codes % width).astype(np.uint8).view(dtype)
    return codes.astype(f"u{dtype.itemsize}").view(dtype)


def random_pair(name: str, shape: tuple[int, ...], seed: int, *, finite: bool) -> tuple[Any, Any]:
    """Make a pair of which two thirds are equal."""
    generator = np.random.default_rng(seed)
    size = math.prod(shape)
    codes = generator.integers(0, 1 << 32, size, dtype=np.uint64)
    other = np.where(generator.integers(0, 3, size) == 0, np.roll(codes, 1), codes)
    sides = [bits_as(name, each) for each in (codes, other)]
    if finite and name in FLOATS:
        sides = [
            np.where(np.isfinite(side.astype("f4")), side, side.dtype.type(1)) for side in sides
        ]
    return sides[0].reshape(shape), sides[1].reshape(shape)


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("finite", [True, False])
def test_all_fields_are_those_of_numpy(kernel: FusedKernel, name: str, *, finite: bool) -> None:
    for seed, shape in enumerate(SHAPES):
        reference, candidate = random_pair(name, shape, seed, finite=finite)
        block = Block(reference=reference, candidate=candidate)
        assert kernel.takes(block)
        assert_same(measured(reference, candidate, None), measured(reference, candidate, kernel))


@pytest.mark.parametrize("ratio", [1 / 3, 1e-3, 0.0])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn"])
def test_greatest_relative_difference_is_found_to_the_last_bit(
    kernel: FusedKernel, name: str, ratio: float
) -> None:
    generator = np.random.default_rng(5)
    reference = generator.normal(size=(40, 1000)).astype(dtype_of_name(name))
    # All elements are off by about the same share: what is greater is so by a rounding.
    candidate = (reference.astype("f8") * (1 + ratio)).astype(reference.dtype)
    assert_same(measured(reference, candidate, None), measured(reference, candidate, kernel))
    for at in ((0, 0), (20, 1), (39, 999)):
        left, right = reference.copy(), candidate.copy()
        left[at], right[at] = 1, -8
        found = measured(left, right, kernel)
        assert_same(measured(left, right, None), found)
        assert isinstance(found.metrics, Metrics)
        greatest = found.metrics.greatest_relative
        assert (greatest.value, greatest.index) == (9, at)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [("float32", "bfloat16"), ("float16", "float8_e4m3fn"), ("uint32", "int8"), ("int16", "uint8")],
)
def test_sides_of_two_dtypes(kernel: FusedKernel, reference: str, candidate: str) -> None:
    left, _ = random_pair(reference, (13, 259), 1, finite=False)
    right, _ = random_pair(candidate, (13, 259), 1, finite=False)
    assert_same(measured(left, right, None), measured(left, right, kernel))


def test_each_code_of_16_bits_is_read_as_what_it_is(kernel: FusedKernel) -> None:
    codes = np.arange(1 << 16)
    for name in ("float16", "bfloat16", "int16", "uint16"):
        values = bits_as(name, codes)
        other = np.roll(values, 257)
        assert_same(measured(values, other, None), measured(values, other, kernel))
        for at in range(0, 1 << 16, 997):  # alone, so that one wrong value cannot hide
            one, two = values[at : at + 1], other[at : at + 1]
            assert_same(measured(one, two, None), measured(one, two, kernel))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float6_e2m3fn"])
def test_each_code_of_8_bits_is_read_as_what_it_is(kernel: FusedKernel, name: str) -> None:
    values = bits_as(name, np.arange(256))
    others = bits_as(name, np.full(256, 0x18))
    assert_same(measured(values, others, None), measured(values, others, kernel))
    for at in range(256):  # alone, so that one wrong value cannot hide
        one, two = values[at : at + 1], others[at : at + 1]
        assert_same(measured(one, two, None), measured(one, two, kernel))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from((*FLOATS, *INTEGERS, "bool")),
    codes=st.lists(
        st.tuples(
            *[
                st.integers(0, (1 << 32) - 1)
                | st.sampled_from(
                    [0, 1, 0x7F, 0x80, 0x7C00, 0x8000, 0x7F80, 0x7F800000, 0x80000000, 0x7FC00000]
                )
            ]
            * 2
        ),
        min_size=1,
        max_size=40,
    ),
    columns=st.integers(1, 6),
    rtol=st.sampled_from([None, 0.0, 1e-3, 0.5]),
    atol=st.sampled_from([0.0, 1e-5, 1.0]),
    equal=st.booleans(),
)
@example(name="float32", codes=[(0x80000000, 0)], columns=1, rtol=0.0, atol=0.0, equal=False)
def test_any_values(
    kernel: FusedKernel,
    name: str,
    codes: list[tuple[int, int]],
    columns: int,
    rtol: float | None,
    atol: float,
    *,
    equal: bool,
) -> None:
    rows = -(-len(codes) // columns)
    table = np.resize(np.array(codes, np.uint64), (rows * columns, 2))
    reference, candidate = (bits_as(name, table[:, side].copy()) for side in (0, 1))
    shape = rows, columns
    tolerance = None
    if rtol is not None:
        tolerance = Tolerance(rtol=rtol, atol=atol, equal_nan=equal, equal_inf=equal)
    sides = reference.reshape(shape), candidate.reshape(shape)
    assert_same(measured(*sides, None, tolerance), measured(*sides, kernel, tolerance))


def test_the_first_of_equal_differences_is_named_over_all_stretches(kernel: FusedKernel) -> None:
    reference = np.ones((3, 300_001), np.float32)  # rows are cut, and threads take turns
    candidate = reference.copy()
    for place in ((0, 290_000), (1, 5), (2, 299_999)):
        candidate[place] = 1.5
    outcome = measured(reference, candidate, kernel)
    assert isinstance(outcome.metrics, Metrics)
    assert outcome.metrics.greatest_absolute.index == (0, 290_000)
    assert outcome.metrics.greatest_relative.value == 0.5
    assert outcome.metrics.greatest_ulp == 2.0**22
    assert outcome.judgement == Judged(failed=3, total=900_003)
    candidate[1, 200_000] = 3
    outcome = measured(reference, candidate, kernel)
    assert isinstance(outcome.metrics, Metrics)
    assert outcome.metrics.greatest_absolute.index == (1, 200_000)
    assert outcome.metrics.worst_row.index == (1,)
    assert outcome.metrics.worst_row.relative_l2 == pytest.approx(
        math.sqrt((2**2 + 0.5**2) / 300_001)
    )


def test_many_stretches_of_short_rows(kernel: FusedKernel) -> None:
    reference, candidate = random_pair("float32", (70_001, 11), 3, finite=False)
    assert_same(measured(reference, candidate, None), measured(reference, candidate, kernel))


def test_repeated_runs_give_the_same_bits(kernel: FusedKernel) -> None:
    reference, candidate = random_pair("float32", (1111, 1001), 4, finite=True)
    assert len({repr(measured(reference, candidate, kernel)) for _ in range(5)}) == 1


def test_data_at_odd_addresses(kernel: FusedKernel) -> None:
    whole = np.random.default_rng(5).standard_normal(4099, np.float32)
    for offset in (1, 2, 3):
        raw = np.zeros(whole.nbytes + 8, np.uint8)
        raw[offset : offset + whole.nbytes] = whole.view(np.uint8)
        shifted = raw[offset : offset + whole.nbytes].view(np.float32)
        assert_same(measured(whole, shifted, None), measured(whole, shifted, kernel))


def test_blocks_keep_the_index_of_the_whole(kernel: FusedKernel) -> None:
    reference, candidate = random_pair("bfloat16", (21, 130), 6, finite=False)
    cuts = [
        Block(reference=reference[:12], candidate=candidate[:12]),
        Block(reference=reference[12:], candidate=candidate[12:], origin=12),
    ]
    strided = Block(reference=reference[12:].T.copy().T, candidate=candidate[12:], origin=12)
    whole = measured(reference, candidate, None)
    for blocks in (cuts, [cuts[0], strided]):  # the second by NumPy
        joined = measure_blocks(
            blocks, shape=(21, 130), tolerance=Tolerance(rtol=1e-2, atol=1e-3), kernel=kernel
        )
        assert isinstance(joined, Compared)
        assert_same(whole, joined)


@pytest.mark.parametrize("cores", [1, 3])
def test_a_file_that_is_cut_while_threads_measure_it(
    kernel: FusedKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr("comparison.numerics.threads.usable_cores", lambda: cores)
    path, shape, kept = tmp_path / "x", (1201, 1031), 40_000  # of a stretch of 127 rows
    np.ones(shape, np.float32).tofile(path)
    with mappings_guarded() as guard:
        array = map_array(path, dtype=np.dtype(np.float32), shape=shape, offset=0)
        os.truncate(path, 4 * kept)
        outcome = measured(array, np.ones(shape, np.float32), kernel)
        error = guard.take_error()
    assert str(path) in str(error)
    gone = math.prod(shape) - kept
    assert outcome.judgement == Judged(failed=gone, total=math.prod(shape))


@pytest.mark.parametrize("name", LEFT_TO_NUMPY)
def test_what_it_does_not_measure_is_left_to_numpy(kernel: FusedKernel, name: str) -> None:
    array = np.array([[1, 2], [3, 5]], name)
    assert not kernel.takes(Block(reference=array, candidate=array))
    assert measured(array, array, kernel) == measured(array, array, None)


def test_strides_and_byte_orders_are_left_to_numpy(kernel: FusedKernel) -> None:
    array = np.ones((3, 4), np.float32)
    for other in (array.T.copy().T, array.astype(">f4"), array[:, ::-1]):
        assert not kernel.takes(Block(reference=other, candidate=array))
    assert not kernel.takes(Block(reference=array[:0], candidate=array[:0]))


def test_what_was_compiled_is_kept_and_needs_no_numba(
    kernel: FusedKernel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "comparison.numerics.kernels", None)  # importing it fails
    again = FusedKernel.load(folder, compile_anew=False)
    assert again is not None
    reference, candidate = random_pair("float16", (9, 1025), 7, finite=False)
    assert measured(reference, candidate, again) == measured(reference, candidate, kernel)


@pytest.mark.usefixtures("kernel")
def test_damaged_code_is_not_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "comparison.numerics.kernels", None)
    (kept,) = folder.iterdir()
    content = kept.read_bytes()
    table = json.loads(content.partition(b"\n")[0])
    for damage in (
        *(b"", content[:-1], content.replace(b"\n", b" ", 1), b"[]\n", b'{"a": 1}\n'),
        b"[" * 100_000,
        # These would end the process, were they believed.
        content.replace(table["name"].encode(), table["name"][:-1].encode() + b"_", 1),
        content.replace(json.dumps(table["symbols"]).encode(), b"[]", 1),
    ):
        assert damage != content
        (tmp_path / kept.name).write_bytes(damage)
        assert load_kernel(MEASURING, tmp_path, compile_anew=False) is None
    assert load_kernel(MEASURING, tmp_path / "none", compile_anew=False) is None
    (tmp_path / kept.name).write_bytes(content)
    assert load_kernel(MEASURING, tmp_path, compile_anew=False) is not None


@pytest.mark.usefixtures("kernel")
def test_a_processor_without_half_floats_is_left_to_numpy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = llvm.get_host_cpu_features()
    lacking = type(features)(features | {"f16c": False})
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: lacking)
    assert FusedKernel.load(folder) is None
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: features)
    assert FusedKernel.load(folder, compile_anew=False) is not None


def test_missing_symbols_are_no_end_of_the_process(folder: Path, tmp_path: Path) -> None:
    (kept,) = folder.iterdir()
    head, _, code = kept.read_bytes().partition(b"\n")
    table = json.loads(head)
    symbols = ["no_such_function", *table["symbols"]]
    sealed = {**table, "symbols": symbols, "sha256": digest_of(table["name"], symbols, code)}
    (tmp_path / kept.name).write_bytes(json.dumps(sealed).encode() + b"\n" + code)
    assert load_kernel(MEASURING, tmp_path, compile_anew=False) is None


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("place", ["file", "file/kernels", "closed/kernels"])
def test_code_is_compiled_where_it_cannot_be_kept(
    folder: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kept,) = folder.iterdir()
    head, _, code = kept.read_bytes().partition(b"\n")
    table = json.loads(head)
    compiled = table["name"], table["symbols"], code  # which takes seconds
    monkeypatch.setattr(kernel_object, "_compile", lambda code: compiled)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "closed").symlink_to(tmp_path / "nowhere" / "else")
    assert load_kernel(MEASURING, tmp_path / place, compile_anew=True) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed", "file"]


def test_a_dump_that_is_large_enough_is_measured_by_it(
    kernel: FusedKernel, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del kernel  # kept in the folder
    for side, sign in (("a", 1), ("b", -1)):
        (tmp_path / side).mkdir()
        array = np.linspace(0, sign, 3 * 259, dtype=np.float32).reshape(3, 259)
        write_max_file(tmp_path / side / "x.max", array, key="x")
    taken: list[Block] = []
    measure = FusedKernel.measure
    monkeypatch.setattr(
        FusedKernel,
        "measure",
        lambda *args, **named: taken.append(args[1]) or measure(*args, **named),
    )
    plain, fused = CompareOptions(), CompareOptions(kernels=folder)
    by_numpy, small = (compare(tmp_path / "a", tmp_path / "b", each) for each in (plain, fused))
    assert not taken
    assert small == by_numpy
    monkeypatch.setattr("comparison.dump_run.WORTH_LOADING_BYTES", 2 * 3 * 259 * 4)
    large = compare(tmp_path / "a", tmp_path / "b", fused)
    assert len(taken) == 1
    outcomes = [each.pairs[0].outcome for each in (by_numpy, large)]
    assert_same(*(outcome for outcome in outcomes if isinstance(outcome, Compared)))
