"""The .pt reader, against torch itself and against pickles with code in them."""

import os
import pickle
import random
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.schema.errors import BadInputError, CorruptFileError, UnsupportedFormatError
from comparison.store import mapped_array, pt_check, pt_file
from comparison.store.pt_file import list_pt_keys, read_pt_tensor
from comparison.store.tensor_file import list_file, read_tensor

DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


@dataclass
class Planted:
    """Creates a file when it is unpickled."""

    path: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@dataclass
class Record:
    """A class that someone dumped along with a tensor."""

    value: Any


def random_tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    numbers = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 100
    return numbers.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (4, 5), (0, 4)])
def test_every_dtype(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = random_tensor(dtype, *shape)
    torch.save(tensor, tmp_path / "x.pt")
    assert list_pt_keys(tmp_path / "x.pt") is None
    found = read_pt_tensor(tmp_path / "x.pt")
    assert (found.dtype.name, found.shape) == (str(dtype).removeprefix("torch."), shape)
    number = complex if dtype.is_complex else float
    expected = tensor.to(torch.complex128 if dtype.is_complex else torch.float64)
    assert [number(x) for x in found.ravel()] == expected.reshape(-1).tolist()


def test_views_parameters_and_conjugates(tmp_path: Path) -> None:
    base = random_tensor(torch.float32, 6, 8)
    for tensor in (base.T[1:, ::2], torch.nn.Parameter(base), torch.complex(base, base).conj()):
        torch.save(tensor, tmp_path / "x.pt")
        expected = tensor.detach().resolve_conj().numpy()
        np.testing.assert_array_equal(read_pt_tensor(tmp_path / "x.pt"), expected)


def test_the_form_before_zip(tmp_path: Path) -> None:
    torch.save(torch.arange(3), tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    assert list_pt_keys(tmp_path / "x.pt") is None
    assert read_pt_tensor(tmp_path / "x.pt").tolist() == [0, 1, 2]


def test_a_dictionary_gives_several_tensors(tmp_path: Path) -> None:
    inner = {"b": torch.ones(2, dtype=torch.bfloat16), "c": [torch.zeros(1), 3]}
    torch.save({"a": torch.arange(3), "n": inner, "note": "text"}, tmp_path / "x.pt")
    assert list_pt_keys(tmp_path / "x.pt") == ("a", "n.b", "n.c.0")
    assert read_pt_tensor(tmp_path / "x.pt", "n.b").astype(float).tolist() == [1, 1]
    with pytest.raises(CorruptFileError, match="expected a tensor 'z', found 3 others"):
        read_pt_tensor(tmp_path / "x.pt", "z")
    with pytest.raises(CorruptFileError, match="expected a tensor, found dict"):
        read_pt_tensor(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ((torch.ones(1), torch.zeros(1)), ("0", "1")),
        ((torch.ones(1),), ("0",)),
        ((torch.ones(1), {"a": torch.zeros(1)}), ("0", "1.a")),
        ([torch.ones(1), torch.zeros(1)], ("0", "1")),
        ((torch.ones(1), 3), ("0",)),
        ((torch.nn.Parameter(torch.ones(1)), torch.zeros(1)), ("0", "1")),
        (torch.ones(1), None),
        (torch.nn.Parameter(torch.ones(1)), None),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_a_tuple_that_begins_with_a_tensor_is_no_lone_tensor(
    tmp_path: Path, content: Any, keys: tuple[str, ...] | None, zipped: bool
) -> None:
    torch.save(content, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    assert list_pt_keys(tmp_path / "x.pt") == keys
    assert read_pt_tensor(tmp_path / "x.pt", keys and keys[0]).tolist() == [1]


def test_keys_that_flatten_alike_are_told_apart_whatever_their_order(tmp_path: Path) -> None:
    content = {
        "a.b": torch.tensor(1),
        "a": {"b": torch.tensor(2), "c": torch.tensor(3)},
        1: torch.tensor(4),
        "1": torch.tensor(5),
        "['a']['b']": torch.tensor(6),
    }
    expected = {"['a.b']": 1, "['a']['b']~2": 2, "a.c": 3, "[1]": 4, "['1']": 5, "['a']['b']": 6}
    for items in (content, dict(reversed(content.items()))):
        torch.save(items, tmp_path / "x.pt")
        keys = list_pt_keys(tmp_path / "x.pt")
        assert keys is not None
        assert {key: int(read_pt_tensor(tmp_path / "x.pt", key)) for key in keys} == expected


def nested(depth: int) -> list[Any]:
    value: list[Any] = [torch.ones(1)]
    for _ in range(depth):
        value = [value]
    return value


def doubled(times: int) -> list[Any]:
    value: list[Any] = [torch.ones(1)]
    for _ in range(times):
        value = [value, value]
    return value


def circle() -> dict[str, Any]:
    value: dict[str, Any] = {"t": torch.ones(1)}
    value["again"] = value
    return value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (nested(200), "expected nesting of at most 100 levels, found more"),
        (circle(), "expected nesting of at most 100 levels, found more"),
        (doubled(30), "expected a pickle of at most 10000000 steps, found more; save a flat"),
    ],
    ids=["nested", "circle", "doubled"],
)
def test_more_than_anyone_saves(tmp_path: Path, content: Any, message: str) -> None:
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(UnsupportedFormatError, match=rf"x\.pt: {message}"):
        list_pt_keys(tmp_path / "x.pt")


def test_two_dictionaries_that_take_turns_are_loaded_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = pt_file._load

    def counted(path: Path) -> Any:
        loaded.append(path.name)
        return load(path)

    monkeypatch.setattr(pt_file, "_load", counted)
    paths = [tmp_path / "x.pt", tmp_path / "y.pt"]
    for path in paths:
        torch.save({str(n): torch.ones(1) for n in range(20)}, path)
    for path in paths:
        list_pt_keys(path)
    for n in range(20):
        for path in paths:
            read_pt_tensor(path, str(n))
    assert loaded == ["x.pt", "y.pt"]


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_behind_a_compression(tmp_path: Path, compression: int) -> None:
    torch.save(torch.arange(6.0), tmp_path / "x.pt")
    with (
        zipfile.ZipFile(tmp_path / "x.pt") as plain,
        zipfile.ZipFile(tmp_path / "y.pt", "w", compression) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    content = bytearray((tmp_path / "y.pt").read_bytes())
    begin = content.find(b"data.pkl") + 12
    for position in range(begin, begin + 20):
        content[position] ^= 0xFF
    (tmp_path / "y.pt").write_bytes(content)
    with pytest.raises(BadInputError, match=r"y\.pt: expected"):
        list_pt_keys(tmp_path / "y.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_planted_pickle_does_not_run(tmp_path: Path, zipped: bool) -> None:
    target, path = tmp_path / "made", tmp_path / "x.pt"
    torch.save(Planted(target), path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UnsupportedFormatError, match=r"x\.pt: expected tensors, .* was not run"):
        list_pt_keys(path)
    bare = tmp_path / "bare.pt"
    bare.write_bytes(pickle.dumps(Planted(target)))
    with pytest.raises(UnsupportedFormatError, match="was not run"):
        read_pt_tensor(bare)
    assert not target.exists()
    torch.load(path, weights_only=False)  # the trap itself works
    assert target.exists()


def test_a_class_is_refused(tmp_path: Path) -> None:
    torch.save(Record(torch.ones(2)), tmp_path / "x.pt")
    with pytest.raises(UnsupportedFormatError, match=r"GLOBAL .*Record.*was not run"):
        list_pt_keys(tmp_path / "x.pt")


def test_nothing_to_read(tmp_path: Path) -> None:
    torch.save({"steps": 3}, tmp_path / "x.pt")
    with pytest.raises(UnsupportedFormatError, match="found dict without any"):
        list_pt_keys(tmp_path / "x.pt")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3).to_sparse(),
        lambda: torch.ones(3, device="meta"),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    ],
    ids=["sparse", "meta", "nested", "jagged"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_that_are_no_plain_arrays(tmp_path: Path, make: Callable[[], torch.Tensor]) -> None:
    torch.save(make(), tmp_path / "x.pt")
    with pytest.raises(UnsupportedFormatError, match="expected a dense tensor with values"):
        read_pt_tensor(tmp_path / "x.pt")


def test_truncations_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.arange(64.0), path)
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises((CorruptFileError, UnsupportedFormatError), match=r"x\.pt: expected"):
            list_pt_keys(path)


def test_any_damage_gives_an_array_or_our_error(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.arange(64.0)}, path)
    content = path.read_bytes()
    generator = random.Random(0)
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        path.write_bytes(damaged)
        try:
            for key in list_pt_keys(path) or (None,):
                read_pt_tensor(path, key)
        except BadInputError as error:
            assert "x.pt" in str(error)  # noqa: PT017 -- some damage gives an array


def test_any_damage_to_the_form_before_zip_gives_an_array_or_our_error(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    content_of = {"a": torch.arange(6.0), "b": [torch.ones(2)]}
    torch.save(content_of, path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    generator = random.Random(7)
    for _ in range(600):
        damaged = bytearray(content)
        damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged[: generator.randrange(len(damaged)) or None])
        try:
            for entry in list_file(path, {}):
                read_tensor(entry)
        except BadInputError as error:
            assert "x.pt" in str(error)  # noqa: PT017 -- some damage gives an array


def _records(path: Path, count: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(count):
            archive.writestr(f"x/{number}", b"")


@pytest.mark.parametrize(
    ("module", "bound", "make", "message"),
    [
        (
            pt_check,
            "_MOST_RECORDS",
            lambda path: _records(path, 4),
            "expected at most 3 records, found 4; save a flat dictionary of tensors",
        ),
        (
            pt_file,
            "_MOST_VALUES",
            lambda path: torch.save([torch.ones(1), [torch.ones(1), 2]], path),
            "expected at most 3 values, found more",
        ),
        (
            pt_file,
            "_MOST_NAME_CHARACTERS",
            lambda path: torch.save({"four": torch.ones(1)}, path),
            "expected names of 3 characters, found more",
        ),
        (
            pt_file,
            "_MOST_EXPANDED_BYTES",
            lambda path: torch.save(torch.ones(1).expand(5000), path),
            r"expected tensors of at most \d+ bytes together, found 20000 out of .*; save tensor\.",
        ),
    ],
)
def test_bounds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    bound: str,
    make: Any,
    message: str,
) -> None:
    path = tmp_path / "x.pt"
    make(path)
    read = read_pt_tensor if bound == "_MOST_EXPANDED_BYTES" else list_pt_keys
    monkeypatch.setattr(module, bound, 3)
    with pytest.raises(UnsupportedFormatError, match=rf"x\.pt: {message}"):
        read(path)


@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
def test_views_of_the_same_values_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expanded: bool, zipped: bool
) -> None:
    monkeypatch.setattr(pt_file, "_MOST_EXPANDED_BYTES", 4000)
    path, values = tmp_path / "x.pt", torch.ones(1 if expanded else 4000)
    tensors = {f"k{number}": values.expand(4000).view(4000) for number in range(40)}
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UnsupportedFormatError, match="bytes together, found 640000 out of"):
        list_pt_keys(path)


