"""JSON that is damaged where it means something: values, keys, and whole subtrees."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.fuzz.steps import Steps

# In place of any value, as JSON text.
_HOSTILE = (
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "-0.0",
    "1e999",
    "NaN",
    "-Infinity",
    str(2**31),
    str(2**60),
    str(2**63),
    str(2**64),
    "9" * 400,
    "9" * 5000,
    '""',
    '"0"',
    '"float32"',
    '"F32"',
    '"\\ud800"',
    '"\\u0000"',
    '"\\u001b[31mred\\u001b]0;t\\u0007"',
    '"../../../etc/passwd"',
    '"/dev/zero"',
    '"x.safetensors"',
    '"torch.Size([2, 3])"',
    '"torch.Size([' + "9" * 17 + ', 9])"',
    f'"{"n" * 3000}"',
    "[]",
    "{}",
    "[[]]",
    "[0]",
    "[-1]",
    "[" + ",".join(["1"] * 65) + "]",
    f"[{2**40},{2**40}]",
    f"[0,{2**62}]",
    "[0,0]",
    "[1e3]",
    "[true]",
    '{"a":1,"a":2}',
    "[" * 200 + "]" * 200,
    "[" * 3000 + "]" * 3000,
    '{"a":' * 3000 + "1" + "}" * 3000,
)
_KEYS = (
    "",
    "a",
    "shape",
    "dtype",
    "data_offsets",
    "__metadata__",
    "\x1b[31m",
    "\ud800",
    "k" * 3000,
)
_MOST_DEPTH = 12


@dataclass(slots=True)
class _Object:
    """An object that may hold a key twice."""

    items: list[tuple[str, Any]]


@dataclass(slots=True)
class _Text:
    """A value as it is spelled."""

    text: str


def damaged_json(text: str, steps: Steps) -> str:
    """Change up to seven values of a JSON text, which must be valid."""
    tree = _tree(json.loads(text, object_pairs_hook=_Object))
    for _ in range(steps.below(8)):
        tree = _changed(tree, steps, 0)
    return _spelled(tree)


def _tree(value: Any) -> Any:
    match value:
        case _Object(items=items):
            return _Object([(key, _tree(item)) for key, item in items])
        case list():
            return [_tree(item) for item in value]
        case _:
            return _Text(json.dumps(value))


def _changed(value: Any, steps: Steps, depth: int) -> Any:
    """Change this value, or one in it."""
    items = value.items if isinstance(value, _Object) else value
    if isinstance(value, _Text) or not items or depth > _MOST_DEPTH or steps.below(8) == 7:
        return _Text(steps.one_of(_HOSTILE))
    at = steps.below(len(items))
    match steps.below(8):
        case 0:
            del items[at]
        case 1:
            items.insert(steps.below(len(items)), items[at])
        case 2 if isinstance(value, _Object):
            items[at] = (steps.one_of(_KEYS), items[at][1])
        case 3:
            other = steps.below(len(items))
            items[at], items[other] = items[other], items[at]
        case 4 if isinstance(value, _Object):
            items[at] = (items[at][0], items[steps.below(len(items))][1])
        case _ if isinstance(value, _Object):
            items[at] = (items[at][0], _changed(items[at][1], steps, depth + 1))
        case _:
            items[at] = _changed(items[at], steps, depth + 1)
    return value


def _spelled(value: Any) -> str:
    match value:
        case _Text(text=text):
            return text
        case _Object(items=items):
            return "{" + ",".join(f"{json.dumps(k)}:{_spelled(v)}" for k, v in items) + "}"
        case _:
            return "[" + ",".join(map(_spelled, value)) + "]"
