"""Tests of the check that finds what is wrong with a user's oracle."""

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from comparison.schema.errors import BadInputError, TryAgainError
from oracles.generic_oracle import GenericOracle
from oracles.made_checkpoint import MadeCheckpointOracle
from oracles.oracle import PipelineOracle
from oracles.oracle_check import checked_oracle
from oracles.registry import PIPELINE_ORACLES
from test_common.max_cpu_patches import CPU_PATCHES
from test_common.pipelines import MaxPipelineAndTokenizer, TorchModelAndDataProcessor


class Task(Enum):
    TEXT_GENERATION = 1


class Documented(PipelineOracle):
    """What the documentation asks of a subclass, and no more."""

    device_encoding_map: Mapping[str, Sequence[str]] = {"cpu": ["float32"]}

    def create_max_pipeline(
        self, *, encoding: str, device_specs: Sequence[Any]
    ) -> MaxPipelineAndTokenizer:
        raise NotImplementedError

    def create_torch_pipeline(self, *, encoding: str, device: Any) -> TorchModelAndDataProcessor:
        raise NotImplementedError


def _generic(path: Any = "a/b", **settings: Any) -> GenericOracle:
    return GenericOracle(path, **{"device_encoding_map": {"cpu": ["float32"]}} | settings)


def _problem(oracle: object) -> str:
    with pytest.raises(BadInputError) as raised:
        checked_oracle(oracle, name="X")
    start, _, problem = str(raised.value).partition(": ")
    assert start == "X"
    return problem


def test_every_registered_oracle_passes() -> None:
    for key, oracle in PIPELINE_ORACLES.items():
        assert checked_oracle(oracle, name=key) is oracle


def test_documented_subclass_passes_and_needs_no_model_path() -> None:
    assert checked_oracle(Documented()).model_path is None


@pytest.mark.parametrize(
    "settings",
    [
        {"task": Task.TEXT_GENERATION},
        {"task": "embeddings_generation"},
        {"config_params": {"max_length": None, "huggingface_model_revision": None, "other": 5}},
        {"prompts": [[1, 2], "text", (3,)]},
        {"torch_model_path": Path("x"), "weight_path_map": {"q4_k": "x.gguf"}},
        {
            "auto_model_cls": "AutoModel",
            "auto_processor_cls": type("A", (), {"from_pretrained": 1}),
        },
        {"device_encoding_map": {}},
        {"add_bos_token": False, "batch_size": 3},
    ],
)
def test_documented_values_pass(settings: dict[str, Any]) -> None:
    checked_oracle(_generic(**settings))
    checked_oracle(_generic(Path("folder"), **settings))


def test_nothing_is_made_by_the_check() -> None:
    def make() -> Path:
        raise AssertionError("made")

    checked_oracle(MadeCheckpointOracle("key", make=make, device_encoding_map={"cpu": ["float32"]}))


@pytest.mark.parametrize("value", [None, 5, "a/b", PipelineOracle])
def test_what_is_no_oracle(value: object) -> None:
    assert _problem(value).startswith("expected a PipelineOracle, found ")


LISTS = "device_encoding_map of cpu must be a list of encodings, found "
WHOLE = "must be a whole number of at least 1, found "
PATH = "must be a local folder or a Hub id, found "
FLAG = "must be True or False, found "
PROMPT = "prompts are wrong: prompt 0 must be a text or a list of token ids, found "
TASKS = "task must be TEXT_GENERATION or EMBEDDINGS_GENERATION, found "
LOADER = "must be a class of transformers, or its name, found "


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"device_encoding_map": {"cpu": "float32"}}, f"{LISTS}'float32'"),
        ({"device_encoding_map": {"cpu": None}}, f"{LISTS}None"),
        ({"device_encoding_map": {"cpu": [5]}}, f"{LISTS}[5]"),
        ({"device_encoding_map": {5: []}}, "device_encoding_map has a device that is no text: 5"),
        ({"prompts": "abc"}, "prompts must be a list of prompts, found 'abc'"),
        ({"prompts": [["a"]]}, f"{PROMPT}['a']"),
        ({"prompts": [None]}, f"{PROMPT}None"),
        ({"prompts": [5]}, f"{PROMPT}5"),
        ({"prompts": [{"a": 1}]}, f"{PROMPT}{{'a': 1}}"),
        ({"prompts": [[1.5]]}, f"{PROMPT}[1.5]"),
        (
            {"prompts": ["\udcff"]},
            "prompts are wrong: prompt 0 is no text: character 0 is '\\udcff'",
        ),
        ({"config_params": {"max_length": "x"}}, f"config_params are wrong: max_length {WHOLE}'x'"),
        (
            {"config_params": {"max_length": 1e400}},
            f"config_params are wrong: max_length {WHOLE}inf",
        ),
        ({"config_params": {"max_length": -5}}, f"config_params are wrong: max_length {WHOLE}-5"),
        (
            {"config_params": {"huggingface_model_revision": 5, "trust_remote_code": "no"}},
            "config_params are wrong: huggingface_model_revision must be a text, found 5, "
            "trust_remote_code must be True or False, found 'no'",
        ),
        (
            {"config_params": {5: 5}},
            "config_params must be a dictionary of names to values, found {5: 5}",
        ),
        ({"task": "NOPE"}, f"{TASKS}'NOPE'"),
        ({"task": None}, f"{TASKS}None"),
        ({"batch_size": 0}, f"batch_size {WHOLE}0"),
        ({"batch_size": -1}, f"batch_size {WHOLE}-1"),
        ({"batch_size": "x"}, f"batch_size {WHOLE}'x'"),
        ({"batch_size": True}, f"batch_size {WHOLE}True"),
        ({"use_cache": "no"}, f"use_cache {FLAG}'no'"),
        ({"add_bos_token": "x"}, f"add_bos_token {FLAG}'x'"),
        ({"apply_chat_template": 1}, f"apply_chat_template {FLAG}1"),
        ({"torch_model_path": 5}, f"torch_model_path {PATH}5"),
        ({"weight_path_map": {"q4_k": 5}}, "weight_path_map has no file for 'q4_k'"),
        ({"auto_model_cls": 5}, f"auto_model_cls {LOADER}5"),
        ({"auto_processor_cls": int}, f"auto_processor_cls {LOADER}<class 'int'>"),
        (
            {"max_cpu_patches": ["nope", "widen_cpu_encodings", ["x"]]},
            f"max_cpu_patches has no 'nope', ['x']: there are {', '.join(CPU_PATCHES)}",
        ),
    ],
)
def test_each_wrong_value_is_named(settings: dict[str, Any], problem: str) -> None:
    assert _problem(_generic(**settings)) == problem


