"""A tensor whose numbers stay in a safetensors file until an operation needs them.

It stands in a model where a weight would. Each operation gets the whole weight, read and cast just
then, and lets go of it; so a model needs memory for the weights of the operation that runs, and
not for those of all. Files are mapped: what is read of them is the page cache's, which the system
takes back when memory is short.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_any, tree_map_only

_aten = torch.ops.aten
_SAME = frozenset({_aten.detach.default, _aten.alias.default})
_CAST = _aten._to_copy.default
_LOOK_UP = _aten.embedding.default
_TRANSPOSED = _aten.t.default
_PRODUCTS = {_aten.mm.default: 1, _aten.addmm.default: 2}  # the place of the right operand
# Of a weight in float64; a strip of it is what a product reads at once.
_STRIP_BYTES = 2**27


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor in a file.

    Attributes:
        path: the safetensors file.
        key: its name there.
    """

    path: Path
    key: str

    def read(self) -> torch.Tensor:
        """Map it; nothing is copied."""
        tensor: torch.Tensor = _opened(self.path).get_tensor(self.key)
        return tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What an operation on streamed tensors gives, computed anew each time.

    Attributes:
        function: the operation.
        args: its positional arguments.
        kwargs: its keyword arguments.
        index: which of its results, None where it has one.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    index: int | None = None

    def read(self) -> torch.Tensor:
        args, kwargs = _whole((self.args, dict(self.kwargs)))
        return self.pick(self.function(*args, **kwargs))

    def pick(self, results: Any) -> torch.Tensor:
        tensor: torch.Tensor = results if self.index is None else results[self.index]
        return tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """Numbers in memory, once something has written into a streamed tensor."""

    tensor: torch.Tensor

    def read(self) -> torch.Tensor:
        return self.tensor


@dataclass(slots=True)
class _Cell:
    """Where the numbers come from; a tensor shares it with those that detach from it.

    Attributes:
        source: that.
        loading: whether a model is being built of it: all operations on it then wait.
    """

    source: Stored | _Result | _Held
    loading: bool = False


class StreamedTensor(torch.Tensor):
    """A tensor that is read when it is needed; see the module.

    Casts and views wait, and so does everything while a model is being loaded, so that what a
    loader does to a weight (fuses, stacks, transposes it) is done when the weight is needed. What
    is written into one, or into a view of one, stays in memory from then on.
    """

    _cell: _Cell
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls: type[StreamedTensor], like: torch.Tensor, cell: _Cell, device: Any = "cpu"
    ) -> StreamedTensor:
        """Make one.

        Args:
            cls: the class.
            like: has the shape, strides and dtype; may have no numbers.
            cell: where the numbers come from.
            device: where operations get them.
        """
        made: StreamedTensor = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), dtype=like.dtype, device=device
        )
        made._cell = cell
        return made

    def whole(self) -> torch.Tensor:
        """Read it.

        Returns:
            A plain tensor; of a file in the wanted dtype the mapped memory itself.
        """
        return self._cell.source.read()

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation on what the tensors hold, or let it wait."""
        del types
        kwargs = kwargs or {}
        first = args[0] if args and isinstance(args[0], cls) else None
        if func in _SAME and first is not None:
            return _alias(first)
        if func._schema.is_mutable:
            return _written(func, args, kwargs)
        views_or_casts = first is not None and (func is _CAST or _is_view(func))
        if views_or_casts or (_is_loading(args, kwargs) and _waits(func)):
            return _waiting(func, args, kwargs)
        if func is _LOOK_UP and first is not None:
            return _looked_up(func, first, args[1:], kwargs)
        if (strips := _strips(func, args)) is not None:
            return _multiplied(func, args, kwargs, strips)
        args, kwargs = _whole((args, kwargs))
        return func(*args, **kwargs)

    def __repr__(self) -> str:
        """Show what it is, without reading it."""
        return f"{type(self).__name__}({tuple(self.shape)}, {self.dtype}, {self._cell.source})"

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        """Copy what was written; what is in a file is shared."""
        source = self._cell.source
        if isinstance(source, _Held):
            source = _Held(tensor=source.tensor.clone())
        copied: torch.Tensor = StreamedTensor(self, _Cell(source), self.device)
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, requires_grad=self.requires_grad)
        memo[id(self)] = copied
        return copied

    @property
    def data(self) -> torch.Tensor:
        """Return the tensor without its history, as torch does."""
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        """Take another tensor's place, as `module.double()` lets each parameter do."""
        streamed = isinstance(value, StreamedTensor)
        cell = value._cell if streamed else _Cell(_Held(tensor=value))
        shell = value if streamed else StreamedTensor(value, cell, value.device)
        torch.Tensor.data.__set__(self, shell)
        self._cell = cell

    # What torch answers without an operation.
    def numpy(self, **kwargs: Any) -> Any:
        """Read it as an array."""
        return self.whole().numpy(**kwargs)

    def tolist(self) -> Any:
        """Read it as lists."""
        return self.whole().tolist()

    def as_subclass(self, kind: Any) -> Any:
        """Read it as a tensor of another class."""
        return self.whole().as_subclass(kind)

    def untyped_storage(self) -> torch.UntypedStorage:
        """Return the memory that `whole` gives each time; empty where it is new each time."""
        source = self._cell.source
        lasts = isinstance(source, Stored | _Held)
        return source.read().untyped_storage() if lasts else torch.UntypedStorage(0)

    def data_ptr(self) -> int:
        """Return the address of that memory, 0 where it is new each time."""
        source = self._cell.source
        return source.read().data_ptr() if isinstance(source, Stored | _Held) else 0


