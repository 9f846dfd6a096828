"""What may run: code of a model's repository only by option, and only files that the user named."""

import json
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import click
import pytest

from comparison.schema.errors import EngineError
from diagnosis.diff_models import DiffOptions, diff_sides
from diagnosis.side_runs import RunOptions
from diagnosis.sides import DumpSide
from oracles.oracle import PipelineOracle
from oracles.oracle_file import load_oracle_file
from oracles.registry import PIPELINE_ORACLES, find_oracle
from test_common.debug_options import DebugOptions
from test_common.debug_plan import plan_debug_run
from test_common.debug_run import DebugRun, run_debug_model
from test_common.prompts import load_tokenizer
from test_common.remote_code import RemoteCodeError, RemoteCodeWarning, repository_code, with_trust
from tests.child_processes import run_module, user_environment
from tests.tools.own_code_checkpoint import copied, with_own_model, with_own_tokenizer
from tools.debug_model import debug_model
from tools.diff_models import diff_models
from tools.entry_point import run_command

ORACLE = """
from pathlib import Path
from oracles.generic_oracle import GenericOracle
Path({trace!r}).open("a").write("oracle\\n")
MINE = GenericOracle({model!r}, device_encoding_map={{"cpu": ["float32"]}},
                     config_params={{"trust_remote_code": True}})
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.txt"


@pytest.fixture(autouse=True)
def modules_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep copies of such code out of the user's cache, and `sys.path` as it was."""
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))


def run(oracle: PipelineOracle, **options: object) -> DebugRun:
    asked = {"framework": "torch", "device": "cpu", "pipeline": "mine", **options}
    return run_debug_model(oracle, DebugOptions(**asked))


def ran(trace: Path) -> list[str]:
    return trace.read_text().split() if trace.exists() else []


def test_a_model_with_code_of_its_own_runs_by_option_only(tmp_path: Path, trace: Path) -> None:
    model = with_own_model(copied("tiny-random/llama", tmp_path / "model"), trace)
    with pytest.raises(RemoteCodeError, match="not trusted; read that code, then give --trust"):
        run(find_oracle(str(model)))
    assert ran(trace) == []
    with pytest.warns(RemoteCodeWarning, match="trust_remote_code is on for this run: Python code"):
        made = run(find_oracle(str(model)), trust_remote_code=True, output=tmp_path / "dump")
    assert ran(trace) == ["model"]
    assert made.manifest.options["trust_remote_code"] is True


def test_a_plan_runs_such_code_by_the_same_option_only(tmp_path: Path, trace: Path) -> None:
    model = with_own_model(copied("tiny-random/llama", tmp_path / "model"), trace)
    asked = DebugOptions(pipeline="mine", framework="torch", device="cpu")
    with pytest.raises(RemoteCodeError, match="not trusted"):
        plan_debug_run(find_oracle(str(model)), asked, measures=False)
    assert ran(trace) == []
    trusting = replace(asked, trust_remote_code=True)
    with pytest.warns(RemoteCodeWarning):
        plan = plan_debug_run(find_oracle(str(model)), trusting, measures=False)
    assert ran(trace) == ["model"]
    assert plan.capture.tensors > 0


