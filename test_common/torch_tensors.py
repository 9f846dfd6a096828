"""What must be known of a torch tensor before its bytes can be taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def reason_unreadable(tensor: torch.Tensor) -> str | None:
    """Say why a tensor has no plain data to save; None where it has.

    Args:
        tensor: a tensor of any kind.

    Returns:
        The reason for meta, fake, traced, sparse, nested, quantized and wrapper tensors.
    """
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
    if is_traceable_wrapper_subclass(tensor):
        return f"{type(tensor).__name__} wraps other tensors and is not a plain array"
    return None


def plain_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor's own elements, and nothing of the rest of its storage.

    Args:
        tensor: a tensor for which `reason_unreadable` has no reason; any device and strides.

    Returns:
        A contiguous tensor in main memory that shares no storage with the argument.
    """
    import torch

    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    return plain.to("cpu", copy=True, memory_format=torch.contiguous_format)


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