def stored_tensor(path: Path, key: str) -> StreamedTensor:
    """Return a tensor of a file, to load a model from; `settle` it afterwards."""
    source = Stored(path=path, key=key)
    return StreamedTensor(source.read(), _Cell(source, loading=True))


def settle(tensor: torch.Tensor) -> None:
    """Let operations on a tensor run from now on: its model is loaded."""
    if isinstance(tensor, StreamedTensor):
        tensor._cell.loading = False


@functools.cache
def _opened(path: Path) -> Any:
    from safetensors import safe_open

    return safe_open(path, framework="pt", device="cpu")


def _whole(values: Any) -> Any:
    return tree_map_only(StreamedTensor, StreamedTensor.whole, values)


def _alias(tensor: StreamedTensor) -> StreamedTensor:
    return StreamedTensor(tensor, tensor._cell, tensor.device)


def _is_loading(args: Any, kwargs: Any) -> bool:
    return tree_any(
        lambda value: isinstance(value, StreamedTensor) and value._cell.loading, (args, kwargs)
    )


def _waits(func: Any) -> bool:
    """Tell operations that give tensors, and not a number."""
    returns = func._schema.returns
    return bool(returns) and all("Tensor" in str(item.type) for item in returns)


def _is_view(func: Any) -> bool:
    """Tell operations that give what lies in the memory of their first argument."""
    aliases = func._schema.returns[0].alias_info if func._schema.returns else None
    return aliases is not None and not aliases.is_write


