"""Reads the imports of a tree of rooms and names those that the order of the rooms forbids."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Which rooms a room imports, besides itself.
ALLOWED_ROOMS: dict[str, frozenset[str]] = {
    "comparison": frozenset(),
    "test_common": frozenset({"comparison"}),
    "oracles": frozenset({"comparison", "test_common"}),
    "diagnosis": frozenset({"comparison", "oracles", "test_common"}),
    # the mains of macros run in other repositories, where the names tools and tests are taken
    "bazel": frozenset({"comparison", "diagnosis", "oracles", "test_common"}),
    "tools": frozenset({"comparison", "diagnosis", "oracles", "test_common"}),
    "benchmarks": frozenset({"comparison", "diagnosis", "oracles", "test_common", "tools"}),
    "utils": frozenset(),
}
# Tests import all.
ROOMS = frozenset({*ALLOWED_ROOMS, "tests"})

ENGINES = frozenset({"max", "transformers", "vllm"})
ENGINE_ROOMS = frozenset({"benchmarks", "test_common", "tests"})
TORCH_ROOMS = frozenset({"benchmarks", "test_common", "tests"})
LAZY_TORCH_ROOMS = frozenset({"comparison", "diagnosis", "utils"})
# A script that embeds code loads its model with it; most of its runs need none.
LAZY_ENGINES = {"utils": frozenset({"transformers"})}

# The floors of comparison. pipeline.py joins all parts.
GROUND_FLOOR = frozenset({"numerics", "schema"})
UPPER_FLOOR = frozenset({"align", "report", "store"})

# What a room without printing, command line, environment and clock has no use for.
IMPURE_MODULES = frozenset({"argparse", "click", "datetime", "subprocess", "time"})
IMPURE_NAMES = frozenset(
    {"os.environ", "os.getenv", "print", "sys.argv", "sys.stderr", "sys.stdout"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported module, by its absolute name."""

    module: str
    line: int
    is_lazy: bool  # runs only when a function is called, or never (TYPE_CHECKING)

    @property
    def top(self) -> str:
        """The first part of the module's name."""
        return self.module.partition(".")[0]


def find_violations(root: Path) -> list[str]:
    """Checks every Python file of the rooms below `root`.

    Returns:
        One line for each violation: `<file>:<line>: <what>`.
    """
    found: list[str] = []
    torch_readers: list[str] = []
    for file in sorted(file for room in ROOMS for file in (root / room).rglob("*.py")):
        path = file.relative_to(root)
        tree = ast.parse(file.read_text(), filename=str(path))
        imports = list(read_imports(tree, package=path.parent.parts))
        found += [f"{path}:{i.line}: {why}" for i in imports for why in _objections(path, i)]
        if path.parts[0] == "comparison":
            found += [f"{path}:{line}: uses {name}" for line, name in _impure_uses(tree)]
            if any(i.top == "torch" for i in imports):
                torch_readers.append(str(path))
    if len(torch_readers) > 1:
        found.append(f"{torch_readers[1]}:1: torch is imported by {torch_readers[0]} already")
    return found


def read_imports(tree: ast.Module, *, package: tuple[str, ...]) -> Iterator[Import]:
    """Finds all imports of a module, those in function bodies and by importlib too.

    Args:
        tree: The module.
        package: The parts of the name of the package it lies in, for relative imports.
    """
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, is_lazy = todo.pop()
        for module in _modules_of(node, package):
            yield Import(module=module, line=getattr(node, "lineno", 1), is_lazy=is_lazy)
        opens_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        below = is_lazy or opens_function or _is_type_checking(node)
        todo += [(child, below) for child in ast.iter_child_nodes(node)]


def _modules_of(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            start = package[: len(package) - level + 1] if level else ()
            base = ".".join([*start, *([module] if module else [])])
            # `from comparison import store` names a module by its alias
            return [f"{base}.{alias.name}" for alias in names]
        case ast.Call(func=func, args=[ast.Constant(value=str(module)), *_]):
            return [module] if ast.unparse(func).endswith(("import_module", "__import__")) else []
    return []


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _objections(path: Path, found: Import) -> Iterator[str]:
    room = path.parts[0]
    if room == "tests":
        return
    if found.top in ROOMS - ALLOWED_ROOMS[room] - {room}:
        yield f"{room} imports {found.module}"
    may_be_lazy = found.is_lazy and found.top in LAZY_ENGINES.get(room, ())
    if found.top in ENGINES and room not in ENGINE_ROOMS and not may_be_lazy:
        yield f"{room} imports the engine {found.module}"
    if found.top == "torch" and room not in TORCH_ROOMS:
        if room not in LAZY_TORCH_ROOMS:
            yield f"{room} imports torch"
        elif not found.is_lazy:
            yield f"{room} imports torch outside of functions"
    if room == "comparison":
        yield from _floor_objections(path, found)


def _floor_objections(path: Path, found: Import) -> Iterator[str]:
    if found.top in IMPURE_MODULES:
        yield f"comparison imports {found.module}"
    part = path.parts[1]
    parts = found.module.split(".")
    other = parts[1] if found.top == "comparison" and len(parts) > 1 else part
    allowed = {part}
    if part in GROUND_FLOOR | UPPER_FLOOR:
        allowed |= GROUND_FLOOR
        if other not in allowed:
            yield f"comparison.{part} imports comparison.{other}"


def _impure_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in IMPURE_NAMES:
            yield node.lineno, ast.unparse(node)
