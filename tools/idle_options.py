"""Which options of diff_models were given, and which of these have no effect on dumps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from comparison.schema.errors import BadInputError

if TYPE_CHECKING:
    from diagnosis.sides import SideSpec

_INPUTS = {
    "texts": "--prompt",
    "prompt_ids": "--prompt-ids",
    "num_steps": "--num-steps",
    "no_cache": "--no-cache",
    "one_at_a_time": "--one-at-a-time or --side-by-side",
}
_SKETCHES = {"mode": "--mode"}
_RUNS = {
    "encoding": "--encoding",
    "device": "--device",
    "prefer_module_v3": "--prefer-module-v3",
    "max_bytes": "--max-bytes",
    "verify_capture": "--verify-capture",
    "output": "--output",
}
_CANDIDATES = {"calibrate": "--calibrate", "check_fma": "--check-fma", "drill": "--drill"}
_FIELDS = {
    "pipeline": "pipeline",
    "texts": "prompts",
    "prompt_ids": "prompts",
    "num_steps": "num_steps",
    "num_hidden_layers": "num_hidden_layers",
    "encoding": "encoding",
    "hf_config_overrides": "hf_config_overrides",
}
_LAYOUT = {
    "num_hidden_layers": "--num-hidden-layers",
    "hf_config_overrides": "--hf-config-overrides",
}


def require_effect(
    context: click.Context, reference: SideSpec, candidates: Sequence[SideSpec]
) -> None:
    """Refuse options that nothing is run with: a dump says itself how it was made.

    Args:
        context: of the command.
        reference: what is taken to be right.
        candidates: what is in question.

    Raises:
        BadInputError: some were given that have no effect; all are named.
    """
    from diagnosis.sides import DumpSide

    from_dumps = all(isinstance(side, DumpSide) for side in candidates)
    idle: list[str] = []
    if isinstance(reference, DumpSide):
        idle += _given(context, _INPUTS | _SKETCHES)
        if from_dumps:
            idle += _given(context, _RUNS)
            idle += _recorded(context, reference.path)
    elif from_dumps and context.params["mode"] == "sketch":
        idle += _given(context, _SKETCHES)
    if from_dumps:
        asked = _given(context, _CANDIDATES)
        idle += [name for name in asked if name != "--drill" or context.params["drill"] != "off"]
    if idle:
        whose = "both sides are dumps" if from_dumps else "the reference is a dump"
        if not isinstance(reference, DumpSide):
            whose = "the candidate is a dump"
        raise BadInputError(
            f"{', '.join(idle)}: no effect, since {whose}, and nothing is run anew for that; "
            "leave it out, or name an engine"
        )


def given_fields(context: click.Context) -> set[str]:
    """Name what the user gave of how sides are run, by the fields of `RunOptions`."""
    return {_FIELDS[name] for name in _FIELDS if _given(context, {name: name})}


def _given(context: click.Context, names: dict[str, str]) -> list[str]:
    return [
        option
        for name, option in names.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def _recorded(context: click.Context, reference: Path) -> list[str]:
    """Name what the reference's own manifest tells, so that the replay takes that."""
    from comparison.store.dump import open_dump

    asked = {name: _LAYOUT[name] for name in _LAYOUT if _given(context, {name: _LAYOUT[name]})}
    manifest = open_dump(reference).manifest if asked else None
    kept = {} if manifest is None else manifest.options
    return [option for name, option in asked.items() if name in kept]
