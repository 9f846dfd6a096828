"""What an oracle's `prepare` returns, checked: it may be a user's, and return anything."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from comparison.schema.errors import EngineError
from test_common.error_text import shown
from test_common.images import LoadedImage
from test_common.oracle_errors import oracle_errors, oracle_label
from test_common.vision_inputs import VisionInputs

_MAX_LENGTH = "max_length"
_FIELDS = ("images", "texts", "model_inputs")
_NUMBERS = "biuf"  # numpy's kinds of dtypes
_GIVEN_BY_THE_RUN = ("input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache")


class Prepares(Protocol):
    """The part of an oracle that prepares prompts with pictures."""

    @property
    def prepare(self) -> Any:
        """Take prompts, images and, where it names it, max_length."""


def prepared_vision(
    oracle: Prepares,
    prompts: Sequence[str | Sequence[int]],
    images: Sequence[LoadedImage],
    *,
    max_length: int | None,
) -> tuple[list[list[int]], VisionInputs]:
    """Let an oracle prepare its rows, and check what it returns.

    Args:
        oracle: its `prepare` takes prompts and images, and may take `max_length`.
        prompts: a text, or its token ids, a row.
        images: the pictures; each row has all of them.
        max_length: greatest number of tokens a row, None for no limit.

    Returns:
        Token ids of each row, and the pictures with every input as a numpy array.

    Raises:
        EngineError: it raises anything that is no error of ours, or returns something else than
            rows of token ids and a `VisionInputs` that fit each other.
    """
    with oracle_errors(oracle, "prepare"):
        limit = {_MAX_LENGTH: max_length} if _takes_max_length(oracle.prepare) else {}
        result = oracle.prepare(prompts, images, **limit)
        return _checked(oracle, result, count=len(prompts), max_length=max_length)


def _takes_max_length(prepare: Any) -> bool:
    try:
        parameters = inspect.signature(prepare).parameters
    except (TypeError, ValueError):  # of a callable that does not say
        return True
    kinds = [parameter.kind for parameter in parameters.values()]
    return _MAX_LENGTH in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def _checked(
    oracle: Prepares, result: object, *, count: int, max_length: int | None
) -> tuple[list[list[int]], VisionInputs]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise _wrong(oracle, f"it returned {shown(result)}")
    rows, vision = result
    problems = _rows_problems(rows, count=count, max_length=max_length)
    problems += _vision_problems(vision, count=count)
    if problems:
        raise _wrong(oracle, "; ".join(problems))
    return [[operator.index(token) for token in row] for row in rows], VisionInputs(
        images=tuple(vision.images),
        texts=tuple(vision.texts),
        model_inputs={name: np.asarray(value) for name, value in vision.model_inputs.items()},
        notes=tuple(getattr(vision, "notes", ())),
    )


def _wrong(oracle: Prepares, problem: str) -> EngineError:
    return EngineError(
        f"oracle {oracle_label(oracle)}: prepare must return (token ids of each row, "
        f"VisionInputs(...)): {problem}"
    )


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _rows_problems(rows: Any, *, count: int, max_length: int | None) -> list[str]:
    if not _is_list(rows):
        return [f"expected a list of rows, found {shown(rows)}"]
    if len(rows) != count:
        return [f"expected {count} rows, one a prompt, found {len(rows)}"]
    found = (_row_problem(row, max_length) for row in rows)
    return [f"row {index} {problem}" for index, problem in enumerate(found) if problem]


def _row_problem(row: Any, max_length: int | None) -> str | None:
    try:
        ids = None if isinstance(row, str | bytes) else [operator.index(token) for token in row]
    except TypeError:
        ids = None
    if ids is None:
        return f"must be a list of token ids, found {shown(row)}"
    if not ids:
        return "is empty"
    if min(ids) < 0:
        return f"has the token id {min(ids)}, expected 0 or more"
    if max_length is not None and len(ids) > max_length:
        return f"has {len(ids)} tokens, at most {max_length} fit"
    return None


def _vision_problems(vision: Any, *, count: int) -> list[str]:
    if isinstance(vision, type) or not all(hasattr(vision, name) for name in _FIELDS):
        return [f"expected VisionInputs({', '.join(_FIELDS)}), found {shown(vision)}"]
    problems = []
    if not _is_list(vision.images) or not vision.images:
        problems.append(f"images must be those it was given, found {shown(vision.images)}")
    elif not all(isinstance(image, LoadedImage) for image in vision.images):
        problems.append(f"images must be LoadedImages, found {shown(vision.images)}")
    texts, notes = vision.texts, getattr(vision, "notes", ())
    if not _is_list(texts) or len(texts) != count:
        problems.append(f"texts must have {count} entries, one a row, found {shown(texts)}")
    elif not all(text is None or isinstance(text, str) for text in texts):
        problems.append(f"texts must be texts or None, found {shown(texts)}")
    if not _is_list(notes) or not all(isinstance(note, str) for note in notes):
        problems.append(f"notes must be a list of texts, found {shown(notes)}")
    return problems + _input_problems(vision.model_inputs)


def _input_problems(inputs: object) -> list[str]:
    if not isinstance(inputs, Mapping):
        return [f"model_inputs must be a dictionary of names to arrays, found {shown(inputs)}"]
    if not inputs:
        return ["no picture reaches the model: model_inputs is empty"]
    found = ((name, _input_problem(name, value)) for name, value in inputs.items())
    return [f"model_inputs {shown(name)} {problem}" for name, problem in found if problem]


def _input_problem(name: object, value: object) -> str | None:
    if not isinstance(name, str):
        return "is no name of an argument"
    if name in _GIVEN_BY_THE_RUN:
        return "is given by the run itself"
    try:
        array = np.asarray(value)
    # A tensor of a dtype that numpy lacks, lists of unlike lengths, anything.
    except Exception:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in _NUMBERS:
        return f"must be an array of numbers, found {shown(value)}"
    return "is an empty array" if array.size == 0 else None
