"""One tensor of the reference, judged by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from comparison.numerics.dtypes import Array
from diagnosis.expert_choices import Judged
from diagnosis.rounding import Excess, Floor


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A position of a row.

    Attributes:
        row: number of the row.
        position: token position from the row's start.
    """

    row: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One tensor, judged by itself.

    Attributes:
        name: the reference's name of it.
        owner: the call of the reference whose code computes it.
        candidate_names: what the candidate calls it.
        since: the candidate's tensors that the computation began with, by the reference's names.
        order: position in the order of execution.
        dtype: the candidate's dtype.
        places: row and position of each value.
        floor: what rounding explains; None where equality is exact.
        excess: its error in units of that; None where equality is exact.
        longest_sum: terms of the longest sum of products in its computation; 0 where there is none.
        unequal: for integers, booleans and masks the places that differ; else empty.
        candidate: the candidate's values, [n, ...].
        exact: the reference's in float64, [n, ...].
        native: the reference's in the run's dtype, [n, ...].
        choice: for what the model chose by its own scores, how that differs.
        goes_with: for weights of what was chosen, the name of that; else empty.
        raised: greatest error as a whole, of a position and of a channel that is no fault, where
            the candidate's own jitter asks for more than is usual; else None.
    """

    name: str
    owner: str
    candidate_names: tuple[str, ...]
    since: tuple[str, ...]
    order: int
    dtype: str
    places: tuple[Place, ...]
    floor: Floor | None
    excess: Excess | None
    longest_sum: int = 0
    unequal: tuple[Place, ...] = ()
    candidate: Array = field(repr=False)
    exact: Array = field(repr=False)
    native: Array = field(repr=False)
    choice: Judged | None = None
    goes_with: str = ""
    raised: tuple[float, float, float] | None = None

    @property
    def is_input(self) -> bool:
        """Whether it goes into a module, so that the module's caller computes it."""
        return self.name.rpartition("-")[2].startswith("input")
