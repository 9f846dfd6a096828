"""What is framed is read by plain torch, safely, mapped or not, and by our own reader."""

import io
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from comparison.store.pt_file import list_pt_keys, read_pt_tensor
from test_common.pt_frame import pt_frame
from test_common.torch_tensors import same_bytes

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32),
    *(torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128),
    *(torch.uint16, torch.uint32, torch.uint64, torch.complex32, torch.float8_e4m3fn),
    *(torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2),
]


def framed(tensor: torch.Tensor, path: Path) -> None:
    frame = pt_frame(tensor)
    assert frame is not None
    data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    path.write_bytes(frame[0] + data + frame[1])
    assert len(frame[0]) % 64 == 0


def random_bytes(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    itemsize = torch.empty(0, dtype=dtype).element_size()
    count = int(np.prod(shape)) * itemsize
    high = 2 if dtype is torch.bool else 256
    return torch.randint(high, (count,), dtype=torch.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mapped", [False, True])
def test_torch_reads_every_dtype(tmp_path: Path, dtype: torch.dtype, mapped: bool) -> None:
    tensor = random_bytes(dtype, (3, 1, 5))
    framed(tensor, tmp_path / "x.pt")
    back = torch.load(tmp_path / "x.pt", weights_only=True, mmap=mapped)
    assert same_bytes(back, tensor)
    assert (back.dtype, back.stride()) == (tensor.dtype, tensor.stride())
    assert not back.requires_grad


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (4, 0, 3), (1,), (70000,), (2, 3, 4, 5, 6)])
def test_every_shape_comes_back_with_its_strides(tmp_path: Path, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape)
    framed(tensor, tmp_path / "x.pt")
    back = torch.load(tmp_path / "x.pt", weights_only=True)
    assert torch.equal(back, tensor)
    assert back.stride() == torch.zeros(shape).stride()
    assert list_pt_keys(tmp_path / "x.pt") is None
    np.testing.assert_array_equal(read_pt_tensor(tmp_path / "x.pt"), tensor.numpy())


def test_other_readers_of_zip_find_the_same_files_as_in_one_of_torch(tmp_path: Path) -> None:
    tensor = torch.randn(3, 5)
    framed(tensor, tmp_path / "x.pt")
    file = io.BytesIO()
    torch.save(tensor, file)
    with zipfile.ZipFile(tmp_path / "x.pt") as ours, zipfile.ZipFile(file) as theirs:
        assert set(ours.namelist()) < set(theirs.namelist())
        for name in ("archive/version", "archive/byteorder"):
            assert ours.read(name) == theirs.read(name)
        assert ours.getinfo("archive/data/0").file_size == 60


def test_reading_warns_of_nothing(tmp_path: Path) -> None:
    framed(torch.randn(7), tmp_path / "x.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.load(tmp_path / "x.pt", weights_only=True, mmap=True)


def test_a_tensor_too_large_for_the_short_form_has_no_frame() -> None:
    assert pt_frame(torch.empty(2**30, dtype=torch.float32, device="meta")) is None
    assert pt_frame(torch.empty(2**30 - 2**19, dtype=torch.float32, device="meta")) is not None
