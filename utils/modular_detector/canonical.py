"""Numbers that are equal for code that is the same, the same but for names, or of one structure."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from utils.modular_detector.model_names import ModelNamer

# Names by which others call a module: who changes these changes what it is.
_FIXED: Final = frozenset({"forward", "self", "cls"})
_IDENTIFIER_FIELDS: Final = frozenset({"id", "attr", "arg", "name", "asname", "module", "names"})
_IGNORED_FIELDS: Final = frozenset({"ctx", "type_comment", "kind"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prints:
    """Three prints of a definition, from strict to lenient, each a signed 64-bit number.

    Attributes:
        exact: its code, the model called "Model".
        renamed: the same, with all names of its own numbered: its parameters and variables, the
            attributes and methods that it defines, and the other definitions of its file.
        structure: the same, with all names and strings left out.
        size: how many nodes it has.
    """

    exact: int
    renamed: int
    structure: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    text: str
    is_own: bool


def prints_of(node: ast.stmt, *, namer: ModelNamer, own: frozenset[str]) -> Prints:
    """Compute the prints of a class or function.

    Args:
        node: the definition, without documentation.
        namer: knows the model's name.
        own: the names that its file defines.
    """
    symbols = list(_symbols(node, _OwnNames.of(node, own)))
    numbers: dict[str, str] = {}
    exact, renamed, structure = [], [], []
    for symbol in symbols:
        if isinstance(symbol, _Name):
            exact.append(f"={namer.generic(symbol.text)}")
            number = numbers.setdefault(symbol.text, f"#{len(numbers)}") if symbol.is_own else ""
            renamed.append(number or exact[-1])
            structure.append("=")
        else:
            is_string = symbol.startswith(("'", '"'))
            exact.append(namer.generic(symbol) if is_string else symbol)
            renamed.append(exact[-1])
            structure.append("''" if is_string else symbol)
    return Prints(
        exact=_hash(exact), renamed=_hash(renamed), structure=_hash(structure), size=len(symbols)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnNames:
    """What a definition names by itself: as plain names, and behind `self.`."""

    plain: frozenset[str]
    members: frozenset[str]
    outer: frozenset[str]  # those of the file

    @classmethod
    def of(cls, node: ast.stmt, own: frozenset[str]) -> _OwnNames:
        plain = set(own)
        members: set[str] = set()
        for below in ast.walk(node):
            match below:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    plain.add(name)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                    members.add(name)
                case ast.FunctionDef(name=name) if not name.startswith("__"):
                    members.add(name)
        return cls(plain=frozenset(plain - _FIXED), members=frozenset(members - _FIXED), outer=own)


def _symbols(node: ast.AST, own: _OwnNames) -> Iterator[str | _Name]:
    """Write a tree as a row of symbols: kinds of nodes, constants, and names."""
    yield type(node).__name__
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield from _symbols(value, own)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST):
                    yield from _symbols(item, own)
                else:
                    yield repr(item)
            yield "]"
        elif isinstance(value, str) and _is_name(node, field, value, own):
            yield _Name(text=value, is_own=_is_own(node, value, own))
        elif field not in _IGNORED_FIELDS:
            yield repr(value)


def _is_name(node: ast.AST, field: str, value: str, own: _OwnNames) -> bool:
    # a string may name a class: _no_split_modules = ["LlamaDecoderLayer"]
    return field in _IDENTIFIER_FIELDS or (isinstance(node, ast.Constant) and value in own.outer)


def _is_own(node: ast.AST, name: str, own: _OwnNames) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return name in own.members
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return name in own.members or name in own.plain
        case ast.Name() | ast.arg() | ast.ClassDef():
            return name in own.plain
        case ast.Constant():
            return True
    return False  # attributes of others, keywords, imports


def _hash(symbols: list[str]) -> int:
    digest = hashlib.blake2b("\n".join(symbols).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
