"""Tells which class runs, and where to edit it."""

import inspect
from pathlib import Path


def print_banner(kind: type) -> None:
    """Print the class of a model and its source file."""
    print(banner(kind), flush=True)


def banner(kind: type) -> str:
    """Name the class of a model and its source file, a line each."""
    source = inspect.getsourcefile(kind)
    # The file itself rather than a link of this run to it, since people edit what is named here.
    return (
        f"Model class: {kind.__module__}.{kind.__qualname__}\n"
        f"Model source file: {Path(source).resolve() if source else 'none'}"
    )