def test_such_code_that_changes_the_folder_changes_it_for_itself(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_own_model(copied("tiny-random/llama", tmp_path / "model"), trace)
    code = model / "own_code.py"
    code.write_text(f"import os; os.chdir('/')\n{code.read_text()}")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(RemoteCodeWarning):
        run(find_oracle(str(model)), trust_remote_code=True, output=Path("dump"))
    assert Path.cwd() == tmp_path
    assert (tmp_path / "dump" / "manifest.json").exists()


def test_a_tokenizer_of_its_own_is_not_taken_without_the_option(
    tmp_path: Path, trace: Path
) -> None:
    model = with_own_tokenizer(copied("tiny-random/llama", tmp_path / "model"), trace)
    assert run(find_oracle(str(model))).manifest.options["trust_remote_code"] is False
    load_tokenizer(str(model))
    assert ran(trace) == []
    with pytest.warns(RemoteCodeWarning):
        run(find_oracle(str(model)), trust_remote_code=True)
    assert ran(trace) == ["tokenizer"]


def test_what_an_oracle_says_of_trust_does_not_count(tmp_path: Path, trace: Path) -> None:
    model = with_own_model(copied("tiny-random/llama", tmp_path / "model"), trace)
    (tmp_path / "mine.py").write_text(ORACLE.format(trace=str(trace), model=str(model)))
    oracle = load_oracle_file(f"{tmp_path}/mine.py")
    with pytest.raises(RemoteCodeError):
        run(oracle)
    assert ran(trace) == ["oracle"]
    assert oracle.config_params == {"trust_remote_code": True}  # the user's object stays as it was


def test_no_registered_oracle_trusts_by_itself() -> None:
    asked = [
        oracle
        for oracle in PIPELINE_ORACLES.values()
        if "trust_remote_code" in oracle.config_params
    ]
    assert asked
    for oracle in asked:
        held = with_trust(oracle, trusted=False)
        assert "trust_remote_code" not in held.config_params
        assert (
            held.create_vllm_pipeline(encoding="float32", device_specs=[]).trust_remote_code
            is False
        )
        assert with_trust(oracle, trusted=True) is oracle


def test_parameters_that_cannot_be_changed_are_an_error() -> None:
    class Stubborn(PipelineOracle):
        config_params = property(lambda self: {"trust_remote_code": True})
        device_encoding_map = property(lambda self: {"cpu": ["float32"]})

        def create_max_pipeline(self, **_: object) -> None: ...

        def create_torch_pipeline(self, **_: object) -> None: ...

    with pytest.raises(ValueError, match="Stubborn: config_params is a property that says trust_"):
        with_trust(Stubborn(), trusted=False)


def test_max_does_not_switch_it_on_for_architectures_that_require_it(
    tmp_path: Path, trace: Path
) -> None:
    lfm2 = with_own_tokenizer(copied("tiny-random/lfm2", tmp_path / "lfm2"), trace)
    with pytest.raises(RemoteCodeError, match=r"Python code of its own \(OwnTokenizer\)"):
        run(find_oracle(str(lfm2)), framework="max")
    llama = with_own_model(copied("tiny-random/llama", tmp_path / "llama"), trace)
    with pytest.raises(RemoteCodeError):
        run(find_oracle(str(llama)), framework="max")
    assert ran(trace) == []
    with pytest.warns(RemoteCodeWarning), pytest.raises(EngineError, match="OwnForCausalLM"):
        run(find_oracle(str(llama)), framework="max", trust_remote_code=True)
    assert ran(trace) == ["model"]  # its configuration; MAX has no such architecture


def test_an_oracles_own_loading_is_held_to_the_option(tmp_path: Path, trace: Path) -> None:
    from transformers import AutoConfig

    model = with_own_model(copied("tiny-random/llama", tmp_path / "model"), trace)
    with repository_code(trusted=False, label="mine"), pytest.raises(RemoteCodeError):
        AutoConfig.from_pretrained(model, trust_remote_code=True)
    assert ran(trace) == []


def test_a_dump_allows_nothing(tmp_path: Path, trace: Path) -> None:
    model = with_own_model(copied("tiny-random/llama", tmp_path / "model"), trace)
    dump = tmp_path / "dump"
    with pytest.warns(RemoteCodeWarning):
        run(find_oracle(str(model)), trust_remote_code=True, output=dump, pipeline=str(model))
    trace.unlink()
    sides = DumpSide(path=dump), [DumpSide(path=dump)]
    alone = diff_sides(*sides, DiffOptions())
    assert any("no model to replay" in note for note in alone.notes)
    with pytest.raises(RemoteCodeError):
        diff_sides(*sides, DiffOptions(run=RunOptions(pipeline=str(model))))
    assert ran(trace) == []


@pytest.mark.parametrize("named", ["{folder}/mine.py", "{folder}/mine.py:MINE", "{folder}"])
def test_what_a_dump_names_is_not_run(tmp_path: Path, trace: Path, named: str) -> None:
    (tmp_path / "mine.py").write_text(ORACLE.format(trace=str(trace), model="x"))
    with_own_model(copied("tiny-random/llama", tmp_path / "model"), trace)
    dump = tmp_path / "dump"
    run(find_oracle("tiny-random/llama"), output=dump)
    manifest = json.loads((dump / "manifest.json").read_text())
    manifest["pipeline"] = manifest["model"] = named.format(folder=tmp_path)
    (dump / "manifest.json").write_text(json.dumps(manifest))
    found = diff_sides(DumpSide(path=dump), [DumpSide(path=dump)], DiffOptions())
    assert any("no model to replay" in note for note in found.notes)
    assert ran(trace) == []


def test_other_files_beside_an_oracle_file_are_not_in_the_way(tmp_path: Path, trace: Path) -> None:
    for name in ("json", "torch", "comparison", "oracles", "numpy", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"raise AssertionError('{name} was taken')")
    (tmp_path / "mine.py").write_text(ORACLE.format(trace=str(trace), model="no/such"))
    before = list(sys.path)
    assert load_oracle_file(f"{tmp_path}/mine.py").model_path == "no/such"
    assert sys.path == before
    done = run_module(
        *("tools.debug_model", "--framework", "torch", "--oracle", "mine.py"),
        cwd=tmp_path,
        environment=user_environment(tmp_path / "cache", BUILD_WORKING_DIRECTORY=str(tmp_path)),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "no/such is not in the local Hub cache, and HF_HUB_OFFLINE is set" in done.stderr


@pytest.mark.parametrize("command", [debug_model, diff_models])
def test_commands_say_it_loudly(
    command: click.Command,
    tmp_path: Path,
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    warnings.simplefilter("always")  # Python's own memory of what was shown is lost now and then
    model = with_own_model(copied("tiny-random/llama", tmp_path / "model"), trace)
    side = ("--framework",) if command is debug_model else ("--drill", "off", "--candidate")
    arguments = ("--pipeline", str(model), "--num-steps", "1", *side, "torch")
    assert exit_code(monkeypatch, command, *arguments) == 2
    assert "read that code, then give --trust-remote-code" in capfd.readouterr().err
    assert ran(trace) == []
    assert exit_code(monkeypatch, command, *arguments, "--trust-remote-code") == 0
    said = capfd.readouterr().err
    warning = "warning: trust_remote_code is on for this run: Python code of the reposi"
    assert said.count(warning) == 1
    assert set(ran(trace)) == {"model"}
    if command is debug_model:  # a plan loads the configuration more than once
        assert exit_code(monkeypatch, command, *arguments, "--trust-remote-code", "--plan") == 0
        assert capfd.readouterr().err.count(warning) == 1


def exit_code(monkeypatch: pytest.MonkeyPatch, command: click.Command, *arguments: str) -> int:
    """Run a command in this process."""
    monkeypatch.setattr(sys, "argv", ["command", *arguments])
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back afterwards
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as exit_info:
            run_command(command)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code
