"""Numbers in the texts of tensors, with what their last digit is worth."""

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"[+-]?(?:inf|nan|\d+\.?\d*(?:e[+-]?\d{1,3})?)|True|False")
_WORDS = {"True": 1.0, "False": 0.0}
_MOST_DIGITS = 400  # the greatest float64 has 309


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNumber:
    """A number as it was printed.

    Attributes:
        value: the number.
        unit: what one unit of its last digit is worth; 0 for an integer.
    """

    value: float
    unit: float


def numbers_in(text: str) -> list[ShownNumber] | None:
    """Read the numbers of a tensor's text, such as `tensor([[1.5000, 2.]], dtype=...)`.

    Args:
        text: as torch prints a tensor, on one line or several.

    Returns:
        None for a text of another form, and for complex numbers.
    """
    begin = text.find("(")
    if not text.startswith("tensor(") or "j" in text[begin:]:
        return None
    end = text.rfind("]")
    body = text[begin + 1 : end] if end > begin else text[begin + 1 :].partition(",")[0]
    return [_number(found[0]) for found in _NUMBER.finditer(body) if len(found[0]) < _MOST_DIGITS]


def _number(text: str) -> ShownNumber:
    if text in _WORDS:
        return ShownNumber(value=_WORDS[text], unit=0.0)
    mantissa, _, exponent = text.partition("e")
    if "." not in mantissa:
        return ShownNumber(value=float(text), unit=0.0)
    decimals = len(mantissa.partition(".")[2])
    return ShownNumber(value=float(text), unit=float(f"1e{int(exponent or 0) - decimals}"))
