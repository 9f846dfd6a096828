"""Overrides that make a model shallower, with every list of one entry a layer cut to match."""

from collections.abc import Iterator
from typing import Any

from comparison.schema.errors import BadInputError
from test_common.error_text import shown
from test_common.model_load_errors import load_errors

LAYER_COUNT = "num_hidden_layers"
LAYER_COUNTS = (LAYER_COUNT, "num_decoder_layers", "decoder_layers")
# Encoders of other modalities stay whole: a shallower one feeds the decoder something else.
OTHER_MODALITIES = ("vision", "visual", "audio", "image", "speech")
# Lists that can be as long as there are layers without having one entry a layer.
_NOT_PER_LAYER = ("_token_id", "_token_ids", "architectures")
_LAYER_INDICES = ("_idxs",)  # lists of layer numbers


def create_layer_overrides(
    model_path_or_config: Any,
    num_hidden_layers: int | str,
    *,
    trust_remote_code: bool = False,
    revision: str | None = None,
) -> dict[str, Any]:
    """Return the configuration overrides that keep only the first layers.

    Args:
        model_path_or_config: Hub id, local folder, or a transformers configuration.
        num_hidden_layers: how many layers to keep, or `all`.
        trust_remote_code: whether code of the model's repository may run.
        revision: Hub revision.

    Returns:
        Overrides, nested as the configuration is (`{"text_config": {...}}`); empty for `all`.

    Raises:
        BadInputError: the number is no positive integer, is more than the model has, or the
            configuration names no number of layers.
        UnknownPipelineError: there is no such model.
        TryAgainError: the Hub cannot be reached.
    """
    keep = _parse(num_hidden_layers)
    if keep is None:
        return {}
    config = load_hf_config(
        model_path_or_config, trust_remote_code=trust_remote_code, revision=revision
    )
    count = layer_count(config)
    if count is None:
        raise BadInputError(f"the configuration {type(config).__name__} names no number of layers")
    if keep > count:
        or_all = ", or all" if count > 0 else ""
        raise BadInputError(f"{too_many_layers(LAYER_COUNT, keep, count)}{or_all}")
    return _overrides(config, keep)


def layer_count_problem(config: Any, name: str, value: Any) -> str | None:
    """Say why a value can be no number of layers; None where it can, and for other fields.

    Args:
        config: a transformers configuration.
        name: a field of it, under any of its names.
        value: what it is to become.
    """
    real_name = getattr(config, "attribute_map", {}).get(name, name)
    counts = {getattr(config, "attribute_map", {}).get(count, count) for count in LAYER_COUNTS}
    if real_name not in counts:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return f"{name} must be a whole number of at least 1, found {shown(value)}"
    count = getattr(config, name, None)
    if isinstance(count, int) and value > count:
        return too_many_layers(name, value, count)
    return None


def too_many_layers(name: str, keep: int, count: int) -> str:
    """Say that a model has fewer layers.

    Args:
        name: of the field or option.
        keep: how many were asked for.
        count: how many there are.
    """
    if count < 1:
        return f"{name} {keep}: the model's own configuration says {count}"
    return f"{name} {keep} is more than the model has: {count}; give 1 to {count}"


def load_hf_config(
    model_path_or_config: Any, *, trust_remote_code: bool = False, revision: str | None = None
) -> Any:
    """Return a transformers configuration; one that is given passes unchanged.

    Raises:
        UnknownPipelineError: there is no such model.
        TryAgainError: the Hub cannot be reached.
        EngineError: transformers cannot read the configuration.
    """
    from transformers import AutoConfig, PretrainedConfig

    if isinstance(model_path_or_config, PretrainedConfig):
        return model_path_or_config
    path = str(model_path_or_config)
    with load_errors(path, engine="transformers"):
        return AutoConfig.from_pretrained(
            path, trust_remote_code=trust_remote_code, revision=revision or "main"
        )


def layer_count(config: Any) -> int | None:
    """Return the number of layers of a model's decoder, or of its only stack; None if unknown."""
    return max(_layer_counts(config), default=None)


def shorter_lists(config: Any, *, count: int, keep: int) -> dict[str, list[Any]]:
    """Return the fields of one entry a layer, cut to the first layers.

    Args:
        config: a configuration whose lists still fit `count`.
        count: the number of layers that the lists are made for.
        keep: the number of layers to keep.
    """
    lists = {
        name: list(value)
        for name, value in config.to_dict().items()
        if isinstance(value, list | tuple) and not name.endswith(_NOT_PER_LAYER)
    }
    cut = {name: value[:keep] for name, value in lists.items() if len(value) == count}
    indices = {
        name: [index for index in value if index < keep]
        for name, value in lists.items()
        if name.endswith(_LAYER_INDICES)
    }
    return {**cut, **indices}


def sub_configs(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each configuration directly inside a configuration."""
    from transformers import PretrainedConfig

    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            yield name, value


def _parse(num_hidden_layers: int | str) -> int | None:
    if num_hidden_layers == "all":
        return None
    try:
        keep = int(num_hidden_layers)
    except ValueError:
        keep = 0
    if keep < 1:
        raise BadInputError(
            f"num_hidden_layers must be a positive number or all, not {num_hidden_layers!r}"
        )
    return keep


def _own_counts(config: Any) -> dict[str, int]:
    found = {name: getattr(config, name, None) for name in LAYER_COUNTS}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _decoders(config: Any) -> Iterator[tuple[str, Any]]:
    for name, sub_config in sub_configs(config):
        if not any(word in name for word in OTHER_MODALITIES):
            yield name, sub_config


def _layer_counts(config: Any) -> Iterator[int]:
    yield from _own_counts(config).values()
    for _, sub_config in _decoders(config):
        yield from _layer_counts(sub_config)


def _overrides(config: Any, keep: int) -> dict[str, Any]:
    """Return the overrides of one configuration and those inside it; nothing where it is short."""
    overrides: dict[str, Any] = {}
    for name, count in _own_counts(config).items():
        if count > keep:
            overrides |= {name: keep, **shorter_lists(config, count=count, keep=keep)}
    for name, sub_config in _decoders(config):
        nested = _overrides(sub_config, keep)
        if nested:
            overrides[name] = nested
    return overrides
