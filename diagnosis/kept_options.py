"""How a dump's run was asked for: on what, with how many layers, with which configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from comparison.chunks import with_stretches
from comparison.schema.errors import BadInputError
from comparison.schema.manifest import Manifest
from comparison.store.dump import Dump, open_dump
from diagnosis.manifest_fit import require_fit
from diagnosis.side_runs import RunOptions, with_prompts_of
from diagnosis.sides import DumpSide, EngineSide, SideSpec
from oracles.registry import PIPELINE_ORACLES
from test_common.debug_options import ALL_LAYERS
from test_common.error_text import shown

_MOST_LAYERS = 1_000_000
_FEW_TOKENS = 20_000  # of all prompts together, which any dump may tell of
_LEAST_BYTES = 4  # that each of more tokens leaves in a dump
_ON = ("prompts", "num_steps", "seed")
_SAID = {
    "pipeline": "pipeline {}",
    "prompts": "its token ids",
    "num_steps": "num_steps {}",
    "seed": "seed {}",
    "num_hidden_layers": "num_hidden_layers {}",
    "hf_config_overrides": "its hf_config_overrides",
}


def run_as_dumps(
    run: RunOptions, sides: Sequence[SideSpec], *, given: Collection[str] | None = None
) -> tuple[RunOptions, str | None]:
    """Let engines run as the first dump that they are held against or with was run.

    Args:
        run: how the user wants them to run.
        sides: all that take part.
        given: names of the fields that the user gave, which stay; None for all that are unlike
            the default.

    Returns:
        How to run, and what was taken from the dump, as a line; None where nothing was.

    Raises:
        BadInputError: the dump cannot be read.
    """
    dumps = [side.path for side in sides if isinstance(side, DumpSide)]
    if not dumps or not any(isinstance(side, EngineSide) for side in sides):
        return run, None
    dump = open_dump(dumps[0])
    if dump.manifest is None:
        return run, None
    require_fit(with_stretches(dump), fed=True)
    dump = replace(dump, manifest=_as_far_as_dumped(dump, dump.manifest))
    if given is None:
        plain = RunOptions()
        names = [field.name for field in fields(run)]
        given = {name for name in names if getattr(run, name) != getattr(plain, name)}
    taken = _filled(run, dump, given)
    _require_name(taken, dump, sides)
    unlike = [name for name in _SAID if getattr(taken, name) != getattr(run, name)]
    if not unlike:
        return taken, None
    said = ", ".join(_SAID[name].format(getattr(taken, name)) for name in unlike)
    return taken, f"what is run takes from {dump.path}: {said}"


def _filled(run: RunOptions, dump: Dump, given: Collection[str]) -> RunOptions:
    assert dump.manifest is not None  # the caller made sure
    kept = run_as_kept(run, dump)
    pipeline = run.pipeline
    if pipeline is None and dump.manifest.pipeline in PIPELINE_ORACLES:
        pipeline = dump.manifest.pipeline  # no folder or Hub id that a stranger names
    kept = replace(kept, pipeline=pipeline, encoding=run.encoding)
    pictures = dump.manifest.options.get("images")
    own = {name: getattr(run, name) for name in given}
    if pictures:  # token ids alone are not what it ran on
        own |= {name: getattr(run, name) for name in _ON}
    return replace(kept, **own)


def _require_name(run: RunOptions, dump: Dump, sides: Sequence[SideSpec]) -> None:
    """Refuse to load what only a dump names, and say what it names."""
    unnamed = [side for side in sides if isinstance(side, EngineSide) and side.oracle is None]
    if run.pipeline is None and unnamed:
        named = "" if dump.manifest is None else dump.manifest.pipeline
        raise BadInputError(
            f"name what {unnamed[0]} is to run, --pipeline NAME: {dump.path} was made of "
            f"{shown(named)}, which is not registered here, and nothing is loaded that only a "
            "dump names"
        )


def _as_far_as_dumped(dump: Dump, manifest: Manifest) -> Manifest:
    """Bound what a run would do for a dump's sake by what lies there.

    Raises:
        BadInputError: the manifest tells of more steps or tokens than the dump can hold.
    """
    tokens = sum(len(row.token_ids) for row in manifest.rows)
    there = sum(entry.path.stat().st_size for entry in dump.entries if entry.path.is_file())
    if tokens > max(_FEW_TOKENS, there // _LEAST_BYTES):
        raise BadInputError(
            f"{dump.path}: prompts of {tokens} tokens by its manifest, and {there} bytes of "
            "tensors, which cannot be of so many; dump it again"
        )
    if not dump.complete:  # what it generated is not written down
        steps = 1 + max((entry.step for entry in dump.entries), default=0)
        return replace(manifest, steps=min(steps, manifest.steps))
    chosen = max((len(row.generated) for row in manifest.rows), default=0)
    if manifest.rows and not 1 <= manifest.steps <= max(chosen, 1):
        raise BadInputError(
            f"{dump.path}: {manifest.steps} steps by its manifest, whose rows generated {chosen} "
            "tokens: expected one a step; dump it again"
        )
    return manifest


def run_as_kept(run: RunOptions, kept: Dump) -> RunOptions:
    """Run a side on what a kept dump was made of, on as many layers and in its encoding.

    Raises:
        BadInputError: the dump has no manifest, or that holds something else in their place.
    """
    if kept.manifest is None:
        raise BadInputError(
            f"{kept.path}: no manifest.json, so it does not say what the candidate is to be run "
            "on; make the dump with debug_model or golden_dump"
        )
    return with_prompts_of(
        replace(
            run,
            encoding=run.encoding or kept.manifest.encoding,
            num_hidden_layers=kept_layers(kept, run),
            hf_config_overrides=kept_overrides(kept, run),
            recorded_in=kept.path,
        ),
        kept,
    )


def kept_layers(dump: Dump, run: RunOptions) -> int | str:
    """Return the number of layers that a dump's run was asked for; else what this run is.

    Args:
        dump: a dump.
        run: how this run is to be.

    Raises:
        BadInputError: the manifest holds something else in its place.
    """
    found = _options(dump).get("num_hidden_layers", run.num_hidden_layers)
    if found == ALL_LAYERS or (type(found) is int and 0 < found <= _MOST_LAYERS):
        return found
    raise _error(dump, "num_hidden_layers", "a number of layers, or all,", found)


def kept_overrides(dump: Dump, run: RunOptions) -> Mapping[str, Any]:
    """Return the fields of the configuration that a dump's run overrode; else those of this run.

    Args:
        dump: a dump.
        run: how this run is to be.

    Raises:
        BadInputError: the manifest holds something else in their place.
    """
    found = _options(dump).get("hf_config_overrides", run.hf_config_overrides)
    if isinstance(found, Mapping):
        return found
    raise _error(dump, "hf_config_overrides", "an object", found)


def _options(dump: Dump) -> Mapping[str, Any]:
    return {} if dump.manifest is None else dump.manifest.options


def _error(dump: Dump, key: str, expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"{dump.path}: expected {expected} as 'options.{key}' in the manifest, found {found!r:.80}"
    )
