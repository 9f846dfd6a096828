"""Every style gives back what was written, through the reader that compare_tensors uses."""

from pathlib import Path

import numpy as np
import pytest
import torch

from comparison.schema.errors import UnsupportedFormatError
from comparison.schema.manifest import Manifest, Padding
from comparison.store.dump import open_dump
from test_common.dump_writer import DumpWriter
from test_common.print_style import PrintStyle
from test_common.tensor_files import write_tensor_file

TENSORS = {
    "float32": torch.randn(3, 5),
    "bfloat16": torch.randn(2, 7).bfloat16(),
    "float16": torch.randn(4).half(),
    "int64": torch.tensor([2**62, -1]),
    "bool": torch.tensor([[True], [False]]),
    "scalar": torch.tensor(3.5),
    "empty": torch.zeros(0, 3),
}


def manifest() -> Manifest:
    return Manifest(
        engine="torch",
        versions={},
        model="m",
        pipeline="p",
        encoding="float32",
        device="cpu",
        padding=Padding.NONE,
        rows=(),
        steps=1,
    )


@pytest.mark.parametrize("style", ["native", "binary", "binary-max-checkpoint"])
def test_a_dump_of_any_style_is_read_as_it_was_written(tmp_path: Path, style: str) -> None:
    from comparison.schema.manifest import CaptureCertificate

    writer = DumpWriter(tmp_path / "dump", style=PrintStyle(style))
    writer.start(manifest())
    for name, tensor in TENSORS.items():
        writer.save(name, tensor)
    saved = len(TENSORS)
    writer.finish(manifest(), CaptureCertificate(registered=1, fired=1, saved=saved))
    dump = open_dump(tmp_path / "dump")
    assert [entry.name for entry in dump.entries] == list(TENSORS)
    for entry in dump.entries:
        array, tensor = dump.read(entry), TENSORS[entry.name]
        assert array.shape == tuple(tensor.shape)
        assert array.dtype.name == str(tensor.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(
            array.reshape(-1).view(np.uint8) if array.size else array,
            tensor.reshape(-1).view(torch.uint8).numpy() if array.size else array,
        )
    assert writer.bytes_written > sum(t.nbytes for t in TENSORS.values()) - 1


def test_bare_bytes_have_no_suffix_and_no_header(tmp_path: Path) -> None:
    raw = write_tensor_file(TENSORS["float32"], tmp_path / "x", style=PrintStyle.BINARY, name="x")
    assert raw is not None
    assert (raw.dtype, raw.shape) == ("float32", (3, 5))
    assert (tmp_path / "x").read_bytes() == TENSORS["float32"].numpy().tobytes()


def test_a_dtype_that_the_max_format_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormatError, match="complex64"):
        write_tensor_file(
            torch.zeros(2, dtype=torch.complex64),
            tmp_path / "x.max",
            style=PrintStyle.BINARY_MAX_CHECKPOINT,
            name="x",
        )
    assert list(tmp_path.iterdir()) == []
