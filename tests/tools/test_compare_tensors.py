"""The command, run as users run it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from comparison.store.max_file import write_max_file


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("BUILD_WORKING_DIRECTORY", None)
    if cwd is not None:
        environment["BUILD_WORKING_DIRECTORY"] = str(cwd)
    return subprocess.run(
        [sys.executable, "-m", "tools.compare_tensors", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    for side, difference in (("a", 0.0), ("b", 0.25)):
        (tmp_path / side).mkdir()
        array = np.array([[1.0, 2.0, 4.0 + difference]], np.float32)
        write_max_file(tmp_path / side / "mlp.max", array, key="mlp")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "code", "verdict"),
    [
        ([], 0, "none, since no tolerance was given (--rtol, --atol)"),
        (["--rtol", "0.0625"], 0, "agree, all 1 pair(s) are within rtol=0.0625, atol=0"),
        (["--atol", "0.25"], 0, "agree, all 1 pair(s) are within rtol=0, atol=0.25"),
        (
            ["--rtol", "0", "--atol", "0.125"],
            1,
            "differ, 1 of 1 pair(s) with rtol=0, atol=0.125 (1 beyond tolerance)",
        ),
        (["--rtol", "0"], 1, "differ, 1 of 1 pair(s) with rtol=0, atol=0 (1 beyond tolerance)"),
    ],
)
def test_verdict_and_exit_code(dumps: Path, options: list[str], code: int, verdict: str) -> None:
    done = run("--reference", "a", "--candidate", "b", *options, cwd=dumps)
    assert (done.returncode, done.stderr) == (code, "")
    assert f"\nVerdict: {verdict}\n" in done.stdout
    assert "  Greatest absolute difference: 0.25 at index (0, 2)" in done.stdout


def test_the_documented_options(dumps: Path) -> None:
    done = run("--torch-tensor", dumps / "a", "--max-tensor", dumps / "b" / "mlp.max")
    assert done.returncode == 0
    assert done.stdout.startswith("Found 1 matching tensor pair(s)\n\nTensor: mlp vs mlp\n")
    assert "  Shapes: torch(1, 3), max(1, 3)\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either --torch-tensor and --max-tensor, or --reference and --candidate"),
        (["--torch-tensor", "a"], "--torch-tensor needs --max-tensor as well"),
        (["--candidate", "a"], "--candidate needs --reference as well"),
        (["--torch-tensor", "a", "--candidate", "b"], "--torch-tensor needs --max-tensor"),
        (
            ["--torch-tensor", "a", "--max-tensor", "b", "--reference", "a", "--candidate", "b"],
            "give either --torch-tensor and --max-tensor, or --reference and --candidate",
        ),
        (["--reference", "a", "--candidate", "nowhere"], "found nothing at nowhere"),
        (["--reference", "a", "--candidate", "b", "--rtol", "-1"], "rtol must be a finite number"),
        (["--reference", "a", "--candidate", "b", "--atol", "nan"], "found nan"),
        (["--reference", "a", "--candidate", "b", "--atol", "x"], "'x' is not a valid float"),
        (
            ["--reference", "a", "--candidate", "b", "--json", "no/x.json"],
            "--json needs a file in a folder that exists, got no/x.json",
        ),
        (
            ["--reference", "a", "--candidate", "b", "--json", "a/x.json"],
            "would change what is read",
        ),
        (["--reference", "", "--candidate", "b"], "the path is empty"),
        (["--reference", "a", "--candidate", "b", "--json", ""], "the path is empty"),
        (["--refrence", "a"], "No such option"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(dumps: Path, arguments: list[str], message: str) -> None:
    done = run(*arguments, cwd=dumps)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_json(dumps: Path) -> None:
    paths = ["--reference", "a", "--candidate", "b"]
    done = run(*paths, "--atol", "0.125", "--json", "x.json", cwd=dumps)
    assert done.returncode == 1
    value = json.loads((dumps / "x.json").read_text())
    assert (value["verdict"], value["exit_code"]) == ("differ", 1)
    assert sorted(path.name for path in dumps.iterdir()) == ["a", "b", "x.json"]


def test_reshape_only_when_asked(dumps: Path) -> None:
    write_max_file(dumps / "b" / "mlp.max", np.array([[1], [2], [4]], np.float32), key="mlp")
    paths = ["--reference", "a", "--candidate", "b", "--atol", "0"]
    done = run(*paths, cwd=dumps)
    assert done.returncode == 1
    assert "  Shapes differ: equal number of elements (3); --allow-reshape" in done.stdout
    done = run(*paths, "--allow-reshape", cwd=dumps)
    assert done.returncode == 0
    assert "  Reshaped: candidate reshaped from [3, 1] to [1, 3]\n" in done.stdout


@pytest.mark.parametrize(
    ("value", "option"),
    [(np.nan, "--equal-nan"), (np.inf, "--equal-inf"), (-np.inf, "--equal-inf")],
)
def test_nan_and_infinity_pass_only_when_asked(dumps: Path, value: float, option: str) -> None:
    for side in "ab":
        write_max_file(dumps / side / "mlp.max", np.array([value, 1], np.float32), key="mlp")
    paths = ["--reference", "a", "--candidate", "b", "--atol", "0"]
    assert run(*paths, cwd=dumps).returncode == 1
    assert run(*paths, option, cwd=dumps).returncode == 0


def test_help_needs_no_engine() -> None:
    code = (
        "import sys; from tools.compare_tensors import compare_tensors; "
        "compare_tensors.main(['--help'], standalone_mode=False); "
        "print(sorted({'torch', 'max', 'transformers', 'vllm'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.endswith("\n[]\n")
    for option in ("--torch-tensor", "--max-tensor", "--allow-reshape", "--json"):
        assert option in done.stdout


def test_a_verdict_names_the_module_where_the_error_jumps(tmp_path: Path) -> None:
    names = ("model.layers.0.norm-output", "model.layers.0.mlp-output", "model-output_logits")
    for side, factor in (("a", 1.0), ("b", 1.01)):
        (tmp_path / side).mkdir()
        for order, name in enumerate(names):
            array = np.arange(1, 41, dtype=np.float32).reshape(5, 8) * (factor if order else 1.0)
            write_max_file(tmp_path / side / f"{name}.max", array, key=name)
        (tmp_path / side / "tensor_names.txt").write_text("".join(f"{n}\n" for n in names))
    done = run("--reference", "a", "--candidate", "b", "--verdict", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "Verdict: none, since no tolerance was given" in done.stdout
    assert "Verdict: diverge\n" in done.stdout
    assert "first goes wrong in model.layers.0.mlp (step 0" in done.stdout
    same = run("--reference", "a", "--candidate", "a", "--verdict", cwd=tmp_path)
    assert (same.returncode, "Verdict: agree\n" in same.stdout) == (0, True)


def test_a_verdict_on_sketches_is_refused_before_they_are_compared(dumps: Path) -> None:
    sketched = dumps / "c" / "0"
    sketched.mkdir(parents=True)
    (sketched / "sketch.safetensors").write_bytes(b"not looked into")
    done = run("--reference", dumps / "a", "--candidate", dumps / "c", "--verdict")
    assert (done.returncode, done.stdout) == (2, "")
    assert "found sketches of them" in done.stderr


# Waits, once both tensors of the pair are mapped, until the other process has cut one.
WAITING = """
import os, sys
from comparison.pair_reader import PairReader
from tools.compare_tensors import compare_tensors
from tools.entry_point import run_command

