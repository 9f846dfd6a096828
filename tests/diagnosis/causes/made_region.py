"""A guilty computation that is laid out by hand: its values are given and no model is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from comparison.numerics.dtypes import Array
from diagnosis.causes.module_calls import ModuleCall
from diagnosis.causes.region import Region
from diagnosis.causes.trial import OutputTrial, Trial
from diagnosis.check import Check, Place
from diagnosis.rounding import excess_error, rounding_floor

LENGTHS = (6, 5)  # tokens of two rows, a decode step included
NAME = "model.layers.0.mlp.up_proj"


def check_of(
    name: str,
    exact: Array,
    target: Array,
    *,
    lengths: Sequence[int] = LENGTHS,
    order: int = 5,
    is_exact: bool = False,
    dtype: str = "float32",
) -> Check:
    """Make one judged tensor.

    Args:
        name: of the tensor.
        exact: the reference's values, [n, ...].
        target: the candidate's.
        lengths: tokens a row, together n.
        order: place in the order of execution.
        is_exact: whether equality is exact, as of integers.
        dtype: of the candidate.
    """
    native = exact.astype(np.float32) if exact.dtype.kind == "f" else exact
    floor = None if is_exact else rounding_floor(
        native=native, exact=exact, dtype=dtype, longest_sum=8
    )  # fmt: skip
    return Check(
        name=name,
        owner=name.rpartition("-")[0],
        candidate_names=(name,),
        since=(),
        order=order,
        dtype=dtype,
        places=tuple(
            Place(row=row, position=p) for row, length in enumerate(lengths) for p in range(length)
        ),
        floor=floor,
        excess=None if floor is None else excess_error(target, exact, floor),
        candidate=target,
        exact=exact,
        native=native,
    )


class MadeRegion(Region):
    """A region whose runs are known beforehand."""

    def __init__(
        self,
        module: Any,
        first: Check,
        *,
        prompts: Sequence[int] = (5, 4),
        inputs: Array | None = None,
        ids: Array | None = None,
        parent: Any = None,
        model: Any = None,
        checks: Sequence[Check] = (),
        has_attention: bool = False,
    ) -> None:
        """Take what a real one finds out.

        Args:
            module: the guilty module.
            first: the guilty tensor.
            prompts: prompt tokens a row.
            inputs: what went in, [n, in].
            ids: what was looked up, [n].
            parent: the module around it.
            model: the whole model; the module itself if None.
            checks: further tensors that were judged.
            has_attention: whether the module computes attention.
        """
        calls = [SimpleNamespace(prompt_tokens=n, tokens=n + 1) for n in prompts]
        self.first, self.owner = first, first.owner
        self.name = first.owner
        self.module, self.model = module, module if model is None else model
        self.checker: Any = SimpleNamespace(
            wide_calls=calls, submodule=lambda _: torch.nn.Module() if parent is None else parent
        )
        self.checks = (first,)
        self.all_checks = (*checks, first)
        given = inputs if ids is None else ids
        rows = self.positions[:, 0]
        self.calls = tuple(
            ModuleCall(
                row=row,
                args=() if given is None else (torch.from_numpy(given[rows == row]),),
                kwargs={},
            )
            for row in range(len(prompts))
        )
        self.running = self.calls[0]
        self.__dict__.update(
            linear_inputs=inputs, token_ids=ids, has_attention=has_attention, runs_by_itself=True
        )

    def values(
        self,
        change: Callable[[], AbstractContextManager[object]] = nullcontext,
        *,
        calls: Sequence[ModuleCall] | None = None,
    ) -> dict[str, Array]:
        """Run the module alone on what went in; nothing where that is not known."""
        parts = []
        for call in self.calls if calls is None else calls:
            if not call.args:
                return {}
            self.running = call
            with torch.no_grad(), change():
                parts.append(self.module(*call.args).numpy())
        return {self.first.name: np.concatenate(parts)}


def numbers(*shape: int, seed: int = 0) -> Array:
    """Give random numbers in float64."""
    return np.random.default_rng(seed).standard_normal(shape)


def linear_region(
    module: torch.nn.Module, target: Any, *, inputs: Array | None = None, **more: Any
) -> MadeRegion:
    """Make a region of a linear layer whose output the candidate changed.

    Args:
        module: the layer.
        target: of the right output, what the candidate gives.
        inputs: what goes in; random if None.
        **more: as for MadeRegion, and `name`.
    """
    module = module.double()
    name = f"{more.pop('name', NAME)}-output"
    given = numbers(sum(LENGTHS), module.in_features, seed=3) if inputs is None else inputs
    with torch.no_grad():
        exact = module(torch.from_numpy(given)).numpy()
    return MadeRegion(module, check_of(name, exact, target(exact)), inputs=given, **more)


def explained(region: Region, found: Sequence[Trial]) -> list[tuple[str, str]]:
    """Give cause and words of those changes of the output that give the candidate's values."""
    return [
        (trial.cause, trial.says)
        for trial in found
        if isinstance(trial, OutputTrial)
        and np.allclose(trial.predict(region.exact), region.target, rtol=1e-6, atol=1e-9)
    ]
