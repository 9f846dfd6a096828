"""How the operations of one side hang together: what each tensor really is, and who uses it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from comparison.schema.operations import (
    CONSTANT_PREFIX,
    WEIGHT_PREFIX,
    CapturedOperation,
    OperationOutput,
    StepOperations,
)

_DIALECTS = ("rmo", "mo")  # of MAX
_KINDS = {
    "mm": "matmul",
    "bmm": "matmul",
    "addmm": "matmul",
    "baddbmm": "matmul",
    "linear": "matmul",
    "reduce.softmax": "softmax",
    "concat": "cat",
    "to_copy": "cast",
}
# What these give does not depend on values.
_FILLING = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
# Views that hold all values in the same order.
_RESHAPING = (
    "view",
    "_unsafe_view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "expand",
    "alias",
    "detach",
)


class Flow:
    """The operations of one step as a graph; views are looked through.

    Attributes:
        operations: in order of execution.
    """

    def __init__(self, step: StepOperations) -> None:
        """Connect the operations.

        Args:
            step: as captured.
        """
        self.operations = step.operations
        self._tensors = dict(step.tensors)
        self._made: dict[str, tuple[int, CapturedOperation, OperationOutput]] = {
            output.name: (number, operation, output)
            for number, operation in enumerate(step.operations)
            for output in operation.outputs
        }
        self._sources: dict[str, str] = {}
        self._constant: dict[str, bool] = {}
        self._users: defaultdict[str, list[CapturedOperation]] = defaultdict(list)
        for operation in step.operations:
            if not self.is_view(operation):
                for name in dict.fromkeys(map(self.source, operation.inputs)):
                    self._users[name].append(operation)
            # In order of execution; of a file that goes round, what is not made yet is no constant.
            constant = short_name(operation) in _FILLING or all(
                self._constant.get(name, False) for name in self.inputs(operation)
            )
            self._constant |= {output.name: constant for output in operation.outputs}

    def source(self, name: str) -> str:
        """Return the tensor that holds the values of another: behind views and modules' edges."""
        seen: set[str] = set()
        while name not in seen and name not in self._sources:  # a file may be made to go round
            seen.add(name)
            made = self._made.get(name)
            if made is not None and made[2].view_of is not None:
                name = made[2].view_of
            elif made is None and name in self._tensors:
                name = self._tensors[name]
            else:
                break
        name = self._sources.get(name, name)
        self._sources |= dict.fromkeys(seen, name)
        return name

    def output_at(self, tensor: str) -> str:
        """Return the output, be it a view, that goes into or comes out of a module."""
        return self._tensors.get(tensor, tensor)

    def maker(self, name: str) -> CapturedOperation | None:
        """Return the operation that gives a tensor; None for what comes from outside."""
        made = self._made.get(name)
        return None if made is None else made[1]

    def order(self, operation: CapturedOperation) -> int:
        """Return the place of an operation in the order of execution."""
        made = self._made.get(operation.name)
        return -1 if made is None else made[0]

    def users(self, name: str) -> list[CapturedOperation]:
        """Return the operations that take a tensor or a view of it, views left out."""
        return self._users.get(name, [])

    def is_constant(self, name: str) -> bool:
        """Tell a tensor that is made of weights and numbers alone."""
        return self._constant.get(name, False)

    def made_of(self, name: str) -> frozenset[str]:
        """Return the tensors that are made of a tensor, itself and its views left out."""
        found: set[str] = set()
        left = [name]
        while left:
            for operation in self.users(left.pop()):
                new = {output.name for output in operation.outputs} - found
                found |= new
                left += new
        return frozenset(found)

    def shown_inputs(self, operation: CapturedOperation) -> tuple[str, ...]:
        """Name what an operation takes, with the views that leave out or reorder values."""
        return tuple(dict.fromkeys(map(self.shown, operation.inputs)))

    def shown(self, name: str) -> str:
        """Name one input, with the views that leave out or reorder values."""
        source, views, seen = self.source(name), [], set[str]()
        if source.startswith(WEIGHT_PREFIX):
            return source
        while name != source and name not in seen:
            seen.add(name)
            made = self._made.get(name)
            if made is not None and short_name(made[1]) not in _RESHAPING:
                views.append(spelled(made[1]))
            name = self._tensors.get(name, name) if made is None else str(made[2].view_of)
        return f"{source} by {', '.join(reversed(views))}" if views else source

    def inputs(self, operation: CapturedOperation) -> Iterator[str]:
        """Give what an operation takes, without weights and constants."""
        for name in dict.fromkeys(map(self.source, operation.inputs)):
            if not name.startswith((WEIGHT_PREFIX, CONSTANT_PREFIX)):
                yield name

    @staticmethod
    def is_view(operation: CapturedOperation) -> bool:
        """Tell an operation that gives nothing but other views of what it takes."""
        return bool(operation.outputs) and all(
            output.view_of is not None for output in operation.outputs
        )


def short_name(operation: CapturedOperation) -> str:
    """Return `mul` of `aten.mul.Tensor` and of `rmo.mul`."""
    parts = operation.op.split(".")
    if parts[0] in _DIALECTS:
        return ".".join(part for part in parts if part not in _DIALECTS)
    return parts[1] if len(parts) > 1 else operation.op


def kind_of(operation: CapturedOperation) -> str:
    """Return the short name, the same for what engines and overloads call differently."""
    name = short_name(operation).lstrip("_")
    return _KINDS.get(name, name)


def names_of(operation: CapturedOperation) -> list[str]:
    """List the names of what an operation gives."""
    return [output.name for output in operation.outputs]


def spelled(operation: CapturedOperation) -> str:
    """Write an operation with its arguments, `aten.mul.Tensor(other=0.125)`."""
    arguments = ", ".join(f"{key}={_shown(value)}" for key, value in operation.arguments.items())
    return f"{operation.op}({arguments})" if arguments else operation.op


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value)
