"""Gives values of one name a name each."""

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def with_names_apart(values: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Keep all values of a name: the first one under it, the others as `name~2`, `name~3`, ...

    Args:
        values: each with its name, in order.
    """
    found: dict[str, T] = {}
    numbers: Counter[str] = Counter()  # from which on to look: a name may be there a million times
    for name, value in values:
        unique = name
        while unique in found:
            numbers[name] += 1
            unique = f"{name}~{numbers[name] + 1}"
        found[unique] = value
    return found
