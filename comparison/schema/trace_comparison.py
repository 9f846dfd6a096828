"""What came of comparing two call-tree traces."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from comparison.schema.tolerance import Tolerance


class CallVerdict(StrEnum):
    """What can be said of one call by itself, not of the calls inside of it."""

    EQUAL = "equal"
    DIFFERS = "differs"
    NOT_COMPARED = "not compared"  # it has no value that both sides hold
    REFERENCE_ONLY = "reference only"
    CANDIDATE_ONLY = "candidate only"
    ABSENT = "absent"  # one side's trace leaves it out, as pruning does


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDifference:
    """One value of a call that differs.

    Attributes:
        name: `input_0`, `input_<keyword>`, `output`, `output_<field>`, or `call` for what
            concerns the call as a whole.
        what: in which way.
    """

    name: str
    what: str

    @property
    def is_input(self) -> bool:
        """Whether the call was given it, so that the call did not compute it."""
        return self.name.startswith("input")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCall:
    """One call of a module, on both sides or on one.

    Attributes:
        reference: module path in the reference, None where it has no such call.
        candidate: module path in the candidate, None where it has no such call.
        number: 1 for the module's first call, then 2, 3, ...
        verdict: of the call itself.
        compared: number of values that both sides hold.
        differences: inputs first, then outputs.
        children: the calls inside, in order of execution.
        has_difference: whether it or a call inside differs.
        size: number of calls, itself and those inside.
    """

    reference: str | None
    candidate: str | None
    number: int
    verdict: CallVerdict
    compared: int
    differences: tuple[ValueDifference, ...]
    children: tuple["ComparedCall", ...]
    has_difference: bool
    size: int

    @property
    def path(self) -> str:
        """The module path, of the reference where it has one."""
        path = self.candidate if self.reference is None else self.reference
        return f"{path}({self.number})" if self.number > 1 else f"{path}"

    def walk(self) -> Iterator["ComparedCall"]:
        """Give the call and those inside, in the order in which they begin."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """Where two traces first part.

    Attributes:
        path: the module path of the call.
        difference: the value.
        behind: the last call before it with an output that is equal, None where there is none.
        gap: layers between it and that call that a trace lacks, in words; empty where it has all.
    """

    path: str
    difference: ValueDifference
    behind: str | None
    gap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceComparison:
    """All of a comparison of traces.

    Attributes:
        reference: where it lies.
        candidate: where it lies.
        tolerance: what was judged by.
        root: the outermost call.
        first: the first difference in order of execution, None where both agree.
        compared: number of values that both sides hold.
        notes: what a reader should know.
    """

    reference: str
    candidate: str
    tolerance: Tolerance
    root: ComparedCall
    first: FirstDifference | None
    compared: int
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 where both agree, 1 where they diverge."""
        return 0 if self.first is None else 1
