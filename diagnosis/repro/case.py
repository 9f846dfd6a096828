"""One fault by itself: the data behind a script that shows it without these tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from diagnosis.check import Check
from diagnosis.guilt import limits_of
from diagnosis.location import bad_places
from diagnosis.rounding import rounding_floor

if TYPE_CHECKING:
    import torch

MAX_BYTES = 20_000_000  # what may be attached to a bug report
_BEFORE, _BEHIND = 3, 4  # tokens kept around the first wrong one


class NoReproError(Exception):
    """A fault cannot be shown by itself; the text says why. Never leaves the room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the script is given.

    Attributes:
        case: its description, JSON values only.
        tensors: by name.
        needs: packages, besides torch, numpy and safetensors.
        notes: what a reader should know, one phrase each.
    """

    case: dict[str, Any]
    tensors: dict[str, torch.Tensor] = field(repr=False)
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Repro:
    """A fault that its script was seen to show.

    Attributes:
        case: what the script is given.
        config: the model's configuration, cleaned.
        measured: what the script found, as `measurements_of` has it.
        versions: what ran, as `versions_of` has it.
    """

    case: Case
    config: Mapping[str, Any]
    measured: Mapping[str, Mapping[str, Any]]
    versions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What of the guilty tensor is kept: places of one row.

    Attributes:
        check: the guilty tensor.
        index: numbers of its places, [n].
        channels: numbers of the channels of a flattened value; None for all.
    """

    check: Check
    index: tuple[int, ...]
    channels: tuple[int, ...] | None = None

    @property
    def row(self) -> int:
        """The row that all places lie in."""
        return self.check.places[self.index[0]].row

    @property
    def positions(self) -> list[int]:
        """Token positions, [n]."""
        return [self.check.places[index].position for index in self.index]

    def of(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Cut values of the guilty tensor, [all, ...], to what is kept, in float64."""
        kept = np.asarray(values)[list(self.index)].astype(np.float64)
        return kept if self.channels is None else kept[..., list(self.channels)]

    def described(self) -> dict[str, Any]:
        """Say where the values lie, and by what they are judged."""
        limits = limits_of(self.check)
        return {
            "dtype": self.check.dtype,
            "places": [[self.row, position] for position in self.positions],
            "channels": None if self.channels is None else list(self.channels),
            "limits": {
                "whole": limits.whole,
                "position": limits.position,
                "channel": limits.channel,
            },
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what is expected, what both sides gave, [n, ...], and what rounding explains."""
        import torch

        check = self.check
        exact, native = self.of(check.exact), self.of(check.native)
        floor = rounding_floor(
            native=native, exact=exact, dtype=check.dtype, longest_sum=check.longest_sum
        )
        return {
            "expected": torch.from_numpy(exact),
            "candidate": narrowed(self.of(check.candidate), check.dtype),
            "reference": narrowed(native, check.dtype),
            "rounding.whole": torch.tensor([floor.whole], dtype=torch.float64),
            "rounding.by_position": torch.from_numpy(floor.by_position),
            "rounding.by_channel": torch.from_numpy(floor.by_channel),
        }


def around_the_first(check: Check) -> Kept:
    """Keep the first wrong token, the worst one, and some around the first.

    Args:
        check: the guilty tensor.
    """
    index, first = _places_of_row(check)
    at = index.index(first)
    errors = _errors(check)
    worst = max(index, key=lambda place: errors[place])
    near = index[max(at - _BEFORE, 0) : at + _BEHIND + 1]
    return Kept(check=check, index=tuple(sorted({*near, worst})))


def up_to_the_first(check: Check, *, whole: bool = False) -> Kept:
    """Keep all tokens to the first wrong one and some behind it; what mixes tokens needs them.

    Args:
        check: the guilty tensor.
        whole: whether to keep the whole row.
    """
    index, first = _places_of_row(check)
    end = len(index) if whole else index.index(first) + _BEHIND + 1
    return Kept(check=check, index=tuple(index[:end]))


def _places_of_row(check: Check) -> tuple[list[int], int]:
    place = bad_places(check)[0]
    index = [number for number, other in enumerate(check.places) if other.row == place.row]
    return index, check.places.index(place)


def _errors(check: Check) -> Sequence[float]:
    assert check.excess is not None  # the caller made sure
    return [float(error) for error in np.nan_to_num(check.excess.by_position, nan=np.inf)]


def narrowed(values: Any, dtype: str) -> torch.Tensor:
    """Store values in a dtype of torch if that is exact, or else in float32 or float64.

    Args:
        values: an array or tensor, in float64.
        dtype: torch's name of the dtype that is tried first.
    """
    import torch

    tensor = values if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))
    tensor = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    if not tensor.is_floating_point():
        return tensor
    for name in (dtype, "float32"):
        smaller = tensor.to(getattr(torch, name, torch.float64))
        if torch.equal(torch.nan_to_num(smaller.double()), torch.nan_to_num(tensor.double())):
            return smaller
    return tensor


def require_small(case: Case) -> Case:
    """Let through what fits into a bug report.

    Raises:
        NoReproError: the tensors are too large.
    """
    if case.size_bytes > MAX_BYTES:
        raise NoReproError(
            f"its tensors take {case.size_bytes / 1e6:.0f} MB, and a repro has at most "
            f"{MAX_BYTES / 1e6:.0f} MB"
        )
    return case


def tensors_of(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """List the weights, buffers and other tensors that a module itself keeps."""
    import torch

    own: Mapping[str, Any] = {**module._parameters, **module._buffers, **vars(module)}
    for name, value in own.items():
        if isinstance(value, torch.Tensor):
            yield name, value
