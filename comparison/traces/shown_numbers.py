"""Numbers in the texts of tensors, with what their last digit is worth."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_NUMBER = re.compile(r"[+-]?(?:inf|nan|\d+\.?\d*(?:e[+-]?\d{1,3})?)|True|False")
_WORDS = {"True": 1.0, "False": 0.0}
_MOST_DIGITS = 400  # the greatest float64 has 309
_REMEMBERED = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNumber:
    """A number as it was printed.

    Attributes:
        value: the number.
        unit: what one unit of its last digit is worth; 0 for an integer.
    """

    value: float
    unit: float


def numbers_in(text: str) -> Iterator[ShownNumber] | None:
    """Read the numbers of a tensor's text, such as `tensor([[1.5000, 2.]], dtype=...)`.

    Args:
        text: as torch prints a tensor, on one line or several.

    Returns:
        The numbers one by one, since a text may be of any size; None for a text of another form,
        and for complex numbers.
    """
    begin = text.find("(")
    if not text.startswith("tensor(") or text.find("j", begin) >= 0:
        return None
    end = text.rfind("]")
    if end <= begin:
        comma = text.find(",", begin)
        end = comma if comma >= 0 else len(text)
    found = _NUMBER.finditer(text, begin + 1, end)
    return (_number(each[0]) for each in found if each.end() - each.start() < _MOST_DIGITS)


# Of two or three characters there are only so many numbers, so that a text full of them is soon
# read; the longer ones are fewer in a text of one size.
@lru_cache(maxsize=_REMEMBERED)
def _number(text: str) -> ShownNumber:
    if text in _WORDS:
        return ShownNumber(value=_WORDS[text], unit=0.0)
    mantissa, _, exponent = text.partition("e")
    if "." not in mantissa:
        return ShownNumber(value=float(text), unit=0.0)
    decimals = len(mantissa.partition(".")[2])
    return ShownNumber(value=float(text), unit=float(f"1e{int(exponent or 0) - decimals}"))
