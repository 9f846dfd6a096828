"""Whether a reference can be trusted to judge by: it repeats, and what it gives are numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diagnosis.check import Check
from diagnosis.replay.reference_calls import ReferenceCall

if TYPE_CHECKING:
    import torch


def unrepeated(model: torch.nn.Module, calls: Sequence[ReferenceCall]) -> Iterator[str]:
    """Yield that a reference does not repeat, where it does not.

    Args:
        model: the reference.
        calls: the rows; the first one is run twice.
    """
    if calls and not _repeats(model, calls[0]):
        yield "the reference gives other values when it is run again on the same inputs"


def no_numbers(checks: Sequence[Check]) -> Iterator[str]:
    """Yield where the reference gives no numbers first, and whether the candidate gave it some.

    Args:
        checks: what was judged.
    """
    who = "the reference itself gives values that are no numbers"
    for check in checks:
        if check.floor is None or check.is_input:
            continue
        if np.isnan(check.exact).any():
            yield f"{who}, first at {check.name}"
            return
        if np.isnan(check.candidate).any():
            who = "on the candidate's values that are no numbers the reference gives none either"


def _repeats(model: torch.nn.Module, call: ReferenceCall) -> bool:
    import torch

    first, second = (list(_tensors(call.run(model))) for _ in range(2))
    return len(first) == len(second) and all(
        torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
        for a, b in zip(first, second, strict=True)
    )


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    from test_common.tensor_tree import output_tensors

    tree = output_tensors(value, is_tensor=lambda item: isinstance(item, torch.Tensor))
    yield from (tensor.detach().clone() for _, tensor in tree.tensors)
