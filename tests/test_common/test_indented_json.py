"""test_common.indented_json against json.dumps."""

import json
from typing import Any

import pytest

from test_common.indented_json import indented_json


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"a": {}, "b": [], "c": [[]], "d": None},
        {"module_path": 'a"b\\c\n\t', "ä模": ["\ud800", "\x00", "x" * 500]},
        {1: "a", None: "b", False: "c", 2.5: "d"},
        [{"a": [1, True, None, 2.5, "x"]}, "y"],
    ],
    ids=str,
)
def test_text_is_that_of_the_library(value: Any) -> None:
    assert indented_json(value) == json.dumps(value, indent=2)


@pytest.mark.parametrize("value", [{(1, 2): "a"}, [object()]], ids=["key", "value"])
def test_what_json_has_not_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        indented_json(value)
