"""One test file: its classes, what its imports name, and what it assigns at the top."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from utils.source_files import read_plain_file

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class UnreadableFileError(ValueError):
    """A file that is no Python of this interpreter; the message names file, line and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedName:
    """What a name that an import binds stands for.

    Attributes:
        level: dots of a relative import, 0 for an absolute one.
        module: the module, without the dots.
        name: what is taken from the module, or "" where the module itself is bound.
    """

    level: int
    module: str
    name: str

    @property
    def dotted(self) -> str:
        """The name as one would write it in full."""
        return ".".join(part for part in (self.module, self.name) if part)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TestFile:
    """A parsed file.

    Attributes:
        path: where it lies.
        body: its statements.
        statements: the same, those under a top-level `if` or `try` beside the others.
        classes: its top-level classes.
        functions: its top-level functions.
        imports: what its imports bind.
        starred: the modules of its `from ... import *`, the last one first.
        assigned: the last value that is assigned to each name at the top.
    """

    __test__ = False  # pytest takes the name for that of a test

    path: Path
    body: list[ast.stmt]
    statements: list[ast.stmt]
    classes: Mapping[str, ast.ClassDef]
    functions: Mapping[str, FunctionNode]
    imports: Mapping[str, ImportedName]
    starred: list[ImportedName]
    assigned: Mapping[str, ast.expr] = field(default_factory=dict)

    def dotted(self, node: ast.expr) -> str:
        """Write an expression as a dotted name with its first part looked up in the imports.

        Returns:
            For example "unittest.skip" for `ut.skip` after `import unittest as ut`; "" for what is
            no chain of names.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        bound = self.imports.get(node.id)
        parts.append(bound.dotted if bound else node.id)
        return ".".join(reversed(parts))


def read_test_file(path: Path) -> TestFile:
    """Parse a file.

    Raises:
        UnreadableFileError: it cannot be read or is no Python.
    """
    body = _parse(path).body
    statements = list(flat_statements(body))
    return TestFile(
        path=path,
        body=body,
        statements=statements,
        classes={node.name: node for node in statements if isinstance(node, ast.ClassDef)},
        functions={node.name: node for node in statements if isinstance(node, FunctionNode)},
        imports=_imports(statements),
        starred=list(_starred(statements))[::-1],
        assigned=dict(_assignments(statements)),
    )


def flat_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Give the statements of a body, those inside of `if`, `try` and `with` in place of these."""
    todo = body[::-1]
    while todo:  # not by recursion: there is no limit to a row of `elif`
        node = todo.pop()
        match node:
            case ast.If():
                todo += [*node.body, *node.orelse][::-1]
            case ast.Try():
                below = [statement for handler in node.handlers for statement in handler.body]
                todo += [*below, *node.body, *node.orelse, *node.finalbody][::-1]
            case ast.With():
                todo += node.body[::-1]
            case _:
                yield node


def _parse(path: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of another's escapes
            return ast.parse(read_plain_file(path), filename=str(path))
    except SyntaxError as error:
        raise UnreadableFileError(f"{path}:{error.lineno or 1}: {error.msg}") from error
    except OSError as error:
        raise UnreadableFileError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFileError(f"{path}: {error or type(error).__name__}") from error


def _imports(statements: list[ast.stmt]) -> dict[str, ImportedName]:
    found: dict[str, ImportedName] = {}
    for node in statements:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = _imported(node, alias)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.name if alias.asname else alias.name.partition(".")[0]
                found[alias.asname or bound] = ImportedName(level=0, module=bound, name="")
    return found


def _imported(node: ast.ImportFrom, alias: ast.alias) -> ImportedName:
    return ImportedName(level=node.level, module=node.module or "", name=alias.name)


def _starred(statements: list[ast.stmt]) -> Iterator[ImportedName]:
    for node in statements:
        if isinstance(node, ast.ImportFrom):
            yield from (_imported(node, alias) for alias in node.names if alias.name == "*")


def _assignments(statements: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in statements:
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from ((t.id, value) for t in targets if isinstance(t, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
