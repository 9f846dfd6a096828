"""What difference is allowed."""

import math
from dataclasses import dataclass

from comparison.schema.errors import BadInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The meaning of torch.isclose, the reference being `other`.

    A pair of finite elements passes when |candidate - reference| <= atol + rtol * |reference|.
    Integers and booleans pass only when they are equal, whatever the tolerance.

    Attributes:
        rtol: relative tolerance, no unit.
        atol: absolute tolerance, in the unit of the tensor.
        equal_nan: NaN passes where both sides hold NaN.
        equal_inf: infinity passes where both sides hold infinity of the same sign.
    """

    rtol: float = 0.0
    atol: float = 0.0
    equal_nan: bool = False
    equal_inf: bool = False

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if not math.isfinite(value) or value < 0:
                raise BadInputError(
                    f"{name} must be a finite number of at least 0, found {value}; "
                    f"give for example --{name} 1e-5"
                )

    def allowed(self, reference: int | float | complex) -> float:
        """Give the absolute difference that is allowed from a finite reference element.

        Args:
            reference: the element; an int or bool stands for an exact tensor.
        """
        if isinstance(reference, int):
            return 0.0
        return self.atol + self.rtol * abs(reference)
