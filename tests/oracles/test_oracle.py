"""Tests of the abstract oracle."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import pytest

from comparison.schema.errors import BadInputError, EngineError
from oracles.oracle import PipelineOracle
from test_common.pipelines import MaxPipelineAndTokenizer, TorchModelAndDataProcessor


class Task(Enum):
    EMBEDDINGS_GENERATION = "embeddings_generation"


class Documented(PipelineOracle):
    """What the documentation asks of a subclass, and no more."""

    @property
    def device_encoding_map(self) -> Mapping[str, Sequence[str]]:
        return {"cpu": ["float32", "bfloat16"], "gpu": ["bfloat16"]}

    def create_max_pipeline(
        self, *, encoding: str, device_specs: Sequence[Any]
    ) -> MaxPipelineAndTokenizer:
        return MaxPipelineAndTokenizer(pipeline=encoding, tokenizer=device_specs)

    def create_torch_pipeline(self, *, encoding: str, device: Any) -> TorchModelAndDataProcessor:
        return TorchModelAndDataProcessor(model=encoding, data_processor=device)


def test_abstract_members_are_the_documented_ones() -> None:
    assert PipelineOracle.__abstractmethods__ == {
        "device_encoding_map",
        "create_max_pipeline",
        "create_torch_pipeline",
    }


def test_defaults_of_a_documented_subclass() -> None:
    oracle = Documented()
    assert oracle.task_name == "TEXT_GENERATION"
    assert oracle.use_cache
    assert oracle.default_batch_size is None
    assert oracle.max_cpu_patches == ()
    assert len({len(str(prompt)) for prompt in oracle.inputs}) == len(oracle.inputs) == 2


@pytest.mark.parametrize(
    "task", ["EMBEDDINGS_GENERATION", "embeddings_generation", Task.EMBEDDINGS_GENERATION]
)
def test_task_is_a_name_or_an_enum_member(task: Any) -> None:
    oracle = Documented()
    oracle.task = task
    assert oracle.task_name == "EMBEDDINGS_GENERATION"


def test_vllm_is_told_what_to_load() -> None:
    oracle = Documented()
    oracle.model_path = "some/model"
    oracle.config_params = {"trust_remote_code": True}
    pipeline = oracle.create_vllm_pipeline(encoding="bfloat16", device_specs=[])
    assert pipeline.model_path == "some/model"
    assert pipeline.encoding == "bfloat16"
    assert pipeline.trust_remote_code is True


def test_vllm_needs_a_model_path() -> None:
    with pytest.raises(EngineError, match="no model path that vLLM could load"):
        Documented().create_vllm_pipeline(encoding="bfloat16", device_specs=[])


def test_encoding_defaults_to_the_first_of_the_device() -> None:
    assert Documented().resolve_encoding(None, device_type="cpu") == "float32"
    assert Documented().resolve_encoding(None, device_type="gpu") == "bfloat16"
    assert Documented().resolve_encoding("bfloat16", device_type="cpu") == "bfloat16"


def test_encoding_that_is_not_listed_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"'float32' on 'gpu'; supported: bfloat16"):
        Documented().resolve_encoding("float32", device_type="gpu")


def test_device_that_is_not_listed_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"no encoding for device 'tpu'; its devices: cpu, gpu"):
        Documented().resolve_encoding(None, device_type="tpu")
