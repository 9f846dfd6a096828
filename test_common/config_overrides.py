"""Changes a model's configuration for every engine alike, while it is loaded."""

import copy
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from comparison.schema.errors import BadInputError
from test_common.config_file import MOST_LABELS
from test_common.error_text import shown
from test_common.layer_overrides import (
    LAYER_COUNT,
    create_layer_overrides,
    layer_count_problem,
    load_hf_config,
    shorter_lists,
    sub_configs,
)
from test_common.patching import Patch, apply_patches

__all__ = [
    "apply_hf_config_override",
    "create_layer_overrides",
    "hf_config_overrides",
    "load_hf_config",
    "merge_overrides",
]

# Changing these would change nothing, or another thing than what they say.
_FIXED = {
    "model_type": "it chose the class of the configuration already",
    "architectures": "it names the class of the checkpoint",
    "auto_map": "it names code of the model's repository",
    "transformers_version": "it tells who wrote the file",
    "_name_or_path": "it tells where the file is",
    "name_or_path": "it tells where the file is",
    "dtype": "the encoding decides (--encoding)",
    "torch_dtype": "the encoding decides (--encoding)",
    "return_dict": "a run finds its results by name",
}
_LABELS = "num_labels"
# Fields that take one value or a list of them.
_ONE_OR_MANY = ("_token_id",)
_KINDS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("true or false", (bool,)),
    ("a number", (int, float)),
    ("a text", (str,)),
    ("a list", (list, tuple)),
    ("an object", (Mapping,)),
)


