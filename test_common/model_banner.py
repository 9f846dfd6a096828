"""Tells which class runs, and where to edit it."""

import inspect


def print_banner(kind: type) -> None:
    """Print the class of a model and its source file."""
    print(f"Model class: {kind.__module__}.{kind.__qualname__}")
    print(f"Model source file: {inspect.getsourcefile(kind)}", flush=True)
