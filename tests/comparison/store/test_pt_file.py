"""The .pt reader, against torch itself and against pickles with code in them."""

import os
import pickle
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.schema.errors import BadInputError, CorruptFileError, UnsupportedFormatError
from comparison.store.pt_file import list_pt_keys, read_pt_tensor

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
    "tensor",
    [torch.ones(3).to_sparse(), torch.ones(3, device="meta")],
    ids=["sparse", "meta"],
)
def test_tensors_that_are_no_plain_arrays(tmp_path: Path, tensor: torch.Tensor) -> None:
    torch.save(tensor, tmp_path / "x.pt")
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
