"""What a comparison has to give, by whole numbers and Python's floats; nothing of ours or numpy's.

Every finite element is a whole multiple of 2**-1074, the smallest positive float64, so sums and
sums of squares are exact. Bit patterns are decoded as the formats' definitions spell them: IEEE
754; bfloat16 as the upper half of a binary32; OCP's "8-bit Floating Point Specification" for e4m3fn
and e5m2, and its "Microscaling Formats" for e8m0fnu and those of 6 and 4 bits; Noune et al., "8-bit
Numerical Formats for Deep Neural Networks" (2022), for the fnuz variants.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

UNIT = 1 << 1074
FLOOR = 1e-10  # what counts as zero in a denominator, as the metrics' documentation says


class Special(Enum):
    """What is no finite number."""

    NAN = math.nan
    INF = math.inf
    MINUS_INF = -math.inf


Number = int | Special  # multiples of 1 / UNIT
Element = tuple[Number, Number]  # real and imaginary part; 0 for real numbers


@dataclass(frozen=True)
class Format:
    """A binary format: sign, exponent, mantissa, from the top.

    Attributes:
        exponent: bits of the exponent.
        mantissa: bits of the mantissa.
        bias: subtracted from the exponent.
        specials: `ieee` (the greatest exponent is infinity and NaN), `fn` (only all ones is NaN),
            `fnuz` (only minus zero is NaN), `none`.
    """

    exponent: int
    mantissa: int
    bias: int
    specials: str = "ieee"

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return 1 + self.exponent + self.mantissa

    def decode(self, code: int) -> Number:
        """Return the number of a code."""
        sign = -1 if code >> (self.bits - 1) & 1 else 1
        exponent = code >> self.mantissa & ((1 << self.exponent) - 1)
        mantissa = code & ((1 << self.mantissa) - 1)
        greatest = exponent == (1 << self.exponent) - 1
        if self.specials == "ieee" and greatest:
            if mantissa:
                return Special.NAN
            return Special.INF if sign > 0 else Special.MINUS_INF
        if self.specials == "fn" and greatest and mantissa == (1 << self.mantissa) - 1:
            return Special.NAN
        if self.specials == "fnuz" and code == 1 << (self.bits - 1):
            return Special.NAN
        if exponent:
            mantissa |= 1 << self.mantissa
        power = max(exponent, 1) - self.bias - self.mantissa + 1074
        assert power >= 0
        return sign * (mantissa << power)

    def edges(self) -> dict[str, int]:
        """Return codes at the edges of the format, by what they are."""
        one = self.bias << self.mantissa
        sign = 1 << (self.bits - 1)
        smallest_normal = 1 << self.mantissa
        edges = {
            "zero": 0,
            "minus zero": sign,
            "smallest": 1,
            "minus smallest": sign | 1,
            "greatest subnormal": smallest_normal - 1,
            "smallest normal": smallest_normal,
            "one": one,
            "above one": one + 1,
            "below one": one - 1,
            "minus one": sign | one,
        }
        top = ((1 << self.exponent) - 1) << self.mantissa
        all_ones = sign - 1
        if self.specials == "ieee":
            quiet = 1 << (self.mantissa - 1)
            edges |= {"greatest": top - 1, "least": sign | (top - 1)}
            edges |= {"inf": top, "minus inf": sign | top}
            edges |= {"quiet NaN": top | quiet, "NaN of all ones": all_ones}
            edges |= {"signalling NaN": top | 1, "minus NaN": sign | top | quiet | 1}
        elif self.specials == "fn":
            edges |= {"greatest": all_ones - 1, "least": sign | (all_ones - 1)}
            edges |= {"NaN": all_ones, "minus NaN": sign | all_ones}
        else:
            edges |= {"greatest": all_ones, "least": sign | all_ones}
        return edges


FORMATS = {
    "float64": Format(11, 52, 1023),
    "float32": Format(8, 23, 127),
    "float16": Format(5, 10, 15),
    "bfloat16": Format(8, 7, 127),
    "float8_e5m2": Format(5, 2, 15),
    "float8_e4m3": Format(4, 3, 7),
    "float8_e3m4": Format(3, 4, 3),
    "float8_e4m3fn": Format(4, 3, 7, "fn"),
    "float8_e4m3fnuz": Format(4, 3, 8, "fnuz"),
    "float8_e5m2fnuz": Format(5, 2, 16, "fnuz"),
    "float8_e4m3b11fnuz": Format(4, 3, 11, "fnuz"),
    "float6_e2m3fn": Format(2, 3, 1, "none"),
    "float6_e3m2fn": Format(3, 2, 3, "none"),
    "float4_e2m1fn": Format(2, 1, 1, "none"),
}


def decode_e8m0(code: int) -> Number:
    """Return the number of a scale: a power of two; no sign, no zero, all ones is NaN."""
    return Special.NAN if code == 255 else 1 << (code - 127 + 1074)


def decoder(name: str) -> Callable[[int], Number]:
    """Return what decodes the codes of a float dtype."""
    return decode_e8m0 if name == "float8_e8m0fnu" else FORMATS[name].decode


def number(value: Number) -> float:
    """Return a number as a float64, rounded to nearest."""
    if isinstance(value, Special):
        return float(value.value)
    try:
        return value / UNIT
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the definitions in comparison/schema/outcome.py give; positions are row-major.

    Attributes:
        elements: number of elements that are finite on both sides.
        classes: number of elements of each class that is not.
        first_difference: position of the first whose class differs.
        failed: number of elements that do not pass.
        distances: of each finite element by position, as `greatest_absolute` counts it.
        relatives: the same for `greatest_relative`.
        mean: mean distance.
        l2: relative L2.
        cosine: of the angle.
        ulp: greatest distance in units in the last place; None where there is no unit.
        rows: relative L2 of each row.
        apart: power of two between the sides' norms.
    """

    elements: int
    classes: dict[str, int]
    first_difference: int | None
    failed: int
    distances: dict[int, float]
    relatives: dict[int, float]
    mean: float = 0
    l2: float = 0
    cosine: float = 0
    ulp: float | None = None
    rows: tuple[float, ...] = ()
    apart: int = 0


