"""Shows the fault of a module that is no formula: it is built from its package, and run.

Parts of it whose output the candidate's dump holds are not run; they give what was recorded. So
only the code between these is what the script looks at.

Legend: T tokens of the row, n of these that are kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from diagnosis.checks import Checker
from diagnosis.replay.module_watch import module_of
from diagnosis.replay.reference_trace import as_array
from diagnosis.repro.case import Case, Kept, NoReproError, narrowed, tensors_of
from diagnosis.repro.recording import LeafPlace, Recording, mapped, record

if TYPE_CHECKING:
    import torch

_PACKAGES = ("torch", "transformers")
_PLAIN = (type(None), bool, int, float, str)


def cases_of_module(checker: Checker, kept: Kept) -> Iterator[Case]:
    """Yield the ways to build the guilty module, the plainest one first.

    Args:
        checker: holds the reference in float64, and the candidate's values.
        kept: what of the guilty tensor is kept.

    Raises:
        NoReproError: the module's code or arguments are in no package that anyone has.
    """
    check = kept.check
    path = module_of(check.owner)
    module = checker.submodule(path)
    recording = record(checker, check, kept.row)
    if recording.judged is None or recording.value is None:
        raise NoReproError(f"{check.name} is not seen when the module runs again")
    tokens = checker.wide_calls[kept.row].tokens
    for spec in _ways_to_build(checker.wide_model, module, path.partition(".")[2]):
        for entered in (recording.entered, [name for name, _ in module.named_modules()]):
            yield _Packing(kept, recording, tokens).packed(module, spec, entered)


def _ways_to_build(model: Any, module: Any, path: str) -> Iterator[dict[str, Any]]:
    arguments = _arguments(model, module)
    if arguments is not None:
        yield {"class": _class_of(module), "args": arguments, "path": ""}
    config = getattr(model, "config", None)
    if config is not None:
        yield {"class": _class_of(model), "args": {"config": _config(model, config)}, "path": path}


def _class_of(value: Any) -> str:
    kind = type(value)
    if kind.__module__.partition(".")[0] not in _PACKAGES:
        raise NoReproError(
            f"{kind.__qualname__} is defined in {kind.__module__}, which is no part of "
            f"{' or '.join(_PACKAGES)}"
        )
    return f"{kind.__module__}.{kind.__qualname__}"


def _arguments(model: Any, module: Any) -> dict[str, Any] | None:
    """Find what a module was made with, by the names of its attributes."""
    found: dict[str, Any] = {}
    for name, parameter in _parameters(module):
        if name == "config":
            found[name] = _config(model, getattr(module, "config", None))
        elif name == "bias":
            found[name] = getattr(module, name, None) is not None
        elif name in vars(module) and _is_plain(vars(module)[name]):
            found[name] = vars(module)[name]
        elif parameter.default is parameter.empty:
            return None
    return None if found.get("config", found) is None else found


def _parameters(module: Any) -> Iterator[tuple[str, inspect.Parameter]]:
    """List the parameters of a class; where decorators hide them, those of most attentions."""
    parameters = dict(list(inspect.signature(type(module).__init__).parameters.items())[1:])
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    if parameters and all(parameter.kind in kinds for parameter in parameters.values()):
        names = [name for name in ("config", "layer_idx") if name in vars(module)]
        keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = {name: inspect.Parameter(name, keyword) for name in names}
    yield from (item for item in parameters.items() if item[1].kind not in kinds)


def _config(model: Any, config: Any) -> dict[str, Any] | None:
    """Name a configuration by its place within the model's."""
    whole = getattr(model, "config", None)
    config = getattr(whole, "text_config", whole) if config is None else config
    if whole is None or config is None:
        return None
    parts = [[], *([name] for name in vars(whole))]
    parts = [part for part in parts if _is_one(getattr(whole, part[0]) if part else whole, config)]
    if not parts:
        return None
    attention = getattr(config, "_attn_implementation", None)
    return {"@config": {"class": _class_of(config), "part": parts[0], "attention": attention}}


def _is_one(mine: Any, other: Any) -> bool:
    """Tell whether two configurations say the same; models copy theirs."""
    return mine is other or (type(mine) is type(other) and mine.to_dict() == other.to_dict())


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


