"""What an oracle's `prepare` returns is checked before anything is built."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from comparison.schema.errors import BadInputError, EngineError
from test_common.images import LoadedImage, default_images
from test_common.prepared_vision import prepared_vision
from test_common.vision_inputs import VisionInputs

PICTURES = default_images(1)
GOOD = VisionInputs(
    images=PICTURES, texts=("a", None), model_inputs={"pixel_values": np.ones((2, 3))}
)
ROWS = [[1, 2, 3], [4]]


@dataclass
class Oracle:
    """Returns what it is given."""

    result: Any
    label: str = "mine"

    def prepare(
        self, prompts: Sequence[Any], images: Sequence[LoadedImage], *, max_length: int | None
    ) -> Any:
        return self.result(max_length) if callable(self.result) else self.result


@dataclass
class Documented:
    """Has the two arguments that the documentation names."""

    def prepare(self, prompts: Sequence[Any], images: Sequence[LoadedImage]) -> Any:
        return ROWS, replace(GOOD, images=tuple(images))


def prepared(oracle: Any, max_length: int | None = None) -> tuple[list[list[int]], VisionInputs]:
    return prepared_vision(oracle, ["a", [4]], PICTURES, max_length=max_length)


def test_what_is_right_passes() -> None:
    assert prepared(Oracle((ROWS, GOOD))) == (ROWS, GOOD)


def test_two_arguments_are_enough_and_the_limit_holds() -> None:
    assert prepared(Documented(), max_length=3)[0] == ROWS
    with pytest.raises(EngineError, match="row 0 has 3 tokens, at most 2 fit"):
        prepared(Documented(), max_length=2)


def test_the_limit_is_given_to_who_takes_it() -> None:
    seen = []

    def result(max_length: int | None) -> Any:
        seen.append(max_length)
        return ROWS, GOOD

    prepared(Oracle(result), max_length=7)
    assert seen == [7]


def test_arrays_and_tensors_become_lists_and_arrays() -> None:
    inputs = {"pixel_values": torch.ones(2, 3), "sizes": [[1, 2], [3, 4]]}
    rows = [np.array([1, 2, 3]), torch.tensor([4])]
    found, vision = prepared(Oracle((rows, replace(GOOD, model_inputs=inputs))))
    assert found == ROWS
    assert all(isinstance(value, np.ndarray) for value in vision.model_inputs.values())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "expected a list of rows, found None"),
        ("ab", "expected a list of rows, found 'ab'"),
        (ROWS[:1], "expected 2 rows, one a prompt, found 1"),
        (ROWS * 2, "expected 2 rows, one a prompt, found 4"),
        (["a", "b"], "row 0 must be a list of token ids, found 'a'; row 1 must be"),
        ([[1.5], [2]], r"row 0 must be a list of token ids, found \[1\.5\]"),
        ([[], [2]], "row 0 is empty"),
        ([[1], [-2]], "row 1 has the token id -2, expected 0 or more"),
        ([1, 2], "row 0 must be a list of token ids, found 1"),
    ],
)
def test_rows_that_are_none(rows: Any, message: str) -> None:
    with pytest.raises(EngineError, match=f"^oracle mine: prepare must return .*: {message}"):
        prepared(Oracle((rows, GOOD)))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "it returned None"),
        ((ROWS,), r"it returned \(\[\[1, 2, 3\], \[4\]\],\)"),
        ((1, 2, 3), r"it returned \(1, 2, 3\)"),
        ((ROWS, None), r"expected VisionInputs\(images, .*\), found None"),
        ((ROWS, {}), r"expected VisionInputs\(images, .*\), found \{\}"),
        ((ROWS, VisionInputs), r"expected VisionInputs\(images, .*\), found <class"),
    ],
)
def test_results_of_another_kind(result: Any, message: str) -> None:
    with pytest.raises(EngineError, match=f"^oracle mine: prepare must return .*: {message}"):
        prepared(Oracle(result))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"images": ()}, r"images must be those it was given, found \(\)"),
        ({"images": ("a.png",)}, "images must be LoadedImages"),
        ({"texts": ()}, "texts must have 2 entries, one a row"),
        ({"texts": (1, 2)}, "texts must be texts or None"),
        ({"notes": None}, "notes must be a list of texts, found None"),
        ({"notes": (object(),)}, "notes must be a list of texts"),
        ({"model_inputs": None}, "model_inputs must be a dictionary of names to arrays"),
        ({"model_inputs": {}}, "no picture reaches the model: model_inputs is empty"),
        ({"model_inputs": {"pixel_values": "abc"}}, "must be an array of numbers, found 'abc'"),
        ({"model_inputs": {"pixel_values": [[1], [2, 3]]}}, "must be an array of numbers"),
        ({"model_inputs": {"pixel_values": []}}, "'pixel_values' is an empty array"),
        ({"model_inputs": {"input_ids": np.ones(2)}}, "'input_ids' is given by the run itself"),
        ({"model_inputs": {3: np.ones(2)}}, "model_inputs 3 is no name of an argument"),
    ],
)
def test_fields_of_another_kind(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=f"^oracle mine: prepare must return .*{message}"):
        prepared(Oracle((ROWS, replace(GOOD, **fields))))


def raising(error: BaseException) -> Callable[[Any], Any]:
    def prepare(max_length: Any) -> Any:
        raise error

    return prepare


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), SystemExit(0), StopIteration()])
def test_what_is_raised_names_the_oracle(error: BaseException) -> None:
    with pytest.raises(EngineError, match=f"^oracle mine: prepare raised {type(error).__name__}"):
        prepared(Oracle(raising(error)))


def test_our_own_errors_pass() -> None:
    with pytest.raises(BadInputError, match=r"^no such prompt$"):
        prepared(Oracle(raising(BadInputError("no such prompt"))))
