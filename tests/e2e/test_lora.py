"""A LoRA adapter on MAX and on Torch: its graph is llama's, weights are no part of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from comparison.pipeline import CompareOptions, compare
from comparison.schema.comparison import Verdict
from comparison.schema.tolerance import Tolerance
from oracles.generic_oracle import GenericOracle
from oracles.registry import find_oracle
from tests.e2e.engine_runs import EngineRuns, dump_of, tokens_of

pytestmark = pytest.mark.full

RANK = 4
# Module of llama to its output and input features.
SHAPES = {"q_proj": (256, 256), "k_proj": (128, 256), "v_proj": (128, 256), "o_proj": (256, 256)}


def write_adapter(folder: Path) -> None:
    numbers = np.random.default_rng(1)
    weights = {}
    for module, (features_out, features_in) in SHAPES.items():
        stem = f"base_model.model.model.layers.0.self_attn.{module}"
        down = numbers.standard_normal((RANK, features_in)) / 16
        up = numbers.standard_normal((features_out, RANK)) / 2
        weights |= {f"{stem}.lora_A.weight": down, f"{stem}.lora_B.weight": up}
    single = {name: weight.astype(np.float32) for name, weight in weights.items()}
    save_file(single, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK}
    (folder / "adapter_config.json").write_text(json.dumps(settings))


def test_engines_agree_on_the_adapted_model_and_it_is_another(tmp_path: Path) -> None:
    write_adapter(tmp_path)
    runs = EngineRuns(tmp_path / "runs")
    plain = find_oracle("tiny-random/llama")
    assert isinstance(plain, GenericOracle)
    adapted = plain.with_lora(str(tmp_path))
    reference, candidate = (runs.run(e, "adapted", oracle=adapted) for e in ("torch", "max"))
    options = CompareOptions(tolerance=Tolerance(rtol=1e-4, atol=1e-4))
    comparison = compare(dump_of(reference), dump_of(candidate), options)
    assert comparison.verdict is Verdict.AGREE
    assert tokens_of(candidate) == tokens_of(reference)
    before = runs.run("torch", "tiny-random/llama").logits[0]
    assert np.abs(candidate.logits[0] - before).max() > 1
