"""How the parent tells its worker what to run, and what it makes of the worker's end."""

import dataclasses
import json
from pathlib import Path

import pytest

from comparison.schema.errors import BadInputError, EngineError, TryAgainError
from comparison.schema.manifest import Manifest, Padding, Row
from oracles.generic_oracle import GenericOracle
from test_common.capture_job import CaptureJob
from test_common.capture_vllm import capture_on_vllm
from test_common.pipelines import VLLMPipeline
from test_common.vllm_environment import PYTHON_VARIABLE

MAP = {"cpu": ["float32"]}
ORACLE = GenericOracle("my-org/my-model", device_encoding_map=MAP)


class SplitOracle(GenericOracle):
    """An oracle that says itself over how many processes its model is to be split."""

    def create_vllm_pipeline(self, *, encoding: str, device_specs: object) -> VLLMPipeline:
        return VLLMPipeline(model_path="m", encoding=encoding, tensor_parallel_size=4)


def job(**fields: object) -> CaptureJob:
    draft = Manifest(
        engine="vllm",
        versions={},
        model="m",
        pipeline="m",
        encoding="float32",
        device="cpu",
        padding=Padding.NONE,
        rows=(Row(prompt=None, token_ids=(1, 2)),),
        steps=1,
    )
    usual = CaptureJob(draft=draft, rows=[[1, 2]], num_steps=1, encoding="float32", device="cpu")
    return dataclasses.replace(usual, **fields)  # type: ignore[arg-type]  # fields of CaptureJob


def use_worker(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Let a script be the Python with vLLM; `$4` is the folder of the job."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv(PYTHON_VARIABLE, str(program))


def test_a_worker_killed_by_a_signal_is_to_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_worker(monkeypatch, tmp_path, "kill -KILL $$")
    with pytest.raises(TryAgainError, match="the vLLM worker was killed by SIGKILL"):
        capture_on_vllm(ORACLE, job())


def test_so_is_one_whose_rank_was_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_worker(monkeypatch, tmp_path, 'echo "a rank was killed" > "$4/error.txt"; exit 75')
    with pytest.raises(TryAgainError, match="a rank was killed"):
        capture_on_vllm(ORACLE, job())


def test_a_worker_that_failed_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_worker(monkeypatch, tmp_path, 'echo "no such model" > "$4/error.txt"; exit 2')
    with pytest.raises(EngineError, match="the vLLM worker failed: no such model"):
        capture_on_vllm(ORACLE, job())


@pytest.mark.parametrize(
    ("oracle", "asked", "device", "ranks", "visible"),
    [
        (ORACLE, None, "cpu", 1, "5,7,9"),
        (ORACLE, 2, "cpu", 2, "5,7,9"),
        (ORACLE, None, "gpu:2,0", 2, "9,5"),
        (SplitOracle("m", device_encoding_map=MAP), None, "gpu", 4, "5,7,9"),
        (SplitOracle("m", device_encoding_map=MAP), 2, "gpu", 2, "5,7,9"),
        (SplitOracle("m", device_encoding_map=MAP), None, "gpu:1", 1, "7"),
    ],
)
def test_ranks_and_devices(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    oracle: GenericOracle,
    asked: int | None,
    device: str,
    ranks: int,
    visible: str,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7,9")
    seen = tmp_path / "seen"
    script = f'cp "$4/job.json" {tmp_path}; echo "$CUDA_VISIBLE_DEVICES" > {seen}; exit 2'
    use_worker(monkeypatch, tmp_path, script)
    with pytest.raises(EngineError, match="exit code 2"):
        capture_on_vllm(oracle, job(device=device, tensor_parallel_size=asked))
    assert json.loads((tmp_path / "job.json").read_text())["ranks"] == ranks
    assert seen.read_text().strip() == visible


def test_a_device_out_of_reach_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    use_worker(monkeypatch, tmp_path, "exit 0")
    with pytest.raises(BadInputError, match="device gpu:1: CUDA_VISIBLE_DEVICES is 5"):
        capture_on_vllm(ORACLE, job(device="gpu:1"))


def test_embeddings_a_token_are_refused() -> None:
    oracle = GenericOracle(
        "my-org/my-model",
        device_encoding_map=MAP,
        task="EMBEDDINGS_GENERATION",
        config_params={"pool_embeddings": False},
    )
    with pytest.raises(BadInputError, match="vLLM pools embeddings here"):
        capture_on_vllm(oracle, job())
