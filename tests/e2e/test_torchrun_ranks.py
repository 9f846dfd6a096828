"""Tensor-parallel models on Torch, each rank a process of torchrun, against the unsharded model."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from comparison.pipeline import CompareOptions, compare
from comparison.schema.comparison import Verdict
from comparison.schema.diagnosis import Judgement
from comparison.schema.outcome import Compared
from comparison.schema.tolerance import Tolerance
from diagnosis.diff_models import diff_models
from tests.diagnosis.two_ranks import dump_run
from tests.e2e.torchrun_child import DRIFTED, DUPLICATED, FAULTY_LAYER, UNREDUCED

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
ROWS = [[1, 5, 7, 9, 11, 2, 3, 4, 8, 6, 12], [4, 6, 2, 9, 10]]
FAULTY = f"model.model.layers.{FAULTY_LAYER}"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model: more heads than kv heads, a head size that is not hidden/heads."""
    folder = tmp_path_factory.mktemp("torchrun") / "model"
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=301,
        hidden_size=48,
        intermediate_size=88,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=10,
        rms_norm_eps=3e-5,
        tie_word_embeddings=False,
    )
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 20)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    )


@pytest.fixture(scope="module")
def reference(model: Any, checkpoint: Path) -> Path:
    folder = checkpoint.parent / "reference"
    dump_run(model, ROWS, folder)
    return folder


def _ranks(checkpoint: Path, *, count: int, plan: str, fault: str = "none") -> Path:
    out = checkpoint.parent / f"{plan}-{fault}-{count}"
    child = Path(__file__).with_name("torchrun_child.py")
    given = [str(count), str(child), str(checkpoint), str(out), plan, fault, json.dumps(ROWS)]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    done = subprocess.run(
        [*launch, *given],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.mark.parametrize(
    ("count", "plan"), [(2, "transformers"), (4, "transformers"), (2, "dtensor")]
)
def test_parts_are_joined_and_copies_are_checked(
    count: int, plan: str, checkpoint: Path, reference: Path, model: Any
) -> None:
    folder = _ranks(checkpoint, count=count, plan=plan)
    result = compare(reference, folder, CompareOptions(tolerance=Tolerance(rtol=1e-4, atol=1e-5)))
    assert result.verdict is Verdict.AGREE
    pairs = {pair.reference.name: pair for pair in result.pairs}
    for part in (
        "self_attn.q_proj-output",
        "self_attn-output_1",  # weights of attention, by heads
        "mlp.act_fn-input_0",
        "mlp.down_proj-input_0",
    ):
        pair = pairs[f"{FAULTY}.{part}"]
        assert isinstance(pair.outcome, Compared)
        assert f"the parts of {count} ranks were joined" in " ".join(pair.adjustments)
        assert pair.outcome.metrics.relative_l2 < 1e-5
    found = diff_models(model, folder)
    assert found.verdict is Judgement.AGREE, found.sentence


@pytest.mark.parametrize("plan", ["transformers", "dtensor"])
def test_a_shard_that_every_rank_holds_is_named(plan: str, checkpoint: Path, model: Any) -> None:
    found = diff_models(model, _ranks(checkpoint, count=2, plan=plan, fault=DUPLICATED))
    assert found.culprit is not None
    assert found.culprit.module == f"{FAULTY}.mlp.up_proj"
    assert found.culprit.spot is not None
    assert found.culprit.spot.rank == 1
    assert found.cause is not None
    assert found.cause.id == "shard"
    assert "[0, 0] of 2" in found.cause.evidence


@pytest.mark.parametrize("plan", ["transformers", "dtensor"])
def test_a_sum_that_is_left_out_is_named(plan: str, checkpoint: Path, model: Any) -> None:
    found = diff_models(model, _ranks(checkpoint, count=2, plan=plan, fault=UNREDUCED))
    assert found.culprit is not None
    assert found.culprit.module == f"{FAULTY}.mlp.down_proj"
    said = " ".join([found.sentence, *(phrase for item in found.guilty for phrase in item.where)])
    assert "never summed up" in said


def test_a_copy_that_one_rank_changed_is_named(checkpoint: Path, model: Any) -> None:
    folder = _ranks(checkpoint, count=2, plan="transformers", fault=DRIFTED)
    found = diff_models(model, folder)
    assert found.culprit is not None
    assert found.culprit.module == f"{FAULTY}.post_attention_layernorm"
    assert found.culprit.spot is not None
    assert found.culprit.spot.rank == 1
