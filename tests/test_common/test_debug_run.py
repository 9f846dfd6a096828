"""Debug runs on Torch; those on MAX are in tests/e2e."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparison.schema.errors import BadInputError, CaptureError, EngineError
from comparison.store.dump import open_dump
from oracles.generic_oracle import GenericOracle
from oracles.registry import find_oracle
from test_common.debug_options import DebugOptions
from test_common.debug_run import run_debug_model
from test_common.run_device import resolve_device

LLAMA = "tiny-random/llama"


def options(**given: Any) -> DebugOptions:
    return DebugOptions(**{"pipeline": LLAMA, "framework": "torch"} | given)


def test_steps_rows_and_tokens_are_in_the_manifest(tmp_path: Path) -> None:
    out = tmp_path / "dump"
    run = run_debug_model(find_oracle(LLAMA), options(output=out, num_steps=3))
    manifest = open_dump(out).manifest
    assert manifest == run.manifest
    assert manifest is not None
    assert [len(row.generated) for row in manifest.rows] == [3, 3]
    assert sorted(path.name for path in out.iterdir()) == ["0", "1", "2", "manifest.json"]
    names = [(out / step / "tensor_names.txt").read_text() for step in "12"]
    assert names[0] == names[1]


def test_logits_without_capture_are_bitwise_the_same(tmp_path: Path) -> None:
    oracle = find_oracle(LLAMA)
    plain = run_debug_model(oracle, options(output=tmp_path / "no", num_steps=2), capture=False)
    captured = run_debug_model(oracle, options(output=tmp_path / "yes", num_steps=2))
    for one, other in zip(plain.logits, captured.logits, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not (tmp_path / "no").exists()


def test_the_seeds_and_options_are_kept(tmp_path: Path) -> None:
    run = run_debug_model(
        find_oracle(LLAMA),
        options(seed=5, hf_config_overrides={"rms_norm_eps": 0.5}, num_hidden_layers=2),
    )
    assert run.manifest.seed == 5
    assert run.manifest.config["rms_norm_eps"] == 0.5
    assert run.manifest.config["num_hidden_layers"] == 2
    assert run.manifest.options["hf_config_overrides"] == {"rms_norm_eps": 0.5}


def test_overrides_are_gone_after_the_run() -> None:
    from transformers import AutoConfig

    oracle = find_oracle(LLAMA)
    run_debug_model(oracle, options(hf_config_overrides={"rms_norm_eps": 0.5}))
    assert AutoConfig.from_pretrained(oracle.model_path).rms_norm_eps == 3e-6


def test_the_oracles_prompts_are_cut_to_the_batch() -> None:
    run = run_debug_model(find_oracle(LLAMA), options(max_batch_size=1))
    assert len(run.manifest.rows) == 1


def test_an_encoder_has_one_step_and_embeddings(tmp_path: Path) -> None:
    out = tmp_path / "dump"
    run = run_debug_model(
        find_oracle("tiny-random/bert"),
        options(pipeline="tiny-random/bert", output=out, num_steps=4),
    )
    assert run.manifest.steps == 1
    assert [row.generated for row in run.manifest.rows] == [(), ()]
    assert run.logits[0].shape[0] == 2
    assert [path.name for path in out.iterdir() if path.is_dir()] == ["0"]


@pytest.mark.parametrize("pools", [True, False])
def test_an_encoder_pools_as_its_parameters_say(pools: bool) -> None:
    oracle = GenericOracle(
        str(find_oracle("tiny-random/bert").model_path),
        device_encoding_map={"cpu": ["float32"]},
        task="EMBEDDINGS_GENERATION",
        config_params={"max_length": 128, "pool_embeddings": pools},
        prompts=["One row.", "Another and longer row."],
    )
    run = run_debug_model(oracle, options(pipeline="bert"), capture=False)
    lengths = [len(row.token_ids) for row in run.manifest.rows]
    expected = (2, 256) if pools else (2, max(lengths), 256)
    assert run.logits[0].shape == expected
    if not pools:
        assert not run.logits[0][0, lengths[0] :].any()
        assert run.logits[0][1].all(axis=1).all()


def test_a_model_that_cannot_be_built_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", str(find_oracle(LLAMA).model_path), broken], check=True)
    (broken / "model.safetensors").write_bytes(b"not weights")
    oracle = GenericOracle(str(broken), device_encoding_map={"cpu": ["float32"]})
    with pytest.raises(EngineError, match="torch cannot load"):
        run_debug_model(oracle, options(output=tmp_path / "out" / "dump"))
    assert not (tmp_path / "out").exists()


def test_a_capture_of_nothing_is_an_error_and_marked(tmp_path: Path) -> None:
    class Uncallable(GenericOracle):
        def create_torch_pipeline(self, **given: Any) -> Any:
            built = super().create_torch_pipeline(**given)
            model = built.model
            model.__class__ = type("Direct", (type(model),), {"__call__": type(model).forward})
            for module in model.modules():
                if module is not model:
                    module.__class__ = type(
                        "Direct", (type(module),), {"__call__": type(module).forward}
                    )
            return built

    path = str(find_oracle(LLAMA).model_path)
    oracle = Uncallable(path, device_encoding_map={"cpu": ["float32"]})
    with pytest.raises(CaptureError, match=r"0 fired.*\.forward\(\) directly"):
        run_debug_model(oracle, options(output=tmp_path / "dump"))
    manifest = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    assert manifest["complete"] is False


@pytest.mark.parametrize("device", ["cpu", "gpu", "gpu:0", "gpu:13"])
def test_devices_that_are_taken(device: str) -> None:
    assert resolve_device(device, framework="torch") == device


@pytest.mark.parametrize("device", ["", "tpu", "gpu:", "gpu:x", "cpu:0", "gpu:-1", "GPU"])
def test_devices_that_are_refused(device: str) -> None:
    with pytest.raises(BadInputError, match="device must be"):
        resolve_device(device, framework="torch")
