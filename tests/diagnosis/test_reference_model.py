"""The model that is replayed: an encoder gives the embedding too, which engines pool themselves."""

import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

from comparison.schema.errors import BadInputError
from diagnosis.replay.reference_model import EMBEDDING, build_reference
from oracles.generic_oracle import GenericOracle
from oracles.registry import find_oracle
from test_common.debug_options import DebugOptions

IDS = torch.tensor([[1, 8, 5, 9, 2]])


def output_of(oracle: Any, name: str) -> Any:
    options = DebugOptions(pipeline=name, framework="torch", device="cpu")
    with torch.no_grad():
        return build_reference(oracle, options, encoding="float32")(input_ids=IDS)


def test_encoder_gives_the_mean_over_its_tokens() -> None:
    found = output_of(find_oracle("tiny-random/bert"), "tiny-random/bert")
    assert found[EMBEDDING].shape == (1, found.last_hidden_state.shape[-1])
    torch.testing.assert_close(found[EMBEDDING], found.last_hidden_state.mean(dim=1))


def test_encoder_that_does_not_pool_gives_its_tokens_alone() -> None:
    model = str(find_oracle("tiny-random/bert").model_path)
    oracle = GenericOracle(
        model,
        device_encoding_map={"cpu": ["float32"]},
        config_params={"pool_embeddings": False},
        task="EMBEDDINGS_GENERATION",
    )
    assert EMBEDDING not in output_of(oracle, Path(model).name)


def test_decoder_gives_logits_alone() -> None:
    found = output_of(find_oracle("tiny-random/llama"), "tiny-random/llama")
    assert EMBEDDING not in found


def test_overrides_that_make_a_far_larger_model_are_refused_before_it_is_built() -> None:
    oracle = find_oracle("tiny-random/llama")
    options = DebugOptions(
        pipeline="tiny-random/llama",
        framework="torch",
        device="cpu",
        hf_config_overrides={"intermediate_size": 2_097_152},
    )
    tracemalloc.start()
    with pytest.raises(BadInputError) as error:
        build_reference(oracle, options, encoding="float32")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert re.match(
        r"hf_config_overrides \{'intermediate_size': 2097152\} makes a model of [0-9.]+ GB of the "
        r"0\.01 GB of weights in /.*: expected fields that leave the weights' shapes as they are$",
        str(error.value),
    )
    assert peak < 200e6


def test_overrides_that_leave_the_weights_as_they_are_pass() -> None:
    options = DebugOptions(
        pipeline="tiny-random/llama",
        framework="torch",
        device="cpu",
        hf_config_overrides={"rms_norm_eps": 0.5},
    )
    model: Any = build_reference(find_oracle("tiny-random/llama"), options, encoding="float32")
    assert model.config.rms_norm_eps == 0.5