def expected(
    reference: Sequence[Element],
    candidate: Sequence[Element],
    *,
    exact: bool = False,
    unit: tuple[int, int] | None = None,
    row: int = 1,
    rtol: float = 0.0,
    atol: float = 0.0,
    equal_nan: bool = False,
    equal_inf: bool = False,
) -> Expected:
    """Measure two flat tensors.

    Args:
        reference: its elements.
        candidate: as many.
        exact: whether they are whole numbers or truth values, which have to be equal.
        unit: mantissa bits and least exponent of normal numbers, for units in the last place.
        row: elements along the last axis.
        rtol: as in torch.isclose.
        atol: the same.
        equal_nan: whether NaN passes where both have it.
        equal_inf: whether equal infinities pass.
    """
    pairs = list(zip(reference, candidate, strict=True))
    kinds = [_class_of(r, c) for r, c in pairs]
    finite = [at for at, kind in enumerate(kinds) if kind is None]
    classes = {name: kinds.count(name) for name in CLASSES}
    passing = {"nan_both": equal_nan, "inf_same_sign": equal_inf}
    failed = sum(kind is not None and not passing.get(kind, False) for kind in kinds)
    differing = [at for at, kind in enumerate(kinds) if kind and kind not in passing]
    first = differing[0] if differing else None
    distances = {at: _distance(*pairs[at], exact=exact) for at in finite}
    sizes = {at: _size(pairs[at][0]) for at in finite}
    for at in finite:
        allowed = 0.0 if exact else atol + rtol * sizes[at]
        failed += distances[at] > allowed
    relatives = {at: distances[at] / max(sizes[at], FLOOR) for at in finite}
    found = Expected(
        elements=len(finite),
        classes=classes,
        first_difference=first,
        failed=failed,
        distances=distances,
        relatives=relatives,
    )
    if not finite:
        return found
    kept = [pairs[at] for at in finite]
    rows = [
        [pairs[at] for at in range(begin, begin + row) if kinds[at] is None]
        for begin in range(0, len(pairs), row)
    ]
    return replace(
        found,
        mean=_mean(kept, distances.values()),
        l2=_l2(kept),
        cosine=_cosine(kept),
        ulp=None
        if unit is None
        else max(_in_units(pairs[at][0], distances[at], unit) for at in finite),
        rows=tuple(map(_l2, rows)),
        apart=_apart(kept),
    )


