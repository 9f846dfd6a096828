"""What a hypothesis is: a change of the reference's computation that is to give the candidate's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from comparison.numerics.dtypes import Array

if TYPE_CHECKING:
    from diagnosis.causes.region import Region

Change = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrial:
    """The module runs again while something in it is changed.

    Attributes:
        cause: id of the cause.
        says: what the candidate seems to have done, a phrase that goes on after its name.
        change: in force while the module runs, in float64.
        expects: what the reference does, a phrase; empty where `says` tells it.
        numbers: how many numbers were taken from the candidate's own output.
        needs_other_weight: whether it cannot be where both sides loaded the same weight; None where
            the cause alone tells.
    """

    cause: str
    says: str
    change: Change
    expects: str = ""
    numbers: int = 0
    needs_other_weight: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTrial:
    """The same, with a number that is sought.

    Attributes:
        cause: id of the cause.
        says: as in RunTrial; `{value}` stands for the number.
        change: makes the change for a number.
        starts: where the search begins, the likeliest first.
        expects: as in RunTrial.
        neutral: the number that changes nothing; None where each one changes something.
        needs_other_weight: as in RunTrial.
    """

    cause: str
    says: str
    change: Callable[[float], AbstractContextManager[object]]
    starts: tuple[float, ...]
    expects: str = ""
    neutral: float | None = None
    needs_other_weight: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTrial:
    """The reference's output is changed once it is there.

    Attributes:
        cause: id of the cause.
        says: as in RunTrial.
        predict: of the reference's exact output, [n, ...], what the candidate's should be.
        expects: as in RunTrial.
        numbers: how many numbers were taken from the candidate's own output.
        value: the number that `says` names; None where there is none.
        needs_other_weight: as in RunTrial.
    """

    cause: str
    says: str
    predict: Callable[[Array], Array]
    expects: str = ""
    numbers: int = 0
    value: float | None = None
    needs_other_weight: bool | None = None


Trial = RunTrial | FittedTrial | OutputTrial
Trials = Callable[["Region"], Iterator[Trial]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A cause that a pattern of the error shows, without giving the candidate's values again.

    Attributes:
        cause: id of the cause; `unknown` of what tells only where to look.
        says: as in RunTrial.
        weight: how often such a sign is right, from 0 to 1, as counted on the benchmark.
    """

    cause: str
    says: str
    weight: float


Signs = Callable[["Region"], Iterator[Sign]]
