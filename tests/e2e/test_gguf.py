"""MAX on blocks of GGUF against Torch on exactly the weights that they dequantise to.

MAX rounds activations to 8 bits a block before it multiplies them with the weights' blocks. That is
all that tells the two apart: with the same rounding, the dequantised weights give MAX's numbers.
"""

import numpy as np
import pytest
from safetensors.numpy import load_file

from comparison.pipeline import CompareOptions, compare
from comparison.report.text import format_comparison
from comparison.schema.comparison import Comparison
from comparison.schema.outcome import Compared, Metrics
from comparison.store.dump import open_dump, read_tensor
from oracles.registry import find_oracle
from tests.e2e.engine_runs import EngineRuns, dump_of, keep_report

pytestmark = pytest.mark.full

# Not q4_0: MAX 26.7 ends with a segmentation fault in most runs, which would end this process.
ENCODINGS = ("q4_k", "q6_k")
BLOCK = 256  # activations that share a scale: as many as weights share a block
STEPS = 3
# MAX's module to the weight's name.
LINEARS = {
    "model.layers.layers.0.self_attn.o_proj": "model.layers.0.self_attn.o_proj",
    "model.layers.layers.0.mlp.gate_proj": "model.layers.0.mlp.gate_proj",
    "model.layers.layers.0.mlp.down_proj": "model.layers.0.mlp.down_proj",
    "model.lm_head": "lm_head",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> EngineRuns:
    return EngineRuns(tmp_path_factory.mktemp("runs"))


def rounded(activations: np.ndarray, block: int) -> np.ndarray:
    """Round float32 [T, I] to 8 bits, with one scale for each block of a row; float64 [T, I]."""
    blocks = activations.reshape(len(activations), -1, block)
    # In float32, as MAX does: in float64 a value half way between two steps may go the other way.
    scale = np.abs(blocks).max(axis=2, keepdims=True) / np.float32(127)
    steps = np.rint(blocks / scale).astype(np.float64)
    return (steps * scale).reshape(activations.shape)


def relative_l2(candidate: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(candidate - reference) / np.linalg.norm(reference))


def metrics_of(comparison: Comparison, name: str) -> Metrics:
    """Return how far a tensor of the prefill is apart."""
    found = [p for p in comparison.pairs if p.reference.name == name and p.reference.step == 0]
    (outcome,) = [pair.outcome for pair in found]
    assert isinstance(outcome, Compared)
    assert isinstance(outcome.metrics, Metrics)
    return outcome.metrics


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_linears_are_the_dequantised_weights_times_activations_of_8_bits(
    runs: EngineRuns, encoding: str
) -> None:
    pipeline = f"tiny-random/llama-{encoding}"
    dump = open_dump(dump_of(runs.run("max", pipeline, num_steps=STEPS)))
    tensors = {entry.name: entry for entry in dump.entries if entry.step == 0}
    weights = load_file(f"{find_oracle(pipeline).model_path}/model.safetensors")
    for module, name in LINEARS.items():
        given, got = (
            np.asarray(read_tensor(tensors[f"{module}-{side}"])) for side in ("input_0", "output")
        )
        weight = weights[f"{name}.weight"].astype(np.float64)
        assert relative_l2(got, rounded(given, BLOCK) @ weight.T) < 1e-5, module
        assert relative_l2(got, given @ weight.T) > 1e-3, module


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_prefill_agrees_with_torch_within_what_8_bits_explain(
    runs: EngineRuns, encoding: str
) -> None:
    pipeline = f"tiny-random/llama-{encoding}"
    reference, candidate = (
        runs.run(engine, pipeline, num_steps=STEPS) for engine in ("torch", "max")
    )
    assert candidate.manifest.encoding == reference.manifest.encoding == encoding
    comparison = compare(dump_of(reference), dump_of(candidate), CompareOptions())
    keep_report(f"llama_{encoding}.txt", format_comparison(comparison))
    # The embedding is looked up, not multiplied.
    assert metrics_of(comparison, "model.model.embed_tokens-output").greatest_absolute.value == 0
    assert 0 < metrics_of(comparison, "model-output_logits").relative_l2 < 0.05
