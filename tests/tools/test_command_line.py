"""What all commands have: two examples in --help, and completion in shells."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

UTILS = ("modular_model_detector", "scan_skipped_tests")
COMMANDS = (
    "compare_reports",
    "compare_tensors",
    "compare_traces",
    "debug_model",
    "diff_models",
    "explain_fma",
    "local_transformers",
    "report",
)


def command(name: str) -> click.Command:
    room = "utils" if name in UTILS else "tools"
    found = getattr(importlib.import_module(f"{room}.{name}"), name)
    assert isinstance(found, click.Command)
    return found


def test_no_command_is_left_out() -> None:
    tools = Path(importlib.import_module("tools.entry_point").__file__ or "").parent
    if not (tools / "debug_model.py").exists():
        pytest.fail("the commands do not lie beside their entry point")
    own = {p.stem for p in tools.glob("*.py") if "run_command(" in p.read_text(encoding="utf-8")}
    assert own - {"entry_point"} == set(COMMANDS)


@pytest.mark.parametrize("name", [*COMMANDS, *UTILS])
def test_help_shows_two_examples(name: str) -> None:
    found = command(name)
    text = found.get_help(click.Context(found, info_name=name))
    examples = [line for line in text.splitlines() if line.strip().split(" ")[0] == name]
    assert len(examples) >= 2, text


@pytest.mark.parametrize("name", [*COMMANDS, *UTILS])
def test_examples_are_commands_that_parse(name: str) -> None:
    found = command(name)
    for line in (found.epilog or "").splitlines():
        words = line.partition(">")[0].split()
        if words[:1] == [name]:
            found.make_context(name, words[1:])


def complete(name: str, asked: str, **words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"{'utils' if name in UTILS else 'tools'}.{name}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **words}
        | {f"_{name.upper()}_COMPLETE": asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("name", ["diff_models", "scan_skipped_tests"])
def test_shells_get_their_script(name: str, shell: str) -> None:
    done = complete(name, f"{shell}_source")
    assert done.returncode == 0, done.stderr
    assert f"_{name.upper()}_COMPLETE" in done.stdout


def test_options_are_completed() -> None:
    words = {"COMP_WORDS": "debug_model --fra", "COMP_CWORD": "1"}
    assert complete("debug_model", "bash_complete", **words).stdout == "plain,--framework\n"
    words = {"COMP_WORDS": "debug_model --framework v", "COMP_CWORD": "2"}
    assert complete("debug_model", "bash_complete", **words).stdout == "plain,vllm\n"


def test_shell_that_is_not_known_is_an_error() -> None:
    done = complete("report", "tcsh_source")
    assert done.returncode == 2
    assert "expected bash_source, zsh_source or fish_source" in done.stderr
