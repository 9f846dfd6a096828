"""The records of the faults on real engines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum

from test_common.batch_file import Prompt
from tests.faults.pair import ANYWHERE, Place

# Both are longer than 8 tokens, and they differ in length.
SHORT_PROMPTS = (
    "The quick brown fox jumps over the lazy dog, and then it runs home.",
    "Measure first, round later.",
)
# The first is longer than any window here.
LONG_PROMPTS = ("The quick brown fox jumps over the lazy dog. " * 12, SHORT_PROMPTS[1])

Planting = Callable[[], AbstractContextManager[object]]


class Origin(StrEnum):
    """Where a difference comes from."""

    CODE = "code"  # an operation or a layer of the engine was replaced
    EDIT = "edit"  # a weight or a setting was changed
    ENGINE = "engine"  # the engine, as it is installed, does that by itself
    NONE = "none"  # nothing is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCase:
    """One run of an engine against Torch, and what is to be said of it.

    Attributes:
        name: unique, and stable.
        engine: `max` or `vllm`.
        arch: a tiny checkpoint, as in `tiny-random/<arch>`.
        origin: where the difference comes from.
        modules: names that are right, the best first; empty where nothing is wrong.
        between: the candidate's two tensors between which the fault lies; None where the module
            has no modules inside, or where it is not asked.
        cause: id of the cause; empty where nothing is wrong.
        place: where it shows first.
        plant: replaces the engine's code as long as its context lasts.
        layers: layers that are run.
        prompts: one text a row.
        module_v3: whether MAX's ModuleV3 variant is run.
    """

    name: str
    engine: str = "max"
    arch: str
    origin: Origin = Origin.CODE
    modules: tuple[str, ...] = ()
    between: tuple[str, str] | None = None
    cause: str = ""
    place: Place = ANYWHERE
    plant: Planting = nullcontext
    layers: int = 2
    prompts: tuple[Prompt, ...] = SHORT_PROMPTS
    module_v3: bool = False

    @property
    def pipeline(self) -> str:
        """Return the name that both sides are run by."""
        return f"tiny-random/{self.arch}"

    @property
    def is_fault(self) -> bool:
        """Whether there is anything to find."""
        return self.origin is not Origin.NONE
