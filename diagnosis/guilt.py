"""When a tensor's own error is more than rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.check import Check
from diagnosis.rounding import Excess, excess_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Greatest error, in units of rounding, that is no fault.

    Attributes:
        whole: of the tensor.
        position: of any one position.
        channel: of any one channel.
    """

    whole: float
    position: float
    channel: float


# On 655 clean checks of MAX against Torch in float32 the greatest were 1.9, 3.5 and 5.6, and the
# least of 34 planted faults 297.
_WIDE = Limits(whole=8.0, position=15.0, channel=15.0)
# In bfloat16 one engine's attention core was honestly 4.3, 7.4 and 6.7 times rounding.
_NARROW_CORE = Limits(whole=6.0, position=12.0, channel=12.0)
_NARROW = Limits(whole=3.0, position=4.0, channel=4.0)
# A norm, an activation or an embedding rounds its result, in any engine: 1.0 was the greatest seen.
# One that rounds on the way is 1.4 and more.
_NARROW_POINTWISE = Limits(whole=1.3, position=4.0, channel=4.0)
_ENOUGH_VALUES = 256  # for a mean as exact as that
_NARROW_DTYPES = ("bfloat16", "float16")


def limits_of(check: Check) -> Limits:
    """Return what a check is judged by."""
    if check.raised is not None:
        whole, position, channel = check.raised
        return Limits(whole=whole, position=position, channel=channel)
    if check.dtype not in _NARROW_DTYPES:
        return _WIDE
    # What a module with modules inside does by itself is a chain of operations, each rounding.
    if check.is_input or len(check.since) > 1:
        return _NARROW_CORE
    pointwise = check.longest_sum == 0 and check.candidate.size >= _ENOUGH_VALUES
    return _NARROW_POINTWISE if pointwise else _NARROW


def limits_of_chain(dtype: str) -> Limits:
    """Return what a tensor is judged by that several operations computed, each rounding.

    Args:
        dtype: name of the run's dtype.
    """
    return _NARROW_CORE if dtype in _NARROW_DTYPES else _WIDE


def is_guilty(check: Check) -> bool:
    """Tell whether a tensor is wrong by itself; not a number counts as wrong."""
    if check.excess is None:
        return bool(check.unequal)
    return exceeds(check.excess, limits_of(check))


def exceeds(excess: Excess, limits: Limits) -> bool:
    """Hold errors against limits."""
    fine = (
        excess.whole <= limits.whole
        and bool(np.all(excess.by_position <= limits.position))
        and bool(np.all(excess.by_channel <= limits.channel))
    )
    return not fine  # a NaN is above no limit, and below none


def own_error(check: Check) -> float | None:
    """Return the error of the reference's own run on the same inputs, relative to float64's.

    Args:
        check: a tensor of floats; None is returned for others.
    """
    if check.floor is None or check.native.shape != check.exact.shape:
        return None
    return excess_error(check.native, check.exact, check.floor).error


def worst(excess: Excess) -> float:
    """Return the greatest of a check's errors, infinity where one is not a number."""
    greatest = max(
        float(excess.whole),
        float(np.max(excess.by_position, initial=0.0)),
        float(np.max(excess.by_channel, initial=0.0)),
    )
    parts = (excess.whole, *excess.by_position, *excess.by_channel)
    return float("inf") if any(np.isnan(part) for part in parts) else greatest