CLASSES = (
    "nan_both",
    "nan_reference_only",
    "nan_candidate_only",
    "inf_same_sign",
    "inf_opposite_sign",
    "inf_reference_only",
    "inf_candidate_only",
)


def _class_of(reference: Element, candidate: Element) -> str | None:
    nan = Special.NAN in reference, Special.NAN in candidate
    if all(nan):
        return "nan_both"
    if any(nan):
        return "nan_reference_only" if nan[0] else "nan_candidate_only"
    inf = [any(isinstance(part, Special) for part in side) for side in (reference, candidate)]
    if all(inf):
        return "inf_same_sign" if reference == candidate else "inf_opposite_sign"
    if any(inf):
        return "inf_reference_only" if inf[0] else "inf_candidate_only"
    return None


def _parts(reference: Element, candidate: Element) -> Iterable[tuple[int, int]]:
    for r, c in zip(reference, candidate, strict=True):
        assert isinstance(r, int)
        assert isinstance(c, int)
        yield r, c


def _distance(reference: Element, candidate: Element, *, exact: bool) -> float:
    """Return |candidate - reference|: whole, or each part's difference rounded to float64."""
    (real, imaginary) = (c - r for r, c in _parts(reference, candidate))
    if exact:
        return abs(real) // UNIT
    if imaginary == 0:
        return abs(number(real))
    return math.hypot(number(real), number(imaginary))


def _size(element: Element) -> float:
    real, imaginary = (number(part) for part in element)
    return abs(real) if imaginary == 0 else min(math.hypot(real, imaginary), GREATEST)


GREATEST = 1.7976931348623157e308


def _in_units(reference: Element, distance: float, unit: tuple[int, int]) -> float:
    """Return a distance in units in the last place of the reference's element."""
    mantissa, least = unit
    real = reference[0]
    assert isinstance(real, int)
    exponent = max(abs(real).bit_length() - 1 - 1074, least) if real else least
    try:
        return math.ldexp(distance, mantissa - exponent)
    except OverflowError:
        return math.inf


def _mean(pairs: Sequence[tuple[Element, Element]], distances: Iterable[float]) -> float:
    distances = list(distances)
    if math.inf in distances:
        return math.inf
    if all(r[1] == c[1] == 0 for r, c in pairs):
        total = sum(abs(c - r) for pair in pairs for r, c in _parts(*pair))
        return _over(total, len(pairs) * UNIT)
    return math.fsum(distances) / len(pairs)


def _l2(pairs: Sequence[tuple[Element, Element]]) -> float:
    parts, shift = _shortened(pairs)
    distance = _root(sum((c - r) ** 2 for r, c in parts)) << shift
    numerator, denominator = FLOOR.as_integer_ratio()
    size = _root(sum(r * r for r, _ in parts)) << shift
    return _over(distance, max(size, (numerator * UNIT << _DIGITS) // denominator))


def _cosine(pairs: Sequence[tuple[Element, Element]]) -> float:
    parts, _ = _shortened(pairs)
    squares = sum(r * r for r, _ in parts), sum(c * c for _, c in parts)
    if 0 in squares:
        return 1.0 if squares == (0, 0) else 0.0
    product = sum(r * c for r, c in parts)
    return _over(product << 2 * _DIGITS, _root(squares[0]) * _root(squares[1]))


def _apart(pairs: Sequence[tuple[Element, Element]]) -> int:
    parts, _ = _shortened(pairs)
    norms = [_root(sum(x * x for x in side)) for side in zip(*parts, strict=True)]
    return abs(norms[0].bit_length() - norms[1].bit_length()) if all(norms) else 0


def _shortened(pairs: Sequence[tuple[Element, Element]]) -> tuple[list[tuple[int, int]], int]:
    """Return all parts without the zero bits that end every one of them, and how many these are."""
    parts = list(itertools.chain.from_iterable(_parts(*pair) for pair in pairs))
    every = 0
    for r, c in parts:
        every |= abs(r) | abs(c)
    shift = (every & -every).bit_length() - 1 if every else 0
    return [(r >> shift, c >> shift) for r, c in parts], shift


_DIGITS = 128  # bits behind the point of a root


def _root(square: int) -> int:
    return math.isqrt(square << 2 * _DIGITS)


def _over(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf
