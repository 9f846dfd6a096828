"""What a pass did not capture lacks no counterpart: it was not looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from comparison.schema.comparison import UnpairedTensor
from comparison.schema.diagnosis import Diagnosis
from comparison.schema.outcome import Side
from comparison.schema.tensor_names import parse_tensor_name

NOT_CAPTURED = "it was not captured in this pass"


def with_uncaptured(found: Diagnosis, globs: Sequence[str]) -> Diagnosis:
    """Say of the reference's tensors without a counterpart which the candidate's pass left out.

    Args:
        found: a diagnosis of a dump that holds a part of the candidate's tensors.
        globs: names of the modules and tensors that the pass captured.
    """

    def told(item: UnpairedTensor) -> UnpairedTensor:
        if item.side is not Side.REFERENCE or _is_captured(item.tensor, globs):
            return item
        return replace(item, reason=NOT_CAPTURED)

    return replace(found, unpaired=tuple(map(told, found.unpaired)))


def _is_captured(tensor: str, globs: Sequence[str]) -> bool:
    parsed = parse_tensor_name(tensor)
    names = [tensor] if parsed is None else [tensor, parsed.module]
    return any(fnmatchcase(name, glob) for glob in globs for name in names)
