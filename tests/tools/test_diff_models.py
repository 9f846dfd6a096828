"""The command, run as users run it, on engines and on dumps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ORACLE = """
from tools.create_pipelines import PIPELINE_ORACLES

from test_common.pipelines import TorchModelAndDataProcessor
from oracles.oracle import PipelineOracle

_LLAMA = PIPELINE_ORACLES["tiny-random/llama"]


class Faulty(PipelineOracle):
    model_path = property(lambda self: _LLAMA.model_path)
    device_encoding_map = {"cpu": ["float32"]}

    def create_max_pipeline(self, *, encoding, device_specs):
        raise NotImplementedError

    def create_torch_pipeline(self, *, encoding, device):
        built = _LLAMA.create_torch_pipeline(encoding=encoding, device=device)
        built.model.model.layers[1].mlp.up_proj.weight.data[3] *= 1.01
        return built


FAULTY = Faulty()
"""


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "BUILD_WORKING_DIRECTORY": str(cwd),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "tools.diff_models", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def test_a_faulty_oracle_is_told_from_the_pipeline_and_its_dumps_can_be_read_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "my_oracle.py").write_text(ORACLE)
    pipeline = ("--pipeline", "tiny-random/llama")
    done = run(
        *(*pipeline, "--reference", "torch", "--candidate", "torch@my_oracle.py:FAULTY"),
        *("--num-hidden-layers", 2, "--output", "dumps", "--json", "found.json"),
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    assert "Verdict: diverge\n" in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["verdict"] == "diverge"
    assert found["culprit"]["module"] == "model.model.layers.1.mlp.up_proj"
    assert (found["culprit"]["side"], found["culprit"]["step"]) == ("candidate", 0)
    assert found["cause"]["id"] == "weights"
    assert [guilty["module"] for guilty in found["guilty"]] == [found["culprit"]["module"]]

    dumps = ("--reference", "dumps/reference", "--candidate", "dumps/candidate")
    again = run(*dumps, "--json", "again.json", cwd=tmp_path)
    assert again.returncode == 1, again.stderr
    assert json.loads((tmp_path / "again.json").read_text())["culprit"] == found["culprit"]

    manifest = tmp_path / "dumps" / "reference" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("tiny-random/llama", "nobody/knows"))
    weaker = run(*dumps, "--json", "weaker.json", cwd=tmp_path)
    assert weaker.returncode == 1, weaker.stderr
    assert "there is no model to replay" in weaker.stdout
    inferred = json.loads((tmp_path / "weaker.json").read_text())
    assert inferred["culprit"]["module"] == "model.model.layers.1.mlp.up_proj"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--candidate", "maxx"], "'maxx' is no side"),
        (["--candidate", "torch"], "name what to run, --pipeline NAME or torch@FILE.py"),
        (["--candidate", "torch@"], "expected an oracle behind the @"),
        (["--candidate", "./nothing"], "name what to run"),
        (
            ["--reference", "./nothing", "--candidate", "torch"],
            "expected a file or folder, found nothing at nothing",
        ),
        (
            ["--candidate", "torch", "--pipeline", "tiny-random/lama"],
            "unknown pipeline 'tiny-random/lama'",
        ),
        (["--candidate", "torch", "--json", "no/folder.json"], "--json needs a file in a folder"),
        (["--candidate", "torch", "--repro", "/"], "--repro needs a new or empty folder, got /"),
        (
            ["--candidate", "torch", "--num-hidden-layers", "x"],
            "--num-hidden-layers must be a number or 'all'",
        ),
        (["--candidate", "torch", "--hf-config-overrides", "{"], "is not JSON"),
        (
            ["--candidate", "torch", "--prompt", "a", "--prompt-ids", "1,2"],
            "give prompts by one of --prompt and --prompt-ids",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_two(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
