"""Stand-ins for a module's `forward`: how they take the module, and how they go."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Of a stand-in's function: what tells, once it is due to go, what it stood for, as a 1-tuple.
BEFORE = "_stands_for"


def function_of(forward: Callable[..., Any], module: torch.nn.Module) -> Callable[..., Any]:
    """Return a forward as a function that takes the module first."""
    if isinstance(forward, types.MethodType) and forward.__self__ is module:
        return forward.__func__

    @functools.wraps(forward)
    def takes_module(own: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        del own
        return forward(*args, **kwargs)

    # Who asks for its arguments asks the method, and is not told of the first one.
    with suppress(ValueError, TypeError):  # functions of C have no signature
        signature = inspect.signature(forward)
        first = inspect.Parameter("own", inspect.Parameter.POSITIONAL_ONLY)
        takes_module.__dict__["__signature__"] = signature.replace(
            parameters=[first, *signature.parameters.values()]
        )
    return takes_module


def uncover_forward(module: torch.nn.Module, stand_in: types.MethodType) -> None:
    """Put back what stood as `forward` in the module itself, which may be nothing.

    What someone else has put over a stand-in stays. Stand-ins that were covered when they were
    due to go do so with the one above them.
    """
    own = vars(module)
    if own.get("forward") is not stand_in:
        return
    before: object = stand_in
    while (below := _before(before)) is not None:
        (before,) = below
    if before is None:
        own.pop("forward", None)
    else:
        own["forward"] = before


def _before(forward: object) -> tuple[object] | None:
    """Return what a stand-in that nobody is told of any more stands for, None for all else."""
    function = getattr(forward, "__func__", None)
    tell = getattr(function, "__dict__", {}).get(BEFORE)
    found: tuple[object] | None = tell() if tell is not None else None
    return found
