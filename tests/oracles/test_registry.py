"""Tests of the registered oracles and of the search by name."""

import json
from pathlib import Path

import pytest

from comparison.schema.errors import BadInputError, CorruptFileError, UnknownPipelineError
from oracles.generic_oracle import GenericOracle
from oracles.oracle import PipelineOracle
from oracles.registry import PIPELINE_ORACLES, find_oracle, nearest_names, nearest_names_offered
from test_common.tiny_checkpoints import RECIPES


def test_registry_is_a_plain_dictionary_of_real_oracles() -> None:
    assert type(PIPELINE_ORACLES) is dict
    assert all(isinstance(oracle, PipelineOracle) for oracle in PIPELINE_ORACLES.values())
    assert {f"tiny-random/{arch}" for arch in RECIPES} <= set(PIPELINE_ORACLES)
    assert {"google/gemma-3-1b-it", "packaged/smollm2-135m"} <= set(PIPELINE_ORACLES)


def test_key_of_a_hub_model_is_its_path() -> None:
    hub = {
        key: oracle
        for key, oracle in PIPELINE_ORACLES.items()
        if not key.startswith(("tiny-random/", "packaged/"))
    }
    assert len(hub) >= 15
    assert {key: oracle.model_path for key, oracle in hub.items()} == {key: key for key in hub}


def test_every_oracle_has_an_encoding_and_two_prompts() -> None:
    for key, oracle in PIPELINE_ORACLES.items():
        assert set(oracle.device_encoding_map) <= {"cpu", "gpu"}, key
        assert all(oracle.device_encoding_map.values()), key
        assert len(oracle.inputs) >= 1, key
        assert oracle.config_params["max_length"] >= 256, key


def test_default_on_a_cpu_is_float32_but_for_files_of_blocks() -> None:
    on_cpu = {
        key: oracle.resolve_encoding(None, device_type="cpu")
        for key, oracle in PIPELINE_ORACLES.items()
        if "cpu" in oracle.device_encoding_map
    }
    assert len(on_cpu) >= 40
    blocks = {key: encoding for key, encoding in on_cpu.items() if encoding != "float32"}
    assert blocks == {f"tiny-random/llama-{name}": name for name in ("q4_k", "q4_0", "q6_k")}


@pytest.mark.parametrize(
    ("key", "patches"),
    [
        ("meta-llama/Llama-3.2-1B-Instruct", ()),
        ("mistralai/Mistral-7B-Instruct-v0.3", ("widen_cpu_encodings",)),
        ("tiny-random/qwen3", ("single_device_signals",)),
        (
            "google/gemma-3-1b-it",
            ("widen_cpu_encodings", "single_device_signals", "float32_norm_weights"),
        ),
    ],
)
def test_patches_for_the_cpu_are_data(key: str, patches: tuple[str, ...]) -> None:
    assert PIPELINE_ORACLES[key].max_cpu_patches == patches


def test_registered_key_is_found() -> None:
    assert find_oracle("tiny-random/llama") is PIPELINE_ORACLES["tiny-random/llama"]


def test_hub_id_that_is_not_registered_gets_a_generic_oracle() -> None:
    oracle = find_oracle("some-org/Some_Model-1.5B")
    assert isinstance(oracle, GenericOracle)
    assert oracle.model_path == "some-org/Some_Model-1.5B"
    assert oracle.resolve_encoding(None, device_type="gpu") == "bfloat16"


@pytest.mark.parametrize(
    ("architecture", "task", "patches"),
    [
        ("LlamaForCausalLM", "TEXT_GENERATION", ()),
        ("BertModel", "EMBEDDINGS_GENERATION", ()),
        ("MistralForCausalLM", "TEXT_GENERATION", ("widen_cpu_encodings",)),
    ],
)
def test_local_folder_takes_task_and_patches_from_its_config(
    tmp_path: Path, architecture: str, task: str, patches: tuple[str, ...]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    oracle = find_oracle(str(tmp_path))
    assert oracle.model_path == str(tmp_path)
    assert oracle.task_name == task
    assert oracle.max_cpu_patches == patches


def test_folder_without_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UnknownPipelineError, match=r"no model folder: it has no config\.json"):
        find_oracle(str(tmp_path))


@pytest.mark.parametrize("content", ["{", "\xff\xfe", "[" * 100_000, '{"a": 1' + "0" * 5000 + "}"])
def test_config_that_is_no_json_is_corrupt(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(CorruptFileError, match=r"config\.json cannot be read as JSON"):
        find_oracle(str(tmp_path))


def test_config_that_is_no_object_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CorruptFileError, match="is not a JSON object"):
        find_oracle(str(tmp_path))


