"""The catalogue against what the installed MAX registers: neither may fall behind the other."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from oracles.catalogue import CATALOGUE, LISTED, Status, find_architecture, run_as, why_no_oracle
from oracles.catalogue_table import page
from oracles.oracle_check import TASKS
from oracles.registry import PIPELINE_ORACLES
from test_common.max_cpu_patches import CPU_PATCHES
from test_common.tiny_checkpoints import RECIPES
from tests.child_processes import ROOT

Registered = Mapping[tuple[str, str], Any]


@pytest.fixture(scope="module")
def registered() -> Registered:
    """MAX's own records by name and task, the speculators derived."""
    import max.pipelines  # noqa: F401  # it registers the architectures
    from max.pipelines.lib.registry import PIPELINE_REGISTRY

    lookup = PIPELINE_REGISTRY._arch_lookup
    targets = list(lookup._lazy_speculators)
    PIPELINE_REGISTRY.all_architectures()
    # By task too: one name may stand for two.
    found = dict(lookup._architectures_by_task.items())
    for target in targets:
        for speculator in lookup.speculators_for(target):
            derived = speculator.derive()
            found[derived.name, derived.task] = derived
    return {(name, task.name): record for (name, task), record in found.items()}


def test_every_architecture_that_max_registers_has_an_entry(registered: Registered) -> None:
    assert len(registered) >= 100
    assert sorted(set(registered) - set(CATALOGUE)) == []


def test_no_entry_is_of_an_architecture_that_max_lacks(registered: Registered) -> None:
    assert sorted(set(CATALOGUE) - set(registered)) == []


def test_encodings_are_those_that_max_supports(registered: Registered) -> None:
    ours = {key: sorted(entry.encodings) for key, entry in CATALOGUE.items()}
    theirs = {key: sorted(record.supported_encodings) for key, record in registered.items()}
    assert ours == theirs


def test_examples_are_among_those_that_max_names(registered: Registered) -> None:
    strange = {
        key: entry.example
        for key, entry in CATALOGUE.items()
        if entry.example not in registered[key].example_repo_ids
    }
    assert strange == {}


def test_encodings_stand_under_devices_that_max_gives_them(registered: Registered) -> None:
    from max.pipelines.modeling.config_enums import _SUPPORTED_DEVICES

    for key, entry in CATALOGUE.items():
        devices = entry.device_encoding_map
        assert set().union(*devices.values()) >= set(registered[key].supported_encodings), key
        assert all("gpu" in _SUPPORTED_DEVICES[name] for name in devices["gpu"]), key
        alone = {name for name in devices.get("cpu", ()) if "cpu" not in _SUPPORTED_DEVICES[name]}
        assert alone <= {"bfloat16"}, key  # a patch adds it


def test_code_of_a_repository_is_trusted_where_transformers_has_no_class_or_max_insists(
    registered: Registered,
) -> None:
    import transformers

    for key, entry in CATALOGUE.items():
        if entry.no_oracle is not None:
            continue
        own_class = hasattr(transformers, entry.name.removesuffix("_ModuleV3"))
        insists = registered[key].required_arguments.get("trust_remote_code", False)
        assert entry.trust_remote_code is (insists or not own_class), key


def test_tasks_without_an_oracle_say_why() -> None:
    for key, entry in CATALOGUE.items():
        assert entry.task in TASKS or entry.no_oracle, key
        assert "\n" not in (entry.no_oracle or ""), key


def test_each_served_text_architecture_has_an_oracle_of_its_example() -> None:
    for entry in LISTED:
        if entry.no_oracle is None and not entry.reads_pictures:
            assert PIPELINE_ORACLES[entry.example or ""].task_name == entry.task, entry.name


def test_oracles_that_prepare_pictures_are_those_that_there_are(registered: Registered) -> None:
    from oracles import multimodal

    served = {entry.oracle_class for entry in LISTED if entry.oracle_class is not None}
    assert {"InternVLPipelineOracle", "Qwen2_5VLPipelineOracle"} <= served
    assert [name for name in served if not hasattr(multimodal, name)] == []
    for entry in LISTED:
        modalities = {kind.name for kind in registered[entry.name, entry.task].input_modalities}
        if entry.no_oracle is None and "IMAGE" in modalities:
            assert entry.reads_pictures, entry.name


