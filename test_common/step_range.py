"""Which steps of a run to capture: `0`, `1-3`, `2-`, `0,4-6`."""

import re

from comparison.schema.errors import BadInputError

_RANGE = re.compile(r"(?P<first>\d+)(?P<dash>-(?P<last>\d+)?)?")


def parse_steps(text: str, *, num_steps: int) -> frozenset[int]:
    """Parse a range of steps.

    Args:
        text: numbers and ranges, separated by commas; a range without end goes to the last step.
        num_steps: number of steps of the run.

    Raises:
        BadInputError: the text is of another form, or names a step that is not run.
    """
    steps: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise BadInputError(f"steps must be like 0, 1-3, 2- or 0,4-6, got {text!r}")
        first = int(match["first"])
        last = first if not match["dash"] else int(match["last"] or max(first, num_steps - 1))
        if last < first or last >= num_steps:
            raise BadInputError(
                f"steps {text!r} do not lie within the run, whose steps are 0 to {num_steps - 1}"
            )
        steps.update(range(first, last + 1))
    return frozenset(steps)