@pytest.mark.parametrize(
    "value", ["5", "0", "{}", '""', "false", '"LlamaForCausalLM"', "[5]", '{"a": 1}', "true"]
)
def test_architectures_that_are_no_list_of_names_are_corrupt(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.json").write_text(f'{{"architectures": {value}}}')
    with pytest.raises(CorruptFileError, match="architectures must be a list of names, found "):
        find_oracle(str(tmp_path))


@pytest.mark.parametrize("value", ["null", "[]"])
def test_architectures_may_be_left_out(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.json").write_text(f'{{"architectures": {value}}}')
    assert find_oracle(str(tmp_path)).task_name == "TEXT_GENERATION"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("~no-such-user/x y", "unknown pipeline '~no-such-user/x y': expected a registered key"),
        ("", "the name of the pipeline is empty"),
        ("a" * 5000, "cannot be looked up: File name too long"),
        ("a/" * 3000, "cannot be looked up: File name too long"),
        ("org/" + "a" * 93, "unknown pipeline 'org/aaa"),
        ("a\0b", "unknown pipeline 'a\\x00b': expected"),
        ("a\ud800/b", "unknown pipeline 'a\\ud800/b': expected"),
    ],
)
def test_name_that_can_be_no_path(name: str, told: str) -> None:
    with pytest.raises(UnknownPipelineError) as raised:
        find_oracle(name)
    assert told in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("tiny-random/lama", "tiny-random/llama"),
        ("packaged/gemma-270m", "packaged/gemma3-270m"),
        ("LamaForCausalLM", "LlamaForCausalLM"),
        (" flux2pipeline", "Flux2Pipeline"),
        ("gemma-3-1b-it", "google/gemma-3-1b-it"),
        ("Tiny-Random/LLAMA ", "tiny-random/llama"),
    ],
)
def test_name_that_is_nothing_names_the_nearest_keys(name: str, nearest: str) -> None:
    with pytest.raises(UnknownPipelineError, match="unknown pipeline") as raised:
        find_oracle(name)
    assert f"nearest known: {nearest}" in str(raised.value)


def test_name_that_nothing_resembles_says_what_was_expected() -> None:
    with pytest.raises(UnknownPipelineError) as raised:
        find_oracle("zzzzzz")
    assert str(raised.value) == (
        "unknown pipeline 'zzzzzz': expected a registered key, a local model folder, or a Hub id "
        "(organisation/model)"
    )


def test_nearest_names_come_nearest_first_and_are_few() -> None:
    names = nearest_names("google/gemma-3-1b")
    assert names[0] == "google/gemma-3-1b-it"
    assert len(names) <= 3
    assert nearest_names("") == []


def test_model_that_does_not_exist_offers_the_nearest_names() -> None:
    with (
        pytest.raises(UnknownPipelineError) as raised,
        nearest_names_offered("goggle/gemma-3-1b-it"),
        nearest_names_offered("goggle/gemma-3-1b-it"),
    ):
        raise UnknownPipelineError("the Hub has no model goggle/gemma-3-1b-it")
    message = str(raised.value)
    assert message.startswith("the Hub has no model goggle/gemma-3-1b-it; nearest known: google/")
    assert message.count("nearest known") == 1


def test_registered_key_gets_no_suggestions() -> None:
    with (
        pytest.raises(UnknownPipelineError, match=r"^not cached$"),
        nearest_names_offered("google/gemma-3-1b-it"),
    ):
        raise UnknownPipelineError("not cached")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("black-forest-labs/FLUX.2-dev", "run as Flux2Pipeline: it makes pictures"),
        ("MiniMaxAI/MiniMax-Music3", "it makes sound"),
        ("z-lab/Qwen3.8-27B-DFlash2", "draft half of a speculative pair"),
        ("UnifiedMTPDeepseekV3ForCausalLM", "debug_model runs the target alone"),
        ("LlamaForCausalLM", "is an architecture, no model: .*such as meta-llama/"),
    ],
)
def test_what_no_oracle_serves_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(BadInputError, match=reason):
        find_oracle(name)


def test_folder_of_a_draft_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["DFlashDraftModel"]}))
    with pytest.raises(BadInputError, match="run as DFlashDraftModel: it is the draft half"):
        find_oracle(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("WanPipeline", "WanPipeline: it makes pictures"),
        ("UnheardPipeline", "UnheardPipeline is no language model"),
    ],
)
def test_folder_of_diffusers_is_refused_with_the_reason(
    name: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": name}))
    with pytest.raises(BadInputError, match=reason):
        find_oracle(str(tmp_path))