def _waiting(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Note an operation, and find out the shapes that it will give."""
    loading = _is_loading(args, kwargs)
    device = kwargs.get("device") or _device_of(args)
    if func is _CAST:
        args = (_before_widening(args[0], kwargs), *args[1:])
    # A tensor may take this result's place, and is its source all the same.
    args, kwargs = tree_map_only(StreamedTensor, _alias, (args, kwargs))
    metas, words = tree_map_only(torch.Tensor, _without_numbers, (args, dict(kwargs)))
    if "device" in words:
        words["device"] = "meta"
    shapes = func(*metas, **words)

    def made(like: torch.Tensor, index: int | None) -> StreamedTensor:
        result = _Result(function=func, args=args, kwargs=kwargs, index=index)
        return StreamedTensor(like, _Cell(result, loading), device)

    if isinstance(shapes, torch.Tensor):
        return made(shapes, None)
    return type(shapes)(made(shape, index) for index, shape in enumerate(shapes))


def _before_widening(tensor: StreamedTensor, kwargs: Mapping[str, Any]) -> StreamedTensor:
    """Leave out a cast before a cast, where no bit is lost: bfloat16 to float32 to float64."""
    source, target = tensor._cell.source, kwargs.get("dtype")
    if not isinstance(source, _Result) or source.function is not _CAST or target is None:
        return tensor
    inner = source.args[0]
    widens = torch.promote_types(inner.dtype, tensor.dtype) == tensor.dtype
    same_place = inner.device == tensor.device
    floats = inner.dtype.is_floating_point and tensor.dtype.is_floating_point
    return inner if widens and same_place and floats else tensor


def _without_numbers(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _device_of(args: Any) -> Any:
    devices: list[torch.device] = []
    tree_map_only(StreamedTensor, lambda value: devices.append(value.device), args)
    return devices[0] if devices else torch.device("cpu")


def _looked_up(
    func: Any, table: StreamedTensor, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> torch.Tensor:
    """Cast the rows that are looked up, and not the whole table."""
    table, casts = _before_casts(table)
    return _cast(func(table.whole(), *args, **kwargs), casts)


def _before_casts(tensor: StreamedTensor) -> tuple[StreamedTensor, list[_Result]]:
    """Return what is cast, and the casts, the first one first."""
    casts: list[_Result] = []
    while isinstance(source := tensor._cell.source, _Result) and source.function is _CAST:
        casts.insert(0, source)
        tensor = source.args[0]
    return tensor, casts


def _cast(values: torch.Tensor, casts: Sequence[_Result]) -> torch.Tensor:
    for cast in casts:
        values = cast.function(values, *cast.args[1:], **cast.kwargs)
    return values


def _strips(func: Any, args: Sequence[Any]) -> Iterator[torch.Tensor] | None:
    """Return the right operand of a product, some columns after the others.

    Returns:
        None where it is read whole: in the dtypes of a model a product in strips may round
        otherwise than a whole one. In float64, which others are held against, that is no matter,
        and the weight takes the most memory.
    """
    if (place := _PRODUCTS.get(func)) is None:
        return None
    right = args[place]
    if not isinstance(right, StreamedTensor) or right.dtype != torch.float64:
        return None
    count = math.ceil(right.numel() * right.itemsize / _STRIP_BYTES)
    if count <= 1:
        return None
    source = right._cell.source
    if isinstance(source, _Result) and source.function is _TRANSPOSED:
        stored, casts = _before_casts(source.args[0])
        return (_cast(strip, casts).t() for strip in stored.whole().chunk(count))
    stored, casts = _before_casts(right)
    return (_cast(strip, casts) for strip in stored.whole().chunk(count, dim=1))


def _multiplied(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], strips: Iterable[torch.Tensor]
) -> torch.Tensor:
    """Multiply by one strip of a weight after the other."""
    *added, left = _whole(args[: _PRODUCTS[func]])
    added = [bias.expand(len(left), args[-1].shape[1]) for bias in added]
    parts, start = [], 0
    for strip in strips:
        stop = start + strip.shape[1]
        parts.append(func(*(bias[:, start:stop] for bias in added), left, strip, **kwargs))
        start = stop
    return torch.cat(parts, dim=1)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation that writes, and keep what it has written."""
    schema = func._schema.arguments
    positional = [
        _memory(value) if item.is_write and isinstance(value, StreamedTensor) else _whole(value)
        for item, value in zip(schema, args, strict=False)
    ]
    writes = {item.name for item in schema if item.is_write}
    words = {
        name: _memory(value)
        if name in writes and isinstance(value, StreamedTensor)
        else _whole(value)
        for name, value in kwargs.items()
    }
    result = func(*positional, **words)
    first = args[0] if args else None
    same = isinstance(first, StreamedTensor) and result is positional[0]
    return first if same else result


def _memory(tensor: StreamedTensor) -> torch.Tensor:
    """Keep a tensor in memory from now on, a view's whole base, and give that memory."""
    source = tensor._cell.source
    if isinstance(source, _Result) and _is_view(source.function):
        rest = _whole(source.args[1:])
        return source.pick(source.function(_memory(source.args[0]), *rest, **source.kwargs))
    if not isinstance(source, _Held):
        source = tensor._cell.source = _Held(tensor=tensor.whole().clone())
    return source.tensor
