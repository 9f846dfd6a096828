"""Makes sketches of torch tensors as they pass, and not twice of one that has not changed."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.numerics.dtypes import Array
from comparison.numerics.statistics_kernel import StatisticsKernel
from comparison.numerics.tensor_fingerprint import fingerprint_of
from comparison.numerics.tensor_sketch import TensorSketch, TensorStatistics, sketch_tensor
from test_common.torch_tensors import as_array, in_memory, plain

if TYPE_CHECKING:
    import torch

_HELD = 8  # tensors: what a module returns is passed on at once
_SAMPLES = 16
_QUICK_DTYPES = ("torch.float32", "torch.float16", "torch.bfloat16")
_WORTH_BYTES = 1 << 18  # of a tensor; less does not wait for compiled code
_SPREAD = 1e-3  # of the mean's square: less is lost in the rounding of float32 sums of squares


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A sketch, and what it was made of.

    Attributes:
        tensor: while it lives, no other tensor can come to lie in its memory.
        version: count of what changed it in place.
        samples: some of its numbers; kernels that tell torch nothing are not counted.
        sketch: of it.
    """

    tensor: weakref.ref[torch.Tensor]
    version: int
    samples: tuple[float, ...]
    sketch: TensorSketch


class TensorSketcher:
    """Sketches tensors one after the other.

    Half of what modules take and return was seen a moment before, and a mask in each layer: the
    last few tensors are held, and while they or others live their sketches are given again.
    """

    def __init__(self, *, projects: bool, kernels: Path | None = None) -> None:
        """Know nothing.

        Args:
            projects: False for statistics and fingerprints alone.
            kernels: folder where compiled code is kept; None to do without.
        """
        self._projects = projects
        self._kernels = kernels
        self._known: dict[Hashable, _Known] = {}  # by place in memory, shape and dtype
        self._held: deque[torch.Tensor] = deque(maxlen=_HELD)

    def sketch(self, tensor: torch.Tensor) -> TensorSketch:
        """Sketch a tensor.

        Args:
            tensor: one with plain data; any device and strides.

        Raises:
            UnsupportedFormatError: its dtype is none that these tools handle.
        """
        if tensor.is_inference() or tensor.is_complex() or tensor.numel() == 0:
            return self._made(tensor)
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        known = self._known.get(place)
        if known is not None and _is_unchanged(known, tensor):
            return known.sketch
        sketch = self._made(tensor)
        self._known[place] = _Known(
            tensor=weakref.ref(tensor),
            version=tensor._version,
            samples=_samples(tensor),
            sketch=sketch,
        )
        self._held.append(tensor)
        return sketch

    def forget(self) -> None:
        """Let go of the tensors."""
        self._known.clear()
        self._held.clear()

    def _made(self, tensor: torch.Tensor) -> TensorSketch:
        if not self._projects and str(tensor.dtype) in _QUICK_DTYPES and tensor.numel() > 0:
            found = self._compiled(tensor) or _in_passes(tensor)
            if found is not None:
                statistics, fingerprint = found
                return TensorSketch(
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    shape=tuple(tensor.shape),
                    statistics=statistics,
                    fingerprint=fingerprint,
                )
        return sketch_tensor(as_array(in_memory(tensor)), projects=self._projects)

    def _compiled(self, tensor: torch.Tensor) -> tuple[TensorStatistics, str] | None:
        """Go over a large tensor in main memory once; None where that is not possible."""
        if tensor.device.type != "cpu" or tensor.nbytes < _WORTH_BYTES or self._kernel is None:
            return None
        values: Array = as_array(in_memory(tensor))
        sums = self._kernel.sums(values)
        if sums is None:
            return None
        statistics = _statistics(
            sums.least, sums.greatest, sums.total / values.size, sums.squares, values.size
        )
        return None if statistics is None else (statistics, sums.fingerprint)

    @cached_property
    def _kernel(self) -> StatisticsKernel | None:
        return None if self._kernels is None else _loaded(self._kernels)


@cache
def _loaded(kernels: Path) -> StatisticsKernel | None:
    """Load compiled code once a process: one run captures several models."""
    return StatisticsKernel.load(kernels)


def _in_passes(tensor: torch.Tensor) -> tuple[TensorStatistics, str] | None:
    source = plain(tensor)
    statistics = quick_statistics(source)
    if statistics is None:
        return None
    return statistics, fingerprint_of(as_array(in_memory(source)))


def quick_statistics(tensor: torch.Tensor) -> TensorStatistics | None:
    """Compute statistics with few passes over the memory.

    The deviation follows from the norm and the mean, which torch sums in float32, in parts. That is
    off by less than 1e-5 of it where the mean is not far greater than the deviation.

    Args:
        tensor: float32, float16 or bfloat16, not empty.

    Returns:
        None where that is not good enough, or not all numbers are finite.
    """
    import torch

    parts = torch.aminmax(tensor)
    mean = tensor.mean(dtype=torch.float32)
    norm = torch.linalg.vector_norm(tensor, dtype=torch.float32)
    numbers = torch.stack([parts.min.float(), parts.max.float(), mean, norm])
    least, greatest, mean_value, size = numbers.tolist()  # one transfer from another device
    return _statistics(least, greatest, mean_value, size**2, tensor.numel())


def _statistics(
    least: float, greatest: float, mean: float, squares: float, count: int
) -> TensorStatistics | None:
    """Give the deviation by the sum of squares; None where rounding may have spoilt that."""
    if not math.isfinite(least + greatest + squares):
        return None
    spread = squares / count - mean**2
    if spread < _SPREAD * mean**2 or not 1e-24 < squares < 1e36:
        return None
    std = math.sqrt(spread * count / (count - 1)) if count > 1 else 0.0
    return TensorStatistics(minimum=least, maximum=greatest, mean=mean, std=std)


def _is_unchanged(known: _Known, tensor: torch.Tensor) -> bool:
    """Tell whether a tensor at a known place is what was sketched there."""
    earlier = known.tensor()
    return (
        earlier is not None
        and earlier.data_ptr() == tensor.data_ptr()
        and known.version == tensor._version
        and known.samples == _samples(tensor)
    )


def _samples(tensor: torch.Tensor) -> tuple[float, ...]:
    if not tensor.is_contiguous():
        return ()
    step = max(1, tensor.numel() // _SAMPLES)
    return tuple(tensor.as_strided((-(-tensor.numel() // step),), (step,)).tolist())