@pytest.mark.parametrize("path", [None, 5, ""])
def test_generic_oracle_needs_a_model_path(path: Any) -> None:
    assert _problem(_generic(path)) == f"model_path {PATH}{path!r}"


def test_subclass_that_builds_by_itself_needs_none() -> None:
    class Mine(GenericOracle):
        create_max_pipeline = Documented.create_max_pipeline  # type: ignore[assignment]
        create_torch_pipeline = Documented.create_torch_pipeline  # type: ignore[assignment]

    checked_oracle(Mine(None, device_encoding_map={"cpu": ["float32"]}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error", [ValueError("x\ny"), KeyError("zz"), SystemExit(0), RecursionError()]
)
def test_property_that_raises_is_named(error: BaseException) -> None:
    class Mine(Documented):
        @property
        def inputs(self) -> Any:
            raise error

        @property
        def device_encoding_map(self) -> Any:
            raise error

    last = {"ValueError": "y", "KeyError": "'zz'", "SystemExit": "0"}
    reason = f"cannot be read: {type(error).__name__}: "
    reason += last.get(type(error).__name__, "no message")
    assert _problem(Mine()) == f"device_encoding_map {reason}; prompts {reason}"


def test_interrupt_passes() -> None:
    class Mine(Documented):
        @property
        def inputs(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checked_oracle(Mine())


def test_init_that_forgets_its_base_class_names_what_is_missing() -> None:
    class Mine(GenericOracle):
        def __init__(self) -> None: ...

    assert "device_encoding_map cannot be read: AttributeError: 'Mine' object" in _problem(Mine())


def test_without_a_name_the_label_is_used() -> None:
    with pytest.raises(BadInputError, match=r"^oracle a/b: batch_size must be"):
        checked_oracle(_generic(batch_size=0))
    with pytest.raises(BadInputError, match=r"^expected a PipelineOracle, found 5$"):
        checked_oracle(5)


def test_adapter_is_not_merged_by_the_check_and_nothing_is_fetched(tmp_path: Path) -> None:
    class Mine(GenericOracle):
        @property
        def model_path(self) -> str:
            raise AssertionError("fetched and merged")

        @model_path.setter
        def model_path(self, value: str) -> None:
            self._model_path = value

    class Other(Documented):
        label = "other"
        lora_path = "folder"

        @property
        def model_path(self) -> Any:
            raise AssertionError("fetched and merged")

    devices = {"cpu": ["float32"]}
    checked_oracle(Mine("a/b", device_encoding_map=devices, lora_path="folder"), name="X")
    checked_oracle(Other(), name="X")
    wrong = Mine(5, device_encoding_map=devices, lora_path=7)  # type: ignore[arg-type]
    assert _problem(wrong) == (f"lora_path must be a local folder, found 7; model_path {PATH}5")


def test_error_of_ours_passes_as_it_is() -> None:
    class Mine(Documented):
        @property
        def inputs(self) -> Any:
            raise TryAgainError("the Hub cannot be reached")

    with pytest.raises(TryAgainError, match=r"^the Hub cannot be reached$"):
        checked_oracle(Mine(), name="X")
