"""One wrapper gives every command its exit codes."""

import sys

import click
import pytest

from comparison.schema.errors import BadInputError, EngineError, TryAgainError
from tools.entry_point import run_command


def run(monkeypatch: pytest.MonkeyPatch, function: object) -> int:
    monkeypatch.setattr(sys, "argv", ["command"])
    with pytest.raises(SystemExit) as exit_info:
        run_command(click.command()(function))  # type: ignore[arg-type]  # any function will do
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code


def raising(error: BaseException) -> object:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_functions_own_code(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    assert run(monkeypatch, lambda: code) == code


def test_no_code_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, lambda: None) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInputError("no such thing"), 2),
        (EngineError("no such thing"), 2),
        (TryAgainError("no such thing"), 75),
        (click.UsageError("no such thing"), 2),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("no such thing"), 70),
    ],
)
def test_errors(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
) -> None:
    assert run(monkeypatch, raising(error)) == code
    last = capfd.readouterr().err.splitlines()[-1]
    if code == 130:
        assert last == "interrupted"
    elif code == 70:
        assert last.startswith("error: this is a fault of the tool")
    else:
        assert last.startswith("error: no such thing")


def test_a_message_of_several_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, raising(BadInputError("first\n  second"))) == 2
    assert capfd.readouterr().err == "error: first second\n"
