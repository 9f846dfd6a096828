from pathlib import Path

import pytest
import torch

from comparison.schema.manifest import CaptureCertificate
from comparison.store.dump import open_dump
from test_common.limited_writer import LimitedDumpWriter
from tests.test_common.tiny_manifest import MANIFEST

CERTIFICATE = CaptureCertificate(registered=2, fired=2, saved=4)


def fill(writer: LimitedDumpWriter, steps: int) -> None:
    writer.start(MANIFEST)
    for _ in range(steps):
        writer.save("model.a-output", torch.ones(5, dtype=torch.bfloat16))
        writer.save("model.b-output", torch.ones(3, 2).T)
        writer.step()
    writer.finish(MANIFEST, CERTIFICATE)


def test_a_dump_that_fits_is_written_and_measured(tmp_path: Path) -> None:
    writer = LimitedDumpWriter(tmp_path / "dump", max_bytes=68)
    fill(writer, steps=2)
    assert not writer.overflowed
    assert writer.sizes == {"model.a-output": 20, "model.b-output": 48}
    assert len(open_dump(tmp_path / "dump").entries) == 4


@pytest.mark.parametrize("max_bytes", [0, 33, 67])
def test_a_larger_dump_leaves_no_tensor_and_is_measured_to_its_end(
    tmp_path: Path, max_bytes: int
) -> None:
    writer = LimitedDumpWriter(tmp_path / "dump", max_bytes=max_bytes)
    fill(writer, steps=2)
    assert writer.overflowed
    assert writer.sizes == {"model.a-output": 20, "model.b-output": 48}
    assert [path.name for path in (tmp_path / "dump").rglob("*.pt")] == []
