"""Mean, standard deviation, least and greatest number of a tensor, as torch prints them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from test_common.tensor_text import is_plain, number_texts, torch_options

if TYPE_CHECKING:
    import torch

_NAMES = ("mean", "std", "min", "max")
_USUAL_DTYPES = ("torch.float16", "torch.bfloat16", "torch.float32")
_SAMPLES = 61
_QUICK_SIZE = 1 << 14  # elements; below that torch is as fast
_SUMMED = 64  # elements, eight for each part of a vector register
_STD_ERROR = 1e-6  # relative
_FLOAT32_STEP = 2.0**-23
_LEAST = 1e-25  # of a variance, far from where float32 loses digits of squares


def has_usual_statistics(tensor: torch.Tensor) -> bool:
    """Tell tensors whose statistics are always written, and are computed here."""
    return str(tensor.dtype) in _USUAL_DTYPES and tensor.numel() > 0 and is_plain(tensor)


def evidence(tensor: torch.Tensor) -> tuple[float, ...]:
    """Compute the mean, and take some numbers from all over.

    This takes a tenth of the time that all statistics take. Where it is the same again, and no
    change was counted either, the rest is the same.

    Args:
        tensor: one with usual statistics.
    """
    import torch

    samples = tensor.reshape(-1)[:: max(1, tensor.numel() // _SAMPLES)]
    # One transfer from another device.
    numbers: list[float] = torch.cat([tensor.mean().reshape(1), samples]).tolist()
    return tuple(numbers)


def usual_statistics(tensor: torch.Tensor, mean: float) -> dict[str, str]:
    """Return the texts of all four.

    Args:
        tensor: one with usual statistics.
        mean: its mean, the first of its `evidence`.
    """
    import torch

    least, greatest = torch.stack(torch.aminmax(tensor)).tolist()
    std = quick_std(tensor, mean)
    if std is None:
        std = float(_std(tensor).item())
    ends = (_signed(least, tensor.min), _signed(greatest, tensor.max))
    return _named([mean, std, *ends], tensor)


def quick_std(tensor: torch.Tensor, mean: float) -> float | None:
    """Compute the standard deviation to as many digits as are shown, in a quarter of the time.

    Squares are summed in float32 over a few numbers and in float64 over those sums. That is off by
    less than _STD_ERROR: a few roundings of 2^-24 each.

    Args:
        tensor: one with usual statistics.
        mean: its mean.

    Returns:
        The deviation; None where torch's own function has to tell, as it is slow for another
        reason, or the digits that are shown depend on the error.
    """
    import torch

    size = tensor.numel()
    if tensor.dtype is not torch.float32 or tensor.device.type != "cpu" or size < _QUICK_SIZE:
        return None
    distances = tensor.reshape(-1) - mean
    whole = size - size % _SUMMED
    norms = torch.linalg.vector_norm(distances[:whole].reshape(-1, _SUMMED), dim=1).double()
    rest = distances[whole:].double()
    variance = float((norms.dot(norms) + rest.dot(rest)).item()) / (size - 1)
    # The rounding of the mean counts squared; squares that are too small or large do not fit.
    if not max((mean * _FLOAT32_STEP) ** 2 / _STD_ERROR, _LEAST) < variance < 1 / _LEAST:
        return None
    std = math.sqrt(variance)
    bounds = [std * (1 - _STD_ERROR), std * (1 + _STD_ERROR)]
    lower, upper = number_texts(bounds, tensor)
    return std if lower == upper else None


def other_statistics(tensor: torch.Tensor, *, every_dtype: bool) -> dict[str, str]:
    """Return the texts of the statistics that a tensor of any other kind has.

    Args:
        tensor: one without usual statistics.
        every_dtype: whether dtypes other than float32, float16 and bfloat16 have any. Of integers
            and booleans mean and deviation, and of float8 all, are computed in float64.
    """
    if tensor.numel() == 0:
        return {}
    if str(tensor.dtype) in _USUAL_DTYPES:
        return _printed(tensor)
    if not every_dtype:
        return {}
    if tensor.is_complex() or not _holds_real_numbers(tensor):
        return _printed(tensor)
    # Packed numbers cannot be taken out, and those of vmap and of fake tensors cannot be told.
    with suppress(Exception):
        return _wide_statistics(tensor)
    return {}


def _wide_statistics(tensor: torch.Tensor) -> dict[str, str]:
    """Compute in float64, but least and greatest integer as they are."""
    import torch

    wide = tensor.detach().to(torch.float64)
    numbers = torch.stack([wide.mean(), _std(wide), wide.min(), wide.max()]).tolist()
    # As numbers of the default dtype, on the tensor's device.
    texts = _named(numbers, torch.empty(1, dtype=torch.get_default_dtype(), device=tensor.device))
    if tensor.is_floating_point():
        return texts
    flat = tensor.reshape(-1)
    order = _in_order(flat)
    return texts | {"min": repr(flat[order.argmin()]), "max": repr(flat[order.argmax()])}


def _in_order(integers: torch.Tensor) -> torch.Tensor:
    """Return numbers of the same order, of a dtype that torch can compare."""
    import torch

    if integers.dtype is torch.uint64:
        return integers.view(torch.int64) ^ torch.iinfo(torch.int64).min
    return integers.to(torch.int64)


def _named(numbers: Sequence[float], like: torch.Tensor) -> dict[str, str]:
    return dict(zip(_NAMES, number_texts(numbers, like), strict=True))


def _std(tensor: torch.Tensor) -> torch.Tensor:
    """Compute the standard deviation, NaN for a single number, which torch warns of."""
    if tensor.numel() == 1:
        return tensor.new_full((), math.nan)
    return tensor.std()


def _signed(found: float, slow: Callable[[], torch.Tensor]) -> float:
    """Give a zero the sign that torch's own function finds."""
    return found if found != 0 else float(slow().item())


def _printed(tensor: torch.Tensor) -> dict[str, str]:
    """Let torch compute and print, for tensors that are special in some way."""
    texts = {}
    with torch_options(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one number there is no deviation
        for name in _NAMES:
            way: Callable[[], Any] = getattr(tensor, name)
            # Sparse, complex and others lack some of these; that is no reason to end the run.
            with suppress(Exception):
                texts[name] = repr(way())
    return texts


def _holds_real_numbers(tensor: torch.Tensor) -> bool:
    import torch

    special = tensor.layout is not torch.strided or tensor.is_quantized
    return not special and tensor.device.type != "meta"
