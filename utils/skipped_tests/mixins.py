"""Follows the bases of test classes, through imports, from file to file."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from utils.skipped_tests.reasons import source_text
from utils.skipped_tests.source_file import (
    FunctionNode,
    TestFile,
    UnreadableFileError,
    flat_statements,
    read_test_file,
)

_MAX_HOPS = 20  # of names that are only passed on


@dataclass(eq=False, kw_only=True)
class TestClass:
    """A class of the tree that is scanned.

    Attributes:
        node: its definition.
        file: where that stands.
    """

    __test__ = False

    node: ast.ClassDef
    file: TestFile

    @property
    def name(self) -> str:
        """The class's own name."""
        return self.node.name

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """The statements of its body, those under an `if` too."""
        return list(flat_statements(self.node.body))

    @cached_property
    def members(self) -> Mapping[str, FunctionNode | ast.expr]:
        """What its body defines: functions, and values that are assigned."""
        found: dict[str, FunctionNode | ast.expr] = {}
        for node in self.statements:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    found[node.name] = node
                case ast.Assign(targets=targets, value=value):
                    found |= {t.id: value for t in targets if isinstance(t, ast.Name)}
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    found[name] = value
        return found


Base = TestClass | str  # a class of the tree, or the dotted name of one outside of it


@dataclass(kw_only=True)
class ClassTree:
    """All classes that are reached from the files of a repository, each file read once.

    Attributes:
        root: the repository, where absolute imports begin.
        unreadable: what could not be read, by file or folder.
    """

    root: Path
    unreadable: dict[Path, str] = field(default_factory=dict)
    _files: dict[Path, TestFile | None] = field(default_factory=dict)
    _classes: dict[tuple[Path, str], TestClass] = field(default_factory=dict)
    _orders: dict[TestClass, list[Base]] = field(default_factory=dict)
    _brought: dict[tuple[Path, str], Base] = field(default_factory=dict)

    def file(self, path: Path) -> TestFile | None:
        """Read a file, once; None where it cannot be read, which `unreadable` then tells."""
        if path not in self._files:
            try:
                self._files[path] = read_test_file(path)
            except UnreadableFileError as error:
                self._files[path] = None
                self.unreadable[path] = str(error)
        return self._files[path]

    def folder_failed(self, error: OSError) -> None:
        """Note a folder that cannot be listed."""
        folder = Path(str(error.filename))
        self.unreadable[folder] = f"{folder}: {error.strerror}"

    def classes_of(self, file: TestFile) -> list[TestClass]:
        """Give the top-level classes of a file, in order."""
        return [self._class(file, name) for name in file.classes]

    def resolution_order(self, test_class: TestClass) -> list[Base]:
        """Give a class and what it inherits from, in the order in which Python asks them.

        Classes that Python would refuse to join come in the order in which they are named.
        """
        if test_class not in self._orders:
            self._orders[test_class] = [test_class]  # of a class that inherits from itself
            bases = self._bases(test_class)
            orders: list[list[Base]] = [
                list(self.resolution_order(base)) if isinstance(base, TestClass) else [base]
                for base in bases
            ]
            above = orders[0] if len(orders) == 1 else _merge([*orders, bases])
            self._orders[test_class] = [test_class, *above]
        return self._orders[test_class]

    def is_test_case(self, test_class: TestClass) -> bool:
        """Tell whether unittest would run a class."""
        order = self.resolution_order(test_class)
        return any("TestCase" in base.rpartition(".")[2] for base in order if isinstance(base, str))

    def _class(self, file: TestFile, name: str) -> TestClass:
        key = (file.path, name)
        if key not in self._classes:
            self._classes[key] = TestClass(node=file.classes[name], file=file)
        return self._classes[key]

    def _bases(self, test_class: TestClass) -> list[Base]:
        found: list[Base] = []
        for node in test_class.node.bases:
            # Generic[T] is asked as Generic
            bare = node.value if isinstance(node, ast.Subscript) else node
            base = self._resolve(bare, test_class.file)
            if base not in found:
                found.append(base)
        return found

    def _resolve(self, node: ast.expr, file: TestFile, hops: int = _MAX_HOPS) -> Base:
        dotted = file.dotted(node) or source_text(node)
        if not hops:
            return dotted
        if isinstance(node, ast.Name):
            return self._look_up(file, node.id, hops)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            bound = file.imports.get(node.value.id)
            module = self._module(file, bound.level, bound.dotted) if bound else None
            if module is not None:
                return self._look_up(module, node.attr, hops)
        return self._absolute(dotted, hops)

    def _look_up(self, file: TestFile, name: str, hops: int) -> Base:
        """Find what a name means at the top of a file."""
        if not hops:
            return name
        if name in file.classes:
            return self._class(file, name)
        if isinstance(file.assigned.get(name), ast.Name | ast.Attribute):
            return self._resolve(file.assigned[name], file, hops - 1)
        bound = file.imports.get(name)
        if bound is None:
            return self._starred(file, name, hops)
        module = self._module(file, bound.level, bound.module) if bound.name else None
        return self._look_up(module, bound.name, hops - 1) if module else bound.dotted

    def _starred(self, file: TestFile, name: str, hops: int) -> Base:
        """Find a name that one of `from ... import *` has brought; the last one goes first."""
        key = (file.path, name)
        if key not in self._brought:
            self._brought[key] = name  # files may import one another
            modules = (self._module(file, star.level, star.module) for star in file.starred)
            found = (self._look_up(module, name, hops - 1) for module in modules if module)
            self._brought[key] = next((base for base in found if isinstance(base, TestClass)), name)
        return self._brought[key]

    def _absolute(self, dotted: str, hops: int) -> Base:
        """Find `tests.module.Class` after `import tests.module`."""
        place, _, name = dotted.rpartition(".")
        path = self._path_of(self.root, place) if place else None
        module = self.file(path) if path else None
        return self._look_up(module, name, hops - 1) if module else dotted

    def _module(self, file: TestFile, level: int, module: str) -> TestFile | None:
        """Find the file of an imported module inside of the repository."""
        start = (
            self.root if not level else file.path.parents[min(level, len(file.path.parents)) - 1]
        )
        path = self._path_of(start, module)
        return self.file(path) if path else None

    def _path_of(self, start: Path, module: str) -> Path | None:
        place = start.joinpath(*module.split(".")) if module else start
        candidates = (place.with_name(place.name + ".py"), place / "__init__.py")
        return next((path for path in candidates if path.is_file()), None)


def _merge(orders: list[list[Base]]) -> list[Base]:
    """Join the orders of several bases as Python does (C3)."""
    merged: list[Base] = []
    todo = [order for order in orders if order]
    while todo:
        heads = [order[0] for order in todo]
        head = next((h for h in heads if not any(h in order[1:] for order in todo)), heads[0])
        merged.append(head)
        todo = [[base for base in order if base != head] for order in todo]
        todo = [order for order in todo if order]
    return merged
