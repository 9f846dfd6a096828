"""Bringing a padded batch and ragged rows to one shape.

torch runs rows of different length as one padded batch [B, S, ...], MAX as ragged rows
[sum of tokens, ...]. Token counts come from the manifests; without any, nothing is guessed but
leading dimensions of 1. Legend: B rows, S sequence with padding, N heads, D head size.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from comparison.numerics.blocks import Block
from comparison.numerics.dtypes import Array
from comparison.schema.manifest import Padding, Stretch
from comparison.schema.outcome import NotComparable, Shape, ShapeDiffers

_PADDED = (Padding.LEFT, Padding.RIGHT, Padding.NONE)
_SHOWN_LENGTHS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the rows of one dump lie in its tensors.

    Attributes:
        padding: how they share a batch; None where it is not known.
        lengths: prompt tokens a row; empty where they are not known.
        step: 0 for the prefill.
        last_tokens: whether a tensor with one value a row may hold each row's last token alone.
        stretches: which tokens of which rows the step computed, in their order; None where that is
            all of each prompt in step 0, and one token a row in every other step.
        skipped: tokens at each row's start that the tensors of step 0 lack; empty for none.
    """

    padding: Padding | None
    lengths: tuple[int, ...]
    step: int
    last_tokens: bool = True
    stretches: tuple[Stretch, ...] | None = None
    skipped: tuple[int, ...] = ()

    def held(self) -> tuple[int, ...]:
        """Return the number of prompt tokens a row that the tensors of step 0 hold."""
        if self.step or not self.skipped:
            return self.lengths
        return tuple(n - lost for n, lost in zip(self.lengths, self.skipped, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """Two tensors of one shape, as views.

    Attributes:
        blocks: what is compared.
        shape: the shape of the whole.
        adjustments: what was done, one sentence each.
    """

    blocks: Sequence[Block]
    shape: Shape
    adjustments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """One way to read a tensor: an array [tokens, ...] a row.

    Attributes:
        rows: views.
        source: the tensor's shape, in words.
        whole_rows: False where only the last token of each row may be there.
    """

    rows: tuple[Array, ...]
    source: str
    whole_rows: bool = True

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(row.shape[0] for row in self.rows)

    @property
    def trailing(self) -> Shape:
        return tuple(self.rows[0].shape[1:])


def align_arrays(
    reference: Array,
    candidate: Array,
    *,
    reference_layout: Layout,
    candidate_layout: Layout,
    allow_reshape: bool = False,
) -> Aligned | ShapeDiffers | NotComparable:
    """Bring two tensors to one shape without copying them.

    Args:
        reference: any shape.
        candidate: any shape.
        reference_layout: from the reference's manifest; its lengths may come from the other's.
        candidate_layout: as reference_layout.
        allow_reshape: take tensors of equal element count for the same in row-major order.
    """
    same_shape = reference.shape == candidate.shape
    if reference_layout.skipped != candidate_layout.skipped:
        same_shape = False
    if same_shape and not _pads_on_both(reference_layout, candidate_layout):
        return _whole(reference, candidate)
    choices = list(_choices(reference, candidate, reference_layout, candidate_layout))
    if len(choices) == 1:
        return choices[0]
    if same_shape:
        return _whole(reference, candidate)
    if choices:
        return NotComparable(
            reason=f"which axis of {list(reference.shape)} and {list(candidate.shape)} counts the "
            "tokens is ambiguous; take prompts with another number of tokens than there are heads"
        )
    return _reshaped(reference, candidate, allow_reshape)


def _pads_on_both(reference: Layout, candidate: Layout) -> bool:
    padded = (Padding.LEFT, Padding.RIGHT)
    return (
        reference.padding in padded
        and candidate.padding in padded
        and len(set(reference.lengths) | set(candidate.lengths)) > 1
    )


def _whole(reference: Array, candidate: Array, *adjustments: str) -> Aligned:
    block = Block(reference=reference, candidate=candidate)
    return Aligned(blocks=(block,), shape=reference.shape, adjustments=adjustments)


def _choices(
    reference: Array, candidate: Array, reference_layout: Layout, candidate_layout: Layout
) -> Iterator[Aligned]:
    """Give the ways to read both sides that fit; whole rows go before last tokens."""
    readings = [
        (
            _without(left, candidate_layout, reference_layout),
            _without(right, reference_layout, candidate_layout),
        )
        for left in _readings(reference, reference_layout)
        for right in _readings(candidate, candidate_layout)
    ]
    fitting = [(left, right) for left, right in readings if _fits(left, right)]
    equal = [(left, right) for left, right in fitting if left.lengths == right.lengths]
    for wanted in (True, False):
        both = [pair for pair in equal if {side.whole_rows for side in pair} == {wanted}]
        if both:
            yield from (_join(left, right, last=False) for left, right in both)
            return
    for left, right in fitting:
        if left.whole_rows != right.whole_rows:
            yield _join(left, right, last=True)


def _without(rows: _Rows, other: Layout, own: Layout) -> _Rows:
    """Leave out the tokens at each row's start that the other side lacks."""
    if not other.skipped or own.step or not rows.whole_rows:
        return rows
    have = own.skipped or (0,) * len(own.lengths)
    if not len(other.skipped) == len(have) == len(rows.rows):
        return rows  # other batches, which do not fit each other anyway
    lost = [max(theirs - mine, 0) for theirs, mine in zip(other.skipped, have, strict=True)]
    cut = tuple(row[first:] for row, first in zip(rows.rows, lost, strict=True))
    return _Rows(rows=cut, source=f"{rows.source} without what was cached", whole_rows=True)


def _fits(left: _Rows, right: _Rows) -> bool:
    if len(left.rows) != len(right.rows):
        return False
    if left.trailing == right.trailing:
        return True
    # Heads may be flat on one side: [tokens, N * D] and [tokens, N, D].
    flat = 1 in (len(left.trailing), len(right.trailing))
    return flat and math.prod(left.trailing) == math.prod(right.trailing)


def _readings(array: Array, layout: Layout) -> Iterator[_Rows]:
    """Give the ways in which a tensor can hold the rows."""
    lengths, step = layout.held(), layout.step
    if not lengths or array.ndim == 0:
        return
    now = lengths if step == 0 else (1,) * len(lengths)
    source = f"{list(array.shape)}"
    if layout.padding in _PADDED:
        yield from _padded_readings(array, layout, source)
    else:
        yield from _ragged_readings(array, now, source)
    if array.shape[0] == len(lengths) and max(_all_tokens(layout)) > 1:
        rows = tuple(array[row : row + 1] for row in range(len(lengths)))
        yield _Rows(rows=rows, source=source, whole_rows=False)


def _ragged_readings(array: Array, lengths: tuple[int, ...], source: str) -> Iterator[_Rows]:
    """Cut the rows out of [tokens, ...]; Transformers models on vLLM have [1, tokens, ...]."""
    flat = array[0] if array.shape[:2] == (1, sum(lengths)) else array
    if flat.shape[0] == sum(lengths):
        ends = accumulate(lengths)
        rows = tuple(flat[end - n : end] for end, n in zip(ends, lengths, strict=True))
        yield _Rows(rows=rows, source=source)


def _all_tokens(layout: Layout) -> tuple[int, ...]:
    """Give the tokens a row has by this step, those generated before it included."""
    return tuple(n + layout.step for n in layout.lengths)


def _padded_readings(array: Array, layout: Layout, source: str) -> Iterator[_Rows]:
    tokens = _all_tokens(layout)
    shared = layout.padding is not Padding.LEFT and array.shape[:2] == (1, max(tokens))
    if shared and len(tokens) > 1 and array.ndim > 2:  # such as the embeddings of positions
        yield _Rows(rows=tuple(array[0, :n] for n in tokens), source=f"{source}, shared by rows")
    if array.ndim < 2 or array.shape[0] != len(layout.lengths):
        return
    for axis in (1, 2) if array.ndim == 4 else (1,):
        by_token = array.swapaxes(1, axis)  # [B, S, ...]
        if by_token.shape[1] == max(tokens):
            rows = tuple(
                by_token[row, _valid(max(tokens), n, layout.padding)]
                for row, n in enumerate(tokens)
            )
            how = source if axis == 1 else f"{source} with heads and tokens swapped"
            yield _Rows(rows=rows, source=how)
        elif layout.step > 0 and by_token.shape[1] == 1:
            yield _Rows(rows=tuple(by_token), source=source)
            return  # with one token the order of heads and tokens makes no difference


def _valid(width: int, length: int, padding: Padding | None) -> slice:
    return slice(width - length, width) if padding is Padding.LEFT else slice(0, length)


def _join(left: _Rows, right: _Rows, *, last: bool) -> Aligned:
    blocks: list[Block] = []
    origin = 0
    for reference, candidate in zip(left.rows, right.rows, strict=True):
        if last:
            reference, candidate = reference[-1:], candidate[-1:]
        if left.trailing != right.trailing:
            candidate = candidate.reshape(candidate.shape[0], *left.trailing)
        if reference.shape[0] or not blocks:
            blocks.append(Block(reference=reference, candidate=candidate, origin=origin))
        origin += reference.shape[0]
    return Aligned(
        blocks=tuple(blocks),
        shape=(origin, *left.trailing),
        adjustments=tuple(_describe(left, right, last=last)),
    )


def _describe(left: _Rows, right: _Rows, *, last: bool) -> Iterator[str]:
    count = len(left.rows)
    sequences = f"{count} sequence{'s' if count > 1 else ''}"
    if last:
        longer, side = (left, "reference") if left.whole_rows else (right, "candidate")
        yield f"last token of each of {sequences} taken from {side} {longer.source}"
    else:
        lengths = ", ".join(map(str, left.lengths[:_SHOWN_LENGTHS]))
        lengths += ", ..." if count > _SHOWN_LENGTHS else ""
        sources = f"reference {left.source} and candidate {right.source}"
        yield f"rows of {sequences} ({lengths} tokens) taken from {sources}"
    if left.trailing != right.trailing:
        yield f"candidate's {list(right.trailing)} a token read as {list(left.trailing)}"


def _reshaped(reference: Array, candidate: Array, allow_reshape: bool) -> Aligned | ShapeDiffers:
    shapes = f"{list(reference.shape)} and {list(candidate.shape)}"
    stripped = _without_leading_ones(reference.shape), _without_leading_ones(candidate.shape)
    if stripped[0] == stripped[1]:
        text = f"leading dimensions of 1 left out of {shapes}"
        return _whole(reference.reshape(stripped[0]), candidate.reshape(stripped[0]), text)
    if reference.size != candidate.size:
        return ShapeDiffers(reason=f"{reference.size} and {candidate.size} elements")
    if not allow_reshape:
        return ShapeDiffers(
            reason=f"equal number of elements ({reference.size}); "
            "--allow-reshape compares them in row-major order"
        )
    text = f"candidate reshaped from {list(candidate.shape)} to {list(reference.shape)}"
    return _whole(reference, candidate.reshape(reference.shape), text)


def _without_leading_ones(shape: Shape) -> Shape:
    start = 0
    while start < len(shape) and shape[start] == 1:
        start += 1
    return tuple(shape[start:])
