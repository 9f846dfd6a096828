"""Whether a decorator, a body or a mark skips a test, always or on a condition, and why."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from utils.skipped_tests.source_file import FunctionNode, TestFile

_ALWAYS: Final = frozenset({"unittest.skip", "unittest.case.skip", "pytest.mark.skip"})
_ON_CONDITION: Final = {
    "unittest.skipIf": True,
    "unittest.case.skipIf": True,
    "unittest.skipUnless": False,
    "unittest.case.skipUnless": False,
    "pytest.mark.skipif": True,
}
# transformers.testing_utils: what its decorators come to
_ALWAYS_LAST: Final = frozenset({"tooslow"})
_CONDITION_LAST: Final = re.compile(
    r"require_\w+|require[A-Z]\w*|slow|nightly|skip_?(if|unless)_?\w*"
)
_EXCEPTIONS: Final = ("SkipTest", "pytest.skip.Exception")
_DEPTH: Final = 5  # of names that stand for names


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A reason not to run.

    Attributes:
        is_certain: it skips on every machine.
        reason: what was given as the reason, or the condition; "" where nothing was given.
    """

    is_certain: bool
    reason: str


def decorator_skips(decorators: Iterable[ast.expr], file: TestFile) -> list[Skip]:
    """Find what the decorators of a function or class skip."""
    found = (_decorator_skip(decorator, file, _DEPTH) for decorator in decorators)
    return [skip for skip in found if skip is not None]


def mark_skips(statements: Iterable[ast.stmt], file: TestFile) -> list[Skip]:
    """Find what `pytestmark = ...` of a module or class skips."""
    found: list[Skip] = []
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                marks = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                found += decorator_skips(marks, file)
    return found


def body_skip(body: list[ast.stmt], file: TestFile) -> Skip | None:
    """Find what the statements of a test skip: always, or on some of their ways."""
    perhaps: Skip | None = None
    may_leave = False
    for node in body:
        skip = _statement_skip(node, file)
        if skip is not None and skip.is_certain and not may_leave:
            return skip
        perhaps = perhaps or _uncertain(skip)
        if isinstance(node, ast.Return | ast.Raise):
            break
        may_leave = may_leave or any(isinstance(below, ast.Return) for below in _within(node))
    return perhaps


def is_empty(function: FunctionNode) -> bool:
    """Tell whether a test does nothing: no statement but pass, a constant or a bare return."""
    return all(
        isinstance(node, ast.Pass)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Return) and _is_none(node.value))
        for node in function.body
    )


def skip_of_value(value: ast.expr, file: TestFile) -> Skip | None:
    """Find what `test_x = unittest.skip("...")(...)` skips."""
    return _decorator_skip(value.func, file, _DEPTH) if isinstance(value, ast.Call) else None


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _decorator_skip(node: ast.expr, file: TestFile, depth: int) -> Skip | None:
    call = node if isinstance(node, ast.Call) else None
    target = call.func if call else node
    name = file.dotted(target)
    last = name.rpartition(".")[2]
    if name in _ALWAYS or last in _ALWAYS_LAST:
        return Skip(is_certain=True, reason=_reason(call, file, position=0))
    if name in _ON_CONDITION:
        return _condition(call, file, name=last, skips_when=_ON_CONDITION[name])
    if isinstance(target, ast.Name) and target.id in file.assigned and depth:
        return _decorator_skip(file.assigned[target.id], file, depth - 1)
    if _CONDITION_LAST.fullmatch(last):
        return Skip(is_certain=False, reason=f"{last}{_arguments(call)}")
    return None


def _arguments(call: ast.Call | None) -> str:
    return "(" + ast.unparse(call).partition("(")[2] if call else ""


def _condition(
    call: ast.Call | None, file: TestFile, *, name: str, skips_when: bool
) -> Skip | None:
    given = _argument(call, "condition", 0)
    reason = _reason(call, file, position=1)
    if isinstance(given, ast.Constant) and not isinstance(given.value, str):
        return Skip(is_certain=True, reason=reason) if bool(given.value) is skips_when else None
    condition = ast.unparse(given) if given else ""
    text = f"{name}({condition})"
    return Skip(is_certain=False, reason=f"{text}: {reason}" if reason else text)


def _argument(call: ast.Call | None, keyword: str, position: int) -> ast.expr | None:
    if call is None:
        return None
    named = [given.value for given in call.keywords if given.arg == keyword]
    return next(iter([*named, *call.args[position : position + 1]]), None)


def _reason(call: ast.Call | None, file: TestFile, *, position: int) -> str:
    for keyword in ("reason", "msg"):
        given = _argument(call, keyword, position)
        if given is not None:
            return _text(given, file, _DEPTH)
    return ""


def _text(node: ast.expr, file: TestFile, depth: int) -> str:
    """Write a reason as its reader sees it; what only a run knows stays as in the source."""
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


def _statement_skip(node: ast.stmt, file: TestFile) -> Skip | None:
    match node:
        case ast.Expr(value=value) | ast.Return(value=ast.expr() as value):
            return _skip_call(value, file) or _uncertain(_skip_within(node, file))
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
    return _uncertain(_skip_within(node, file))


def _branch_skip(node: ast.If, file: TestFile) -> Skip | None:
    if isinstance(node.test, ast.Constant):
        return body_skip(node.body if node.test.value else node.orelse, file)
    branches = [body_skip(body, file) for body in (node.body, node.orelse)]
    if all(skip is not None and skip.is_certain for skip in branches):
        return branches[0]
    found = next((skip for skip in branches if skip is not None), None)
    if found is None:
        return None
    condition = f"if {ast.unparse(node.test)}"
    reason = f"{condition}: {found.reason}" if found.reason else condition
    return Skip(is_certain=False, reason=reason)


def _any_skip(bodies: Iterable[list[ast.stmt]], file: TestFile) -> Skip | None:
    found = (body_skip(body, file) for body in bodies)
    return next((_uncertain(skip) for skip in found if skip is not None), None)


def _skip_within(node: ast.stmt, file: TestFile) -> Skip | None:
    calls = (_skip_call(below, file) for below in _within(node) if isinstance(below, ast.Call))
    return next((skip for skip in calls if skip is not None), None)


def _skip_call(node: ast.expr, file: TestFile) -> Skip | None:
    if not isinstance(node, ast.Call):
        return None
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "skipTest"
    if is_method or file.dotted(node.func) == "pytest.skip":
        return Skip(is_certain=True, reason=_reason(node, file, position=0))
    return None


def _raised_skip(raised: ast.expr, file: TestFile) -> Skip | None:
    call = raised if isinstance(raised, ast.Call) else None
    if file.dotted(call.func if call else raised).endswith(_EXCEPTIONS):
        return Skip(is_certain=True, reason=_reason(call, file, position=0))
    return None


def _uncertain(skip: Skip | None) -> Skip | None:
    return None if skip is None else Skip(is_certain=False, reason=skip.reason)


def _within(node: ast.stmt) -> Iterator[ast.AST]:
    """Walk a statement, but not into functions, which run when they are called, if ever."""
    todo: deque[ast.AST] = deque([node])
    while todo:
        here = todo.popleft()
        if not isinstance(here, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield here
            todo.extend(ast.iter_child_nodes(here))
