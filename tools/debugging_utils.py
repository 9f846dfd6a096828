"""The documented place of the functions behind debug_model; each is imported on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from test_common.debug_options import DebugOptions
    from test_common.debug_run import debug_context, run_debug_model
    from test_common.max_builder import apply_max_hooks

__all__ = ["DebugOptions", "apply_max_hooks", "debug_context", "run_debug_model"]

_HOMES = {
    "DebugOptions": "test_common.debug_options",
    "apply_max_hooks": "test_common.max_builder",
    "debug_context": "test_common.debug_run",
    "run_debug_model": "test_common.debug_run",
}


def __getattr__(name: str) -> Any:
    """Import a name from where it lives."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
