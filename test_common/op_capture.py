"""The operations below modules: which are captured, and what they are called. Knows no engine."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType

from comparison.schema.operations import CapturedOperation, StepOperations
from comparison.schema.tensor_names import operation_name

_OWN_ROOMS = ("test_common", "diagnosis")
_REPLAYS = ("/diagnosis/causes/module_calls.py", "/diagnosis/replay/reference_calls.py")
# As code names it, and where links lead: a sandbox is made of links.
_ROOTS = {Path(__file__).parent.parent, Path(__file__).resolve().parent.parent}
_SITE_PACKAGES = "site-packages"
_PYTHON = sysconfig.get_path("stdlib")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A module's call that runs.

    Attributes:
        name: the name for its tensors.
        captured: whether its operations are.
    """

    name: str
    captured: bool


class OperationLog:
    """Names operations by the innermost module that runs, and keeps those of one step.

    A module is captured if its name matches, or that of a module around it.
    """

    def __init__(self, globs: Sequence[str]) -> None:
        """Begin with nothing.

        Args:
            globs: names of the modules.
        """
        self._globs = tuple(globs)
        self._stack: list[_Call] = []
        self._counts: Counter[str] = Counter()
        self._operations: list[CapturedOperation] = []
        self._tensors: dict[str, str] = {}

    @property
    def is_on(self) -> bool:
        """Whether the operations that run now are captured."""
        return bool(self._stack) and self._stack[-1].captured

    def begin_call(self, path: str, call_name: str) -> None:
        """Enter a module.

        Args:
            path: its name.
            call_name: the name for the tensors of this call.
        """
        captured = self.is_on or any(fnmatchcase(path, glob) for glob in self._globs)
        self._stack.append(_Call(name=call_name, captured=captured))

    def end_call(self) -> None:
        """Leave the innermost module."""
        if self._stack:
            self._stack.pop()

    def leave_all(self) -> None:
        """Leave every module, after a run that was broken off."""
        self._stack.clear()

    @property
    def module(self) -> str:
        """The innermost call that runs."""
        return self._stack[-1].name

    def next_name(self, op: str) -> str:
        """Name the next operation of the innermost module.

        Args:
            op: short name of the operation.
        """
        self._counts[self.module] += 1
        return operation_name(self.module, self._counts[self.module], op)

    def add(self, operation: CapturedOperation) -> None:
        """Keep an operation."""
        self._operations.append(operation)

    def tell(self, tensor: str, output: str) -> None:
        """Keep which operation's output a module's tensor is.

        Args:
            tensor: full name of what goes into a module or comes out of it.
            output: name of the operation's output.
        """
        self._tensors.setdefault(tensor, output)

    def step_so_far(self) -> StepOperations | None:
        """Return what the step holds until now, None where that is nothing."""
        if not self._operations:
            return None
        return StepOperations(operations=tuple(self._operations), tensors=dict(self._tensors))

    def end_step(self) -> None:
        """Begin anew."""
        self._counts.clear()
        self._operations.clear()
        self._tensors.clear()


def output_names(name: str, count: int) -> tuple[str, ...]:
    """Name the outputs of an operation.

    Args:
        name: of the operation.
        count: number of its outputs.
    """
    return (name,) if count == 1 else tuple(f"{name}_{index}" for index in range(count))


def source_line(is_engine: Callable[[str], bool]) -> str:
    """Return `file:line` of the innermost code that is neither the engine's nor ours.

    Args:
        is_engine: tells the engine's own files by their path.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith(_REPLAYS):
            return ""  # whoever calls a replay has no part in the model
        if not file.startswith("<") and not is_engine(file) and not _is_ours(file):
            return f"{_short(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_ours(file: str) -> bool:
    """Tell our own files, and those of Python, which only pass calls on."""
    if file.startswith(_PYTHON) and _SITE_PACKAGES not in file:
        return True
    return any(file.startswith(f"{root}/{room}/") for root in _ROOTS for room in _OWN_ROOMS)


def _short(file: str) -> str:
    """Leave out where Python found it: packages lie in folders of any name."""
    folders = (str(Path(entry).absolute()) for entry in sys.path)
    around = [folder for folder in folders if file.startswith(f"{folder}/")]
    return file[len(max(around, key=len)) + 1 :] if around else file
