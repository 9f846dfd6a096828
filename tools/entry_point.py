"""The one wrapper around every command: where it runs, what it prints on failure, how it exits."""

from __future__ import annotations

import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from comparison.schema.errors import AccuracyToolsError, MissingPathError, TryAgainError
from tools.early_end import early_end_told
from tools.interrupts import INTERRUPTED, Interrupts
from tools.memory_limit import fork_if_limited, is_want_of_memory, memory_message
from tools.standard_streams import complain, prepare_streams

AGREE: Final = 0
DIVERGE: Final = 1
BAD_INPUT: Final = 2
OUR_FAULT: Final = 70
TRY_AGAIN: Final = 75


def run_command(command: click.Command) -> NoReturn:
    """Run a command as a process: in the user's folder, with the exit codes of all commands.

    A command's function returns its exit code; None counts as 0. Errors that these tools raise on
    purpose, those of click and of the system become one line on stderr and exit code 2, or 75 for
    what passes by itself. Anything else is a fault of ours: its traceback, and 70.
    """
    prepare_streams()
    tell_code = fork_if_limited()
    interrupts = Interrupts()
    warnings.showwarning = _ShowsOnce()
    try:
        _enter_users_folder()
        with early_end_told():
            code = _invoke(command)
        sys.stdout.flush()
    except BaseException as error:  # the process ends here, whatever it was
        code = INTERRUPTED if interrupts.seen else _code_of(error)
        if code == INTERRUPTED:
            complain("interrupted")
    try:
        sys.stdout.flush()
    except AccuracyToolsError as error:
        code = _fail(str(error), BAD_INPUT)
    interrupts.ignore()
    tell_code(code)
    sys.exit(code)


def _invoke(command: click.Command) -> int:
    """Run the command's function; click's own `main` ends processes by itself."""
    asked = os.environ.get(f"_{_program_name().upper()}_COMPLETE")
    if asked:
        return _complete(command, asked)
    with command.make_context(_program_name(), sys.argv[1:]) as context:
        result: Any = command.invoke(context)
    return AGREE if result is None else int(result)


def _complete(command: click.Command, asked: str) -> int:
    """Answer a shell: `bash_source` asks for its script, `bash_complete` for what may come next."""
    from click.shell_completion import shell_complete

    name = _program_name()
    variable = f"_{name.upper()}_COMPLETE"
    if shell_complete(command, {}, name, variable, asked):
        raise click.UsageError(
            f"{variable} is {asked!r:.40}, expected bash_source, zsh_source or fish_source"
        )
    return AGREE


def _program_name() -> str:
    return Path(sys.argv[0]).stem or "command"


def _code_of(error: BaseException) -> int:
    """Say what went wrong, and return the exit code."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            return INTERRUPTED
        case click.ClickException():
            return _fail(_click_message(error), BAD_INPUT)
        case TryAgainError():
            return _fail(str(error), TRY_AGAIN)
        case AccuracyToolsError():
            return _fail(str(error), BAD_INPUT)
        case _ if is_want_of_memory(error):
            return _fail(memory_message(), BAD_INPUT)
        case ModuleNotFoundError() if not _is_ours(error.name):
            return _fail(_missing_package(error.name), BAD_INPUT)
        case OSError() if error.strerror:
            return _fail(_system_message(error), BAD_INPUT)
        case SystemExit():
            return _fail(f"code of the model or oracle ended the process: {error}", BAD_INPUT)
    complain("".join(traceback.format_exception(error)).rstrip())
    return _fail("this is a fault of the tool, please report it with the lines above", OUR_FAULT)


def _is_ours(module: str | None) -> bool:
    """Tell modules of this repository, whose lack is a fault of its own."""
    root = Path(__file__).parents[1]
    return module is None or (root / module.partition(".")[0]).exists()


def _missing_package(module: str | None) -> str:
    return (
        f"expected the Python package {module}, found none: install what requirements/README.md "
        "lists (pip install --require-hashes --no-deps -r requirements/cpu.txt), or run through "
        "./bazelw, which brings it"
    )


def _enter_users_folder() -> None:
    """Go where the user stands: `bazel run` starts in the runfiles."""
    folder = os.environ.get("BUILD_WORKING_DIRECTORY")
    if not folder:
        return
    try:
        os.chdir(folder)
    except OSError as error:
        raise MissingPathError(
            f"BUILD_WORKING_DIRECTORY is {folder!r}, expected the folder to run in: "
            f"{error.strerror}"
        ) from error


class _ShowsOnce:
    """Shows a warning in one line, and the same line once: a plan and its run warn of the same.

    Python's own memory of what was shown is lost whenever a library changes the filters.
    """

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def __call__(self, message: Warning | str, *where: Any, **more: Any) -> None:
        """Show it; where it was raised tells a user nothing."""
        del where, more
        line = f"warning: {' '.join(str(message).split())}"
        if line not in self._shown:
            self._shown.add(line)
            complain(line)


def _click_message(error: click.ClickException) -> str:
    """Return click's message in one line, with a pointer to --help where click would show usage."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message} (see {context.command_path} --help)" if context is not None else message


def _system_message(error: OSError) -> str:
    where = f" {error.filename!s:.200}:" if error.filename is not None else ""
    return f"the system refuses{where} {error.strerror}"


def _fail(message: str, code: int) -> int:
    complain(f"error: {' '.join(message.split())}")
    return code


def as_called(tool: str, arguments: Sequence[str]) -> str:
    """Return the command line that starts a tool again in the way it was started.

    Args:
        tool: its name.
        arguments: of the command.
    """
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY")  # set by `bazel run` alone
    if workspace is None:
        return shlex.join([tool, *arguments])
    launcher = Path(workspace) / "bazelw"
    if launcher.exists() and (Path(workspace) / "tools" / f"{tool}.py").exists():
        path = os.path.relpath(launcher)
        start = [path if os.sep in path else f"./{path}", "run", f"//tools:{tool}"]
    else:
        start = ["bazel", "run", f"@model_accuracy_tools//tools:{tool}"]
    return shlex.join([*start, "--", *arguments])
