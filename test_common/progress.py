"""Shows what a long run is doing, and how much of it is done, where somebody looks; quiet in CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress


class Advance(Protocol):
    """Is told how far the work has got."""

    def __call__(self, done: int, total: int | None = None, size_bytes: int = 0) -> None:
        """Show it.

        Args:
            done: pieces that are done.
            total: all pieces, None where that is not known (yet).
            size_bytes: what was read or written so far.
        """


class TensorCount(Protocol):
    """Is told of tensors as they are written."""

    def saved(self, size_bytes: int, *, count: int = 1) -> None:
        """Count tensors; `size_bytes` is of all files so far."""

    def step(self) -> None:
        """Begin the next step."""


def _unseen(done: int, total: int | None = None, size_bytes: int = 0) -> None:
    """Show nothing."""


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Show a stage of the work with the time it takes, until the block ends.

    On a terminal a line with a clock is drawn on stderr. On GitHub Actions what the block prints
    is folded into a group of that name. In CI nothing is shown; elsewhere one line on stderr.

    Args:
        text: what is done, `building the model`.
    """
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print(f"::group::{_one_line(text)}", flush=True)
        try:
            yield
        finally:
            print("::endgroup::", flush=True)
    elif os.environ.get("CI"):
        yield
    elif sys.stderr.isatty():
        with _clock(text):
            yield
    else:
        print(f"{text} ...", file=sys.stderr, flush=True)
        yield


class StageLine:
    """Says which stage runs, one after the other: on a terminal in one line with a clock.

    Elsewhere each stage is a line on stderr; in CI nothing is shown.
    """

    def __init__(self) -> None:
        """Begin with no stage."""
        self._open: AbstractContextManager[None] | None = None

    def __call__(self, text: str) -> None:
        """End the stage that runs, and begin another.

        Args:
            text: what is done, `replaying the reference`.
        """
        self.close()
        self._open = stage(text.removesuffix(" ..."))
        self._open.__enter__()

    def close(self) -> None:
        """End the stage that runs, if there is one."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


@contextmanager
def counted(text: str, *, what: str) -> Iterator[Advance]:
    """Show a stage with how much of it is done and how long the rest takes, on a terminal.

    Anywhere else nothing is shown: this is for work that prints what it finds by itself.

    Args:
        text: what is done, `comparing`.
        what: the pieces, `tensors`.

    Yields:
        A function that is told how far the work has got.
    """
    if os.environ.get("CI") or not sys.stderr.isatty():
        yield _unseen
        return
    with _bar(what) as progress:
        task = progress.add_task(text, total=None, size="")

        def advance(done: int, total: int | None = None, size_bytes: int = 0) -> None:
            size = f"{size_bytes / 1e6:,.1f} MB" if size_bytes else ""
            progress.update(task, completed=done, total=total, size=size)

        yield advance


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn(f"{what} {{task.fields[size]}}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield progress


@contextmanager
def _clock(text: str) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # What the work prints goes above the line; the line goes when the stage ends.
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(text, total=None)
        yield


def _one_line(text: str) -> str:
    """Keep line breaks out of a workflow command, as GitHub asks."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
