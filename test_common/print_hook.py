"""What the print hooks of all engines share: names, filter, steps, and the capture certificate."""

from __future__ import annotations

import difflib
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Protocol, Self

from comparison.schema.errors import CaptureError
from comparison.schema.manifest import CaptureCertificate, Skip
from test_common.tensor_tree import TensorTree, input_tensors, output_tensors

# One glob, several, or a function from the full tensor name to whether to keep the tensor.
Filter = str | Sequence[str] | Callable[[str], bool]

_LISTED_NAMES = 10


class CaptureWarning(UserWarning):
    """A capture is empty or partial."""


class TensorSink(Protocol):
    """Where a hook puts its tensors."""

    def save(self, name: str, tensor: Any) -> object:
        """Write or print a tensor before returning, or copy it: its owner may change it after."""

    def step(self) -> None:
        """End a step."""


@dataclass(slots=True)
class _Layer:
    """One hooked layer.

    Attributes:
        layer: the layer itself, so that its id stays its own; None once the hook is removed.
        name: its dotted path.
        fired: whether it was ever called.
        kept: whether a tensor of it ever passed the filter.
    """

    layer: object
    name: str
    fired: bool = False
    kept: bool = False


class BasePrintHook(ABC):
    """Captures what goes into and comes out of every named layer of a model.

    Subclasses attach themselves to an engine, and give `is_tensor` and `print_value`. The hook
    can be a context manager: it is removed at the end of the block.

    Attributes:
        passes_layers_by: whether the engine leaves out layers as a matter of course, such as those
            whose weights it fuses; a capture of the others is then no reason to warn.
    """

    passes_layers_by = False

    def __init__(
        self,
        filter: Filter | None = None,  # the documented name
        steps: Container[int] | None = None,
        ops: Sequence[str] = (),
    ) -> None:
        """Make a hook that is not attached to anything yet.

        Args:
            filter: what to capture: a glob, several globs, or a function. A glob is matched
                with the layer's name and with the full tensor name; a function gets the full
                tensor name. None captures everything.
            steps: the steps to capture, None for all.
            ops: globs of the modules whose operations are captured too, each by itself.

        Raises:
            TypeError: the filter, the steps or the globs are of another kind.
        """
        _check_filter(filter)
        if isinstance(ops, str) or not all(isinstance(glob, str) for glob in ops):
            raise TypeError(f"ops must be a list of globs, found {ops!r:.80}")
        self._ops = tuple(ops)
        self._operations_saved = self._operations_passed_on = 0
        if steps is not None and not isinstance(steps, Container):
            raise TypeError(f"steps must be numbers of steps, such as {{0, 1}}, found {steps!r}")
        self._steps = steps
        self._filter = filter
        self._records: dict[str, _Layer] = {}
        self._calls: Counter[str] = Counter()  # by name: a name may pass to another layer
        self._by_id: dict[int, _Layer] = {}
        self._skips: dict[str, str] = {}
        self._recorded: dict[int, list[str]] = {}
        self._step = 0
        self._removed = False
        self._call_names: set[str] = set()  # of this step
        self._failed = False  # a call did not end, or the block was left by an exception

    @abstractmethod
    def is_tensor(self, value: Any) -> bool:
        """Tell a tensor of the engine."""

    @abstractmethod
    def print_value(self, name: str, value: Any) -> bool:
        """Print or save one tensor, and tell whether that was possible."""

    @property
    def current_step(self) -> int:
        """The step that is running: 0 until `step()` is called."""
        return self._step

    def recorded_names(self, step: int | None = None) -> tuple[str, ...]:
        """List the tensors captured in one step, or in all, in order of execution."""
        steps = self._recorded if step is None else [step]
        return tuple(name for number in steps for name in self._recorded.get(number, ()))

    def add_layer(self, layer: object, name: str) -> bool:
        """Give a layer its name.

        Args:
            layer: the layer.
            name: its dotted path.

        Returns:
            False if the layer has a name already; it keeps that. A name that another layer has
            passes to this one.
        """
        if id(layer) in self._by_id:
            return False
        record = self._records.setdefault(name, _Layer(layer=None, name=name))
        self._by_id.pop(id(record.layer), None)
        record.layer = layer
        self._by_id[id(layer)] = record
        return True

    def layer_of(self, name: str) -> object:
        """Return the layer that has a name, None if there is none."""
        record = self._records.get(name)
        return None if record is None else record.layer

    def name_of(self, layer: object) -> str | None:
        """Return the name of a layer, None if it has none."""
        record = self._by_id.get(id(layer))
        return None if record is None else record.name

    def begin_call(self, layer: object) -> str:
        """Count a call of a layer.

        Returns:
            The name for the tensors of this call: `<module>`, `<module>(2)`. A layer without a
            name goes by the name of its class.
        """
        if id(layer) not in self._by_id:
            self.add_layer(layer, self._free_name(type(layer).__name__))
        record = self._by_id[id(layer)]
        record.fired = True
        name = self._next_call_name(record.name)
        self._call_names.add(name)
        return name

    def _next_call_name(self, name: str) -> str:
        """Count up the call until no other layer has that name or will have it."""
        while True:
            self._calls[name] += 1
            count = self._calls[name]
            call_name = f"{name}({count})" if count > 1 else name
            reserved = count > 1 and call_name in self._records  # a layer named `<module>(2)`
            if not reserved and call_name not in self._call_names:
                return call_name

    def capture_inputs(
        self, layer: object, call_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Capture the tensors among the arguments of a call."""
        tree = input_tensors(args, kwargs, is_tensor=self.is_tensor)
        self._capture(self._by_id[id(layer)], call_name, tree)

    def capture_outputs(self, layer: object, call_name: str, outputs: Any) -> None:
        """Capture the tensors in what a call returned."""
        tree = output_tensors(outputs, is_tensor=self.is_tensor)
        self._capture(self._by_id[id(layer)], call_name, tree)

    def skip(self, name: str, reason: str) -> None:
        """Note once that a layer or tensor is not captured."""
        self._skips.setdefault(name, reason)

    def step(self) -> None:
        """End a step: the calls of the next one are counted anew and go to another folder."""
        self._step += 1
        self._calls.clear()
        self._call_names.clear()

    def remove(self) -> None:
        """Detach the hook, and warn if it saw nothing or not all. A second call does nothing."""
        if self._removed:
            return
        self._detach()
        complaint = self._complaint() or self._broken_off()
        if complaint:
            warnings.warn(complaint, CaptureWarning, stacklevel=2)

    def certificate(self) -> CaptureCertificate:
        """Tell what was captured of what should have been; also after `remove()`."""
        skips = dict(self._skips)
        for record in self._records.values():
            if not record.fired:
                skips.setdefault(record.name, self.reason_not_fired(record.name))
            elif self._filter is not None and not record.kept:
                skips.setdefault(record.name, "no tensor of it passes the filter")
        return CaptureCertificate(
            registered=len(self._records),
            fired=sum(record.fired for record in self._records.values()),
            saved=len(self.recorded_names()),
            skipped=tuple(Skip(name=name, reason=reason) for name, reason in skips.items()),
        )

    def require_capture(self) -> CaptureCertificate:
        """Return the certificate of a capture that holds something.

        Raises:
            CaptureError: no layer fired, no tensor was saved, or no operation that was asked for.
        """
        certificate = self.certificate()
        if certificate.saved == 0:
            raise CaptureError(self._complaint() or "nothing was captured: no layer was named")
        if self._ops and not self._operations_saved:
            ran = [record.name for record in self._records.values() if record.fired]
            raise CaptureError(
                f"no operation was captured: no module that ran fits {', '.join(self._ops)}; "
                f"{_nearest(self._ops, ran)}modules: {_listing(ran)}"
            )
        return certificate

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the dump has to know of its operations."""
        if not self._ops:
            return ()
        note = (
            f"{self._operations_saved} tensors are of operations, in modules {', '.join(self._ops)}"
        )
        if self._operations_passed_on:
            note += (
                f"; {self._operations_passed_on} more are views or not filled yet, listed in "
                "ops.json and not saved"
            )
        return (note,)

    def capture_operation(self, name: str, value: Any) -> bool:
        """Capture what an operation gives, and tell whether that was possible."""
        if self._steps is not None and self._step not in self._steps:
            return False
        if not self.print_value(name, value):
            return False
        self._recorded.setdefault(self._step, []).append(name)
        self._operations_saved += 1
        return True

    def reason_not_fired(self, name: str) -> str:
        """Say why a layer may not have fired."""
        del name
        return "registered but never called"

    def _capture(self, record: _Layer, call_name: str, tree: TensorTree) -> None:
        wanted = self._steps is None or self._step in self._steps
        for suffix, tensor in tree.tensors if wanted else ():
            name = f"{call_name}-{suffix}"
            if not self._passes(record.name, name):
                continue
            record.kept = True
            if self.print_value(name, tensor):
                self._recorded.setdefault(self._step, []).append(name)
        for suffix, reason in tree.opaque:
            if reason not in self._skips.values():  # one cache passes through every layer
                self.skip(f"{record.name}-{suffix}", reason)

    def _free_name(self, name: str) -> str:
        unique, number = name, 2
        while unique in self._records:
            unique = f"{name}{number}"
            number += 1
        return unique

    def _passes(self, layer_name: str, tensor_name: str) -> bool:
        if self._filter is None:
            return True
        if callable(self._filter):
            return bool(self._filter(tensor_name))
        globs = [self._filter] if isinstance(self._filter, str) else self._filter
        return any(fnmatchcase(name, glob) for glob in globs for name in (layer_name, tensor_name))

    def _detach(self) -> None:
        """Let go of the layers, so that a removed hook keeps no model in memory."""
        self._removed = True
        self._by_id.clear()
        for record in self._records.values():
            record.layer = None

    def _complaint(self) -> str:
        """Describe what is wrong with the capture, empty if nothing is."""
        if self.passes_layers_by and self.recorded_names():
            return ""
        records = list(self._records.values())
        fired = sum(record.fired for record in records)
        silent = [r.name for r in records if not r.fired and (not fired or self._wanted(r.name))]
        if not records or (not silent and self.recorded_names()):
            return ""
        text = f"{len(records)} modules registered, {fired} fired"
        if silent:
            text += f"; not captured: {_listing(silent)} ({self.reason_not_fired(silent[0])})"
        elif self._filter is not None and not any(record.kept for record in records):
            listing = _listing([record.name for record in records])
            text += f", but no tensor passes the filter {self._filter!r}; modules: {listing}"
        else:
            text += ", but no tensor was saved"
        if not fired:
            text += "; nothing was captured. Was the model run, and through its __call__?"
        return text

    def _broken_off(self) -> str:
        """Say that a call did not end, empty if all did."""
        return "a call of the model did not end: the capture is partial" if self._failed else ""

    def _wanted(self, layer_name: str) -> bool:
        """Tell whether the usual tensors of a layer that never fired would pass the filter."""
        usual = ("input_0", "output", "output_0")
        return any(self._passes(layer_name, f"{layer_name}-{suffix}") for suffix in usual)

    def __enter__(self) -> Self:
        """Return the hook itself."""
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the hook; an exception under way is message enough."""
        self._failed = self._failed or exception is not None
        with warnings.catch_warnings():
            if exception is not None:
                warnings.simplefilter("ignore", CaptureWarning)
            self.remove()


def _check_filter(filter: object) -> None:
    if filter is None or isinstance(filter, str) or callable(filter):
        return
    globs = isinstance(filter, Collection) and not isinstance(filter, Mapping | bytes)
    if not globs or not all(isinstance(glob, str) for glob in filter):  # type: ignore[attr-defined]  # a collection
        raise TypeError(
            f"filter must be a glob, a list of globs, or a function from a tensor's name to "
            f"whether to keep it, found {filter!r:.80}"
        )


def _nearest(globs: Sequence[str], modules: Sequence[str]) -> str:
    """Name the modules that the user may have meant, if any are near."""
    near = [
        name
        for glob in globs
        for name in difflib.get_close_matches(glob.lstrip("*."), modules, n=3)
    ]
    return f"nearest: {', '.join(dict.fromkeys(near[:3]))}; " if near else ""


def _listing(names: Sequence[str]) -> str:
    """List the first names and count the others."""
    shown = ", ".join(names[:_LISTED_NAMES])
    more = len(names) - _LISTED_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