def merge_overrides(
    layer_overrides: Mapping[str, Any], user_overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Return both sets of overrides as one; the user's values win.

    Where the user gives a number of layers, nothing of the layer overrides stays at that place:
    its lists were cut to another length.

    Args:
        layer_overrides: what `create_layer_overrides` returned.
        user_overrides: what the user asked for, nested like the configuration.
    """
    merged = dict(layer_overrides)
    if LAYER_COUNT in user_overrides:
        merged = {name: value for name, value in merged.items() if isinstance(value, Mapping)}
    for name, value in user_overrides.items():
        current = merged.get(name)
        if isinstance(current, Mapping) and isinstance(value, Mapping):
            value = merge_overrides(current, value)
        merged[name] = value
    return merged


def apply_hf_config_override(config: Any, overrides: Mapping[str, Any]) -> Any:
    """Change a configuration in place and return it.

    A mapping changes the fields of a nested configuration, or the entries of a field that is
    itself a dictionary, such as `rope_parameters`. A lower number of layers cuts the lists of one
    entry a layer that are not given themselves.

    Args:
        config: a transformers configuration.
        overrides: field to value, nested like the configuration.

    Raises:
        BadInputError: a field that the configuration does not have, with the nearest names; one
            whose change has no meaning; or a value that it does not take, among them a number of
            layers that the model does not have. Nothing is changed where that is known before.
    """
    problems = list(_problems(config, overrides, prefix=""))
    if problems:
        raise BadInputError("hf_config_overrides: " + "; ".join(problems))
    _apply(config, overrides, prefix="")
    return config


@contextmanager
def hf_config_overrides(overrides: Mapping[str, Any]) -> Iterator[None]:
    """Let every `AutoConfig.from_pretrained` of the block return an overridden configuration.

    Torch and MAX both load their configuration through it. MAX keeps the configuration of a
    repository for the life of the process: enter the block before its first load, or within the
    patches of `capture_settings`, which let it begin anew.

    Args:
        overrides: field to value, nested like the configuration.
    """
    from transformers import AutoConfig

    if not overrides:
        yield
        return
    patch = Patch(
        target=AutoConfig,
        name="from_pretrained",
        replacement=lambda original: _overriding(original, overrides),
        wraps=True,
        missing_api="MAX has no argument that overrides fields of the Hugging Face configuration",
        remove_when="max.pipelines.PipelineArgs takes overrides of the Hugging Face configuration",
    )
    with apply_patches([patch]):
        yield


def _overriding(original: Callable[..., Any], overrides: Mapping[str, Any]) -> Callable[..., Any]:
    def from_pretrained(*args: Any, **kwargs: Any) -> Any:
        loaded = original(*args, **kwargs)
        if isinstance(loaded, tuple):  # return_unused_kwargs
            return (apply_hf_config_override(loaded[0], overrides), *loaded[1:])
        return apply_hf_config_override(loaded, overrides)

    return from_pretrained


def _problems(config: Any, overrides: Mapping[str, Any], *, prefix: str) -> Iterator[str]:
    nested = dict(sub_configs(config))
    known = _known_fields(config)
    for name, value in overrides.items():
        if name in _FIXED:
            yield f"{prefix}{name} cannot be overridden: {_FIXED[name]}"
        elif name.startswith("_"):
            yield f"{prefix}{name} cannot be overridden: it is no field of a config.json"
        elif name == _LABELS and type(value) is int and value > MOST_LABELS:
            yield f"{prefix}{name} must be at most {MOST_LABELS}, found {value}"
        elif name in nested:
            if not isinstance(value, Mapping):
                yield f"{prefix}{name} is a configuration: expected an object, found {value!r}"
            else:
                yield from _problems(nested[name], value, prefix=f"{prefix}{name}.")
        elif name not in known:
            yield f"unknown field {prefix}{name}{_nearest(name, config)}"
        else:
            problem = layer_count_problem(config, name, value)
            if problem is not None:
                yield f"{prefix}{problem}"
            else:
                yield from _kind_problems(getattr(config, name, None), value, f"{prefix}{name}")


def _kind_problems(current: Any, value: Any, path: str) -> Iterator[str]:
    """Say where a value is of another kind than the present one; null, on either side, is none."""
    expected, found = _kind(current), _kind(value)
    if isinstance(current, Mapping) and isinstance(value, Mapping):
        for key in value:
            yield from _kind_problems(current.get(key), value[key], f"{path}.{key}")
    elif path.endswith(_ONE_OR_MANY) and {expected, found} == {"a number", "a list"}:
        return
    elif expected != found and expected is not None and found is not None:
        yield f"{path} must be {expected}, as {shown(current)} is, found {shown(value)}"


def _kind(value: Any) -> str | None:
    """Return what JSON calls a value; None for null, and for what JSON cannot hold."""
    return next((name for name, types in _KINDS if isinstance(value, types)), None)


def _known_fields(config: Any) -> set[str]:
    return {*config.to_dict(), *vars(config), *getattr(config, "attribute_map", {})}


def _nearest(name: str, config: Any) -> str:
    """Return the hint at the nearest fields, those of nested objects included."""
    tails: dict[str, str] = {}
    for path in _field_paths(config.to_dict(), prefix=""):
        tails.setdefault(path.rpartition(".")[2], path)
    near = difflib.get_close_matches(name, tails, n=3, cutoff=0.6)
    return f", nearest: {', '.join(tails[tail] for tail in near)}" if near else ""


def _field_paths(fields: Mapping[Any, Any], *, prefix: str) -> Iterator[str]:
    for name, value in fields.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _field_paths(value, prefix=f"{prefix}{name}.")


def _apply(config: Any, overrides: Mapping[str, Any], *, prefix: str) -> None:
    nested = dict(sub_configs(config))
    for name, value in _with_shorter_lists(config, overrides).items():
        if name in nested:
            _apply(nested[name], value, prefix=f"{prefix}{name}.")
            continue
        current = getattr(config, name, None)
        if isinstance(current, Mapping) and isinstance(value, Mapping):
            value = merge_overrides(current, value)
        _set(config, name, copy.deepcopy(value), prefix=prefix)


def _with_shorter_lists(config: Any, overrides: Mapping[str, Any]) -> dict[str, Any]:
    keep, count = overrides.get(LAYER_COUNT), getattr(config, LAYER_COUNT, None)
    if not isinstance(keep, int) or not isinstance(count, int) or keep >= count:
        return dict(overrides)
    return {**shorter_lists(config, count=count, keep=keep), **overrides}


def _set(config: Any, name: str, value: Any, *, prefix: str) -> None:
    try:
        setattr(config, name, value)
    # Configurations validate in their own ways; what they raise differs by class and version.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise BadInputError(
            f"hf_config_overrides: {prefix}{name} does not take {value!r}: {reason}"
        ) from error
