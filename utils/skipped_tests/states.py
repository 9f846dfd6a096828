"""What becomes of one common test in one class of a model's tests."""

from __future__ import annotations

import ast
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import chain

from utils.skipped_tests.bodies import body_skip, is_empty
from utils.skipped_tests.mixins import ClassTree, TestClass
from utils.skipped_tests.skips import Skip, decorator_skips, mark_skips, skip_of_value
from utils.skipped_tests.source_file import FunctionNode, TestFile

# Every class of model tests carries it: without torch none of them runs, with it all do.
_TAKEN_FOR_GRANTED = "require_torch"
# What makes the runners leave a class out, and the value that does.
_SKIPPING_ATTRIBUTES = {"__unittest_skip__": True, "__test__": False}
_REASON_ATTRIBUTE = "__unittest_skip_why__"
_BEFORE_A_TEST = ("setUpClass", "setup_class", "setUp", "setup_method")


class State(Enum):
    """What happens to a test when the suite is run."""

    RAN = "ran"
    SKIPPED = "skipped"
    CONDITIONAL = "conditional"
    EMPTY = "empty"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A state and why.

    Attributes:
        state: what happens.
        reason: why a test is skipped, or on what condition; "" for the other states.
    """

    state: State
    reason: str = ""


@dataclass(kw_only=True)
class ClassJudge:
    """Judges the tests of one class.

    Attributes:
        order: the class and what it inherits from.
        common: the classes that bring the common tests; what they define is no override.
        whole: what skips the whole class.
    """

    order: list[TestClass]
    common: AbstractSet[TestClass]
    whole: list[Skip]

    def judge(self, method: str) -> Outcome:
        """Tell what becomes of a test that the class inherits or defines."""
        definer = next(owner for owner in self.order if method in owner.members)
        skips = _member_skips(
            definer.members[method], definer.file, is_override=definer not in self.common
        )
        certain = [skip for skip in chain(skips, self.whole) if skip.is_certain]
        if certain:
            return Outcome(state=State.SKIPPED, reason=certain[0].reason)
        if definer not in self.common and is_empty(definer.members[method]):
            return Outcome(state=State.EMPTY)
        conditions = list(dict.fromkeys(skip.reason for skip in chain(skips, self.whole)))
        if conditions:
            return Outcome(state=State.CONDITIONAL, reason="; ".join(filter(None, conditions)))
        return Outcome(state=State.RAN)


def class_judge(
    tree: ClassTree, test_class: TestClass, common: AbstractSet[TestClass]
) -> ClassJudge:
    """Make the judge of a class, having read what skips it as a whole.

    Args:
        tree: where its bases are found.
        test_class: the class.
        common: the classes that bring the common tests.
    """
    order = [base for base in tree.resolution_order(test_class) if isinstance(base, TestClass)]
    whole = file_skips(test_class.file)
    for owner in order:
        # marks of classes and of unittest are inherited
        whole += decorator_skips(owner.node.decorator_list, owner.file)
        whole += mark_skips(owner.node.body, owner.file)
    whole += _attribute_skips(order)
    whole += _setup_skips([owner for owner in order if owner not in common])
    return ClassJudge(order=order, common=common, whole=_beyond_torch(whole))


def file_skips(file: TestFile) -> list[Skip]:
    """Find what skips a whole file: `pytestmark`, or a skip at its top."""
    skip = body_skip(file.body, file)
    return [*mark_skips(file.body, file), *([skip] if skip is not None else [])]


def _attribute_skips(order: list[TestClass]) -> list[Skip]:
    """Find what unittest and pytest ask a class for, the nearest definition of each."""
    found: list[Skip] = []
    for name, when in _SKIPPING_ATTRIBUTES.items():
        value = _attribute(order, name)
        if value is not None and bool(value.value) is when:
            why = _attribute(order, _REASON_ATTRIBUTE) if when else None
            reason = str(why.value) if why is not None else f"{name} = {value.value!r}"
            found.append(Skip(is_certain=True, reason=reason))
    return found


def _attribute(order: list[TestClass], name: str) -> ast.Constant | None:
    owner = next((owner for owner in order if name in owner.members), None)
    member = owner.members[name] if owner else None
    return member if isinstance(member, ast.Constant) else None


def _setup_skips(owners: list[TestClass]) -> list[Skip]:
    """Find skips in what runs before every test, in the order in which it runs."""
    found: list[Skip] = []
    for name in _BEFORE_A_TEST:
        owner = next((owner for owner in owners if name in owner.members), None)
        member = owner.members[name] if owner else None
        if owner and isinstance(member, FunctionNode):
            skip = body_skip(member.body, owner.file)
            found += [skip] if skip is not None else []
    return found


@cache  # every model inherits the same few definitions
def _member_skips(
    member: FunctionNode | ast.expr, file: TestFile, *, is_override: bool
) -> list[Skip]:
    """Find what skips a test: its decorators, then its body.

    The conditions inside of a common test's body are its business with the model's attributes,
    the same for every model: of these only a skip without any condition counts.
    """
    if not isinstance(member, FunctionNode):
        skip = skip_of_value(member, file)
        return [skip] if skip is not None else []
    found = decorator_skips(member.decorator_list, file)
    skip = body_skip(member.body, file)
    if skip is not None and (skip.is_certain or is_override):
        found.append(skip)
    return found if is_override else _beyond_torch(found)


def _beyond_torch(skips: list[Skip]) -> list[Skip]:
    return [skip for skip in skips if skip.is_certain or skip.reason != _TAKEN_FOR_GRANTED]
