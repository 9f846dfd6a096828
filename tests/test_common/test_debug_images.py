"""Debug runs on Torch of models that read pictures."""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.schema.errors import BadInputError, EngineError
from comparison.store.dump import open_dump
from oracles.generic_oracle import GenericOracle
from oracles.multimodal import InternVLPipelineOracle
from oracles.registry import find_oracle
from test_common.debug_options import DebugOptions
from test_common.debug_run import run_debug_model
from test_common.images import default_images
from tests.test_common.multimodal_families import FAMILIES


def options(family: str, **given: Any) -> DebugOptions:
    return DebugOptions(**{"pipeline": f"tiny-random/{family}", "framework": "torch"} | given)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_dumps_tower_and_decoder_and_names_its_pictures(tmp_path: Path, family: str) -> None:
    out = tmp_path / "dump"
    run = run_debug_model(
        find_oracle(f"tiny-random/{family}"), options(family, output=out, num_steps=2)
    )
    manifest = open_dump(out).manifest
    assert manifest == run.manifest
    assert manifest is not None
    (picture,) = default_images(1)
    assert manifest.options["images"] == [{"source": picture.source, "sha256": picture.sha256}]
    assert "on Pillow" in manifest.options["notes"][0]
    prefill, decode = ((out / step / "tensor_names.txt").read_text() for step in "01")
    sees = ("vision", "visual")
    assert any(word in prefill for word in sees)
    assert not any(word in decode for word in sees)  # the picture is in the cache
    assert re.search(r"(language|text)_model\.layers\.0\.mlp-output", decode)
    assert not re.search(r"(language|text)_model\.layers\.1\.", prefill)  # of the tower all
    image_token = json.loads(Path(str(manifest.model), "config.json").read_text())
    token_id = image_token.get("image_token_id", image_token.get("image_token_index"))
    assert all(token_id in row.token_ids for row in manifest.rows)


def test_pictures_of_the_user_take_the_place_of_those_made_by_code(tmp_path: Path) -> None:
    oracle, paths = find_oracle("tiny-random/qwen2_5_vl"), []
    for number, picture in enumerate(default_images(2)):
        paths.append(str(tmp_path / f"{number}.png"))
        Path(paths[-1]).write_bytes(picture.data)
    runs = [
        run_debug_model(oracle, options("qwen2_5_vl", images=tuple(given)), capture=False)
        for given in (paths[:1], paths[1:], paths)
    ]
    assert [len(run.manifest.options["images"]) for run in runs] == [1, 1, 2]
    assert runs[2].manifest.options["images"] == [
        {"source": path, "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
        for path in paths
    ]
    assert np.abs(runs[0].logits[0] - runs[1].logits[0]).max() > 0.1
    assert len(runs[2].manifest.rows[0].token_ids) > len(runs[0].manifest.rows[0].token_ids)


def test_a_broken_picture_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no picture")
    given = options("internvl", output=tmp_path / "dump", images=(str(tmp_path / "a.png"),))
    with pytest.raises(BadInputError, match=r"a\.png: expected a picture"):
        run_debug_model(find_oracle("tiny-random/internvl"), given)
    assert not (tmp_path / "dump").exists()


class SaysSo(GenericOracle):
    takes_images = True


def test_an_oracle_that_only_says_so_is_told_what_to_derive_from() -> None:
    oracle = SaysSo("none", device_encoding_map={"cpu": ["float32"]})
    with pytest.raises(BadInputError, match=r"SaysSo says takes_images and has no prepare\(\)"):
        run_debug_model(oracle, options("internvl"))


def test_ids_as_arrays_and_paths_as_paths_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(default_images(1)[0].data)
    made = find_oracle("tiny-random/internvl")
    first = run_debug_model(made, options("internvl", images=(path,)), capture=False)
    ids = [np.array(row.token_ids) for row in first.manifest.rows]
    oracle = InternVLPipelineOracle(str(made.model_path), prompts=ids)
    again = run_debug_model(oracle, options("internvl", images=(path,)), capture=False)
    np.testing.assert_array_equal(first.logits[0], again.logits[0])


class Mine(InternVLPipelineOracle):
    """Prepares in the two arguments that the documentation names."""

    result: Any = None

    def prepare(self, prompts: Any, images: Any) -> Any:  # type: ignore[override]  # as documented
        given = super().prepare(prompts, images)
        return given if self.result is None else self.result(*given)


def mine(result: Any = None) -> Mine:
    oracle = Mine(str(find_oracle("tiny-random/internvl").model_path))
    oracle.result = result
    return oracle


def test_a_prepare_as_documented_runs() -> None:
    run = run_debug_model(mine(), options("internvl"), capture=False)
    assert len(run.logits) == 1


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda rows, vision: (rows, replace(vision, model_inputs={})), "no picture reaches"),
        (lambda rows, vision: (rows[:1], vision), "expected 2 rows, one a prompt, found 1"),
        (lambda rows, vision: 1 // 0, "prepare raised ZeroDivisionError"),
    ],
)
def test_what_prepare_returns_is_checked_before_anything_is_made(
    tmp_path: Path, result: Any, message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        run_debug_model(mine(result), options("internvl", output=tmp_path / "dump"))
    assert not (tmp_path / "dump").exists()


def test_embeddings_of_pictures_are_refused(tmp_path: Path) -> None:
    path = str(find_oracle("tiny-random/internvl").model_path)
    oracle = InternVLPipelineOracle(path, task="EMBEDDINGS_GENERATION")
    with pytest.raises(BadInputError, match="takes images and makes embeddings"):
        run_debug_model(oracle, options("internvl", output=tmp_path / "dump"))
    assert not (tmp_path / "dump").exists()


def test_llava_with_another_tower_is_not_taken_for_pixtral(tmp_path: Path) -> None:
    folder = tmp_path / "llava"
    shutil.copytree(str(find_oracle("tiny-random/pixtral").model_path), folder)
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"] = {"model_type": "clip_vision_model", "num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInputError, match="the configuration says 'clip_vision_model'"):
        run_debug_model(find_oracle(str(folder)), options("pixtral"))
