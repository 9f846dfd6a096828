"""Takes down the weights that a model runs with, as projections of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from comparison.numerics.weight_record import WeightRecord, WeightSketch
from comparison.numerics.weight_sketch import sketch_weight, unreadable_weight
from comparison.schema.errors import UnsupportedFormatError
from test_common.torch_tensors import as_array, own_part, reason_unreadable

if TYPE_CHECKING:
    import torch

ROOT = "model"


def weights_of_module(module: torch.nn.Module) -> WeightRecord:
    """Record a module's parameters, and the buffers that a checkpoint holds.

    Args:
        module: on any device; names get `model.` in front, as hooks name its layers.
    """
    named = [*module.named_parameters(remove_duplicate=False), *_saved_buffers(module)]
    return WeightRecord(weights=tuple(sketches_of(named)))


def sketches_of(
    named: Iterable[tuple[str, torch.Tensor]], *, supplied: Mapping[str, bool] | None = None
) -> Iterator[WeightSketch]:
    """Yield the projections of tensors, one after the other.

    Args:
        named: name and tensor; one tensor may have several names.
        supplied: whether the checkpoint gave a tensor, by its name, where that is known.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    done: dict[tuple[Any, ...], tuple[torch.Tensor, WeightSketch]] = {}
    for name, tensor in named:
        place = _place(tensor)
        storage = numbers.setdefault(place, len(numbers))
        if place not in done:  # tied weights are read once; what is kept keeps its place
            done[place] = (tensor, sketch_tensor(name, tensor))
        sketch = done[place][1]
        told = None if supplied is None else supplied.get(name)
        yield replace(sketch, name=_rooted(name), storage=storage, supplied=told)


def sketch_tensor(name: str, tensor: torch.Tensor) -> WeightSketch:
    """Project one tensor.

    Args:
        name: of the weight, with the root in front.
        tensor: of any kind; what holds no plain numbers is recorded as such.
    """
    tensor, _ = own_part(tensor)
    dtype = str(tensor.dtype).removeprefix("torch.")
    reason = reason_unreadable(tensor)
    if reason is None:
        plain = tensor.detach().to("cpu").contiguous()
        try:
            return sketch_weight(_rooted(name), as_array(plain))
        except UnsupportedFormatError as error:
            reason = str(error)
    return unreadable_weight(_rooted(name), dtype=dtype, shape=tuple(tensor.shape), reason=reason)


def _rooted(name: str) -> str:
    return f"{ROOT}.{name}"


def _saved_buffers(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    saved = module.state_dict(keep_vars=True).keys()
    return [
        (name, buffer)
        for name, buffer in module.named_buffers()
        if name in saved and buffer.is_floating_point()
    ]


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what two names of one memory have in common; what has no memory is by itself."""
    if tensor.device.type == "meta" or not tensor.numel() or reason_unreadable(tensor) is not None:
        return (id(tensor),)
    place = tensor.data_ptr()
    if not place:  # read anew each time it is asked for
        return (id(tensor),)
    return (place, tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)
