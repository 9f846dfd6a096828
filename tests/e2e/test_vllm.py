"""vLLM by itself and against Torch: several ranks, embeddings, and tensors for scripts."""

from pathlib import Path

import numpy as np
import pytest
import torch

from comparison.pipeline import CompareOptions, compare
from comparison.report.text import format_comparison
from comparison.schema.comparison import Verdict
from comparison.schema.errors import EngineError
from comparison.schema.outcome import Compared
from comparison.schema.tolerance import Tolerance
from comparison.store.dump import open_dump
from oracles.registry import find_oracle
from test_common.capture_mode import CaptureMode
from test_common.debug_run import DebugRun
from test_common.intermediate_tensors import load_intermediate_tensors, tensors_of_module
from tests.e2e.engine_runs import PROMPTS, EngineRuns, dump_of, keep_report, tokens_of

pytestmark = pytest.mark.full  # test_three_engines.py runs vLLM in every run

LLAMA, BERT = "tiny-random/llama", "tiny-random/bert"
LAYERS = {"num_hidden_layers": 2}
TOLERANCE = Tolerance(rtol=1e-4, atol=1e-4)  # float32 noise is 1e-6 to 1e-5 here
JOINED = "the parts of 2 ranks were joined along axis -1"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> EngineRuns:
    return EngineRuns(tmp_path_factory.mktemp("dumps"))


@pytest.fixture
def two_ranks(runs: EngineRuns) -> DebugRun:
    return runs.run("vllm", LLAMA, tensor_parallel_size=2, **LAYERS)


def test_two_ranks_choose_the_tokens_of_one_process(runs: EngineRuns, two_ranks: DebugRun) -> None:
    tokens = tokens_of(two_ranks)
    assert tokens == tokens_of(runs.run("torch", LLAMA, **LAYERS))
    assert [len(row) for row in tokens] == [3, 3]


def test_each_rank_writes_a_dump_of_its_own(two_ranks: DebugRun) -> None:
    whole = open_dump(dump_of(two_ranks))
    ranks = [open_dump(dump_of(two_ranks) / f"rank{rank}") for rank in (0, 1)]
    assert whole.complete
    assert whole.notes == ()
    assert {(entry.rank, entry.step) for entry in whole.entries} == {
        (rank, step) for rank in (0, 1) for step in (0, 1, 2)
    }
    assert len(whole.entries) == sum(len(dump.entries) for dump in ranks)
    for dump in (whole, *ranks):
        assert dump.manifest is not None
        assert dump.manifest.certificate is not None
        assert dump.manifest.certificate.saved == len(dump.entries)
        assert dump.manifest.options["tensor_parallel_size"] == 2


def test_two_ranks_agree_with_torch_part_by_part(runs: EngineRuns, two_ranks: DebugRun) -> None:
    reference = dump_of(runs.run("torch", LLAMA, **LAYERS))
    comparison = compare(reference, dump_of(two_ranks), CompareOptions(tolerance=TOLERANCE))
    keep_report("llama_torch_two_ranks.txt", format_comparison(comparison))
    assert comparison.verdict is Verdict.AGREE
    assert all(isinstance(pair.outcome, Compared) for pair in comparison.pairs)
    joined = {pair.reference.name for pair in comparison.pairs if JOINED in pair.adjustments}
    layer = "model.model.layers.1"
    for projection in ("q_proj", "k_proj", "v_proj"):
        assert f"{layer}.self_attn.{projection}-output" in joined
    assert {f"{layer}.self_attn.o_proj-input_0", f"{layer}.mlp.down_proj-input_0"} <= joined
    assert not any(item.reason.startswith("no copy") for item in comparison.unpaired)


@pytest.mark.parametrize("mode", [CaptureMode.SKETCH, CaptureMode.STATS])
def test_sketches_are_of_the_same_bits_as_full_dumps(runs: EngineRuns, mode: CaptureMode) -> None:
    full, own = (runs.run("vllm", LLAMA, mode=each, **LAYERS) for each in (CaptureMode.FULL, mode))
    exact = CompareOptions(tolerance=Tolerance(rtol=0, atol=0))
    comparison = compare(dump_of(full), dump_of(own), exact)
    assert comparison.verdict is Verdict.AGREE
    assert own.manifest.certificate is not None
    assert len(comparison.pairs) == own.manifest.certificate.saved > 200
    assert own.size_bytes < full.size_bytes / 4
    assert not list(dump_of(own).rglob("*.pt"))


def test_embeddings_are_those_of_torch(runs: EngineRuns) -> None:
    options = {"num_hidden_layers": 2, "num_steps": 1}
    reference, candidate = (runs.run(engine, BERT, **options) for engine in ("torch", "vllm"))
    assert candidate.logits[0].shape == reference.logits[0].shape
    assert len(candidate.logits[0]) == len(PROMPTS)
    np.testing.assert_allclose(candidate.logits[0], reference.logits[0], rtol=1e-4, atol=1e-5)
    comparison = compare(
        dump_of(reference), dump_of(candidate), CompareOptions(tolerance=TOLERANCE)
    )
    keep_report("bert_torch_vllm.txt", format_comparison(comparison))
    assert comparison.verdict is Verdict.AGREE
    names = {pair.reference.name for pair in comparison.pairs}
    for layer in (0, 1):
        for part in ("", ".attention.self.query", ".attention.self.value", ".output.LayerNorm"):
            assert f"model.encoder.layer.{layer}{part}-output" in names


def test_an_architecture_that_vllm_lacks_is_named(runs: EngineRuns) -> None:
    with pytest.raises(EngineError, match=r"\['MPNetForMaskedLM'\] are not supported for now"):
        runs.run("vllm", "tiny-random/mpnet", num_steps=1)


def test_a_script_gets_the_tensors(tmp_path: Path) -> None:
    options = {"prompts": PROMPTS, "num_steps": 2}
    dumps = [
        load_intermediate_tensors(find_oracle(LLAMA), engine, tmp_path / engine, "cpu", **options)
        for engine in ("torch", "vllm")
    ]
    given, result = tensors_of_module(dumps[1], "model.layers.0.mlp")
    rows, tokens, hidden = dumps[0]["model.model.layers.0.mlp-output"].shape
    assert given.shape == result.shape
    assert tokens < result.shape[0] < rows * tokens  # ragged rows of unlike length
    assert result.shape[1] == hidden
    last = [tensors["1/model.model.layers.0.mlp-output"] for tensors in dumps]
    torch.testing.assert_close(last[1], last[0].reshape(last[1].shape), rtol=1e-4, atol=1e-5)
