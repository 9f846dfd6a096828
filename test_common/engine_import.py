"""Imports an engine before there is something to run on it."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module


def import_engine(name: str) -> None:
    """Import what a run on an engine needs, so that it need not wait for it.

    An engine that cannot be imported is left to the run, which says why.

    Args:
        name: one of the engines; vLLM is imported by its own process.
    """
    # Whatever native libraries raise.
    with suppress(Exception):
        if name == "max":
            import_module("max.pipelines")
            import_module("max.pipelines.lib.generate")
            import_module("max.experimental.nn")
        if name in ("max", "torch"):
            import_module("torch")
            import_module("transformers")
