"""One prompt through Torch, MAX and vLLM, all real, and every pair of engines compared."""

import itertools

import pytest

from comparison.pipeline import CompareOptions, compare
from comparison.report.text import format_comparison
from comparison.schema.comparison import Verdict
from comparison.schema.outcome import Compared
from comparison.schema.tolerance import Tolerance
from tests.e2e.engine_runs import EngineRuns, dump_of, keep_report, tokens_of

ENGINES = ("torch", "max", "vllm")
PAIRS = list(itertools.combinations(ENGINES, 2))
LAYERS = {"llama": 1, "qwen3": 2}
ARCHS = ("llama", pytest.param("qwen3", marks=pytest.mark.full))
STEPS = 5  # the prefill and four decode steps
TOLERANCE = Tolerance(rtol=1e-4, atol=1e-4)  # float32 noise is 1e-6 to 1e-5 here


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> EngineRuns:
    return EngineRuns(tmp_path_factory.mktemp("dumps"))


@pytest.mark.parametrize("arch", ARCHS)
def test_all_engines_choose_the_same_tokens(runs: EngineRuns, arch: str) -> None:
    options = {"num_hidden_layers": LAYERS[arch], "num_steps": STEPS}
    tokens = {
        engine: tokens_of(runs.run(engine, f"tiny-random/{arch}", **options)) for engine in ENGINES
    }
    assert tokens["torch"] == tokens["max"] == tokens["vllm"]
    assert [len(row) for row in tokens["torch"]] == [STEPS, STEPS]


@pytest.mark.parametrize(("reference", "candidate"), PAIRS)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_pair_of_engines_agrees(
    runs: EngineRuns, arch: str, reference: str, candidate: str
) -> None:
    options = {"num_hidden_layers": LAYERS[arch], "num_steps": STEPS}
    dumps = [
        dump_of(runs.run(engine, f"tiny-random/{arch}", **options))
        for engine in (reference, candidate)
    ]
    comparison = compare(*dumps, CompareOptions(tolerance=TOLERANCE))
    keep_report(f"{arch}_{reference}_{candidate}.txt", format_comparison(comparison))
    assert comparison.verdict is Verdict.AGREE
    paired = {(pair.reference.step, _meaning(pair.reference.name)) for pair in comparison.pairs}
    for step, layer in itertools.product(range(STEPS), range(LAYERS[arch])):
        for part in ("", ".self_attn", ".mlp", ".input_layernorm", ".post_attention_layernorm"):
            assert (step, f"layers.{layer}{part}") in paired
    for step in range(STEPS):
        assert {(step, "embed_tokens"), (step, "norm"), (step, "logits")} <= paired
    assert all(isinstance(pair.outcome, Compared) for pair in comparison.pairs)


def _meaning(name: str) -> str:
    """Strip what engines put around a module's path."""
    module = name.rpartition("-output")[0].replace("_shards.0", "")
    for prefix in ("model.", "model.", "language_model."):
        module = module.removeprefix(prefix)
    module = module.replace("layers.layers.", "layers.")
    return "logits" if module in ("model", "logits_processor") else module
