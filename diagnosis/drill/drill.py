"""Below the module: the first operation of the candidate that is wrong by itself.

Each operation of the candidate inside the guilty module is held against every operation that the
reference runs there on the same inputs, by values. An operation without a counterpart may only be
another way to the same end, as when an activation is computed in steps: it is blamed only if
nothing between it and the guilty tensor has a counterpart, and only if all that goes into it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from comparison.schema.diagnosis import Operation
from comparison.store.dump import Dump
from diagnosis.causes.region import Region
from diagnosis.check import Check
from diagnosis.checks import Checker
from diagnosis.drill.dump import OperationValues, operations_of
from diagnosis.drill.flow import Flow
from diagnosis.drill.pairing import Pairs
from diagnosis.drill.reference import ReferenceOperations, reference_operations
from diagnosis.drill.search import Search
from diagnosis.drill.values import ReferenceValues
from diagnosis.dump_layout import layout_of
from diagnosis.replay.module_watch import module_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Drilled:
    """What looking below a module found.

    Attributes:
        operation: the first one that is wrong; None where none is blamed.
        note: why none is; empty where one is.
    """

    operation: Operation | None = None
    note: str = ""


class Drill:
    """The guilty module of one diagnosis, ready to be looked into."""

    def __init__(self, checker: Checker, checks: Sequence[Check], first: Check) -> None:
        """Keep what the diagnosis found.

        Args:
            checker: holds the reference, and the candidate's values.
            checks: all that was judged.
            first: the guilty tensor.
        """
        self._checker, self._checks, self._first = checker, checks, first

    @property
    def checker(self) -> Checker:
        """What holds the reference, and the candidate's values."""
        return self._checker

    @property
    def first(self) -> Check:
        """The guilty tensor."""
        return self._first

    @property
    def module(self) -> str:
        """The module whose code computes the guilty tensor."""
        return module_of(self._first.owner)

    @cached_property
    def _region(self) -> Region:
        return Region(self._checker, self._checks, self._first)

    @cached_property
    def _reference(self) -> ReferenceOperations | None:
        return reference_operations(self._region)

    def into(self, dump: Dump, step: int) -> Drilled:
        """Look for the operation in a dump that holds those of the guilty module.

        Args:
            dump: the candidate's.
            step: the step that shows the fault.

        Raises:
            BadInputError: the dump's operations cannot be read.
        """
        own, step = operations_of(dump, step)
        if own is None:
            return Drilled(note="the dump holds no operations (debug_model --ops)")
        try:
            reference = self._reference
        except (RuntimeError, TypeError, ValueError, KeyError, IndexError) as error:
            # The module's code may be anybody's, and need not run by itself.
            return Drilled(note=f"{self._region.name} does not run by itself: {error}")
        calls = self._checker.wide_calls
        if reference is None or len(self._region.calls) != len(calls):
            return Drilled(note=f"{self._region.name} does not run alike in all rows")
        values = ReferenceValues(
            reference,
            [call.tokens for call in calls],
            layout_of(dump, step),
            dtype=self._first.dtype,
        )
        try:
            pairs = Pairs(
                Flow(own),
                Flow(reference.step),
                values,
                OperationValues(dump, step, own),
                target=self._first.name.replace(f"{self._first.owner}-", f"{self.module}-"),
            )
            search = Search(pairs, self._first.candidate_names, step)
            found = search.guilty_operation()
        except RecursionError:
            return Drilled(
                note=f"the operations of {self._region.name} hang on one another by too long a "
                "chain of which nothing was saved"
            )
        return Drilled(operation=found, note="" if found is not None else search.summary)
