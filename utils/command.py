"""What both scripts share: how a command ends, and files that are there whole or not at all."""

from __future__ import annotations

import os
import sys
import traceback
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import click

from utils.standard_output import StandardOutput

BAD_INPUT: Final = 2
OUR_FAULT: Final = 70
INTERRUPTED: Final = 130


class BadInputError(ValueError):
    """An option, file or folder that cannot be used as given."""


def run_command(command: click.Command) -> NoReturn:
    """Run a command as a process: in the user's folder, failures as one line and an exit code.

    A command's function returns its exit code; None counts as 0.
    """
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):  # names of models in any locale
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = StandardOutput(sys.stdout)
    try:
        _enter_users_folder()
        code = _invoke(command)
        sys.stdout.flush()
    except BaseException as error:  # the process ends here, whatever it was
        code = _code_of(error)
    with suppress(OSError):
        sys.stdout.flush()
        sys.exit(code)
    os._exit(code)  # whoever read our output is gone


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when the block ends well.

    Yields:
        The open file.

    Raises:
        BadInputError: the folder cannot be written, or `path` is no file.
    """
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise BadInputError(
            f"cannot write {path}: {error.strerror}; the folder must be writable"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def ensure_folder(folder: Path) -> Path:
    """Make a folder with its parents.

    Raises:
        BadInputError: it cannot be made, or is something else.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"cannot make the folder {folder}: {error.strerror}; name one that can be written"
        ) from error
    return folder


def _invoke(command: click.Command) -> int:
    name = Path(sys.argv[0]).stem or "command"
    variable = f"_{name.upper()}_COMPLETE"
    asked = os.environ.get(variable)
    if asked:  # a shell asks for its script, or for what may come next
        from click.shell_completion import shell_complete

        return BAD_INPUT if shell_complete(command, {}, name, variable, asked) else 0
    with command.make_context(name, sys.argv[1:]) as context:
        result = command.invoke(context)
    return 0 if result is None else int(result)


def _enter_users_folder() -> None:
    """Go where the user stands: `bazel run` starts in the runfiles."""
    folder = os.environ.get("BUILD_WORKING_DIRECTORY")
    if folder:
        os.chdir(folder)


def _code_of(error: BaseException) -> int:
    """Say what went wrong, and return the exit code."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            return _fail("interrupted", INTERRUPTED)
        case click.ClickException():
            return _fail(error.format_message(), BAD_INPUT)
        case BadInputError():
            return _fail(str(error), BAD_INPUT)
        case OSError() if error.strerror:
            where = f" {error.filename}" if error.filename else ""
            return _fail(f"the system refuses{where}: {error.strerror}", BAD_INPUT)
        case MemoryError():
            return _fail("there is not enough memory for this run", BAD_INPUT)
    complain("".join(traceback.format_exception(error)).rstrip())
    return _fail("this is a fault of the tool, please report it with the lines above", OUR_FAULT)


def complain(line: str) -> None:
    """Print a line on stderr; nobody reading it is no failure."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _fail(message: str, code: int) -> int:
    complain(f"error: {' '.join(message.split())}")
    return code


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    complain(f"warning: {' '.join(str(message).split())}")
