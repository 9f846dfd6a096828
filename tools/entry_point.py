"""The one wrapper around every command: where it runs, what it prints on failure, how it exits."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Final, NoReturn, TextIO

import click

from comparison.schema.errors import AccuracyToolsError, TryAgainError

AGREE: Final = 0
DIVERGE: Final = 1
BAD_INPUT: Final = 2
OUR_FAULT: Final = 70
TRY_AGAIN: Final = 75
INTERRUPTED: Final = 130


def run_command(command: click.Command) -> NoReturn:
    """Run a command as a process: in the user's folder, with the exit codes of all commands.

    A command's function returns its exit code; None counts as 0. Errors that these tools raise on
    purpose, and click's own, become one line on stderr and exit code 2, or 75 for what passes by
    itself. Anything else is a fault of ours: its traceback, and 70.
    """
    _enter_users_folder()
    warnings.showwarning = _show_warning
    try:
        code = command.main(standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        _leave(INTERRUPTED)
    except click.ClickException as error:
        _fail(_click_message(error), BAD_INPUT)
    except TryAgainError as error:
        _fail(str(error), TRY_AGAIN)
    except AccuracyToolsError as error:
        _fail(str(error), BAD_INPUT)
    except BrokenPipeError:
        # `| head` closed our output: the reader has what it wants.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(BAD_INPUT)
    except Exception:
        traceback.print_exc()
        _fail("this is a fault of the tool, please report it with the lines above", OUR_FAULT)
    _leave(code or AGREE)


def _enter_users_folder() -> None:
    """Go where the user stands: `bazel run` starts in the runfiles."""
    folder = os.environ.get("BUILD_WORKING_DIRECTORY")
    if folder:
        os.chdir(folder)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning in one line; where it was raised tells a user nothing."""
    del category, filename, lineno, line
    print(f"warning: {' '.join(str(message).split())}", file=file or sys.stderr)


def _click_message(error: click.ClickException) -> str:
    """Return click's message in one line, with a pointer to --help where click would show usage."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message} (see {context.command_path} --help)" if context is not None else message


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    _leave(code)


def _leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.exit(code)
