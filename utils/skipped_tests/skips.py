"""Whether a decorator or a mark skips a test, always or on a condition, and why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from utils.skipped_tests.reasons import NAMES_DEEP, argument_of, reason_of, source_text

if TYPE_CHECKING:
    from utils.skipped_tests.source_file import TestFile

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A reason not to run.

    Attributes:
        is_certain: it skips on every machine.
        reason: what was given as the reason, or the condition; "" where nothing was given.
    """

    is_certain: bool
    reason: str


def uncertain(skip: Skip | None) -> Skip | None:
    """Take a skip for one that may not be reached."""
    return None if skip is None else Skip(is_certain=False, reason=skip.reason)


def decorator_skips(decorators: Iterable[ast.expr], file: TestFile) -> list[Skip]:
    """Find what the decorators of a function or class skip."""
    found = (_decorator_skip(decorator, file, NAMES_DEEP) for decorator in decorators)
    return [skip for skip in found if skip is not None]


def mark_skips(statements: Iterable[ast.stmt], file: TestFile) -> list[Skip]:
    """Find what `pytestmark = ...` of a module or class skips; under an `if` it only may.

    Args:
        statements: of the module or class, those under an `if` inside of it.
        file: where they stand.
    """
    found: list[Skip] = []
    for node in statements:
        found += decorator_skips(_marks(node), file)
        if isinstance(node, ast.If | ast.Try):
            below = [
                skip for inner in _below(node) for skip in decorator_skips(_marks(inner), file)
            ]
            found += [Skip(is_certain=False, reason=skip.reason) for skip in below]
    return found


def skip_of_value(value: ast.expr, file: TestFile) -> Skip | None:
    """Find what `test_x = unittest.skip("...")(...)` skips."""
    return _decorator_skip(value.func, file, NAMES_DEEP) if isinstance(value, ast.Call) else None


def _marks(node: ast.stmt) -> list[ast.expr]:
    match node:
        case (
            ast.Assign(targets=[ast.Name(id="pytestmark")], value=ast.expr() as value)
            | ast.AnnAssign(target=ast.Name(id="pytestmark"), value=ast.expr() as value)
            | ast.AugAssign(target=ast.Name(id="pytestmark"), value=ast.expr() as value)
        ):
            return value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    return []


def _below(node: ast.stmt) -> Iterator[ast.stmt]:
    """Give the statements inside of one, at any depth."""
    todo: list[ast.AST] = [node]
    while todo:
        children = [
            child
            for child in ast.iter_child_nodes(todo.pop())
            if isinstance(child, ast.stmt | ast.ExceptHandler)
        ]
        yield from (child for child in children if isinstance(child, ast.stmt))
        todo += [child for child in children if not isinstance(child, ast.ClassDef)]


def _decorator_skip(node: ast.expr, file: TestFile, depth: int) -> Skip | None:
    call = node if isinstance(node, ast.Call) else None
    target = call.func if call else node
    name = file.dotted(target)
    last = name.rpartition(".")[2]
    if name in _ALWAYS or last in _ALWAYS_LAST:
        return Skip(is_certain=True, reason=reason_of(call, file, position=0))
    if name in _ON_CONDITION:
        return _condition(call, file, name=last, skips_when=_ON_CONDITION[name])
    meant = _meaning(target, call, file) if depth else None
    if meant is not None:
        return _decorator_skip(meant, file, depth - 1)
    if _CONDITION_LAST.fullmatch(last):
        return Skip(is_certain=False, reason=f"{last}{_arguments(call)}")
    return None


def _meaning(target: ast.expr, call: ast.Call | None, file: TestFile) -> ast.expr | None:
    """Find what a decorator of the file itself stands for."""
    if not isinstance(target, ast.Name):
        return None
    value = file.assigned.get(target.id)
    if value is not None:
        # `sk = pytest.mark.skip`, and then `@sk(reason="...")`
        again = call is not None and isinstance(value, ast.Name | ast.Attribute)
        return _called(value, call) if again and call is not None else value
    function = file.functions.get(target.id)
    last = function.body[-1] if function is not None else None
    if not isinstance(last, ast.Return) or last.value is None:
        return None
    returned = last.value
    # `return unittest.skip("...")(test)`
    wraps = isinstance(returned, ast.Call) and isinstance(returned.func, ast.Call)
    return returned.func if wraps and isinstance(returned, ast.Call) else returned


def _called(function: ast.expr, call: ast.Call) -> ast.Call:
    return ast.Call(func=function, args=call.args, keywords=call.keywords)


def _arguments(call: ast.Call | None) -> str:
    return "(" + source_text(call).partition("(")[2] if call else ""


def _condition(
    call: ast.Call | None, file: TestFile, *, name: str, skips_when: bool
) -> Skip | None:
    given = argument_of(call, "condition", 0)
    reason = reason_of(call, file, position=1)
    if isinstance(given, ast.Constant) and not isinstance(given.value, str):
        return Skip(is_certain=True, reason=reason) if bool(given.value) is skips_when else None
    condition = source_text(given) if given else ""
    text = f"{name}({condition})"
    return Skip(is_certain=False, reason=f"{text}: {reason}" if reason else text)
