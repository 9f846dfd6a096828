"""The classes and functions of a modeling file, stripped of what says nothing about their code."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from utils.modular_detector.canonical import Prints, prints_of
from utils.modular_detector.model_names import ModelNamer, read_model_namer
from utils.source_files import read_plain_file

DefinitionNode = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_IDENTIFIER: Final = re.compile(r"\b[A-Za-z_]\w*\b")
# Decorators that only write documentation.
_DOCUMENTING: Final = frozenset(
    {
        "add_code_sample_docstrings",
        "add_end_docstrings",
        "add_start_docstrings",
        "add_start_docstrings_to_model_forward",
        "auto_docstring",
        "replace_return_docstrings",
    }
)


class UnreadableFileError(ValueError):
    """A file that is no Python of this interpreter; the message names file, line and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One class or function.

    Attributes:
        name: its name.
        is_class: whether it is a class.
        first_line: where it begins, its decorators included; from 1.
        last_line: where it ends.
        code: its source without comments and documentation, the model called "Model".
        tokens: the identifiers in `code`, those in strings too.
        prints: what is equal for definitions that are alike.
    """

    name: str
    is_class: bool
    first_line: int
    last_line: int
    code: str
    tokens: frozenset[str]
    prints: Prints


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelingFile:
    """A parsed file.

    Attributes:
        path: where it lies.
        namer: how it calls its model.
        nodes: its classes and functions, stripped, by name; of two of one name the last.
        own: the names that it defines or takes from its configuration.
    """

    path: Path
    namer: ModelNamer
    nodes: dict[str, DefinitionNode]
    own: frozenset[str]


def read_modeling_file(path: Path, source: bytes | None = None) -> ModelingFile:
    """Parse a file.

    Args:
        path: the file.
        source: its bytes, where they have been read already.

    Raises:
        UnreadableFileError: it cannot be read or is no Python.
    """
    statements = list(_flat(parse_source(path, source).body))
    nodes = {node.name: node for node in statements if isinstance(node, DefinitionNode)}
    return ModelingFile(
        path=path,
        namer=read_model_namer(path, statements),
        nodes={name: strip_documentation(node) for name, node in nodes.items()},
        own=frozenset([*nodes, *_configuration_names(statements)]),
    )


def definitions_of(file: ModelingFile) -> list[Definition]:
    """Describe all definitions of a file.

    Raises:
        UnreadableFileError: one of them is nested too deep.
    """
    return [_definition(file, node) for node in file.nodes.values()]


def parse_source(path: Path, source: bytes | None = None) -> ast.Module:
    """Parse Python.

    Raises:
        UnreadableFileError: it cannot be read or is no Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of another's escapes
            source = read_plain_file(path) if source is None else source
            return ast.parse(source, filename=str(path))
    except SyntaxError as error:
        raise UnreadableFileError(f"{path}:{error.lineno or 1}: {error.msg}") from error
    except OSError as error:
        raise UnreadableFileError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFileError(f"{path}: {error or type(error).__name__}") from error


def strip_documentation(node: DefinitionNode) -> DefinitionNode:
    """Drop docstrings, and decorators that only document, in place; return the node."""
    for below in ast.walk(node):
        if isinstance(below, DefinitionNode):
            below.decorator_list = [d for d in below.decorator_list if not _documents(d)]
            below.body = _without_docstring(below.body)
    return node


def first_line_of(node: DefinitionNode) -> int:
    """Give the line in which a definition begins, its decorators included."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Give a file's statements, those inside of `if` and `try` in place of these."""
    todo = body[::-1]
    while todo:  # not by recursion: there is no limit to a row of `elif`
        node = todo.pop()
        match node:
            case ast.If():
                todo += [*node.orelse, *node.body][::-1]
            case ast.Try():
                below = [statement for handler in node.handlers for statement in handler.body]
                todo += [*below, *node.body, *node.orelse, *node.finalbody][::-1]
            case _:
                yield node


def _definition(file: ModelingFile, node: DefinitionNode) -> Definition:
    try:
        code = file.namer.generic(ast.unparse(node))
        prints = prints_of(node, namer=file.namer, own=file.own)
    except RecursionError:
        raise UnreadableFileError(
            f"{file.path}:{node.lineno}: {node.name} is nested too deep"
        ) from None
    return Definition(
        name=node.name,
        is_class=isinstance(node, ast.ClassDef),
        first_line=first_line_of(node),
        last_line=node.end_lineno or node.lineno,
        code=code,
        tokens=frozenset(_IDENTIFIER.findall(code)),
        prints=prints,
    )


def _configuration_names(statements: list[ast.stmt]) -> Iterator[str]:
    for node in statements:
        if isinstance(node, ast.ImportFrom) and "configuration_" in (node.module or ""):
            yield from (alias.asname or alias.name for alias in node.names)


def _documents(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(target, ast.Name) and target.id in _DOCUMENTING


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest or [ast.Pass()]
    return body
