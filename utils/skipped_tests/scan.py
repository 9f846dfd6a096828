"""Finds the common tests, the models' test classes, and what becomes of each test in each class."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from utils.command import BadInputError
from utils.skipped_tests.mixins import ClassTree, TestClass
from utils.skipped_tests.states import ClassJudge, Outcome, State, class_judge
from utils.source_files import find_files

_COMMON = Path("tests/test_modeling_common.py")
_GENERATION = Path("tests/generation/test_utils.py")
_MODELS = Path("tests/models")
_ORIGINS = {_COMMON: "common", _GENERATION: "GenerationMixin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonTest:
    """A test that models inherit.

    Attributes:
        name: the method.
        origin: the suite it comes from: "common" or "GenerationMixin".
        mixins: the classes through which models get it.
    """

    name: str
    origin: str
    mixins: frozenset[TestClass]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One class of a model's tests, or a model without such a class.

    Attributes:
        name: the model, or `model::Class` where a file has several.
        judge: judges the class's tests; None where no class inherits a common suite.
    """

    name: str
    judge: ClassJudge | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScan:
    """A common test over all rows.

    Attributes:
        test: the test.
        outcomes: what becomes of it, by the row's name.
    """

    __test__ = False

    test: CommonTest
    outcomes: Mapping[str, Outcome]

    def rows(self, state: State) -> list[str]:
        """Give the names of the rows in one state, sorted."""
        return sorted(name for name, outcome in self.outcomes.items() if outcome.state is state)

    @property
    def skipped_proportion(self) -> float:
        """What part of those that ran or skipped the test skipped it; 0 for none of either."""
        skipped = len(self.rows(State.SKIPPED))
        return skipped / max(1, skipped + len(self.rows(State.RAN)))


def model_test_files(root: Path, failed: Callable[[OSError], None] | None = None) -> list[Path]:
    """Find the files of the models' tests.

    Args:
        root: of a checkout.
        failed: is told of each folder that cannot be listed.

    Raises:
        BadInputError: `root` is no checkout of transformers.
    """
    missing = [path for path in (_COMMON, _MODELS) if not (root / path).exists()]
    errors: list[OSError] = []
    found = find_files(root / _MODELS, "test_modeling_*.py", errors.append)
    for error in errors:
        (failed or (lambda _: None))(error)
    if not missing and not found and errors:
        raise BadInputError(f"cannot list {errors[0].filename}: {errors[0].strerror}")
    if missing or not found:
        lacking = " and ".join(map(str, missing)) or f"{_MODELS}/*/test_modeling_*.py"
        raise BadInputError(
            f"{root.resolve()} is no checkout of transformers: {lacking} not found there; run this "
            "in the root of one, or name it with --root"
        )
    return found


def common_tests(tree: ClassTree) -> dict[str, CommonTest]:
    """Read the common suites.

    Args:
        tree: the repository's classes.

    Returns:
        The tests by name, in order of definition.

    Raises:
        BadInputError: the common suite cannot be read, or holds no test.
    """
    found: dict[str, CommonTest] = {}
    for path, origin in _ORIGINS.items():
        for mixin in _mixins(tree, tree.root / path):
            for name in _inherited_tests(tree, mixin):
                known = found.get(name, CommonTest(name=name, origin=origin, mixins=frozenset()))
                found[name] = CommonTest(
                    name=name, origin=known.origin, mixins=known.mixins | {mixin}
                )
    if not any(test.origin == "common" for test in found.values()):
        raise BadInputError(
            tree.unreadable.get(tree.root / _COMMON)
            or f"{tree.root / _COMMON} has no class with test_ methods that models could inherit"
        )
    return found


def choose_test(tests: Mapping[str, CommonTest], name: str) -> CommonTest:
    """Find one test by name.

    Raises:
        BadInputError: there is none; the message names the nearest ones.
    """
    if name not in tests:
        near = ", ".join(difflib.get_close_matches(name, tests, n=3)) or "none is similar"
        raise BadInputError(
            f"no test {name!r} among the {len(tests)} of {_COMMON} and {_GENERATION}; nearest: "
            f"{near}"
        )
    return tests[name]


def read_rows(tree: ClassTree, files: list[Path], tests: Mapping[str, CommonTest]) -> list[Row]:
    """Read the models' test files, each once; `tree.unreadable` tells what cannot be read."""
    mixins = frozenset(mixin for test in tests.values() for mixin in test.mixins)
    common = frozenset(
        base
        for mixin in mixins
        for base in tree.resolution_order(mixin)
        if isinstance(base, TestClass)
    )
    readable = [path for path in files if tree.file(path) is not None]
    classes = {path: _suites(tree, path, mixins) for path in readable}
    extended = {
        base
        for suites in classes.values()
        for suite in suites
        for base in tree.resolution_order(suite)[1:]
    }
    rows: list[Row] = []
    for path, model in _model_names(readable).items():
        # a class that others extend, and that nothing would run by itself, is a mixin too
        suites = [s for s in classes[path] if s not in extended or tree.is_test_case(s)]
        rows += [
            Row(
                name=f"{model}::{suite.name}" if len(suites) > 1 else model,
                judge=class_judge(tree, suite, common),
            )
            for suite in suites
        ] or [Row(name=model, judge=None)]
    return rows


def scan_test(test: CommonTest, rows: list[Row]) -> TestScan:
    """Tell what becomes of one test in every row."""
    return TestScan(test=test, outcomes={row.name: _outcome(test, row.judge) for row in rows})


def scan_tests(
    tests: Mapping[str, CommonTest], rows: list[Row], tell: Callable[[int, str], None]
) -> list[TestScan]:
    """Scan all tests.

    Args:
        tests: the tests.
        rows: the models.
        tell: is called with the number and the name of each test.
    """
    scans: list[TestScan] = []
    for number, (name, test) in enumerate(tests.items(), start=1):
        tell(number, name)
        scans.append(scan_test(test, rows))
    return scans


def _outcome(test: CommonTest, judge: ClassJudge | None) -> Outcome:
    if judge is None or test.mixins.isdisjoint(judge.order):
        return Outcome(state=State.NOT_APPLICABLE)
    return judge.judge(test.name)


def _mixins(tree: ClassTree, path: Path) -> Iterator[TestClass]:
    """Find the classes of a common file that models inherit from; its own test cases are none."""
    file = tree.file(path) if path.is_file() else None
    for test_class in tree.classes_of(file) if file else []:
        if test_class.name.endswith("Mixin") or not tree.is_test_case(test_class):
            yield test_class


def _inherited_tests(tree: ClassTree, mixin: TestClass) -> Iterator[str]:
    for base in reversed(tree.resolution_order(mixin)):
        if isinstance(base, TestClass):
            yield from (name for name in base.members if name.startswith("test_"))


def _suites(tree: ClassTree, path: Path, mixins: frozenset[TestClass]) -> list[TestClass]:
    file = tree.file(path)
    return [
        test_class
        for test_class in (tree.classes_of(file) if file else [])
        if not mixins.isdisjoint(tree.resolution_order(test_class))
    ]


def _model_names(files: list[Path]) -> dict[Path, str]:
    """Name each file's model; files of one name are told apart by as many folders as it takes."""
    names = {path: path.stem.removeprefix("test_modeling_") for path in files}
    stems = dict(names)
    for folders in range(1, 1 + max((len(path.parents) for path in files), default=0)):
        count = Counter(names.values())
        for path, name in names.items():
            if count[name] > 1:
                names[path] = "/".join([*path.parts[-1 - folders : -1], stems[path]])
    return names