class _Packing:
    """Spells a recording as JSON and tensors, cut to the tokens that are kept."""

    def __init__(self, kept: Kept, recording: Recording, tokens: int | None) -> None:
        self._kept, self._recording, self._tokens = kept, recording, tokens
        self._tensors: dict[str, torch.Tensor] = {}

    def packed(self, module: Any, spec: Mapping[str, Any], entered: list[str]) -> Case:
        call = self._recording
        case = {
            "module": {**spec, "weights": list(self._weights(module, entered))},
            "call": {
                "args": [self._spelled(value, f"args.{i}") for i, value in enumerate(call.args)],
                "kwargs": {
                    name: self._spelled(value, f"kwargs.{name}")
                    for name, value in call.kwargs.items()
                },
            },
            "parts": {
                path: [
                    self._spelled(output, f"parts.{path}.{i}") for i, output in enumerate(outputs)
                ]
                for path, outputs in call.outputs.items()
                if not self._is_within_a_part(path)
            },
            "pins": [
                self._pin(place, value)
                for place, value in call.pins
                if not self._is_within_a_part(place.path)
            ],
            "judged": self._judged(),
            **self._kept.described(),
        }
        needs = ("transformers",) if "transformers." in f"{spec}" else ()
        return Case(case=case, tensors={**self._tensors, **self._kept.tensors()}, needs=needs)

    def _weights(self, module: Any, entered: list[str]) -> Iterator[str]:
        for path, part in module.named_modules():
            if path not in entered or path in self._recording.outputs:
                continue
            if self._is_within_a_part(path):
                continue
            for name, value in tensors_of(part):
                full = f"{path}.{name}" if path else name
                self._tensors[f"weights.{full}"] = narrowed(value, self._kept.check.dtype)
                yield full

    def _is_within_a_part(self, path: str) -> bool:
        return any(path.startswith(f"{part}.") for part in self._recording.outputs)

    def _pin(self, place: LeafPlace, value: torch.Tensor) -> dict[str, Any]:
        key = f"pins.{place.path}.{place.call}.{place.side}.{place.leaf}"
        return {**_as_dict(place), "tensor": self._spelled(value, key)["@tensor"]}

    def _judged(self) -> dict[str, Any]:
        place, value = self._recording.judged, self._recording.value
        assert place is not None  # the caller made sure
        assert value is not None
        return {
            **_as_dict(place),
            "axis": self._axis(value),
            "positions": self._kept.positions,
        }

    def _axis(self, value: torch.Tensor) -> int | None:
        """Find the axis that counts the tokens, by the values."""
        import numpy as np

        exact = np.asarray(self._kept.check.exact)[list(self._kept.index)]
        for axis in (1, 2, 0):
            if value.ndim <= axis or value.shape[axis] <= max(self._kept.positions):
                continue
            moved = value.movedim(axis, 0)
            moved = moved.squeeze(1) if axis > 0 else moved
            mine = as_array(moved[self._kept.positions])
            if mine.shape == exact.shape and np.allclose(mine, exact, equal_nan=True):
                return axis
        return None

    def _spelled(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: self._spelled(item, f"{key}.{name}") for name, item in value.items()}
        if isinstance(value, list | tuple):
            items = [self._spelled(item, f"{key}.{i}") for i, item in enumerate(value)]
            return {"@tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, _PLAIN):
            return value
        return self._spelled_tensor(value, key)

    def _spelled_tensor(self, value: Any, key: str) -> dict[str, str]:
        found = mapped(value, lambda tensor: self._stored(tensor, key))
        if found != {"@tensor": key}:
            raise NoReproError(f"it is given a {type(value).__name__}, which no file can hold")
        return {"@tensor": key}

    def _stored(self, tensor: torch.Tensor, key: str) -> dict[str, str]:
        self._tensors[key] = narrowed(self._shortened(tensor), self._kept.check.dtype)
        return {"@tensor": key}

    def _shortened(self, tensor: torch.Tensor) -> torch.Tensor:
        """Leave out the tokens behind those that are kept."""
        tokens, end = self._tokens, max(self._kept.positions) + 1
        if tokens is None or end >= tokens:
            return tensor
        if tensor.ndim == 4 and tensor.shape[-2:] == (tokens, tokens):
            return tensor[..., :end, :end]  # a mask
        order = (1, 2, 0) if tensor.shape[:1] == (1,) else (0,)
        axis = next((a for a in order if a < tensor.ndim and tensor.shape[a] == tokens), None)
        return tensor if axis is None else tensor.narrow(axis, 0, end)


def _as_dict(place: LeafPlace) -> dict[str, Any]:
    return {"path": place.path, "call": place.call, "side": place.side, "leaf": place.leaf}
