"""How many layers a dump's run had, and which fields of its configuration were overridden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comparison.schema.errors import BadInputError
from comparison.store.dump import Dump
from diagnosis.side_runs import RunOptions


def kept_layers(dump: Dump, run: RunOptions) -> int | str:
    """Return the number of layers that a dump's run was asked for; else what this run is.

    Args:
        dump: a dump.
        run: how this run is to be.

    Raises:
        BadInputError: the manifest holds something else in its place.
    """
    found = _options(dump).get("num_hidden_layers", run.num_hidden_layers)
    if isinstance(found, int | str) and not isinstance(found, bool):
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
