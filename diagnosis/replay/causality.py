"""Whether a reference that generates looks ahead: its last token must not move earlier rows.

Legend: T tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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
    before = _Before()
    with watched(model, _Watch(call.tokens, before.keep)):
        call.run(model)
    with watched(model, _Watch(call.tokens, before.compare)):
        _with_other_end(call).run(model)
    return before.first_moved


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """All rows but the last of a tensor.

    Attributes:
        name: the tensor's.
        owner: the module that has it.
        values: [T - 1, ...] of T tokens.
    """

    name: str
    owner: str
    values: torch.Tensor


class _Watch:
    """Hands on the rows of every tensor of floats that has one a token."""

    def __init__(self, tokens: int, found: Callable[[_Rows], None]) -> None:
        self._tokens = tokens
        self._found = found

    def see(self, name: str, tensor: torch.Tensor, *, owner: str, caller: str) -> torch.Tensor:
        del caller
        axis = next(
            (axis for axis in (1, 0) if tensor.shape[axis : axis + 1] == (self._tokens,)), None
        )
        if axis is not None and tensor.is_floating_point():
            early = tensor.detach().narrow(axis, 0, self._tokens - 1).movedim(axis, 0)
            self._found(_Rows(name=name, owner=owner, values=early.flatten(1)))
        return tensor


class _Before:
    """Keeps the rows of a run, and gives them up again as they are held against another's."""

    def __init__(self) -> None:
        self._rows: deque[_Rows] = deque()
        self.first_moved: LookAhead | None = None

    def keep(self, rows: _Rows) -> None:
        self._rows.append(replace(rows, values=rows.values.clone()))

    def compare(self, new: _Rows) -> None:
        """Hold the next rows against those of the first run, until some move."""
        if not self._rows or self.first_moved is not None:
            return
        old = self._rows.popleft()
        same = old.name == new.name and old.values.shape == new.values.shape
        if not same or not old.values.numel():
            self._rows.clear()  # the two runs took different ways: nothing can be said
            return
        self.first_moved = _moved(old, new)


def _moved(old: _Rows, new: _Rows) -> LookAhead | None:
    import torch

    size = float(old.values.abs().max())
    change = (new.values - old.values).abs().amax(dim=1)  # [T - 1]
    wide = old.values.dtype in (torch.float32, torch.float64)
    least = (_MOVED if wide else _MOVED_NARROW) * size
    moved = int((change > least).sum())
    if not moved:
        return None
    return LookAhead(
        module=module_of(old.owner),
        tensor=old.name,
        moved=float(change.max()) / size if size else float("inf"),
        rows=(moved, len(change)),
    )
