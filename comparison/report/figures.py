"""How figures are written in reports that people read."""


def figure(value: float | None) -> str:
    """Write a number in six digits, whole numbers in full; empty for None.

    Args:
        value: a difference, an error, a count.
    """
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
