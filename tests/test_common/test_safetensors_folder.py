"""test_common.safetensors_folder, read back by the library and by our own reader."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from comparison.schema.errors import UnwritableOutputError
from comparison.store.safetensors_file import read_safetensors_header
from test_common.safetensors_folder import SafetensorsFolder, reason_unstorable

_DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.uint32,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
]


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 1, 7)], ids=str)
@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_file_is_that_of_the_library(
    tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = torch.randint(0, 2, shape).to(dtype)
    assert reason_unstorable(tensor) is None
    path = tmp_path / SafetensorsFolder(tmp_path).save("M.a_inputs", tensor)
    assert path.read_bytes() == save({"data": tensor})
    assert load_file(path)["data"].equal(tensor)
    assert read_safetensors_header(path)["data"].shape == shape


def test_elements_are_those_of_the_view(tmp_path: Path) -> None:
    folder = SafetensorsFolder(tmp_path)
    base = torch.arange(24).to(torch.complex64).reshape(4, 6) * (1 + 2j)
    for number, view in enumerate((base.T, base[1:, ::2], base.conj(), base.real)):
        path = tmp_path / folder.save(f"{number}", view)
        assert load_file(path)["data"].equal(view)


def test_tensor_that_a_file_holds_is_linked_and_never_to_a_replaced_one(tmp_path: Path) -> None:
    folder = SafetensorsFolder(tmp_path)
    first = folder.save("a", torch.ones(3))
    second = folder.repeat(first, "b", torch.ones(3))
    assert (tmp_path / first).samefile(tmp_path / second)
    folder.save("a", torch.zeros(3))
    third = folder.repeat(first, "c", torch.ones(3))
    assert [load_file(tmp_path / f)["data"].tolist() for f in (first, second, third)] == [
        [0] * 3,
        [1] * 3,
        [1] * 3,
    ]


def test_name_of_an_earlier_trace_is_replaced(tmp_path: Path) -> None:
    SafetensorsFolder(tmp_path).save("b", torch.zeros(3))
    folder = SafetensorsFolder(tmp_path)
    path = folder.repeat(folder.save("a", torch.ones(3)), "b", torch.ones(3))
    assert load_file(tmp_path / path)["data"].tolist() == [1] * 3


def test_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnwritableOutputError, match="the folder must exist"):
        SafetensorsFolder(tmp_path / "gone").save("a", torch.ones(3))
    assert not list(tmp_path.iterdir())
