"""Which operations of the candidate have a counterpart in the reference, by values and in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from comparison.numerics.dtypes import Array
from comparison.schema.operations import CONSTANT_PREFIX, WEIGHT_PREFIX, CapturedOperation
from diagnosis.drill.dump import OperationValues
from diagnosis.drill.flow import Flow, names_of
from diagnosis.drill.values import Distance, ReferenceValues


class Pairs:
    """The outputs of the candidate's operations with those of the reference that they agree with.

    Attributes:
        own: how the candidate's operations hang together.
        reference: the same of the reference.
        target: the reference's output that should have been the guilty tensor.
    """

    def __init__(
        self,
        own: Flow,
        reference: Flow,
        values: ReferenceValues,
        arrays: OperationValues,
        *,
        target: str,
    ) -> None:
        """Pair by values, never back in the course of things.

        Args:
            own: how the candidate's operations hang together.
            reference: the same of the reference.
            values: the reference's values.
            arrays: the candidate's.
            target: the guilty tensor, by the reference's name.
        """
        self.own, self.reference = own, reference
        self.target = reference.source(target)
        self._guilty = reference.output_at(target)
        self._values, self._arrays = values, arrays
        self._partners: dict[str, dict[str, Distance]] = {}  # by the candidate's output
        self._edges: dict[str, dict[str, Distance]] = {}  # by what comes from outside
        self._agrees: dict[str, bool] = {}
        self._known: dict[str, bool] = {}
        self._places: dict[str, int] = {}
        self._conditions: set[str] = set()
        self._pair_all()

    @property
    def outputs(self) -> int:
        """Number of the candidate's outputs that were held against the reference's."""
        return len(self._partners)

    @property
    def paired(self) -> int:
        """Number of those that agree with one."""
        return sum(map(bool, self._partners.values()))

    def array(self, name: str) -> Array | None:
        """Return the candidate's values of a tensor, None where its dump does not hold them."""
        return self._arrays[name]

    def partners(self, name: str) -> Iterator[str]:
        """Give the reference's outputs that agree with what a module or operation gives."""
        if name not in self._partners and name not in self._edges:
            array = self._arrays[name]
            self._edges[name] = {} if array is None else dict(self._values.matches(array))
        yield from self._partners.get(name) or self._edges.get(name) or {}

    def is_right(self, name: str) -> bool:
        """Tell whether a tensor has a counterpart, or comes from outside of the module."""
        if name not in self._agrees:
            self._agrees[name] = True  # should a file go round
            operation = self.own.maker(name)
            if name in self._partners:
                self._agrees[name] = bool(self._partners[name])
            elif operation is not None:  # nothing was saved
                self._agrees[name] = all(map(self.is_right, self.own.inputs(operation)))
        return self._agrees[name]

    def is_known(self, name: str) -> bool:
        """Tell whether a tensor was shown to be the reference's: unlike `is_right`, no weight is.

        Args:
            name: of an output, of what comes from outside of the module, a weight or a constant.
        """
        name = self.own.source(name)
        if name not in self._known:
            self._known[name] = True  # should a file go round
            operation = self.own.maker(name)
            if name.startswith((WEIGHT_PREFIX, CONSTANT_PREFIX)):
                self._known[name] = name.startswith(CONSTANT_PREFIX)
            elif name in self._partners or operation is None:
                self._known[name] = any(True for _ in self.partners(name))
            else:  # nothing was saved, or it is made of weights and numbers alone
                self._known[name] = all(map(self.is_known, operation.inputs))
        return self._known[name]

    def is_free(self, operation: CapturedOperation) -> bool:
        """Tell whether an operation of the reference is paired with none, and not behind all."""
        names = names_of(operation)
        return names[0] not in self._taken and not any(map(self._is_behind, names))

    def kept(self, names: Sequence[str]) -> list[str]:
        """Name what the reference goes on with, of some of the candidate's tensors: the latest."""
        found = [list(self.partners(name)) for name in names]
        return max(filter(None, found), key=lambda group: min(map(self._order, group)), default=[])

    def free_users(self, names: Sequence[str]) -> dict[str, tuple[CapturedOperation, int]]:
        """Find the reference's operations on the same tensors that nothing was paired with.

        Args:
            names: the candidate's tensors.

        Returns:
            By name, with the number of these tensors that each takes; those with most first.
        """
        shared: Counter[str] = Counter()
        users: dict[str, CapturedOperation] = {}
        for name in names:
            sources = dict.fromkeys(map(self.reference.source, self.partners(name)))
            found = {user.name: user for place in sources for user in self.reference.users(place)}
            users |= found
            shared.update(found.keys())
        free = [user for user in users.values() if self.is_free(user)]
        free.sort(key=lambda user: (-shared[user.name], self.reference.order(user)))
        return {user.name: (user, shared[user.name]) for user in free}

    def distance(self, own: CapturedOperation, names: Sequence[str]) -> Distance | None:
        """Hold an operation's output against the nearest of some of the reference's outputs."""
        array = self._arrays[own.name]
        if array is None:
            return None
        found = [self._values.distance(name, array) for name in names]
        kept = [distance for distance in found if distance is not None]
        return min(kept, key=lambda distance: distance.size, default=None)

    def _pair_all(self) -> None:
        """Pair in order of execution.

        What lies behind the guilty tensor was computed from the candidate's own value of it.
        """
        for operation in self.own.operations:
            for output in operation.outputs:
                wanted = output.saved and not self.own.is_constant(output.name)
                array = self._arrays[output.name] if wanted else None
                if array is None or not array.size or self._is_condition(operation, array):
                    continue  # it is seen in what is chosen by it
                since = max(map(self._since, self.own.inputs(operation)), default=-1)
                self._partners[output.name] = {
                    name: distance
                    for name, distance in self._values.matches(array)
                    if not self._is_behind(name) and self._order(name) >= since
                }

    def _is_condition(self, operation: CapturedOperation, array: Array) -> bool:
        """Tell truth values, and what is made of these alone, such as their number."""
        made_of = [n for n in self.own.inputs(operation) if not self.own.is_constant(n)]
        only = bool(made_of) and all(name in self._conditions for name in made_of)
        is_condition = array.dtype == bool or only
        if is_condition:
            self._conditions.update(names_of(operation))
        return is_condition

    def _since(self, name: str) -> int:
        """Return the place in the reference that a tensor of the candidate has got to."""
        if name not in self._places:
            self._places[name] = -1  # should a file go round
            operation, partners = self.own.maker(name), self._partners.get(name)
            if partners:
                self._places[name] = min(map(self._order, partners))
            elif operation is not None:
                inputs = self.own.inputs(operation)
                self._places[name] = max(map(self._since, inputs), default=-1)
        return self._places[name]

    def _order(self, name: str) -> int:
        maker = self.reference.maker(name)
        return -1 if maker is None else self.reference.order(maker)

    def _is_behind(self, name: str) -> bool:
        """Tell whether the reference made a tensor of what it should have been given."""
        source = self.reference.source(name)
        is_later_view = source == self.target and self._order(name) > self._order(self._guilty)
        return source in self._behind or is_later_view

    @cached_property
    def _behind(self) -> frozenset[str]:
        return self.reference.made_of(self.target)

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset(name for partners in self._partners.values() for name in partners)
