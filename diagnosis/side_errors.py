"""Which side failed, and in which of its modules."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from comparison.schema.errors import AccuracyToolsError, CaptureError, EngineError
from test_common.error_text import describe

_CALL = "_call_impl"  # of torch's modules


# A class: contextlib takes an error raised from StopIteration for Python's own conversion.
class side_errors:  # used like a function, as contextlib's are
    """Raise what a side's run raises as an EngineError that names the side and the module.

    What is no failure of the run, such as bad input, passes as it is.
    """

    def __init__(self, side: str) -> None:
        """Take what to call the side, such as `the candidate (torch)`."""
        self._side = side

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raise our error in place of the block's.

        Raises:
            EngineError: the run failed.
        """
        if not isinstance(exception, Exception | SystemExit):
            return  # as Ctrl-C; a model that calls sys.exit ends no command with its own exit code
        ours = isinstance(exception, EngineError | CaptureError)
        if isinstance(exception, AccuracyToolsError) and not ours:
            return
        module = failing_module(exception)
        where = "" if module is None else f", in {module}"
        said = str(exception) if ours else describe(exception)
        kind = CaptureError if isinstance(exception, CaptureError) else EngineError
        raise kind(f"{self._side}{where}: {said}") from exception


def failing_module(error: BaseException) -> str | None:
    """Name the innermost Torch module whose call an exception, or what led to it, came out of.

    Args:
        error: raised while a model ran.

    Returns:
        By the name that its tensors have in a dump; None where no module ran.
    """
    cause: BaseException | None = error
    seen: set[int] = set()  # an error that is raised from itself is its own cause
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        modules = list(_called(cause.__traceback__))
        if modules:
            names = {id(module): name for name, module in modules[0].named_modules()}
            known = [names[id(module)] for module in modules if id(module) in names]
            return f"model.{known[-1]}" if known[-1] else "model"
        cause = cause.__cause__ or cause.__context__
    return None


def _called(trace: TracebackType | None) -> Any:
    torch = sys.modules.get("torch")  # whoever runs a module has imported it
    while trace is not None and torch is not None:
        frame = trace.tb_frame
        module = frame.f_locals.get("self") if frame.f_code.co_name == _CALL else None
        if isinstance(module, torch.nn.Module):
            yield module
        trace = trace.tb_next
