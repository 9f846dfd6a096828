"""Whether a dump's tensors are of the rows that its manifest tells.

Legend: B rows, S sequence.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from comparison.numerics.dtypes import Array
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest, Padding
from comparison.store.dump import Dump
from diagnosis.given_inputs import TOKEN_IDS, inputs_of_model

_MASK = "attention_mask"


def require_fit(dump: Dump, *, fed: bool) -> None:
    """Refuse a dump whose tensors are of other rows than its manifest's.

    Args:
        dump: with what each step computed, as `with_stretches` gives it.
        fed: whether the tokens are needed that later steps were fed with.

    Raises:
        BadInputError: it does not fit; what does not is said.
    """
    manifest = dump.manifest
    if manifest is None or not manifest.rows or not dump.complete:
        return
    found = [*_not_reached(manifest), *_other_batch(dump, manifest)]
    if fed:
        found += _not_fed(dump, manifest)
    if found:
        raise BadInputError(
            f"the tensors of {dump.path} do not fit its manifest: {'; '.join(found)}; dump it again"
        )


def _not_reached(manifest: Manifest) -> Iterator[str]:
    """Name prompts whose end no step computed: what lies before it may be cached, not the end."""
    if not manifest.stretches:
        return
    ends = [0] * len(manifest.rows)
    for stretch in (stretch for step in manifest.stretches for stretch in step):
        ends[stretch.row] = max(ends[stretch.row], stretch.first + stretch.count)
    for number, (row, end) in enumerate(zip(manifest.rows, ends, strict=True)):
        if end < len(row.token_ids):
            yield (
                f"row {number} has {len(row.token_ids)} tokens by the manifest, the steps computed "
                f"{end}, with those generated"
            )


def _other_batch(dump: Dump, manifest: Manifest) -> Iterator[str]:
    """Hold what the model was given in a padded prefill against the rows."""
    ids = _given(dump, *TOKEN_IDS)
    if manifest.stretches or manifest.padding is Padding.RAGGED or ids is None or ids.ndim != 2:
        return
    lengths = [len(row.token_ids) for row in manifest.rows]
    if len(ids) != len(lengths):
        yield f"{len(lengths)} rows by the manifest, {len(ids)} in what the model was given"
    elif ids.shape[1] != max(lengths):
        yield _counts(lengths.index(max(lengths)), max(lengths), ids.shape[1])
    else:
        mask = _given(dump, _MASK)
        unlike = list(_other_lengths(mask, ids, lengths))
        yield from unlike or _other_ids(mask, ids, manifest)


def _other_lengths(mask: Array | None, ids: Array, lengths: list[int]) -> Iterator[str]:
    if mask is None or mask.shape != ids.shape:
        return
    for number, (length, count) in enumerate(
        zip(lengths, np.count_nonzero(mask, axis=1).tolist(), strict=True)
    ):
        if count != length:
            yield _counts(number, length, count)


def _other_ids(mask: Array | None, ids: Array, manifest: Manifest) -> Iterator[str]:
    """Name the first row whose token ids are others than the model was given."""
    for number, row in enumerate(manifest.rows):
        length = len(row.token_ids)
        if mask is not None and mask.shape == ids.shape:
            given = ids[number][mask[number] != 0]
        elif manifest.padding is Padding.LEFT:
            given = ids[number][ids.shape[1] - length :]
        else:
            given = ids[number][:length]
        if given.tolist() != list(row.token_ids):
            yield f"row {number} has other token ids by the manifest than the model was given"
            return


def _not_fed(dump: Dump, manifest: Manifest) -> Iterator[str]:
    """Name rows that do not tell what later steps were fed with."""
    last = max(entry.step for entry in dump.entries)
    if manifest.stretches or not last:
        return
    for number, row in enumerate(manifest.rows):
        if len(row.generated) <= last:
            yield (
                f"steps up to {last} were dumped, and row {number} generated "
                f"{len(row.generated)} tokens by the manifest"
            )
            return


def _counts(row: int, told: int, found: int) -> str:
    return f"row {row} has {told} tokens by the manifest, the tensors are of {found}"


def _given(dump: Dump, *slots: str) -> Array | None:
    """Return what the model was given, None where the dump does not hold it."""
    entries = inputs_of_model(dump)
    for slot in slots:
        if slot in entries:
            try:
                return np.asarray(dump.read(entries[slot]))
            except BadInputError:  # it is listed among the dump's problems
                return None
    return None
