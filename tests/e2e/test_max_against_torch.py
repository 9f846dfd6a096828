"""MAX against Torch on the same tiny checkpoints, both real, in one process.

The graphs that this file builds are listed in README.md: keep that list, and their number, true.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from comparison.pipeline import CompareOptions, compare
from comparison.report.text import format_comparison
from comparison.schema.comparison import Comparison, Finding, Verdict
from comparison.schema.outcome import Compared
from comparison.schema.tolerance import Tolerance
from oracles.generic_oracle import GenericOracle
from oracles.registry import find_oracle
from tests.e2e.engine_runs import STEPS, EngineRuns, dump_of, keep_report, tokens_of

# Float32 noise is 1e-6 to 1e-5 here; the smallest planted fault below is 1e-2.
TOLERANCE = Tolerance(rtol=1e-4, atol=1e-4)
ARCHITECTURES = (
    "llama",
    pytest.param("qwen2", marks=pytest.mark.full),
    pytest.param("gemma3", marks=pytest.mark.full),
)
# A prompt longer than gemma3's sliding window of 128 tokens.
LONG_PROMPTS = ("The quick brown fox jumps over the lazy dog. " * 12, "Measure first, round later.")
# One of llama, whose graph the README's command builds too; of gemma3 two sliding and a full one.
LAYERS = {"llama": 1, "qwen2": 2, "gemma3": 3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> EngineRuns:
    return EngineRuns(tmp_path_factory.mktemp("dumps"))


def options_for(arch: str) -> dict[str, object]:
    prompts = {"prompts": LONG_PROMPTS} if arch == "gemma3" else {}
    return prompts | {"num_hidden_layers": LAYERS[arch]}


def compared(runs: EngineRuns, arch: str) -> Comparison:
    pipeline = f"tiny-random/{arch}"
    reference = runs.run("torch", pipeline, **options_for(arch))
    candidate = runs.run("max", pipeline, **options_for(arch))
    return compare(dump_of(reference), dump_of(candidate), CompareOptions(tolerance=TOLERANCE))


def names_paired(comparison: Comparison, step: int) -> set[str]:
    return {pair.reference.name for pair in comparison.pairs if pair.reference.step == step}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_greedy_tokens_are_equal(runs: EngineRuns, arch: str) -> None:
    reference = runs.run("torch", f"tiny-random/{arch}", **options_for(arch))
    candidate = runs.run("max", f"tiny-random/{arch}", **options_for(arch))
    rows = reference.manifest.rows
    assert min(len(row.token_ids) for row in rows) > 8
    assert len({len(row.token_ids) for row in rows}) == 2
    assert [row.token_ids for row in candidate.manifest.rows] == [row.token_ids for row in rows]
    assert tokens_of(candidate) == tokens_of(reference)
    assert all(len(tokens) == STEPS for tokens in tokens_of(candidate))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_paired_tensor_agrees(runs: EngineRuns, arch: str) -> None:
    comparison = compared(runs, arch)
    keep_report(f"{arch}.txt", format_comparison(comparison))
    assert comparison.verdict is Verdict.AGREE
    parts = ["-output", ".self_attn-output_0", ".mlp-output"]
    parts += [".input_layernorm-output", ".post_attention_layernorm-output"]
    wanted = {f"model.model.layers.{n}{part}" for n in range(LAYERS[arch]) for part in parts}
    wanted |= {"model.model.embed_tokens-output", "model.model.norm-output"}
    wanted |= {"model.lm_head-output"}
    for step in range(STEPS):
        assert wanted <= names_paired(comparison, step)
    for pair in comparison.pairs:
        assert isinstance(pair.outcome, Compared), pair


def test_gemma3_prompt_is_longer_than_its_window(runs: EngineRuns) -> None:
    run = runs.run("torch", "tiny-random/gemma3", **options_for("gemma3"))
    assert len(run.manifest.rows[0].token_ids) > run.manifest.config["sliding_window"] + STEPS
    assert "full_attention" in run.manifest.config["layer_types"]


@pytest.mark.full
def test_patches_for_the_cpu_are_named(runs: EngineRuns) -> None:
    assert runs.run("max", "tiny-random/llama").manifest.patches == ()
    patches = runs.run("max", "tiny-random/gemma3", **options_for("gemma3")).manifest.patches
    assert any("RMSNorm" in patch for patch in patches)


@pytest.mark.parametrize("framework", ["torch", "max"])
def test_a_run_compared_with_itself_has_no_findings(runs: EngineRuns, framework: str) -> None:
    dump = dump_of(runs.run(framework, "tiny-random/llama"))
    comparison = compare(dump, dump, CompareOptions(tolerance=Tolerance()))
    assert comparison.verdict is Verdict.AGREE
    assert not comparison.unpaired
    assert len(comparison.pairs) == comparison.reference.tensors > 50


@pytest.mark.parametrize("framework", ["torch", pytest.param("max", marks=pytest.mark.full)])
def test_logits_are_the_same_without_capture(runs: EngineRuns, framework: str) -> None:
    captured = runs.run(framework, "tiny-random/llama")
    plain = runs.run(framework, "tiny-random/llama", capture=False)
    for with_hooks, without in zip(captured.logits, plain.logits, strict=True):
        np.testing.assert_array_equal(with_hooks, without)


@pytest.mark.full
def test_module_v3_keeps_its_weights_under_capture(runs: EngineRuns) -> None:
    v3 = {"prefer_module_v3": True}
    captured = runs.run("max", "tiny-random/llama", **v3)
    plain = runs.run("max", "tiny-random/llama", capture=False, **v3)
    reference = runs.run("torch", "tiny-random/llama")
    assert captured.manifest.options["notes"] == []  # no silent fall back to V2
    assert tokens_of(captured) == tokens_of(plain) == tokens_of(reference)
    for with_hooks, without in zip(captured.logits, plain.logits, strict=True):
        np.testing.assert_array_equal(with_hooks, without)
    comparison = compare(dump_of(reference), dump_of(captured), CompareOptions(tolerance=TOLERANCE))
    keep_report("llama_v3.txt", format_comparison(comparison))
    assert comparison.verdict is Verdict.AGREE
    assert "model.model.layers.0.mlp-output" in names_paired(comparison, step=0)


def test_a_changed_norm_weight_is_shown_at_that_norm_first(
    runs: EngineRuns, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    changed = tmp_path / "changed"
    shutil.copytree(str(find_oracle("tiny-random/llama").model_path), changed)
    weights = load_file(changed / "model.safetensors")
    weights["model.layers.0.post_attention_layernorm.weight"][7] *= 1.01
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    oracle = GenericOracle(str(changed), device_encoding_map={"cpu": ["float32"]})
    reference = runs.run("torch", "changed", oracle=oracle)
    candidate = runs.run("max", "tiny-random/llama")
    comparison = compare(
        dump_of(reference), dump_of(candidate), CompareOptions(tolerance=TOLERANCE)
    )
    assert comparison.exit_code == 1
    first = next(pair for pair in comparison.pairs if pair.finding is Finding.DIFFERS)
    assert first.reference.name == "model.model.layers.0.post_attention_layernorm-output"
    assert first.reference.step == 0
    assert isinstance(first.outcome, Compared)
