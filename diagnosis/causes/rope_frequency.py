"""Rotary frequencies: another theta, factor or scaling, or tables that are scaled.

The frequency of pair i of P is theta^(-i / P).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from diagnosis.causes.rope import TableRecipe, Tables, recipe_of, with_tables
from diagnosis.causes.rope_bands import bands
from diagnosis.causes.trial import FittedTrial, RunTrial, Trial

if TYPE_CHECKING:
    import torch

    from diagnosis.causes.region import Region

_THETAS = (1e4, 5e5, 1e6, 1e5, 5e6, 1e3)
_FIELDS = {
    "factor": (2.0, 4.0, 8.0, 16.0, 32.0),
    "low_freq_factor": (1.0, 2.0, 4.0),
    "high_freq_factor": (2.0, 4.0, 8.0),
    "original_max_position_embeddings": (32.0, 64.0, 128.0, 2048.0, 8192.0),
    "beta_fast": (16.0, 32.0, 64.0),
    "beta_slow": (1.0, 2.0),
}


def trials(region: Region) -> Iterator[Trial]:
    """Change theta, all frequencies by a factor, the scaling's fields, and each band by itself."""
    recipe = recipe_of(region)
    if recipe is None:
        return
    yield from _of_fields(region)
    yield from _of_other_layers(region)
    theta = _theta_of(recipe)
    yield FittedTrial(
        cause="rope_frequency",
        says="rotates with theta {value}",
        expects=f"theta is {theta:.6g}",
        change=partial(_with_theta, region, theta),
        starts=(*_THETAS, theta * 4, theta / 4),
        neutral=theta,
    )
    yield FittedTrial(
        cause="rope_frequency",
        says="rotates {value} times as fast",
        change=partial(_faster, region),
        starts=(0.5, 2.0, 0.25, 4.0, 0.125, 8.0),
        neutral=1.0,
    )
    yield FittedTrial(
        cause="rope_frequency",
        says="multiplies cos and sin by {value} times the right factor",
        change=partial(_scaled, region),
        starts=(1.1, 0.9, 2.0, 0.5),
        neutral=1.0,
    )
    yield RunTrial(
        cause="rope_frequency",
        says="rotates without the scaling of the frequencies",
        change=lambda: with_tables(region, partial(_plain, region)),
    )
    yield RunTrial(
        cause="rope_frequency",
        says="has the frequencies in reversed order",
        change=lambda: with_tables(
            region, lambda old: replace(old, frequencies=old.frequencies.flip(0)).tables()
        ),
    )
    yield from bands(region, recipe)


def _theta_of(recipe: TableRecipe) -> float:
    """Read theta off the second pair; with a scaling that is only nearly so."""
    pairs = len(recipe.frequencies)
    ratio = float(recipe.frequencies[1] / recipe.frequencies[0]) if pairs > 1 else 1.0
    return float(ratio**-pairs) if ratio > 0 else 1.0


def _with_theta(region: Region, right: float, theta: float) -> AbstractContextManager[None]:
    def make(recipe: TableRecipe) -> Tables:
        import torch

        steps = torch.arange(len(recipe.frequencies), dtype=torch.float64)
        ratio = (right / theta) ** (steps / len(recipe.frequencies))
        return replace(recipe, frequencies=recipe.frequencies * ratio).tables()

    return with_tables(region, make)


def _faster(region: Region, factor: float) -> AbstractContextManager[None]:
    return with_tables(
        region, lambda recipe: replace(recipe, frequencies=recipe.frequencies * factor).tables()
    )


def _scaled(region: Region, factor: float) -> AbstractContextManager[None]:
    return with_tables(
        region, lambda recipe: replace(recipe, factor=recipe.factor * factor).tables()
    )


def _plain(region: Region, recipe: TableRecipe) -> Tables:
    import torch

    parameters = _parameters(region)
    theta = float(parameters.get("rope_theta", _theta_of(recipe)))
    pairs = len(recipe.frequencies)
    steps = torch.arange(pairs, dtype=torch.float64)
    return replace(recipe, frequencies=theta ** (-steps / pairs)).tables()


def _parameters(region: Region) -> dict[str, Any]:
    config = region.config
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    return found if isinstance(found, dict) else {}


def _of_fields(region: Region) -> Iterator[Trial]:
    """Let transformers' own formula of the scaling make frequencies of other fields."""
    parameters = _parameters(region)
    for name, starts in _FIELDS.items():
        value = parameters.get(name)
        if not isinstance(value, int | float):
            continue
        yield FittedTrial(
            cause="rope_frequency",
            says=f"takes {{value}} for {name} of the rotary scaling",
            expects=f"it is {value:g}",
            change=partial(_with_field, region, name),
            starts=tuple(start for start in starts if start != value),
            neutral=float(value),
        )


def _with_field(region: Region, name: str, value: float) -> AbstractContextManager[None]:
    from test_common.rope_scaling import rope_frequencies

    parameters = {**_parameters(region), name: value}
    frequencies, factor = rope_frequencies(region.config, parameters)

    def make(recipe: TableRecipe) -> Tables:
        return replace(recipe, frequencies=frequencies.double(), factor=factor).tables()

    return with_tables(region, make)


def _of_other_layers(region: Region) -> Iterator[Trial]:
    """Take the frequencies that the model keeps for other layers."""
    for path, module in region.model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name.endswith("inv_freq") and "original" not in name:
                yield RunTrial(
                    cause="rope_frequency",
                    says=f"rotates with the frequencies of {path}.{name}",
                    change=partial(_with_buffer, region, buffer),
                )


def _with_buffer(region: Region, buffer: torch.Tensor) -> AbstractContextManager[None]:
    import torch

    def make(recipe: TableRecipe) -> Tables:
        same = buffer.shape == recipe.frequencies.shape and torch.allclose(
            buffer.double(), recipe.frequencies, rtol=1e-6
        )
        if same or buffer.shape != recipe.frequencies.shape:
            raise ValueError("no other frequencies")  # the hypothesis cannot be run
        return replace(recipe, frequencies=buffer.double()).tables()

    return with_tables(region, make)
