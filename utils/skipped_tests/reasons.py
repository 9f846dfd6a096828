"""Reasons of skips, as their readers see them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from utils.skipped_tests.source_file import TestFile

NAMES_DEEP: Final = 5  # of names that stand for names
_TOO_DEEP: Final = "(too deep to be shown)"


def argument_of(call: ast.Call | None, keyword: str, position: int) -> ast.expr | None:
    """Find what a call is given, by keyword or by position; None for nothing."""
    if call is None:
        return None
    named = [given.value for given in call.keywords if given.arg == keyword]
    return next(iter([*named, *call.args[position : position + 1]]), None)


def reason_of(call: ast.Call | None, file: TestFile, *, position: int) -> str:
    """Write the reason that a call is given; "" where it is given none."""
    for keyword in ("reason", "msg"):
        given = argument_of(call, keyword, position)
        if given is not None:
            try:
                return _text(given, file, NAMES_DEEP)
            except RecursionError:  # a sum of hundreds
                return _TOO_DEEP
    return ""


def source_text(node: ast.AST) -> str:
    """Write an expression as Python."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return _TOO_DEEP


def _text(node: ast.expr, file: TestFile, depth: int) -> str:
    """Write a reason; what only a run knows stays as in the source."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(_text(value, file, depth) for value in values)
        case ast.FormattedValue(value=value):
            text = _text(value, file, depth)
            return text if isinstance(value, ast.Constant) else "{" + text + "}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, file, depth) + _text(right, file, depth)
        case ast.Name(id=name) if depth and isinstance(file.assigned.get(name), ast.Constant):
            return _text(file.assigned[name], file, depth - 1)
    return ast.unparse(node)
