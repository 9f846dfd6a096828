"""The call-tree tracer for people who add a model: a drop-in for that of transformers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.schema.errors import UnwritableOutputError
from test_common.call_tree import CallNode, CallTreeCapture, CallTreeScope
from test_common.call_tree_json import TreeForm, write_tree
from test_common.module_calls import is_script
from test_common.output_folder import unwritable
from test_common.print_hook import CaptureWarning
from test_common.safetensors_folder import SafetensorsFolder
from test_common.value_description import ValueDescriber

if TYPE_CHECKING:
    import torch

_LISTED_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """What a trace holds beyond the documented form.

    Attributes:
        container_outputs: outputs of modules that have modules in them, too.
        every_call: each call of the model has a folder of its own, `0`, `1`, ... (so that
            `.generate` is traced step by step), and so has each call that is made of a part of it
            from outside, such as an encoder. Later calls of one module have their number, in the
            tree and in the names of files. Nothing is overwritten.
        every_dtype: statistics of float64, float8, integers, booleans and complex numbers too.
        structure: dataclasses, named tuples, deques and all mappings by field.
        names_pruned: a node lists under `pruned` the layers that it called and that are left out.
        failed_calls: a call of the model that an exception ends is written as well.
    """

    container_outputs: bool = False
    every_call: bool = False
    every_dtype: bool = False
    structure: bool = False
    names_pruned: bool = False
    failed_calls: bool = False

    @classmethod
    def all(cls) -> TraceOptions:
        """Return all of them."""
        return cls(**{field.name: True for field in fields(cls)})


DOCUMENTED = TraceOptions()


@contextmanager
def model_addition_debugger_context(
    model: torch.nn.Module,
    debug_path: str | os.PathLike[str] | None = None,
    do_prune_layers: bool = True,
    use_repr: bool = True,
    *,
    options: TraceOptions = DOCUMENTED,
) -> Iterator[torch.nn.Module]:
    """Write down what every module of a model is called with and returns, as nested JSON.

    Each call of the model, as `model(...)` or `model.forward(...)`, writes
    `<Class>_debug_tree_SUMMARY.json` and `<Class>_debug_tree_FULL_TENSORS.json`. It runs without
    gradients. In a distributed run only rank 0 writes.

        with model_addition_debugger_context(model, debug_path="trace", do_prune_layers=False):
            model.forward(**inputs)

    Args:
        model: the model.
        debug_path: the folder for the files, made if it is not there; the current one if None.
        do_prune_layers: whether only the first and the last layer of each block are written.
        use_repr: whether a tensor's `value` is its text. If not, the tensor goes to a .safetensors
            file, under the key `data`, and the value is that file's relative path.
        options: what the trace holds beyond the documented form.

    Yields:
        The model, which is as before when the block ends, also by an exception.

    Raises:
        TypeError: the model is no module, or a ScriptModule.
        UnwritableOutputError: the folder cannot be made or written.
    """
    _check_model(model)
    writer = _TraceWriter(
        name=type(model).__name__,
        folder=Path("." if debug_path is None else debug_path),
        form=_form(options),
        use_repr=use_repr,
        options=options,
    )
    scope = CallTreeScope(
        container_outputs=options.container_outputs,
        outer_calls=options.every_call,
        prunes_layers=do_prune_layers,
        numbered=options.every_call,
    )
    capture = CallTreeCapture(model, writer.describer, writer.write, scope=scope)
    try:
        capture.attach()
        yield model
    finally:
        capture.detach()
    _warn_of_compiled(capture)


class _TraceWriter:
    """Gives each call of the model its folder, and writes its tree there."""

    def __init__(
        self, *, name: str, folder: Path, form: TreeForm, use_repr: bool, options: TraceOptions
    ) -> None:
        self._name, self._root, self._form, self._options = name, folder, form, options
        self._use_repr = use_repr
        if _is_first_rank():
            _make_folder(folder)
        self._folder = folder

    def describer(self) -> ValueDescriber | None:
        """Make what describes the values of the next call of the model."""
        if not _is_first_rank():
            return None
        if self._options.every_call:
            self._folder = _next_folder(self._root)
        return ValueDescriber(
            files=None if self._use_repr else SafetensorsFolder(self._folder),
            every_dtype=self._options.every_dtype,
            structure=self._options.structure,
            taken=set() if self._options.every_call else None,
        )

    def write(self, root: CallNode) -> None:
        """Write the tree of a call that has ended."""
        if not root.raised or self._options.failed_calls:
            write_tree(self._folder, self._name, root, self._form)


def _form(options: TraceOptions) -> TreeForm:
    return TreeForm(
        container_outputs=options.container_outputs,
        names_pruned=options.names_pruned,
        numbers_calls=options.every_call,
    )


def _check_model(model: object) -> None:
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, found {type(model).__name__}")
    if is_script(model):
        raise TypeError(
            f"{type(model).__name__} is a ScriptModule, whose parts cannot be seen: "
            "use the model before torch.jit"
        )


def _is_first_rank() -> bool:
    """Tell whether this process writes."""
    from torch import distributed

    running = distributed.is_available() and distributed.is_initialized()
    return not running or distributed.get_rank() == 0


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UnwritableOutputError(
            f"trace folder {folder} is a file: give the path of a folder"
        ) from None
    except OSError as error:
        raise unwritable(folder, error) from error


def _next_folder(root: Path) -> Path:
    """Make the folder behind the last numbered one."""
    try:
        numbers = [int(path.name) for path in root.iterdir() if path.name.isdecimal()]
        folder = root / str(max(numbers, default=-1) + 1)
        folder.mkdir()
    except OSError as error:
        raise unwritable(root, error) from error
    return folder


def _warn_of_compiled(capture: CallTreeCapture) -> None:
    if capture.compiled:
        names = sorted(capture.compiled)
        more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
        warnings.warn(
            f"not traced, since torch.compile runs them: {', '.join(names[:_LISTED_NAMES])}{more}; "
            "run the model without it",
            CaptureWarning,
            stacklevel=4,
        )