def test_tied_weights_and_a_mask_of_a_batch_are_read(tmp_path: Path) -> None:
    weight, mask = torch.ones(100, 50), torch.ones(1, 1, 40, 40)
    content = {"embed": weight, "head": weight, "mask": mask.expand(8, 1, 40, 40)}
    torch.save(content, tmp_path / "x.pt")
    assert list_pt_keys(tmp_path / "x.pt") == ("embed", "head", "mask")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (torch.zeros(1).expand(2**40), "texts, numbers or tuples of them as keys, found Tensor"),
        ((1, torch.zeros(1).expand(2**40)), "or tuples of them as keys, found Tensor"),
        ((1, (2, 3)), "or tuples of them as keys, found tuple"),
        (("x" * 1_000_000,) * 101, "keys of at most 100 parts, found 101"),
        (("x" * 2_000_000,) * 99, "names of 100000000 characters, found more"),
    ],
    ids=["tensor", "tensor in a tuple", "tuple in a tuple", "parts", "one long text many times"],
)
def test_keys_that_take_long_to_spell(tmp_path: Path, key: Any, message: str) -> None:
    path = tmp_path / "x.pt"
    torch.save({key: torch.ones(1)}, path)
    begin = time.process_time()
    with pytest.raises(UnsupportedFormatError, match=rf"x\.pt: expected .*{message}; save a flat"):
        list_pt_keys(path)
    assert time.process_time() - begin < 1


