"""The type of options that name a file or folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class PathType(click.ParamType[Path]):
    """A path; not an empty text, as an unset shell variable does not mean `.`, and not `-`."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Turn the option's text into a path."""
        if value == "":
            self.fail("the path is empty", param, ctx)
        if value == "-":
            self.fail(
                "expected a path, found '-': nothing is read from or written to a pipe here; "
                "./- is a file of that name",
                param,
                ctx,
            )
        if "\0" in str(value):
            self.fail("a path holds no NUL character", param, ctx)
        return Path(value)
