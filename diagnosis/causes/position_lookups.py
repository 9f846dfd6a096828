"""Learned embeddings of positions, looked up at other positions.

Legend: S tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from comparison.numerics.dtypes import Array
from diagnosis.causes.changes import with_arguments
from diagnosis.causes.trial import RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region


def of_lookups(
    region: Region, ways: Mapping[str, Callable[[Array, int, int], Array]]
) -> Iterator[Trial]:
    """Yield positions looked up elsewhere, in each embedding whose rows are told by them.

    Args:
        region: the guilty computation.
        ways: what is done to positions; of these, the prompt's tokens, and the row's padding.
    """
    import torch

    for path, module in region.free_modules():
        if not isinstance(module, torch.nn.Embedding) or not _is_of_positions(region, module):
            continue
        for says, way in ways.items():
            yield RunTrial(
                cause="position_ids",
                says=f"{says}{f' in {path}' if path else ''}",
                change=partial(_with_ids, region, module, way),
            )


def _is_of_positions(region: Region, module: Any) -> bool:
    seen: list[bool] = []

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ids = next(iter((*args, *kwargs.values())), None)
        seen.append(_counts(ids))
        return args, kwargs

    region.values(lambda: with_arguments(module, look))
    return bool(seen) and all(seen)


def _counts(ids: Any) -> bool:
    import torch

    if not isinstance(ids, torch.Tensor) or ids.is_floating_point() or ids.numel() < 2:
        return False
    flat = ids.reshape(-1)
    return bool((flat[1:] - flat[:-1] == 1).all())


def _with_ids(
    region: Region, module: Any, way: Callable[[Array, int, int], Array]
) -> AbstractContextManager[None]:
    import torch

    def changed(ids: torch.Tensor) -> torch.Tensor:
        row = region.running.row
        first = ids.reshape(-1)[0]
        counted = (ids.reshape(-1) - first).cpu().numpy()  # some models keep the first rows free
        new = torch.as_tensor(way(counted, region.prompt_tokens(row), region.padding(row)))
        return new.reshape(ids.shape).to(ids) + first

    def change(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (changed(args[0]), *args[1:]), kwargs
        name = next(iter(kwargs))
        return args, {**kwargs, name: changed(kwargs[name])}

    return with_arguments(module, change)
