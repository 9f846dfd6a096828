"""The model that is replayed: an encoder gives the embedding too, which engines pool themselves."""

from pathlib import Path
from typing import Any

import torch

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
