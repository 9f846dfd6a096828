"""What the model as a whole was given besides token ids, as far as a dump holds it.

Legend: B rows, S sequence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from comparison.align.token_rows import TokenRow, row_readings
from comparison.numerics.dtypes import Array
from comparison.schema.diagnosis import InputDifference
from comparison.schema.errors import BadInputError
from comparison.schema.tensor_entry import TensorEntry
from comparison.schema.tensor_names import parse_tensor_name
from comparison.store.dump import Dump
from diagnosis.dump_layout import layout_of
from diagnosis.picture_changes import picture_change

ROOT = "model"  # as hooks on Torch call it
TOKEN_IDS = ("input_ids", "tokens", "token_ids")
_PICTURES = re.compile(r"pixel|image|video|grid_thw")
_KINDS = {"position_ids": "positions", "attention_mask": "mask"}
_NARROW = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # half a unit of what a value was rounded to
_FINE = 2.0**-22


def pictures_of(dump: Dump) -> dict[str, Array]:
    """Return what the model was given of pictures, by keyword, for the whole batch."""
    return {
        slot: np.asarray(dump.read(entry))
        for slot, entry in inputs_of_model(dump).items()
        if _PICTURES.search(slot)
    }


def pictures_by_row(pictures: Mapping[str, Array], rows: int) -> list[dict[str, Array]]:
    """Say which of the pictures belong to which row.

    Raises:
        BadInputError: there are several rows, and the arrays do not tell.
    """
    if rows == 1 or not pictures:
        return [dict(pictures) for _ in range(rows)]
    shared = [name for name, array in pictures.items() if array.shape[:1] != (rows,)]
    if shared:
        raise BadInputError(
            f"{', '.join(shared)}: expected one entry a row to replay {rows} rows with pictures, "
            f"found {list(pictures[shared[0]].shape)}; give one prompt with its pictures"
        )
    return [{name: array[row : row + 1] for name, array in pictures.items()} for row in range(rows)]


def require_pictures(dump: Dump, pictures: Mapping[str, Array]) -> None:
    """Refuse a prompt with pictures of which none are at hand.

    Raises:
        BadInputError: the token ids hold places for pictures, and no dump holds any.
    """
    manifest = dump.manifest
    if pictures or manifest is None:
        return
    names = ("image_token_id", "image_token_index")
    tokens = {manifest.config.get(name) for name in names} - {None}
    if any(tokens & set(row.token_ids) for row in manifest.rows):
        raise BadInputError(
            "the prompt holds places for pictures, and neither dump holds what the model was given "
            "there (model-input_pixel_values): capture the inputs of the whole model too, or "
            "compare the dumps with compare_tensors"
        )


def given_differences(reference: Dump, candidate: Dump) -> Iterator[InputDifference]:
    """Yield how positions, masks and pictures differ that both runs gave the model in the prefill.

    Args:
        reference: of the reference's run.
        candidate: of the candidate's run.
    """
    mine, theirs = inputs_of_model(reference), inputs_of_model(candidate)
    for slot in (slot for slot in mine if slot in theirs):
        try:
            left, right = reference.read(mine[slot]), candidate.read(theirs[slot])
        except BadInputError:  # it is listed among the dump's problems
            continue
        if _PICTURES.search(slot):
            yield from _pixels(slot, np.asarray(left), np.asarray(right))
        elif slot in _KINDS:
            rows = _first_rows(reference, left), _first_rows(candidate, right)
            yield from _by_token(slot, *rows)


def inputs_of_model(dump: Dump) -> dict[str, TensorEntry]:
    """Return the inputs of the whole model in the first step, by keyword."""
    found: dict[str, TensorEntry] = {}
    for entry in dump.entries:
        parsed = parse_tensor_name(entry.name)
        if parsed is None or entry.step or parsed.call > 1 or parsed.side != "input":
            continue
        if parsed.module == ROOT and parsed.slot and entry not in dump.problems:
            found.setdefault(parsed.slot, entry)
    return found


def _pixels(slot: str, left: Array, right: Array) -> Iterator[InputDifference]:
    if left.shape != right.shape:
        yield InputDifference(
            kind="preprocessing",
            what=f"the shape of {slot} (preprocessing of pictures)",
            reference=str(list(left.shape)),
            candidate=str(list(right.shape)),
            decisive=True,
        )
        return
    unit = max(_NARROW.get(array.dtype.name, _FINE) for array in (left, right))
    a, b = (array.astype(np.float64) for array in (left, right))
    off = ~(np.abs(a - b) <= unit * np.maximum(np.abs(a), np.abs(b)))
    if off.any():
        at = np.unravel_index(int(np.argmax(np.nan_to_num(np.abs(a - b), nan=np.inf))), a.shape)
        where = ", ".join(str(int(index)) for index in at)
        change = picture_change(a, b)
        yield InputDifference(
            kind="preprocessing",
            what=f"{slot} in {int(off.sum())} of {off.size} values, most at [{where}] "
            "(preprocessing of pictures)",
            reference=f"{a[at]:.6g}",
            candidate=f"{b[at]:.6g}{f': {change}' if change else ''}",
            decisive=True,
        )


def _first_rows(dump: Dump, array: Array) -> tuple[TokenRow, ...]:
    return next(row_readings(np.asarray(array), layout_of(dump, 0)), ())


def _by_token(
    slot: str, left: tuple[TokenRow, ...], right: tuple[TokenRow, ...]
) -> Iterator[InputDifference]:
    for number, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        _, a, b = np.intersect1d(mine.positions, theirs.positions, return_indices=True)
        if mine.values.shape[1:] != theirs.values.shape[1:]:
            continue
        unlike = mine.values[a] != theirs.values[b]
        off = np.flatnonzero(unlike.reshape(len(a), -1).any(axis=-1))
        if off.size:
            first = int(off[0])
            yield InputDifference(
                kind=_KINDS[slot],
                what=f"{slot} of row {number}, from token {int(mine.positions[a][first])} on",
                reference=str(mine.values[a][first : first + 4].tolist()),
                candidate=str(theirs.values[b][first : first + 4].tolist()),
                decisive=True,
            )
