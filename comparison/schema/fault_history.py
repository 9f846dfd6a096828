"""What became of faults between two results."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

UNKNOWN_CAUSE = "unknown"


class ResultKind(StrEnum):
    """Which command wrote a result."""

    COMPARISON = "comparison"
    DIAGNOSIS = "diagnosis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        candidate: which candidate, where a result has several; else empty.
        module: path of the guilty module; of a comparison, and of what blames no module, empty.
        tensor: the reference's name of the tensor that shows it; empty where there is none.
        place: where it begins, `step 0, row 1, position 4`.
        cause: id of the cause; empty where none was sought.
        evidence: how far it is off, or what else is told.
    """

    candidate: str
    module: str
    tensor: str
    place: str
    cause: str
    evidence: str

    @property
    def subject(self) -> str:
        """What is wrong, in a word: the module, else the tensor, else the cause."""
        return self.module or self.tensor or self.cause


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedResult:
    """A result as its file tells it.

    Attributes:
        path: the file.
        kind: which command wrote it.
        verdict: in one word.
        sentence: the verdict of a diagnosis in one sentence; of a comparison empty.
        conclusive: whether what it does not name as wrong may be taken for right, as far as it was
            checked.
        faults: what is wrong, in order.
        checked: what was judged, as (candidate, tensor or tensor with its step).
        hides_later: whether one fault hides those behind it.
        tolerance: of a comparison, in words.
        candidates: of a diagnosis, what each candidate is called.
    """

    path: Path
    kind: ResultKind
    verdict: str
    sentence: str
    conclusive: bool
    faults: tuple[Fault, ...]
    checked: frozenset[tuple[str, str]]
    hides_later: bool
    tolerance: str = ""
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultHistory:
    """What became of each fault.

    Attributes:
        old: the earlier result.
        new: the later one.
        fixed: faults that were there, and whose place was checked and is right now.
        added: faults that were not there.
        moved: faults that are at another place now, each with what it was.
        unchanged: faults that are still where they were, each with what it was.
        unchecked: faults that were there, and whose place was not checked again.
        notes: what makes the two hard to compare.
    """

    old: SavedResult
    new: SavedResult
    fixed: tuple[Fault, ...]
    added: tuple[Fault, ...]
    moved: tuple[tuple[Fault, Fault], ...]
    unchanged: tuple[tuple[Fault, Fault], ...]
    unchecked: tuple[Fault, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """Return 1 for a fault that is new or has moved, 2 where too little was checked, else 0."""
        if self.added or self.moved:
            return 1
        return 2 if self.unchecked or not self.new.conclusive else 0
