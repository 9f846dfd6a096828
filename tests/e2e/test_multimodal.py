"""MAX against Torch on tiny models that read pictures, both real, each with its own preparation."""

from pathlib import Path

import numpy as np
import pytest

from comparison.pipeline import CompareOptions, compare
from comparison.report.text import format_comparison
from comparison.schema.comparison import Verdict
from comparison.schema.errors import EngineError
from comparison.schema.outcome import Compared
from comparison.schema.tolerance import Tolerance
from tests.e2e.engine_runs import STEPS, EngineRuns, dump_of, keep_report, tokens_of

pytestmark = pytest.mark.full

# Float32 noise is 1e-6 to 1e-5 on activations near 1.
TOLERANCE = Tolerance(rtol=1e-4, atol=1e-4)
LAYERS = 2  # of the decoder; the tower keeps its three
# Tensors of the tower and behind it that have to be paired in the prefill.
TOWERS = {
    "pixtral": (
        "model.model.vision_tower.ln_pre-output",
        "model.model.vision_tower.transformer.layers.2-output",
        "model.model.vision_tower.transformer.layers.1.attention-output_0",
        "model.model.multi_modal_projector.linear_2-output",
    ),
}
# What MAX 26.7 says of the others on a CPU.
REFUSED = {
    "gemma3_multimodal": "quantization_encoding of 'float32' not supported by MAX engine",
    "internvl": "No architecture found for InternVLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2.5VL currently only supports GPU devices",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> EngineRuns:
    return EngineRuns(tmp_path_factory.mktemp("dumps"))


@pytest.mark.parametrize("arch", TOWERS)
def test_greedy_tokens_and_logits_are_equal(runs: EngineRuns, arch: str) -> None:
    reference = runs.run("torch", f"tiny-random/{arch}", num_hidden_layers=LAYERS)
    candidate = runs.run("max", f"tiny-random/{arch}", num_hidden_layers=LAYERS)
    rows = reference.manifest.rows
    assert [row.token_ids for row in candidate.manifest.rows] == [row.token_ids for row in rows]
    assert tokens_of(candidate) == tokens_of(reference)
    assert all(len(tokens) == STEPS for tokens in tokens_of(candidate))
    for found, expected in zip(candidate.logits, reference.logits, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)
    assert any("DeviceRef.GPU" in patch for patch in candidate.manifest.patches)


@pytest.mark.parametrize("arch", TOWERS)
def test_tower_and_decoder_agree(runs: EngineRuns, arch: str) -> None:
    reference = runs.run("torch", f"tiny-random/{arch}", num_hidden_layers=LAYERS)
    candidate = runs.run("max", f"tiny-random/{arch}", num_hidden_layers=LAYERS)
    comparison = compare(
        dump_of(reference), dump_of(candidate), CompareOptions(tolerance=TOLERANCE)
    )
    keep_report(f"{arch}.txt", format_comparison(comparison))
    assert comparison.verdict is Verdict.AGREE
    paired = {pair.reference.name for pair in comparison.pairs if pair.reference.step == 0}
    assert set(TOWERS[arch]) <= paired
    assert {f"model.model.language_model.layers.{n}-output" for n in range(LAYERS)} <= paired
    assert all(isinstance(pair.outcome, Compared) for pair in comparison.pairs)


@pytest.mark.parametrize("arch", REFUSED)
def test_what_max_refuses_leaves_its_error_and_no_dump(arch: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    with pytest.raises(EngineError) as raised:
        EngineRuns(out).run("max", f"tiny-random/{arch}")
    assert REFUSED[arch] in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not list(out.rglob("*"))
