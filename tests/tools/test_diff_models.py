"""The command, run as users run it, on engines and on dumps."""

import json
import os
import shutil
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


@pytest.mark.full
def test_what_an_earlier_run_left_is_replaced_only_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "my_oracle.py").write_text(ORACLE)
    sides = ("--pipeline", "tiny-random/llama", "--candidate", "torch@my_oracle.py:FAULTY")
    files = ("--json", "found.json", "--print-map", "map.json", "--repro", "repro")
    command = (*sides, "--output", "dumps", *files)
    first = run(*command, "--num-hidden-layers", 2, cwd=tmp_path)
    assert first.returncode == 1, first.stderr
    assert (tmp_path / "dumps" / "candidate-drill" / "manifest.json").is_file()
    assert (tmp_path / "repro" / "REPORT.md").is_file()
    (tmp_path / "dumps" / "mine.txt").write_text("stays")
    before = (tmp_path / "found.json").read_bytes()
    again = run(*command, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "dumps" in again.stderr
    assert "--overwrite" in again.stderr
    assert (tmp_path / "found.json").read_bytes() == before
    # Without the fault there is nothing to drill or repro, and in this mode nothing to sketch.
    shutil.copytree(tmp_path / "dumps" / "reference", tmp_path / "dumps" / "reference-sketch")
    (tmp_path / "my_oracle.py").write_text(ORACLE.replace("*= 1.01", "*= 1"))
    done = run(*command, "--num-hidden-layers", 2, "--overwrite", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch@my_oracle.py:FAULTY agrees with torch: " in done.stdout
    assert json.loads((tmp_path / "found.json").read_text())["verdict"] == "agree"
    assert sorted(path.name for path in (tmp_path / "dumps").iterdir()) == [
        "candidate",
        "mine.txt",
        "reference",
    ]
    assert not list((tmp_path / "repro").iterdir())


def test_an_oracle_that_raises_is_named_with_its_side(tmp_path: Path) -> None:
    faulty = ORACLE.replace("up_proj.weight.data[3] *= 1.01", "no_such_thing")
    (tmp_path / "my_oracle.py").write_text(faulty)
    done = run(
        *("--pipeline", "tiny-random/llama", "--candidate", "torch@my_oracle.py:FAULTY"),
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "error: the candidate (torch@my_oracle.py:FAULTY): oracle " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--candidate", "maxx"], "'maxx' is no side"),
        (["--candidate", "torch"], "name what to run, --pipeline NAME or torch@FILE.py"),
        (["--candidate", "torch@"], "expected an oracle behind the @"),
        (["--candidate", "max", "--candidate", "max"], "candidate max is named twice"),
        (["--candidate", "./nothing"], "expected a file or folder, found nothing at nothing"),
        (
            ["--reference", "./nothing", "--candidate", "torch"],
            "expected a file or folder, found nothing at nothing",
        ),
        (
            ["--candidate", "torch", "--pipeline", "tiny-random/lama"],
            "unknown pipeline 'tiny-random/lama'",
        ),
        (["--candidate", "torch", "--json", "no/folder.json"], "--json needs a file in a folder"),
        (
            ["--candidate", "torch", "--json", "x", "--print-map", "../{folder}/x"],
            "--json and --print-map are one file, ../{folder}/x: give two",
        ),
        (
            ["--candidate", "torch", "--output", "x", "--repro", "x/candidate/repro"],
            "--repro x/candidate/repro and --output x lie in each other",
        ),
        (
            ["--reference", "./a", "--candidate", "./b", "--num-steps", 3, "--prompt", "x"],
            "--prompt, --num-steps: no effect, since both sides are dumps",
        ),
        (
            ["--reference", "./a", "--candidate", "max", "--prompt-ids", "1"],
            "--prompt-ids: no effect, since the reference is a dump",
        ),
        (
            ["--candidate", "./a", "--calibrate", "--drill", "model"],
            "--calibrate, --drill: no effect, since the candidate is a dump",
        ),
        (
            ["--pipeline", "tiny-random/llama", "--candidate", "torch@no.py:NEW"],
            "oracle file no.py does not exist",
        ),
        (
            ["--pipeline", "tiny-random/llama", "--candidate", "torch@tiny-random/lama"],
            "unknown pipeline 'tiny-random/lama'",
        ),
        (
            ["--pipeline", "tiny-random/llama", "--candidate", "./nothing"],
            "expected a file or folder, found nothing at nothing",
        ),
        (
            ["--candidate", "./a", "--mode", "sketch"],
            "--mode: no effect, since the candidate is a dump",
        ),
        (["--candidate", "torch", "--overwrite"], "name their folder with --output or --repro"),
        (["--candidate", "torch", "--repro", "/"], "--repro needs a new or empty folder, got /"),
        (
            ["--candidate", "torch", "--num-hidden-layers", "x"],
            "--num-hidden-layers must be a number or 'all'",
        ),
        (["--candidate", "torch", "--hf-config-overrides", "{{"], "is not JSON"),
        (
            ["--candidate", "torch", "--prompt", "a", "--prompt-ids", "1,2"],
            "give prompts by one of --prompt and --prompt-ids",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_two(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    arguments = [str(text).format(folder=tmp_path.name) for text in arguments]
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message.format(folder=tmp_path.name) in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
