"""What a user names as a side: an engine, an engine with an oracle of its own, or a dump."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from comparison.schema.errors import BadInputError
from test_common.debug_options import FRAMEWORKS


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSide:
    """A run that is to be made.

    Attributes:
        engine: one of the engines.
        oracle: `FILE.py[:NAME]` or a pipeline's name; None for the common pipeline.
    """

    engine: str
    oracle: str | None = None

    def __str__(self) -> str:
        return self.engine if self.oracle is None else f"{self.engine}@{self.oracle}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSide:
    """A dump that is there already."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


SideSpec = EngineSide | DumpSide


def parse_side(text: str) -> SideSpec:
    """Read what a user named.

    An engine's name wins; anything else is a path, which must exist or contain a slash.

    Args:
        text: `torch`, `max`, `vllm`, `torch@my_oracle.py:FIXED`, or a folder.

    Raises:
        BadInputError: it is none of these.
    """
    engine, at, oracle = text.partition("@")
    if engine in FRAMEWORKS:
        if at and not oracle:
            raise BadInputError(
                f"{text}: expected an oracle behind the @, such as my_oracle.py:NEW"
            )
        return EngineSide(engine=engine, oracle=oracle or None)
    if "/" in text or (text and Path(text).exists()):
        return DumpSide(path=Path(text))
    raise BadInputError(
        f"{text!r:.80} is no side: expected one of {', '.join(FRAMEWORKS)}, an engine with an "
        "oracle of its own (torch@my_oracle.py:FIXED), or the folder of a dump (./dump/)"
    )
