"""Further runs of a candidate, which tell how much it differs from itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from comparison.store.dump import Dump, open_dump
from diagnosis.calibration import Rerun
from diagnosis.module_dump import ModuleInputs, dump_module
from diagnosis.side_runs import SideDump

if TYPE_CHECKING:
    import torch

_ALONE = 2  # rows that are run without the others


def orders_of(rows: int) -> dict[str, tuple[int, ...]]:
    """Say what is run again, and which rows in which order: once more, turned round, and alone."""
    orders = {"once more": tuple(range(rows))}
    if rows > 1:
        orders["in another order"] = tuple(reversed(range(rows)))
        orders |= {f"with row {row} alone": (row,) for row in range(min(rows, _ALONE))}
    return orders


def side_again(side: SideDump, folder: Path) -> Iterator[Rerun]:
    """Run an engine again on the rows of an earlier run.

    Args:
        side: the earlier run; none are made of a dump that was there already.
        folder: where the dumps go.

    Yields:
        What each run gave.
    """
    manifest = side.dump.manifest
    if manifest is None or side.oracle is None or side.options is None:
        return
    for what, rows in orders_of(len(manifest.rows)).items():
        dump = _again(side, rows, folder / what.replace(" ", "-"))
        yield Rerun(what=what, dump=dump, rows=rows)


def _again(side: SideDump, rows: tuple[int, ...], folder: Path) -> Dump:
    from test_common.debug_run import run_debug_model

    assert side.oracle is not None
    assert side.options is not None
    assert side.dump.manifest is not None
    known = side.dump.manifest.rows
    options = replace(
        side.options,
        output=folder,
        prompts=tuple(known[row].token_ids for row in rows),
        max_batch_size=len(known),  # of the graph, which so is the same one
        weights=False,
        watch_config=False,
    )
    run_debug_model(side.oracle, options)
    return open_dump(folder)


def module_again(
    module: torch.nn.Module, inputs: ModuleInputs, folder: Path, *, globs: Sequence[str] | None
) -> Iterator[Rerun]:
    """Run a module again; on tensors that are no rows of token ids only once more.

    Args:
        module: the candidate.
        inputs: of the earlier run.
        folder: where the dumps go.
        globs: what the earlier run dumped, None for all.

    Yields:
        What each run gave.
    """
    orders = orders_of(len(inputs.rows)) if inputs.rows else {"once more": ()}
    for what, rows in orders.items():
        again = replace(inputs, rows=tuple(inputs.rows[row] for row in rows))
        dump = dump_module(module, again, folder / what.replace(" ", "-"), globs=globs)
        yield Rerun(what=what, dump=dump, rows=rows)
