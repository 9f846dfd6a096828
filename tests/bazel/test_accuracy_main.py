"""The entry point of accuracy_test and golden_dump, run as Bazel runs it."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import bazel.accuracy_main
from bazel.accuracy_main import _failed, of_this_shard, worst
from comparison.schema.errors import BadInputError, TryAgainError
from tests.diagnosis.accuracy_oracles import FAULT, ORACLES

ROOT = Path(__file__).parents[2]
RUN = json.dumps({"num_hidden_layers": 1, "num_steps": 1, "prompts": ["It's a prompt of $some"]})


class Target:
    """A target's folders, as Bazel gives them to its test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "outputs"
        self.report = folder / "test.xml"
        self.outputs.mkdir()
        (folder / "scratch").mkdir()
        (folder / "my_oracles.py").write_text(ORACLES)

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TEST")}
        ours = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "OMP_NUM_THREADS": "1",
            "TEST_TARGET": "//models:all",
            "TEST_TMPDIR": str(self.folder / "scratch"),
            "TEST_UNDECLARED_OUTPUTS_DIR": str(self.outputs),
            "XML_OUTPUT_FILE": str(self.report),
        }
        return subprocess.run(
            [sys.executable, bazel.accuracy_main.__file__, *arguments],
            cwd=self.folder,
            env={**kept, **ours, **environ},
            text=True,
            capture_output=True,
            check=False,
        )

    def judge(self, *pipelines: str, **options: str) -> subprocess.CompletedProcess[str]:
        given = {"reference": "torch", "candidate": "torch", "run": RUN} | options
        pairs = [part for name, value in given.items() for part in (f"--{name}", value)]
        return self.run("test", *(f"my_oracles.py:{name}" for name in pipelines), *pairs)

    def cases(self) -> dict[str, list[str]]:
        found = ElementTree.parse(self.report).iter("testcase")
        return {str(case.get("name")): [child.tag for child in case] for case in found}


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


@pytest.mark.parametrize(
    ("total", "shards"),
    [
        (1, [["a", "b", "c"]]),
        (2, [["a", "c"], ["b"]]),
        (5, [["a"], ["b"], ["c"], [], []]),
    ],
)
def test_shards_take_each_pipeline_once(
    tmp_path: Path, total: int, shards: list[list[str]]
) -> None:
    for index, expected in enumerate(shards):
        status = tmp_path / str(index)
        environ = {
            "TEST_TOTAL_SHARDS": str(total),
            "TEST_SHARD_INDEX": str(index),
            "TEST_SHARD_STATUS_FILE": str(status),
        }
        assert of_this_shard(["a", "b", "c"], environ) == expected
        assert status.is_file()


def test_without_shards_all_pipelines_are_taken() -> None:
    assert of_this_shard(["a", "b"], {}) == ["a", "b"]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 0), ([0, 0], 0), ([0, 75], 75), ([75, 2], 2), ([2, 70], 70), ([2, 70, 75, 1, 0], 1)],
)
def test_a_difference_outranks_what_could_not_be_judged(codes: list[int], expected: int) -> None:
    assert worst(codes) == expected


@pytest.mark.parametrize(
    ("error", "code"),
    [(BadInputError("x"), 2), (TryAgainError("x"), 75), (ZeroDivisionError("x"), 70)],
)
def test_errors_have_the_exit_codes_of_all_commands(error: Exception, code: int) -> None:
    found, text = _failed(error)
    assert found == code
    assert text.endswith("x")
    assert text.startswith("error: ")


def test_every_pipeline_is_judged_whatever_became_of_the_others(
    target: Target,
) -> None:
    done = target.judge("GONE", "RIGHT")
    assert done.returncode == 2
    assert target.cases() == {"my_oracles.py:GONE": ["error"], "my_oracles.py:RIGHT": []}
    assert "no weights here" in done.stdout
    assert [path.name for path in target.outputs.iterdir()] == ["my_oracles.py%3ARIGHT"]
    assert {path.name for path in target.outputs.glob("*/*")} == {"verdict.json", "verdict.txt"}
    assert list((target.folder / "scratch").iterdir()) == []  # no dump is left behind


def test_a_fault_ends_in_1_with_its_verdict(target: Target) -> None:
    done = target.judge("RIGHT", candidate="torch@my_oracles.py:WRONG", rtol="1e-6", atol="1e-6")
    assert done.returncode == 1
    assert "Verdict: diverge\n" in done.stdout
    assert FAULT in done.stdout
    case = ElementTree.parse(target.report).find(".//testcase")
    assert case is not None
    assert case.get("classname") == "//models:all"
    assert FAULT in str(case[0].get("message"))
    assert {path.name for path in target.outputs.glob("*/*")} == {
        "comparison.txt",
        "report.html",
        "verdict.json",
        "verdict.txt",
    }


@pytest.mark.full
def test_a_fault_within_the_tolerance_passes(target: Target) -> None:
    done = target.judge("RIGHT", candidate="torch@my_oracles.py:WRONG", rtol="0.5", atol="0.5")
    assert done.returncode == 0, done.stdout
    assert "my_oracles.py:RIGHT: Accepted, since every pair is within the tolerance" in done.stdout
    assert target.cases() == {"my_oracles.py:RIGHT": []}


@pytest.mark.full
def test_a_dump_takes_the_place_of_a_reference(target: Target) -> None:
    framework = ("--framework", "torch", "--output", "golden", "--run", RUN)
    assert target.run("dump", "my_oracles.py:RIGHT", *framework).returncode == 0
    (row,) = json.loads((target.folder / "golden/manifest.json").read_text())["rows"]
    assert row["prompt"] == "It's a prompt of $some"
    candidate = "torch@my_oracles.py:WRONG"  # the pipeline itself cannot be built any more
    done = target.judge("GONE", candidate=candidate, reference="./golden/manifest.json")
    assert done.returncode == 1, done.stdout
    assert FAULT in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidate": "./folder"}, "candidate ./folder: expected an engine, found a folder"),
        ({"candidate": "jax"}, "'jax' is no side: expected one of"),
        ({"reference": "./nowhere"}, "nowhere"),
        ({"run": '{"steps": 1}'}, "unexpected keyword argument 'steps'"),
        ({"rtol": "-1"}, "'--rtol': -1.0 is not in the range"),
    ],
)
def test_bad_arguments_end_in_2(target: Target, options: dict[str, str], message: str) -> None:
    done = target.judge("RIGHT", **options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stdout + done.stderr


def test_no_pipeline_ends_in_2(target: Target) -> None:
    done = target.judge()
    assert done.returncode == 2
    assert "Missing argument 'PIPELINES...'" in done.stderr


def test_without_home_nothing_is_written_outside_of_the_scratch_folder(target: Target) -> None:
    probe = "import os, sys; sys.path.insert(0, sys.argv[1]); import accuracy_main as m; "
    probe += "m._give_caches('/s'); print(os.environ['HOME'], os.environ['MODULAR_CACHE_DIR'])"
    folder = str(Path(bazel.accuracy_main.__file__).parent)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", probe, folder],
        env={"PYTHONPATH": path},
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout == "/s /s/modular\n"
