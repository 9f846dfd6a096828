"""Errors of what runs in a user's oracle: it may raise anything, and return anything."""

from __future__ import annotations

import dataclasses
import sys
from types import TracebackType
from typing import TypeVar

from comparison.schema.errors import AccuracyToolsError, EngineError
from test_common.error_text import describe, line_in_file, shown
from test_common.working_folder import working_folder_kept

Built = TypeVar("Built")


# A class: contextlib takes an EngineError raised from StopIteration for Python's own conversion.
class oracle_errors:  # used like a function, as contextlib's are
    """Raise whatever an oracle's own code raises as an EngineError that names the oracle.

    Our own errors and KeyboardInterrupt pass. SystemExit does not: a run that ended early would
    count as a success. The message ends with the last line of what was raised, and the place.
    """

    def __init__(self, oracle: object, doing: str, *, layers: int | None = None) -> None:
        """Take what the message names.

        Args:
            oracle: the oracle.
            doing: what it is asked for, such as `create_torch_pipeline`.
            layers: how many the model has; None where it has all of its own.
        """
        self._layers = layers
        self._oracle = oracle
        self._doing = doing
        self._folder = working_folder_kept()

    def __enter__(self) -> None:
        """Begin the block."""
        self._folder.__enter__()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raise our error in place of a foreign one.

        Raises:
            EngineError: the block raised.
        """
        self._folder.__exit__(None, None, None)
        if exception is None or isinstance(exception, AccuracyToolsError | KeyboardInterrupt):
            return
        where = _place_in_class_file(self._oracle, exception)
        raise EngineError(
            f"oracle {oracle_label(self._oracle)}: {self._doing} raised {describe(exception)}"
            f"{where}{self._of_few_layers(exception)}"
        ) from exception

    def _of_few_layers(self, exception: BaseException) -> str:
        """Say that a list may be short for the run's own sake."""
        if self._layers is None or not isinstance(exception, IndexError):
            return ""
        built = "one layer is" if self._layers == 1 else f"{self._layers} layers are"
        return f"; of the model {built} built: --num-hidden-layers all builds all"


def checked_result(oracle: object, doing: str, result: object, expected: type[Built]) -> Built:
    """Return what an oracle's method returned, if it has the fields of the record it must be.

    Args:
        oracle: the oracle.
        doing: the method's name.
        result: what it returned.
        expected: the record of `test_common.pipelines` that the method is to return.

    Raises:
        EngineError: a field without a default is missing.
    """
    needed = [
        field.name
        for field in dataclasses.fields(expected)  # type: ignore[arg-type]  # always a dataclass
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if isinstance(result, type) or not all(hasattr(result, name) for name in needed):
        raise EngineError(
            f"oracle {oracle_label(oracle)}: {doing} must return {expected.__name__}("
            f"{', '.join(f'{name}=...' for name in needed)}), it returned {shown(result)}"
        )
    return result  # type: ignore[return-value]  # a record with the same fields is as good


def oracle_label(oracle: object) -> str:
    """Return the oracle's `label`, or the name of its class where that cannot be had."""
    try:
        label = oracle.label  # type: ignore[attr-defined]  # may be missing
    # A user's property may raise anything.
    except Exception:
        label = None
    return label if isinstance(label, str) and label else type(oracle).__name__


def _place_in_class_file(oracle: object, error: BaseException) -> str:
    """Say where in the file of the oracle's class it was raised, where that is known."""
    file = getattr(sys.modules.get(type(oracle).__module__), "__file__", None)
    line = None if file is None else line_in_file(error, file)
    return "" if line is None else f" ({file}, line {line})"
