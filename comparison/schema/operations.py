"""The operations below a module: what a capture tells of each, and how they hang together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Names of inputs that are neither an operation's output nor what a module was given.
WEIGHT_PREFIX = "weight:"
CONSTANT_PREFIX = "constant:"

Number = bool | int | float | str
Argument = Number | tuple[Number, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOutput:
    """One tensor that an operation gives.

    Attributes:
        name: `<module>@<nnn>.<op>`; of several outputs `<module>@<nnn>.<op>_<i>`.
        dtype: name of its dtype, as the engine spells it.
        shape: dimensions; a text where the engine knows a name and no number.
        view_of: name of the input whose memory it is, so that it holds nothing of its own.
        saved: whether the dump holds its values.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    view_of: str | None = None
    saved: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedOperation:
    """One operation.

    Attributes:
        op: the engine's full name of it, such as `aten.mul.Tensor`.
        module: the innermost module whose call ran it; of a second call, `<module>(2)`.
        inputs: names of the tensors that it takes: outputs of operations, inputs of modules,
            `weight:<path>`, or `constant:<what>`.
        arguments: its other arguments, by keyword, as far as they are plain values.
        outputs: the tensors that it gives, those that it changes in place included.
        source: `file:line` in the model's code; empty where that is not known.
    """

    op: str
    module: str
    inputs: tuple[str, ...]
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    outputs: tuple[OperationOutput, ...]
    source: str = ""

    @property
    def name(self) -> str:
        """The name of its first output; its module's where it has none."""
        return self.outputs[0].name if self.outputs else self.module


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOperations:
    """The operations of one step.

    Attributes:
        operations: in order of execution.
        tensors: what goes into and comes out of modules, by its full name, with the name of the
            operation's output that it is.
    """

    operations: tuple[CapturedOperation, ...]
    tensors: Mapping[str, str] = field(default_factory=dict)
