"""Pictures, positions and masks that the two runs were given come before any module."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.schema.diagnosis import Judgement
from comparison.schema.errors import BadInputError
from comparison.store.dump import open_dump
from comparison.store.manifest_file import read_manifest, write_manifest
from diagnosis.diff_models import DiffOptions, diff_models
from diagnosis.given_inputs import given_differences, pictures_by_row
from diagnosis.side_runs import RunOptions
from test_common.debug_options import DebugOptions
from test_common.debug_run import run_debug_model

PIPELINE = "tiny-random/gemma3_multimodal"
PICTURE = "model-input_pixel_values.pt"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from oracles.registry import find_oracle

    folder = tmp_path_factory.mktemp("pictures") / "dump"
    options = DebugOptions(
        pipeline=PIPELINE, framework="torch", output=folder, num_hidden_layers=1, num_steps=2
    )
    run_debug_model(find_oracle(PIPELINE), options)
    return folder


def _changed(run: Path, folder: Path, name: str, change: Any) -> Path:
    copied = Path(shutil.copytree(run, folder / "changed"))
    for path in copied.rglob(name):
        path.write_bytes(path.read_bytes())  # no link to another tensor's file
        torch.save(change(torch.load(path, weights_only=True)), path)
    return copied


def _diff(reference: Path, candidate: Path, *, keep_going: bool = False) -> Any:
    options = DiffOptions(run=RunOptions(pipeline=PIPELINE), keep_going=keep_going)
    return diff_models(reference, candidate, options=options)


def test_a_model_that_reads_pictures_is_replayed_with_them(run: Path) -> None:
    found = _diff(run, run)
    assert found.verdict is Judgement.AGREE
    assert found.guilty == ()
    assert found.coverage.modules_checked > 0.9 * found.coverage.modules


def test_other_pixels_are_the_verdict_and_no_module_is_blamed(run: Path, tmp_path: Path) -> None:
    other = _changed(run, tmp_path, PICTURE, lambda pixels: pixels + 0.01)
    found = _diff(run, other)
    assert (found.verdict, found.culprit, found.guilty) == (Judgement.DIVERGE, None, ())
    assert found.cause is not None
    assert found.cause.id == "preprocessing"
    assert "preprocessing of pictures" in found.sentence
    assert not any(item.kind == "tokens" for item in found.inputs)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda pixels: pixels.flip(1), "reverse order, as BGR for RGB"),
        (lambda pixels: pixels.flip(3), "mirrored"),
        (lambda pixels: pixels * 255.0, "times 255"),
        (lambda pixels: (pixels * 0.5 + 0.5 - 0.48) / 0.26, "times 1.923 plus 0.07692"),
    ],
)
def test_what_was_done_to_pictures_is_told(
    run: Path, tmp_path: Path, change: Any, says: str
) -> None:
    found = _diff(run, _changed(run, tmp_path, PICTURE, change))
    assert found.cause is not None
    assert found.cause.id == "preprocessing"
    assert says in found.sentence


def test_no_change_is_made_up_for_other_pictures(run: Path, tmp_path: Path) -> None:
    found = _diff(run, _changed(run, tmp_path, PICTURE, lambda pixels: pixels.roll(1, -1)))
    assert found.cause is not None
    assert found.cause.id == "preprocessing"
    assert not any(word in found.sentence for word in ("times", "mirrored", "reverse", "exchanged"))


def test_pictures_that_nobody_dumped_are_asked_for(run: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(run, tmp_path / "bare"))
    for path in bare.rglob("*pixel_values*.pt"):
        path.unlink()
    for path in bare.rglob("tensor_names.txt"):
        names = [name for name in path.read_text().splitlines() if "pixel_values" not in name]
        path.write_text("\n".join(names) + "\n")
    manifest = read_manifest(bare / "manifest.json")
    write_manifest(bare / "manifest.json", replace(manifest, certificate=None))
    with pytest.raises(BadInputError, match="neither dump holds what the model was given"):
        _diff(bare, bare)


@pytest.mark.parametrize(
    ("slot", "kind"), [("position_ids", "positions"), ("attention_mask", "mask")]
)
def test_other_positions_and_masks_are_told_first(
    run: Path, tmp_path: Path, slot: str, kind: str
) -> None:
    def change(values: torch.Tensor) -> torch.Tensor:
        values = values.clone()
        values[0, -3:] += 1
        return values

    other = _changed(run, tmp_path, f"model-input_{slot}.pt", change)
    (found, *_) = given_differences(open_dump(run), open_dump(other))
    assert (found.kind, found.decisive) == (kind, True)
    assert f"{slot} of row 0, from token" in found.what


def test_pictures_of_several_rows_are_told_apart_by_their_first_axis() -> None:
    by_row = pictures_by_row({"pixel_values": np.zeros((2, 3, 4, 4))}, 2)
    assert [found["pixel_values"].shape for found in by_row] == [(1, 3, 4, 4)] * 2
    with pytest.raises(BadInputError, match="expected one entry a row"):
        pictures_by_row({"image_grid_thw": np.zeros((3, 3))}, 2)
