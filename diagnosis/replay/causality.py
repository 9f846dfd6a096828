"""Whether a reference that generates looks ahead: its last token must not move earlier rows.

Legend: T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from diagnosis.replay.module_watch import module_of, watched
from diagnosis.replay.reference_calls import ReferenceCall

if TYPE_CHECKING:
    import torch

_IDS = "input_ids"
# Of the greatest value: what other shapes of the same products may round to, and less.
_MOVED, _MOVED_NARROW = 1e-4, 2e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAhead:
    """Where a model that should be causal looks ahead.

    Attributes:
        module: whose own code does.
        tensor: the first tensor in which earlier rows move.
        moved: the greatest change there, in units of the tensor's greatest value.
        rows: how many of the earlier rows move, of how many.
    """

    module: str
    tensor: str
    moved: float
    rows: tuple[int, int]


def look_ahead(model: torch.nn.Module, call: ReferenceCall) -> LookAhead | None:
    """Change a call's last token and see whether earlier rows move.

    Args:
        model: the reference.
        call: one row, without padding.

    Returns:
        The first place where they do; None where none does, for a model that generates nothing or
        has an encoder beside its decoder, and for a call without token ids or with pictures, whose
        rows may see one another.
    """
    if not _is_causal(model) or call.tokens is None or call.tokens < 2 or _has_pictures(call):
        return None
    before, after = _Rows(call.tokens), _Rows(call.tokens)
    with watched(model, before):
        call.run(model)
    with watched(model, after):
        _with_other_end(call).run(model)
    return next(_moved(before, after), None)


def said_of(ahead: LookAhead) -> str:
    """Say what was seen, in words."""
    moved, rows = ahead.rows
    return (
        f"another last token moves {moved} of the {rows} rows before it in {ahead.tensor}, by up "
        f"to {ahead.moved:.2g} of its size"
    )


def _is_causal(model: Any) -> bool:
    generates = getattr(model, "can_generate", None)
    config = getattr(model, "config", None)
    return bool(generates and generates()) and not getattr(config, "is_encoder_decoder", False)


def _has_pictures(call: ReferenceCall) -> bool:
    return _IDS not in call.kwargs or any("pixel" in name for name in call.kwargs)


def _with_other_end(call: ReferenceCall) -> ReferenceCall:
    """Put the first other token of the row, or the one with the next id, at the end."""
    ids = call.kwargs[_IDS].clone()
    last = int(ids[0, -1])
    others = [int(token) for token in ids[0] if int(token) != last]
    ids[0, -1] = others[0] if others else abs(last - 1)
    return replace(call, kwargs={**call.kwargs, _IDS: ids})


class _Rows:
    """Keeps all rows but the last of every tensor of floats that has one a token."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.seen: list[tuple[str, str, torch.Tensor]] = []

    def see(self, name: str, tensor: torch.Tensor, *, owner: str, caller: str) -> torch.Tensor:
        del caller
        axis = next(
            (axis for axis in (1, 0) if tensor.shape[axis : axis + 1] == (self._tokens,)), None
        )
        if axis is not None and tensor.is_floating_point():
            early = tensor.detach().narrow(axis, 0, self._tokens - 1).movedim(axis, 0)
            self.seen.append((name, owner, early.flatten(1).clone()))  # [T - 1, ...]
        return tensor


def _moved(before: _Rows, after: _Rows) -> Iterator[LookAhead]:
    import torch

    for (name, owner, old), (other, _, new) in zip(before.seen, after.seen, strict=False):
        if name != other or old.shape != new.shape or not old.numel():
            return  # the two runs took different ways: nothing can be said
        size = float(old.abs().max())
        change = (new - old).abs().amax(dim=1)  # [T - 1]
        least = (_MOVED if old.dtype in (torch.float32, torch.float64) else _MOVED_NARROW) * size
        moved = int((change > least).sum())
        if moved:
            yield LookAhead(
                module=module_of(owner),
                tensor=name,
                moved=float(change.max()) / size if size else float("inf"),
                rows=(moved, len(change)),
            )
