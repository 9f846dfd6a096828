"""What every engine sees of a debug run: a changed configuration, a seed, whose code may run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from test_common.debug_options import DebugOptions
from test_common.debuggable_oracle import DebuggableOracle
from test_common.remote_code import repository_code


@contextmanager
def debug_context(oracle: DebuggableOracle, options: DebugOptions) -> Iterator[Mapping[str, Any]]:
    """Let every engine see the shortened and overridden configuration, and set the seed.

    Args:
        oracle: names the model.
        options: of these `num_hidden_layers`, `hf_config_overrides`, `seed` and
            `trust_remote_code`.

    Yields:
        The fields of the configuration that are changed.
    """
    from test_common.config_overrides import hf_config_overrides
    from test_common.seeding import seed_everything

    seed_everything(options.seed)
    with repository_code(trusted=options.trust_remote_code, label=options.pipeline):
        overrides = _overrides(oracle, options)
        with hf_config_overrides(overrides):
            yield overrides


def _overrides(oracle: DebuggableOracle, options: DebugOptions) -> Mapping[str, Any]:
    """Return what is to be changed in the configuration, tried once on the real one."""
    from test_common.config_overrides import (
        apply_hf_config_override,
        create_layer_overrides,
        load_hf_config,
        merge_overrides,
    )

    if oracle.model_path is None:
        return options.hf_config_overrides
    hub = hub_arguments(oracle)
    layers = create_layer_overrides(oracle.model_path, options.num_hidden_layers, **hub)
    overrides = merge_overrides(layers, options.hf_config_overrides)
    # Loaders swallow what is raised while they load a configuration.
    apply_hf_config_override(load_hf_config(oracle.model_path, **hub), overrides)
    return overrides


def hub_arguments(oracle: DebuggableOracle) -> dict[str, Any]:
    """Return what the oracle says of loading from the Hub, as arguments of our own loaders.

    Args:
        oracle: names the model.
    """
    return {
        "trust_remote_code": bool(oracle.config_params.get("trust_remote_code", False)),
        "revision": oracle.config_params.get("huggingface_model_revision"),
    }
