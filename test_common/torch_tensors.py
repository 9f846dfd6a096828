"""What must be known of a torch tensor before its bytes can be taken."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from comparison.numerics.dtypes import dtype_of_name

if TYPE_CHECKING:
    import numpy as np
    import torch

_PART_OF_A_BYTE = re.compile(r"torch\.u?int[1-7]")  # dtypes that torch cannot even copy


def reason_unreadable(tensor: torch.Tensor) -> str | None:
    """Say why a tensor has no plain data to save; None where it has.

    Args:
        tensor: a tensor of any kind.

    Returns:
        The reason for meta, fake, traced, sparse, nested, quantized and wrapper tensors, and for
        integers of less than a byte.
    """
    if _is_ordinary(tensor):
        return None
    import torch
    from torch._subclasses.fake_tensor import is_fake
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if tensor.device.type == "meta" or is_fake(tensor):
        return "a meta or fake tensor has a shape but no data"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "a tensor under a torch.func transform has no data of its own"
    if tensor.is_quantized or tensor.layout is not torch.strided:
        kind = str(tensor.dtype if tensor.is_quantized else tensor.layout).removeprefix("torch.")
        return f"a {kind} tensor is not a plain array"
    if tensor.is_nested:  # the old kind, whose layout says strided
        return "a nested tensor is not a plain array"
    if _is_part_of_a_byte(tensor.dtype):
        return f"torch cannot copy {str(tensor.dtype).removeprefix('torch.')}"
    if is_traceable_wrapper_subclass(tensor):
        return f"{type(tensor).__name__} wraps other tensors and is not a plain array"
    return None


def _is_ordinary(tensor: torch.Tensor) -> bool:
    """Tell nearly every tensor by its attributes: to look closer takes as long as a small copy."""
    import torch

    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)
        and not torch._is_functional_tensor(tensor)
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not _is_part_of_a_byte(tensor.dtype)
    )


@lru_cache
def _is_part_of_a_byte(dtype: torch.dtype) -> bool:
    return _PART_OF_A_BYTE.fullmatch(str(dtype)) is not None


def own_part(tensor: torch.Tensor) -> tuple[torch.Tensor, str | None]:
    """Take this rank's part out of a tensor that is spread over ranks.

    Args:
        tensor: any tensor.

    Returns:
        A DTensor's local tensor, and how it is placed on each axis of the mesh (`Shard(dim=1)`, a
        part; `Replicate()`, a copy; `Partial(sum)`, a summand); what is still being gathered or
        summed up, waited for; all else as it is.
    """
    if not hasattr(tensor, "to_local"):
        return _waited_for(tensor), None
    placed = ", ".join(map(str, tensor.placements))
    return _waited_for(tensor.to_local()), placed


def _waited_for(tensor: torch.Tensor) -> torch.Tensor:
    """Return what a collective gives that runs meanwhile."""
    if type(tensor).__name__ != "AsyncCollectiveTensor":
        return tensor
    done: torch.Tensor = tensor.wait()
    return done


def plain_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor's own elements, and nothing of the rest of its storage.

    Args:
        tensor: a tensor for which `reason_unreadable` has no reason; any device and strides.

    Returns:
        A contiguous tensor in main memory that shares no storage with the argument.
    """
    import torch

    return plain(tensor).to("cpu", copy=True, memory_format=torch.contiguous_format)


def in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor in main memory, of the same memory where it is that.

    Args:
        tensor: a tensor for which `reason_unreadable` has no reason; any device and strides.
    """
    source = plain(tensor)
    return source if source.device.type == "cpu" and source.is_contiguous() else plain_copy(tensor)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without gradient and class of its own, whose memory holds its elements.

    Args:
        tensor: a tensor for which `reason_unreadable` has no reason; any device and strides.

    Returns:
        A tensor of the same memory, or of new memory where the old holds conjugate or negated
        elements.
    """
    import torch

    if type(tensor) is torch.Tensor and not tensor.requires_grad:
        source = tensor
    else:
        source = tensor.detach().as_subclass(torch.Tensor)
    return source.resolve_conj().resolve_neg()


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Tell whether two contiguous tensors agree in dtype, shape and every bit."""
    import torch

    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.numel() == 0:
        return True
    return torch.equal(
        first.reshape(-1).view(torch.uint8),
        second.reshape(-1).view(torch.uint8),
    )


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """View a tensor's memory as an array of the same dtype, bfloat16 and float8 included.

    Args:
        tensor: a contiguous tensor in main memory.

    Raises:
        UnsupportedFormatError: NumPy and ml_dtypes have no such dtype.
    """
    import torch

    if tensor.dtype is torch.float32:
        return tensor.detach().numpy()
    dtype = dtype_of_name(str(tensor.dtype).removeprefix("torch."))
    if tensor.dim() == 0:
        return as_array(tensor.reshape(1)).reshape(())
    # Bytes, since torch gives NumPy only the dtypes that NumPy itself has.
    flat = tensor.reshape(-1).view(torch.uint8).numpy()
    return flat.view(dtype).reshape(tuple(tensor.shape))


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """View a tensor's memory as bytes, whatever its dtype.

    Args:
        tensor: a contiguous tensor in main memory.
    """
    import torch

    if tensor.numel() == 0:
        return memoryview(b"")
    view: memoryview = tensor.reshape(-1).view(torch.uint8).numpy().data
    return view
