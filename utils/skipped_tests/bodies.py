"""Whether the statements of a test, or of a file, skip it, always or on some of their ways."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from utils.skipped_tests.reasons import argument_of, reason_of, source_text
from utils.skipped_tests.skips import Skip, uncertain

if TYPE_CHECKING:
    from utils.skipped_tests.source_file import FunctionNode, TestFile

_EXCEPTIONS: Final = ("SkipTest", "pytest.skip.Exception")
_ALWAYS_THERE: Final = "torch"  # without it no test of a model runs


def body_skip(body: list[ast.stmt], file: TestFile) -> Skip | None:
    """Find what the statements of a test skip: always, or on some of their ways."""
    perhaps: Skip | None = None
    may_leave = False
    for node in body:
        skip = _statement_skip(node, file)
        if skip is not None and skip.is_certain and not may_leave:
            return skip
        perhaps = perhaps or uncertain(skip)
        if isinstance(node, ast.Return | ast.Raise):
            break
        may_leave = may_leave or any(isinstance(below, ast.Return) for below in _within(node))
    return perhaps


def is_empty(function: FunctionNode | ast.expr) -> bool:
    """Tell whether a test does nothing: no statement but pass, a constant or a bare return."""
    if isinstance(function, ast.Lambda):
        return isinstance(function.body, ast.Constant)
    if isinstance(function, ast.expr):
        return isinstance(function, ast.Constant)
    return all(
        isinstance(node, ast.Pass)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Return) and _is_none(node.value))
        for node in function.body
    )


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _statement_skip(node: ast.stmt, file: TestFile) -> Skip | None:
    match node:
        case ast.Expr(value=value) | ast.Return(value=ast.expr() as value):
            return _skip_call(value, file) or uncertain(_skip_within(node, file))
        case ast.Raise(exc=ast.expr() as raised):
            return _raised_skip(raised, file)
        case ast.If():
            return _branch_skip(node, file)
        case ast.With() | ast.AsyncWith():
            return body_skip(node.body, file)
        case ast.Try():
            return body_skip(node.body, file) or _any_skip(
                [node.finalbody, node.orelse, *(handler.body for handler in node.handlers)], file
            )
        case ast.For() | ast.AsyncFor() | ast.While():
            return _any_skip([node.body, node.orelse], file)
        case ast.Match():
            return _any_skip([case.body for case in node.cases], file)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return None
    return uncertain(_skip_within(node, file))


def _branch_skip(node: ast.If, file: TestFile) -> Skip | None:
    """Find a skip in one of the branches, or in all of them."""
    found = [(condition, body_skip(body, file)) for condition, body in _branches(node)]
    skips = [skip for _, skip in found]
    if len(found) == 1 and found[0][0] is None:
        return skips[0]
    if found[-1][0] is None and all(skip is not None and skip.is_certain for skip in skips):
        return skips[0]
    for condition, skip in found:
        if skip is not None:
            words = _when(condition, found[0][0] if len(found) == 2 else None)
            return Skip(is_certain=False, reason=f"{words}: {skip.reason}".removesuffix(": "))
    return None


def _branches(node: ast.If) -> Iterator[tuple[ast.expr | None, list[ast.stmt]]]:
    """Give the condition and the body of each branch that can be taken; `else` comes last."""
    rest: list[ast.stmt] = [node]
    while len(rest) == 1 and isinstance(rest[0], ast.If):  # not by recursion: `elif` has no limit
        here = rest[0]
        if not isinstance(here.test, ast.Constant):
            yield here.test, here.body
        elif here.test.value:
            yield None, here.body
            return
        rest = here.orelse
    yield None, rest


def _when(condition: ast.expr | None, sole: ast.expr | None) -> str:
    if condition is not None:
        return f"if {source_text(condition)}"
    return f"unless {source_text(sole)}" if sole is not None else "otherwise"


def _any_skip(bodies: Iterable[list[ast.stmt]], file: TestFile) -> Skip | None:
    found = (body_skip(body, file) for body in bodies)
    return next((uncertain(skip) for skip in found if skip is not None), None)


def _skip_within(node: ast.stmt, file: TestFile) -> Skip | None:
    calls = (_skip_call(below, file) for below in _within(node) if isinstance(below, ast.Call))
    return next((skip for skip in calls if skip is not None), None)


def _skip_call(node: ast.expr, file: TestFile) -> Skip | None:
    if not isinstance(node, ast.Call):
        return None
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "skipTest"
    name = file.dotted(node.func)
    if is_method or name == "pytest.skip":
        return Skip(is_certain=True, reason=reason_of(node, file, position=0))
    if name == "pytest.importorskip":
        return _import_skip(node, file)
    return None


def _import_skip(call: ast.Call, file: TestFile) -> Skip | None:
    module = argument_of(call, "modname", 0)
    if isinstance(module, ast.Constant) and module.value == _ALWAYS_THERE:
        return None
    reason = reason_of(call, file, position=2)
    return Skip(is_certain=False, reason=reason or source_text(call))


def _raised_skip(raised: ast.expr, file: TestFile) -> Skip | None:
    call = raised if isinstance(raised, ast.Call) else None
    if file.dotted(call.func if call else raised).endswith(_EXCEPTIONS):
        return Skip(is_certain=True, reason=reason_of(call, file, position=0))
    return None


def _within(node: ast.stmt) -> Iterator[ast.AST]:
    """Walk a statement, but not into functions, which run when they are called, if ever."""
    todo: deque[ast.AST] = deque([node])
    while todo:
        here = todo.popleft()
        if not isinstance(here, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield here
            todo.extend(ast.iter_child_nodes(here))
