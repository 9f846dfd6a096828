"""Weights of Torch modules, taken down as they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.numerics.weight_record import WeightSketch
from comparison.numerics.weight_sketch import sketch_weight
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import CaptureCertificate, Manifest, Padding
from comparison.store.dump import open_dump
from comparison.store.weights_file import WEIGHTS_NAME, read_weights
from test_common.debug_options import DebugOptions
from test_common.dump_writer import DumpWriter
from test_common.weight_recorder import sketches_of, weights_of_module


class _Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(7, 4)
        self.head = torch.nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("table", torch.ones(3), persistent=False)


def _by_name(weights: tuple[WeightSketch, ...]) -> dict[str, WeightSketch]:
    return {weight.name: weight for weight in weights}


def test_parameters_and_what_a_checkpoint_holds_are_recorded() -> None:
    weights = _by_name(weights_of_module(_Tied()).weights)
    assert set(weights) == {
        "model.embed.weight", "model.head.weight", "model.norm.weight", "model.norm.bias",
        "model.norm.running_mean", "model.norm.running_var",
    }  # fmt: skip


def test_tied_weights_have_one_storage_and_others_their_own() -> None:
    weights = _by_name(weights_of_module(_Tied()).weights)
    storages = {name: weight.storage for name, weight in weights.items()}
    assert storages["model.embed.weight"] == storages["model.head.weight"]
    assert len(set(storages.values())) == len(weights) - 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_any_dtype_and_strides_are_read(dtype: torch.dtype) -> None:
    values = torch.randn(6, 10, generator=torch.Generator().manual_seed(0)).to(dtype).T
    (found,) = sketches_of([("a", values)])
    expected = sketch_weight("model.a", values.to(torch.float64).contiguous().numpy())
    assert (found.shape, found.dtype) == ((10, 6), str(dtype).removeprefix("torch."))
    assert found.rows is not None
    assert expected.rows is not None
    np.testing.assert_allclose(found.rows, expected.rows, rtol=1e-12)


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (torch.ones(2, 3, device="meta"), "no data"),
        (torch.ones(2, 3).to_sparse(), "not a plain array"),
        (torch.ones(2, 3, dtype=torch.int8), "codes"),
    ],
)
def test_what_holds_no_plain_numbers_is_said_to(tensor: Any, says: str) -> None:
    (found,) = sketches_of([("a", tensor)])
    assert found.rows is None
    assert says in found.unreadable


def test_memory_that_is_used_again_makes_no_tie() -> None:
    made = ((str(n), torch.full((64, 64), float(n + 1))) for n in range(20))
    storages = [sketch.storage for sketch in sketches_of(made)]
    assert len(set(storages)) == 20


def _dump(folder: Path, *, weights: bool, overwrite: bool = False) -> None:
    manifest = Manifest(
        engine="torch", versions={}, model="m", pipeline="p", encoding="float32", device="cpu",
        padding=Padding.NONE, rows=(), steps=1,
    )  # fmt: skip
    writer = DumpWriter(folder, overwrite=overwrite)
    writer.start(manifest)
    if weights:
        writer.save_weights(weights_of_module(_Tied()))
    writer.save("model.a-output", torch.ones(3))
    writer.finish(manifest, CaptureCertificate(registered=1, fired=1, saved=1))


def test_weights_are_no_tensors_of_the_run(tmp_path: Path) -> None:
    _dump(tmp_path, weights=True)
    dump = open_dump(tmp_path)
    assert [entry.name for entry in dump.entries] == ["model.a-output"]
    assert (dump.complete, dump.notes) == (True, ())
    record = read_weights(tmp_path)
    assert record is not None
    assert len(record.weights) == 6


def test_the_weights_of_an_overwritten_dump_do_not_stay(tmp_path: Path) -> None:
    _dump(tmp_path, weights=True)
    _dump(tmp_path, weights=False, overwrite=True)
    assert not (tmp_path / WEIGHTS_NAME).exists()


def test_the_weights_of_someone_else_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS_NAME).write_bytes(b"mine")
    with pytest.raises(BadInputError, match="not part of a dump"):
        _dump(tmp_path, weights=True, overwrite=True)
    assert (tmp_path / WEIGHTS_NAME).read_bytes() == b"mine"


def test_weights_need_an_output_folder() -> None:
    with pytest.raises(BadInputError, match="name an output folder"):
        DebugOptions(pipeline="p", framework="torch", weights=True)