def test_patches_are_those_that_there_are_and_a_status_fits_them() -> None:
    for key, entry in CATALOGUE.items():
        assert set(entry.max_cpu_patches) <= set(CPU_PATCHES), key
        if entry.status is Status.RUNS_WITH_PATCHES:
            assert entry.max_cpu_patches, key
        if entry.status is Status.RUNS:
            assert not entry.max_cpu_patches, key


def test_what_was_run_has_a_tiny_checkpoint_to_run_again() -> None:
    tiny = {run_as(recipe.config_architectures).name for recipe in RECIPES.values()}
    ran = {entry.name for entry in LISTED if entry.status is not Status.NOT_RUN}
    assert len(ran) >= 10
    assert ran <= tiny


def test_page_is_made_from_the_catalogue() -> None:
    written = (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")
    assert written == page(), (
        "docs/architectures.md is old; make it again: python -c 'from oracles.catalogue_table "
        'import page; print(page(), end="")\' > docs/architectures.md'
    )
    for name, _ in CATALOGUE:
        assert name.removesuffix("_ModuleV3") in written, name


def test_module_v3_variant_is_derived() -> None:
    llama = find_architecture("LlamaForCausalLM_ModuleV3")
    assert llama is not None
    assert llama.encodings == ("bfloat16", "float32")
    assert llama.status is Status.RUNS
    assert find_architecture("Qwen3ForCausalLM_ModuleV3").task == "EMBEDDINGS_GENERATION"  # type: ignore[union-attr]


def test_speculator_takes_over_its_target() -> None:
    pair = find_architecture("Eagle3DeepseekV3ForCausalLM")
    target = find_architecture("DeepseekV3ForCausalLM")
    assert pair is not None
    assert target is not None
    assert pair.encodings == target.encodings
    assert pair.speculates_on == target.name
    assert "target" in (pair.no_oracle or "")


def test_name_of_two_tasks_means_text_generation() -> None:
    assert run_as(["Qwen3ForCausalLM"]).task == "TEXT_GENERATION"
    assert run_as(["Unheard", "MPNetModel"]).name == "MPNetForMaskedLM"
    assert run_as(["Unheard"]).task == "TEXT_GENERATION"


def test_target_of_a_pair_is_served() -> None:
    assert why_no_oracle("meta-llama/Llama-3.1-8B-Instruct") is None
    assert why_no_oracle("google/gemma-4-31B-it") is None  # also of two pairs
    assert why_no_oracle("some-org/some-model") is None


def test_example_of_a_pair_is_run_as_its_target() -> None:
    pairs = [entry for entry in LISTED if entry.speculates_on is not None]
    assert len(pairs) >= 14
    for pair in pairs:
        target = find_architecture(pair.speculates_on or "")
        assert target is not None, pair.name
        assert target.no_oracle is None, pair.name
        assert why_no_oracle(pair.example or "") is None, pair.name
    llama = PIPELINE_ORACLES["meta-llama/Llama-3.2-3B-Instruct"]
    assert llama.resolve_encoding(None, device_type="cpu") == "float32"
    glm = PIPELINE_ORACLES["zai-org/GLM-5.2-FP8"]
    assert glm.resolve_encoding(None, device_type="gpu") == "float8_e4m3fn"
    assert "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16" in PIPELINE_ORACLES


def test_draft_of_a_pair_is_refused_in_any_case() -> None:
    for name in ("z-lab/Qwen3.8-27B-DFlash2", "Z-lab/qwen3.8-27b-dflash2"):
        assert "draft half" in (why_no_oracle(name) or ""), name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("llamaforcausallm", "is an architecture, no model"),
        ("LLAMAFORCAUSALLM", "is an architecture, no model"),
        ("flux2pipeline", "makes pictures"),
        ("mpnetmodel", "is an architecture, no model"),
        ("MuseGlimmerForConditionalGeneration", "is an architecture, no model"),
        ("UnifiedDSparkNemotronHForCausalLM", "guesses tokens ahead"),
    ],
)
def test_architecture_is_known_in_any_case_and_without_the_suffix(name: str, told: str) -> None:
    assert told in (why_no_oracle(name) or "")


def test_importing_the_catalogue_imports_no_engine() -> None:
    code = (
        "import sys, oracles.registry; "
        "print([name for name in ('max', 'torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
