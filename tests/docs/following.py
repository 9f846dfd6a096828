"""Follows the commands of a page in a folder, in this process or in one of its own each."""

import contextlib
import importlib
import io
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.child_processes import ROOT
from tests.docs.command_needs import NOT_RUN, Needs, needs_of
from tests.docs.page_commands import GUIDE, PAGES, Command, commands_of
from tests.docs.readers_files import OWN_MODELS, ReadersFiles

# The dump is of another model than the traces here.
_UNLIKE = "./bazelw run //tools:compare_traces -- good_trace/ torch_tensors/ --rtol 1e-3"


class Run(Protocol):
    """Runs a module with arguments in a folder; returns its exit code and what it printed."""

    def __call__(self, module: str, arguments: list[str], *, cwd: Path) -> tuple[int, str]: ...


def run_here(module: str, arguments: list[str], *, cwd: Path) -> tuple[int, str]:
    """Run a command in this process."""
    command = getattr(importlib.import_module(module), module.rpartition(".")[2])
    printed = io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(printed):
        code = command.main(arguments, standalone_mode=False) or 0
    return code, printed.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAsProcess:
    """Runs each command in a process of its own.

    Attributes:
        environment: its variables.
    """

    environment: Mapping[str, str]

    def __call__(self, module: str, arguments: list[str], *, cwd: Path) -> tuple[int, str]:
        """Run a command as a user does without Bazel."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=cwd,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


def pages_with(needs: Collection[Needs]) -> list[str]:
    """Return the pages of which some commands need no more, but the guide: it has tests of its own.

    Args:
        needs: what there is.
    """
    found = [page for page in PAGES if page != GUIDE and any(commands_with(page, needs))]
    return [str(page.relative_to(ROOT)) for page in found]


def commands_with(page: Path, needs: Collection[Needs]) -> Iterator[Command]:
    """Yield the commands of a page that need no more than that, in order and each once.

    One that stands there with Bazel and without is the same.
    """
    seen = set()
    for command in commands_of(page):
        launched = command.launched()
        if (page.name, command.text) in NOT_RUN:
            continue
        assert launched is not None, (page.name, command.text, "is not run: say why in NOT_RUN")
        if needs_of(command) in needs and launched[:2] not in seen:
            seen.add(launched[:2])
            yield command


def follow(commands: Iterator[Command], files: ReadersFiles, run: Run, folder: Path) -> str:
    """Run commands in order.

    Returns:
        What they printed, but for what went to files.
    """
    shown = ""
    for command in commands:
        launched = command.launched()
        assert launched is not None
        module, arguments, log = launched
        given = [OWN_MODELS.get(argument, argument) for argument in arguments]
        for before, name in zip(("", *given), given, strict=False):
            if before not in ("-o", "--output"):
                files.provide(name)
        given = [_without_home(argument, folder) for argument in given]
        code, printed = run(module, given, cwd=folder)
        wanted = int(command.text.startswith(_UNLIKE)) or command.exit_code
        assert code == wanted, (command.text, code, printed)
        if log is None:
            shown += printed
        else:
            (folder / log).write_text(printed)
    return shown


def _without_home(argument: str, folder: Path) -> str:
    return f"{folder}{argument[1:]}" if argument.startswith("~/") else argument
