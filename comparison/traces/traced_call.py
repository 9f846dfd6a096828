"""The calls of a trace, and the values that they were given and returned."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from comparison.numerics.dtypes import Array
from comparison.schema.outcome import Shape
from comparison.traces.shown_numbers import ShownNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTensor:
    """A tensor that a call was given or returned.

    Attributes:
        shape: its dimensions; None where they are not known before it is read.
        dtype: `float32`; empty where it is not known before it is read.
        statistics: those that the trace has, by name.
        text: how it was printed, perhaps abbreviated; None where the trace does not say.
        load: reads all of it; None where the trace does not hold all of it.
        has_loose_shape: whether leading dimensions of 1 say nothing, as between engines.
    """

    shape: Shape | None
    dtype: str
    statistics: Mapping[str, ShownNumber] = field(default_factory=dict)
    text: str | None = None
    load: Callable[[], Array] | None = None
    has_loose_shape: bool = False


# A tensor, or the text of anything else.
TracedValue = TracedTensor | str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCall:
    """One call of a module.

    Attributes:
        path: the module's path, which begins with the class of the model.
        number: 1 for the module's first call, then 2, 3, ...
        inputs: by name, `input_0` or `input_<keyword>`, deeper `input_0_1`.
        outputs: by name, `output`, or `output_<index or field>`.
        raised: the exception that ended it, empty where none did.
        pruned: paths of layers that it called and that are not written.
        children: the calls inside, in order of execution.
    """

    path: str
    number: int
    inputs: Mapping[str, TracedValue]
    outputs: Mapping[str, TracedValue]
    raised: str = ""
    pruned: tuple[str, ...] = ()
    children: tuple["TraceCall", ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """What its counterpart has as well: the path below the model, and the number."""
        return self.path.partition(".")[2], self.number