def test_keys_that_are_no_texts(tmp_path: Path) -> None:
    content = {(1, "q"): torch.ones(1), None: torch.ones(1), 2.5: {True: torch.ones(1)}}
    torch.save(content, tmp_path / "x.pt")
    assert list_pt_keys(tmp_path / "x.pt") == ("(1, 'q')", "None", "2.5.True")


def _grow(path: Path) -> None:
    """Append a hole."""
    os.truncate(path, 2**42)


def test_an_old_form_is_read_as_a_whole_only_where_it_is_small(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.ones(3), path, _use_new_zipfile_serialization=False)
    assert list_pt_keys(path) is None
    _grow(path)
    message = "bytes of a file that is no zip archive, found 4398046511104; save it anew with torch"
    for read in (list_pt_keys, read_pt_tensor):
        with pytest.raises(UnsupportedFormatError, match=message):
            read(path)
    (tmp_path / "y.pt").touch()
    _grow(tmp_path / "y.pt")
    with pytest.raises(CorruptFileError, match=r"torch\.save, found 4398046511104 bytes"):
        list_pt_keys(tmp_path / "y.pt")


@pytest.mark.parametrize("name", ["data.pkl", "byteorder", "version", ".data/serialization_id"])
def test_records_that_torch_reads_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    torch.save(torch.ones(3), tmp_path / "x.pt")
    path = tmp_path / "y.pt"
    with zipfile.ZipFile(tmp_path / "x.pt") as old, zipfile.ZipFile(path, "w") as new:
        for record in old.infolist():
            padding = b" " * 5000 if record.filename == f"x/{name}" else b""
            new.writestr(record.filename, old.read(record) + padding)
    monkeypatch.setattr(pt_check, "_MOST_WHOLE_BYTES", 5000)
    with pytest.raises(UnsupportedFormatError, match="at most 5000 bytes beside the tensors' val"):
        read_pt_tensor(path)


