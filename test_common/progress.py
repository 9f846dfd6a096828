"""Shows what a long run is doing, where somebody looks; quiet in CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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