mapped, cut = int(sys.argv.pop(1)), int(sys.argv.pop(1))
read = PairReader.read

def read_and_wait(self, planned):
    pair = read(self, planned)
    if planned.reference.name == "m2":
        os.write(mapped, b".")
        assert os.read(cut, 1) == b"."
    return pair

PairReader.read = read_and_wait
run_command(compare_tensors)
"""


@pytest.mark.parametrize(("suffix", "side"), [("npy", "a"), ("pt", "b")])
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, suffix: str, side: str) -> None:
    array = np.arange((8 << 20) // 4 + 3001, dtype=np.float32)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name in ("m1", "m2", "m3"):
            path = tmp_path / folder / f"{name}.{suffix}"
            if suffix == "pt":
                import torch

                torch.save(torch.from_numpy(array), path)
            else:
                np.save(path, array)
    told, mapped = os.pipe()
    cut, go = os.pipe()
    child = subprocess.Popen(
        [
            *(sys.executable, "-P", "-c", WAITING, str(mapped), str(cut)),
            *("--reference", tmp_path / "a", "--candidate", tmp_path / "b", "--atol", "0"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": "/dev/null"},
        pass_fds=(mapped, cut),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(mapped)
    assert os.read(told, 1) == b"."
    os.truncate(tmp_path / side / f"m2.{suffix}", 5000)
    os.write(go, b".")
    output, errors = child.communicate(timeout=60)
    for descriptor in (told, cut, go):
        os.close(descriptor)
    assert (child.returncode, errors) == (2, "")
    assert (
        f"Not comparable: {tmp_path / side / 'm2'}.{suffix}: expected one content from begin to "
        "end, but the file became shorter while it was read; try again when nothing writes to it"
    ) in output
    assert output.count(f"Mismatched elements: 0 / {array.size} (0.0%)") == 2
    assert "Compared 2 of 3 pair(s)" in output
    assert output.endswith(
        "Verdict: inconclusive, no difference was found but the result is cut short\n"
    )
