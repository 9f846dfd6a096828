"""The first operation that is wrong or has no counterpart, and what the reference does there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from comparison.schema.diagnosis import Operation
from comparison.schema.operations import CapturedOperation, OperationOutput
from diagnosis.drill.flow import kind_of, names_of, spelled
from diagnosis.drill.pairing import Pairs
from diagnosis.drill.values import Distance

_MUCH_NEARER = 0.1  # of the other's error


class Search:
    """Goes back from the guilty tensor as far as nothing has a counterpart."""

    def __init__(self, pairs: Pairs, guilty: Sequence[str], step: int) -> None:
        """Begin at the guilty tensor.

        Args:
            pairs: which operations agree with one of the reference.
            guilty: the candidate's names of the tensor.
            step: the step that is looked at.
        """
        self._pairs, self._own, self._step = pairs, pairs.own, step
        self._roots = tuple(dict.fromkeys(self._tensors_at(guilty)))

    @property
    def summary(self) -> str:
        """What was found where nothing is wrong."""
        pairs = self._pairs
        return (
            f"{pairs.paired} of {pairs.outputs} operations pair with one of the reference, and "
            "none is wrong by itself"
        )

    def guilty_operation(self) -> Operation | None:
        """Name the operation; None where each has a counterpart or rests on one that has none."""
        wrong = sorted(self._wrong(), key=self._own.order)
        for operation in wrong:
            if self._has_right_inputs(operation):
                blamed = self._idle_before(operation) or operation
                counterpart, distance = self._counterpart(blamed)
                return self._record(blamed, wrong[-1].name, counterpart, distance)
        missing = next(filter(None, map(self._missing_behind, self._roots)), None)
        return missing or self._last_one()

    def _tensors_at(self, guilty: Sequence[str]) -> Iterator[str]:
        """Give what shows the fault: outputs, or what the candidate's module is given."""
        found = [self._own.source(name) for name in guilty]
        known = [name for name in found if self._own.maker(name) or name not in guilty]
        if not known:  # a tensor of another name
            last = [op for op in self._own.operations if not self._own.is_view(op)][-1:]
            known = [output.name for op in last for output in op.outputs]
        yield from known

    def _wrong(self) -> Iterator[CapturedOperation]:
        left, seen = list(self._roots), set[str]()
        while left:
            name = left.pop()
            operation = self._own.maker(name)
            if name in seen or operation is None or self._pairs.is_right(name):
                continue
            seen.add(name)
            yield operation
            left += self._own.inputs(operation)

    def _has_right_inputs(self, operation: CapturedOperation) -> bool:
        return all(map(self._pairs.is_right, self._own.inputs(operation)))

    def _idle_before(self, blamed: CapturedOperation) -> CapturedOperation | None:
        """Find an operation that changes nothing, where the reference's of that kind does.

        Its output agrees with what went into it, such as that of a multiplier of 1.
        """
        for name in self._own.inputs(blamed):
            operation, partners = self._own.maker(name), set(self._pairs.partners(name))
            if operation is None or not partners:
                continue
            inputs = list(self._own.inputs(operation))
            given = {partner for own in inputs for partner in self._pairs.partners(own)}
            users = [kind_of(user) for user, _ in self._pairs.free_users(inputs).values()]
            if partners <= given and kind_of(operation) in users:
                return operation
        return None

    def _missing_behind(self, root: str) -> Operation | None:
        """Tell whether the candidate ends with what the reference goes on from."""
        user, _ = next(iter(self._pairs.free_users([root]).values()), (None, 0))
        if user is None:
            return None
        own = self._own.maker(root) or _passing_on(root)
        distance = self._pairs.distance(own, [self._pairs.target])
        return self._record(own, own.name, user, distance, is_missing=True)

    def _last_one(self) -> Operation | None:
        """Blame the last operation: the diagnosis judges one by itself more strictly."""
        own = next(filter(None, map(self._own.maker, self._roots)), None)
        if own is None or not self._has_right_inputs(own):
            return None
        counterpart = self._pairs.reference.maker(self._pairs.target)
        distance = self._pairs.distance(own, [self._pairs.target])
        return self._record(own, own.name, counterpart, distance)

    def _counterpart(
        self, blamed: CapturedOperation
    ) -> tuple[CapturedOperation | None, Distance | None]:
        """Find what the reference does there: with the same inputs, and with no one else's result.

        Returns:
            None where the reference does nothing there, and goes on with what it has; and how far
            the candidate's output is from that.
        """
        pairs, inputs = self._pairs, list(self._own.inputs(blamed))
        users = pairs.free_users(inputs)
        fitting = [
            user
            for user, shared in users.values()
            if kind_of(user) == kind_of(blamed) or shared == len(inputs) > 1
        ]
        if fitting:
            return fitting[0], pairs.distance(blamed, names_of(fitting[0]))
        kept = pairs.distance(blamed, pairs.kept(inputs))
        if not users:
            nearest = self._nearest_alike(blamed)
            if nearest is None or _is_much_nearer(kept, nearest[1]):
                return None, kept
            return nearest
        first = next(iter(users.values()))[0]
        is_last = blamed.name in self._roots
        there = pairs.distance(blamed, [pairs.target] if is_last else names_of(first))
        if kind_of(first) in self._later_kinds(blamed) or _is_much_nearer(kept, there):
            return None, kept
        return first, there

    def _nearest_alike(
        self, blamed: CapturedOperation
    ) -> tuple[CapturedOperation, Distance] | None:
        """Find the operation of that kind with the nearest result: its inputs are other ones."""
        found = [
            (user, distance)
            for user in self._pairs.reference.operations
            if kind_of(user) == kind_of(blamed)
            and self._pairs.is_free(user)
            and (distance := self._pairs.distance(blamed, names_of(user))) is not None
        ]
        return min(found, key=lambda pair: pair[1].size, default=None)

    def _later_kinds(self, operation: CapturedOperation) -> set[str]:
        """Return which kinds of operations go on with what an operation gives, to the end."""
        later = map(self._own.maker, self._own.made_of(operation.name))
        return {kind_of(user) for user in later if user is not None}

    def _record(
        self,
        own: CapturedOperation,
        last: str,
        counterpart: CapturedOperation | None,
        distance: Distance | None,
        *,
        is_missing: bool = False,
    ) -> Operation:
        measured = distance if distance is not None and isfinite(distance.error) else None
        taken = () if counterpart is None else self._pairs.reference.shown_inputs(counterpart)
        unproven = dict.fromkeys(
            self._with_number(self._own.shown(name))
            for name in own.inputs
            if not self._pairs.is_known(name)
        )
        return Operation(
            name=own.name,
            op=spelled(own),
            inputs=tuple(map(self._with_number, self._own.shown_inputs(own))),
            source=own.source,
            last=last,
            step=self._step,
            is_missing=is_missing,
            reference="" if counterpart is None else counterpart.name,
            reference_op="" if counterpart is None else spelled(counterpart),
            reference_inputs=taken,
            reference_source="" if counterpart is None else counterpart.source,
            local_error=None if measured is None else measured.error,
            bound=None if measured is None else measured.bound,
            operations=self._pairs.outputs,
            paired=self._pairs.paired,
            is_proven=not (is_missing or unproven) and self._is_proven(own, counterpart, measured),
            unproven=tuple(unproven),
        )

    def _is_proven(
        self,
        own: CapturedOperation,
        counterpart: CapturedOperation | None,
        distance: Distance | None,
    ) -> bool:
        """Tell whether the reference was seen to compute something else of the same inputs."""
        if counterpart is None or distance is None or distance.within:
            return False
        pairs, reference = self._pairs, self._pairs.reference
        given = [
            set(map(reference.source, pairs.partners(name)))
            for name in self._own.inputs(own)
            if not self._own.is_constant(name)
        ]
        there = {name for name in reference.inputs(counterpart) if not reference.is_constant(name)}
        if not all(group & there for group in given) or there - set().union(*given):
            return False
        is_end = own.name in self._roots and pairs.target in names_of(counterpart)
        return kind_of(own) == kind_of(counterpart) or len(given) > 1 or is_end

    def _with_number(self, name: str) -> str:
        """Add the value of what is a single number."""
        array = self._pairs.array(name)
        return f"{name} ({array.item():.6g})" if array is not None and array.size == 1 else name


def _passing_on(name: str) -> CapturedOperation:
    """Describe that a module hands on what it is given."""
    output = OperationOutput(name=name, dtype="", shape=())
    return CapturedOperation(op="", module="", inputs=(), outputs=(output,))


def _is_much_nearer(one: Distance | None, other: Distance | None) -> bool:
    """Tell whether one is much nearer than the other, where both can be measured."""
    if one is None or other is None or not isfinite(other.error):
        return False
    return one.error < _MUCH_NEARER * other.error
