"""Rounds what each operation gives to its dtype in the run, while all is computed in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def rounding_mode(dtype: str) -> Any:
    """Make a dispatch mode that rounds each result to the dtype that it would have.

    What that is follows from the operation's arguments: from a dtype that it asks for, or else
    from what went into it, where everything else is of the run's dtype.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    from torch.utils.weak import WeakTensorKeyDictionary

    native = getattr(torch, dtype, torch.float32)
    if native.is_complex:
        native = native.to_real()

    class _Rounding(TorchDispatchMode):  # a dispatch mode exists only with torch
        def __init__(self) -> None:
            super().__init__()
            self._dtypes: Any = WeakTensorKeyDictionary()

        def forget(self, output: Any) -> None:
            """Let what a module gives be of the run's dtype, whatever it computed in."""
            for tensor in _tensors(output):
                self._dtypes[tensor] = native

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            del types
            kind = self._kind(args, kwargs or {})
            given = _tensors([*args, *(kwargs or {}).values()])
            places = {_place(tensor) for tensor in given}
            changes = any(
                argument.alias_info is not None and argument.alias_info.is_write
                for argument in func._schema.arguments
            )
            result = func(*args, **(kwargs or {}))
            for tensor in _tensors(result):
                self._dtypes[tensor] = kind
                if tensor.is_floating_point() and (changes or _place(tensor) not in places):
                    with _disable_current_modes():  # float64_throughout would widen the dtype
                        tensor.copy_(tensor.to(kind))
            return result

        def _kind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.dtype:
            asked = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)]
            if asked and asked[0].is_floating_point:
                return native if asked[0] == torch.float64 else asked[0]
            given = [tensor for tensor in _tensors(args) if tensor.is_floating_point()]
            kinds = [self._dtypes.get(tensor) or native for tensor in given if tensor.dim()]
            found = kinds[0] if kinds else native
            for kind in kinds[1:]:
                found = torch.promote_types(found, kind)
            return found

    return _Rounding()


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.numel() else id(tensor)
