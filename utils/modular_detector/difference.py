"""Says in a few words what tells two definitions apart that look alike."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice, zip_longest
from typing import Final

from utils.modular_detector.definitions import ModelingFile

_SHOWN: Final = 3
_LONGEST: Final = 60


def short_difference(base: tuple[ModelingFile, str], other: tuple[ModelingFile, str]) -> str:
    """Say what to change in one definition to get another.

    Args:
        base: the file and name of what is there.
        other: the file and name of what is wanted.

    Returns:
        For example "constant 1e-06 -> 1e-05; keyword bias=False missing"; "" where nothing differs
        but the names of the models.
    """
    trees = [_generic_tree(*base), _generic_tree(*other)]
    found = list(islice(dict.fromkeys(_differences(trees[0], trees[1])), _SHOWN + 1))
    more = ["..."] if len(found) > _SHOWN else []
    return "; ".join([*found[:_SHOWN], *more])


class _Generic(ast.NodeTransformer):
    """Calls the model "Model" in all names and strings."""

    def __init__(self, file: ModelingFile) -> None:
        self._generic = file.namer.generic

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and field != "type_comment":
                setattr(node, field, self._generic(value))
        return super().generic_visit(node)


def _generic_tree(file: ModelingFile, name: str) -> ast.stmt:
    copied = ast.parse(ast.unparse(file.nodes[name])).body[0]
    generic: ast.stmt = _Generic(file).visit(copied)
    return generic


def _differences(one: ast.AST, two: ast.AST) -> Iterator[str]:
    if type(one) is not type(two):
        yield f"{_text(one)} -> {_text(two)}"
        return
    if isinstance(one, ast.Call) and isinstance(two, ast.Call):
        yield from _call_differences(one, two)
        return
    for (field, value), (_, others) in zip(ast.iter_fields(one), ast.iter_fields(two), strict=True):
        if isinstance(value, ast.AST) and isinstance(others, ast.AST):
            yield from _differences(value, others)
        elif isinstance(value, list) and isinstance(others, list):
            yield from _list_differences(value, others)
        elif value != others:
            yield _value_difference(one, field, value, others)


def _value_difference(node: ast.AST, field: str, one: object, two: object) -> str:
    if isinstance(one, ast.AST | None) and isinstance(two, ast.AST | None):
        texts = [_text(value) if isinstance(value, ast.AST) else "nothing" for value in (one, two)]
        return f"{field} {texts[0]} -> {texts[1]}"
    if isinstance(node, ast.Constant):
        return f"constant {one!r:.{_LONGEST}} -> {two!r:.{_LONGEST}}"
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return f"name {one} -> {two}"
    return f"{one} -> {two}"


def _call_differences(one: ast.Call, two: ast.Call) -> Iterator[str]:
    yield from _differences(one.func, two.func)
    called = _text(one.func)
    for first, second in zip_longest(one.args, two.args):
        if first is None or second is None:
            what = "argument {} missing" if second is None else "argument {} added"
            yield f"{what.format(_text(first or second))} in {called}"
        else:
            yield from _differences(first, second)
    named = [{k.arg: k.value for k in call.keywords if k.arg} for call in (one, two)]
    for key in dict.fromkeys([*named[0], *named[1]]):
        first, second = named[0].get(key), named[1].get(key)
        if first is None or second is None:
            what = "missing" if second is None else "added"
            yield f"{key}={_text(first or second)} {what} in {called}"
        elif ast.dump(first) != ast.dump(second):
            yield f"{key}={_text(first)} -> {_text(second)}"


def _list_differences(one: Sequence[object], two: Sequence[object]) -> Iterator[str]:
    texts = [[_dump(item) for item in items] for items in (one, two)]
    if texts[0] == texts[1]:
        return
    if Counter(texts[0]) == Counter(texts[1]):
        moved = next(a for a, x, y in zip(one, *texts, strict=True) if x != y)
        yield f"order: {_text(moved)} moved"
        return
    matcher = SequenceMatcher(a=texts[0], b=texts[1], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            yield from _block_differences(one[a:b], two[c:d])


def _block_differences(one: Sequence[object], two: Sequence[object]) -> Iterator[str]:
    """Compare what stands at one place: in pairs if there are as many, else as a whole."""
    if len(one) == len(two):
        for first, second in zip(one, two, strict=True):
            if isinstance(first, ast.AST) and isinstance(second, ast.AST):
                yield from _differences(first, second)
            else:
                yield f"{first} -> {second}"
        return
    yield from (f"{_text(item)} missing" for item in one)
    yield from (f"{_text(item)} added" for item in two)


def _dump(item: object) -> str:
    return ast.dump(item) if isinstance(item, ast.AST) else repr(item)


def _text(item: object) -> str:
    """Write the first line of a node."""
    if isinstance(item, ast.operator | ast.cmpop | ast.unaryop | ast.boolop):
        return type(item).__name__
    if isinstance(item, ast.arguments | ast.stmt | ast.expr | ast.arg | ast.keyword | ast.alias):
        text = ast.unparse(item).strip().split("\n")[0]
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return type(item).__name__ if isinstance(item, ast.AST) else repr(item)
