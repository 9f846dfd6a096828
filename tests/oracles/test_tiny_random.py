"""Tests of the tiny oracles, on real tokenizers and models."""

from pathlib import Path

import pytest

from comparison.schema.errors import BadInputError
from oracles.tiny_random import tiny_random_oracles
from test_common.prompts import encode_prompts
from test_common.tiny_checkpoints import RECIPES

ORACLES = tiny_random_oracles()


def test_nothing_is_made_before_the_path_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    oracle = tiny_random_oracles()["tiny-random/llama"]
    assert repr(oracle) == "MadeCheckpointOracle('tiny-random/llama')"
    with pytest.raises(BadInputError, match="tiny-random/llama has no encoding for device 'tpu'"):
        oracle.resolve_encoding(None, device_type="tpu")
    assert not list(tmp_path.iterdir())
    assert oracle.model_path is not None
    assert Path(oracle.model_path).is_relative_to(tmp_path)
    assert Path(oracle.model_path, "model.safetensors").is_file()


@pytest.mark.parametrize("arch", RECIPES)
def test_default_prompts_are_two_lengths_and_fit(arch: str) -> None:
    oracle = ORACLES[f"tiny-random/{arch}"]
    rows = encode_prompts(
        oracle.model_path, oracle.inputs, max_length=oracle.config_params["max_length"]
    )
    lengths = [len(row) for row in rows]
    assert len(set(lengths)) == 2
    assert min(lengths) > 8
    recipe = RECIPES[arch]
    assert oracle.config_params["max_length"] <= recipe.config["max_position_embeddings"] - 2


def test_encoders_make_embeddings() -> None:
    tasks = {arch: ORACLES[f"tiny-random/{arch}"].task_name for arch in RECIPES}
    encoders = {arch for arch, task in tasks.items() if task == "EMBEDDINGS_GENERATION"}
    assert encoders == {"bert", "mpnet"}
    assert set(tasks.values()) == {"TEXT_GENERATION", "EMBEDDINGS_GENERATION"}


def test_torch_pipeline_of_an_encoder_is_its_bare_model() -> None:
    oracle = ORACLES["tiny-random/mpnet"]
    built = oracle.create_torch_pipeline(encoding="float32", device="cpu")
    assert type(built.model).__name__ == "MPNetModel"