def test_values_of_another_byte_order_are_swapped_only_where_they_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(torch.ones(2000), tmp_path / "x.pt")
    path = tmp_path / "y.pt"
    with zipfile.ZipFile(tmp_path / "x.pt") as old, zipfile.ZipFile(path, "w") as new:
        for record in old.infolist():
            content = old.read(record)
            if record.filename == "x/byteorder":
                content = b"big"
            elif record.filename == "x/data/0":
                content = np.frombuffer(content, "<f4").astype(">f4").tobytes()
            new.writestr(record.filename, content)
    assert read_pt_tensor(path).tolist() == [1] * 2000
    monkeypatch.setattr(pt_check, "_MOST_WHOLE_BYTES", 5000)
    with pytest.raises(UnsupportedFormatError, match="at most 5000 bytes of big-endian values"):
        read_pt_tensor(path)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        lambda: torch.ones(2, dtype=torch.complex64).conj(),
        lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
        lambda: torch.ones(2, dtype=torch.complex64).to(torch.complex32),
    ],
    ids=["float4", "conjugate", "negative", "complex32"],
)
def test_what_is_made_in_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], torch.Tensor]
) -> None:
    path = tmp_path / "x.pt"
    torch.save(make(), path)
    monkeypatch.setattr(mapped_array, "MOST_UNPACKED_BYTES", 16)
    assert read_pt_tensor(path).nbytes <= 16
    monkeypatch.setattr(mapped_array, "MOST_UNPACKED_BYTES", 15)
    with pytest.raises(UnsupportedFormatError, match=r"of at most 15 bytes in .* one of 16; save"):
        read_pt_tensor(path)


def test_a_lone_tensor_has_no_keys(tmp_path: Path) -> None:
    torch.save(torch.ones(2), tmp_path / "x.pt")
    with pytest.raises(CorruptFileError, match="expected a tensor 'a', found a lone tensor"):
        read_pt_tensor(tmp_path / "x.pt", "a")


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (b"c_codecs\nencode\n\x85.", "it passes a function on"),
        (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00utf-7tR.", "it encodes bytes as"),
        (b"cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x01\x85R.", "it makes a bytearray"),
    ],
)
def test_functions_that_make_bytes_out_of_nothing(
    tmp_path: Path, pickled: bytes, message: str
) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(b"\x80\x02" + pickled)
    with pytest.raises(
        UnsupportedFormatError, match=f"found a pickle that would run code: {message}.* not run"
    ):
        pt_check.check_pt_file(path)


@pytest.mark.parametrize("pickled", [b"\x80\x02h\x07.", b"\x80\x02g7\n.", b"\x80\x02(t", b"R"])
def test_a_pickle_that_breaks_off_is_left_to_torch(tmp_path: Path, pickled: bytes) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(pickled)
    assert pt_check.check_pt_file(path) is False
    with pytest.raises(BadInputError, match=r"x\.pt: expected"):
        read_pt_tensor(path)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_half_precision_complex_numbers_become_whole_ones(tmp_path: Path) -> None:
    numbers = torch.view_as_complex(torch.arange(8.0).reshape(2, 2, 2)).to(torch.complex32)
    torch.save(numbers, tmp_path / "x.pt")
    found = read_pt_tensor(tmp_path / "x.pt")
    assert found.dtype == np.complex64
    assert found.tolist() == [[1j, 2 + 3j], [4 + 5j, 6 + 7j]]
