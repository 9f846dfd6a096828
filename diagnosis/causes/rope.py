"""Where a model's rotary tables come from, so that they can be made otherwise.

The guilty computation may be the module that makes the tables, or an attention that gets them.

Legend: T tokens, P pairs of channels that are rotated together, D = 2 P.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diagnosis.causes.changes import with_arguments, with_forward
from diagnosis.replay.float64_mode import LongestSum, float64_throughout

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

Tables = tuple["torch.Tensor", "torch.Tensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecipe:
    """What tables are made of: cos and sin of position times frequency.

    Attributes:
        positions: [T], float64.
        frequencies: [P], radians a token.
        factor: what both tables are multiplied with.
        in_pairs: whether a pair's two columns are neighbours, and not P apart.
    """

    positions: torch.Tensor
    frequencies: torch.Tensor
    factor: float
    in_pairs: bool = False

    def tables(self) -> Tables:
        """Make cos and sin, [1, T, D]."""
        return self.tables_of(self.positions[:, None] * self.frequencies)

    def tables_of(self, angles: torch.Tensor) -> Tables:
        """Make cos and sin, [1, T, D], of angles, [T, P]."""
        import torch

        if self.in_pairs:
            angles = angles.repeat_interleave(2, dim=-1)[None]
        else:
            angles = torch.cat([angles, angles], dim=-1)[None]
        return angles.cos() * self.factor, angles.sin() * self.factor


Make = Callable[[TableRecipe], Tables]


def recipe_of(region: Region) -> TableRecipe | None:
    """Read what the tables of the first row are made of.

    None where the guilty computation makes no tables and gets none, or they are made otherwise.
    """
    tables = _tables(region)
    return None if tables is None else read_recipe(tables)


def read_recipe(tables: Tables) -> TableRecipe | None:
    """Read frequencies and factor off tables of the positions 0, 1, ..., [1, T, D].

    None where they are made otherwise.
    """
    import torch

    cos, sin = (table.double().reshape(-1, table.shape[-1]) for table in tables)
    if cos.shape[-1] % 2 or len(cos) < 2:
        return None
    factor = float((cos[0] ** 2 + sin[0] ** 2).sqrt().mean())
    if not factor:
        return None
    half = cos.shape[-1] // 2
    for in_pairs, columns in ((False, slice(half)), (True, slice(None, None, 2))):
        recipe = TableRecipe(
            positions=torch.arange(len(cos), dtype=torch.float64),
            frequencies=_refined(cos[:, columns], sin[:, columns]),
            factor=factor,
            in_pairs=in_pairs,
        )
        made, _ = recipe.tables()
        if torch.allclose(made[0], cos, rtol=1e-6, atol=1e-7):
            return recipe
    return None


def _refined(cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Read frequencies off, [P], and sharpen them by the angle at twice, four times, ... as far."""
    import math

    import torch

    angles = torch.atan2(sin, cos)
    frequencies, far = angles[1] - angles[0], 2
    while far < len(cos):
        angle = angles[far] - angles[0]
        turns = ((far * frequencies - angle) / (2 * math.pi)).round()
        frequencies = (angle + 2 * math.pi * turns) / far
        far *= 2
    return frequencies


def with_tables(region: Region, make: Make) -> AbstractContextManager[None]:
    """Let the guilty computation have other tables.

    Args:
        region: makes the tables, or gets them.
        make: of the right recipe.
    """
    return _made(region, make) if makes_tables(region) else _given(region, make)


@contextmanager
def _made(region: Region, make: Make) -> Iterator[None]:
    usual = region.module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        right = usual(*args, **kwargs)
        return _like(right, _remade(right, make))

    with with_forward(region.module, forward):
        yield


def _given(region: Region, make: Make) -> AbstractContextManager[None]:
    def change(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def new(value: Any) -> Any:
            return _like(value, _remade(value, make)) if _is_tables(value) else value

        return tuple(map(new, args)), {name: new(value) for name, value in kwargs.items()}

    return with_arguments(region.module, change)


def _remade(right: Tables, make: Make) -> Tables:
    recipe = read_recipe(right)
    return right if recipe is None else make(recipe)


def _like(right: Tables, new: Tables) -> Tables:
    cos, sin = (
        table.reshape(old.shape).to(old.dtype) for table, old in zip(new, right, strict=True)
    )
    return cos, sin


def _tables(region: Region) -> Tables | None:
    if makes_tables(region):
        import torch

        call = region.calls[0]
        with torch.no_grad(), float64_throughout(LongestSum()):
            found = region.module.forward(*call.args, **dict(call.kwargs))
        return found if _is_tables(found) else None
    call = region.calls[0]
    values = (*call.args, *call.kwargs.values())
    return next((value for value in values if _is_tables(value)), None)


def makes_tables(region: Region) -> bool:
    """Tell whether the guilty module is one that makes the tables."""
    return owns_frequencies(region.module)


def owns_frequencies(module: torch.nn.Module) -> bool:
    """Tell whether a module makes rotary tables."""
    return any(name.endswith("inv_freq") for name, _ in module.named_buffers(recurse=False))


def _is_tables(value: Any) -> bool:
    import torch

    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(isinstance(part, torch.Tensor) and part.is_floating_point() for part in value)
        and value[0].shape == value[1].shape
        and value[0].ndim in (2, 3)
    )
