"""What a run is refused for before any engine is imported, which takes seconds.

Only what is certain: all else is left to the run, which asks transformers and the device.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from comparison.schema.errors import BadInputError
from test_common.config_file import MOST_LABELS, parse_config, read_config_text
from test_common.debug_options import ALL_LAYERS
from test_common.layer_overrides import (
    LAYER_COUNT,
    LAYER_COUNTS,
    OTHER_MODALITIES,
    too_many_layers,
)

_CONFIG = "config.json"
_SUB_CONFIG = "_config"


class NamesEncodings(Protocol):
    """The part of an oracle that is looked at."""

    model_path: str | None

    @property
    def device_encoding_map(self) -> Mapping[str, Sequence[str]]:
        """Encodings by kind of device."""

    @property
    def label(self) -> str:
        """What messages call it."""


def refuse_early(
    oracle: NamesEncodings,
    *,
    encoding: str | None,
    device: str,
    num_hidden_layers: int | str,
    overrides: Mapping[str, Any],
) -> None:
    """Refuse what an oracle's own list and its model's configuration tell to be wrong.

    That is an encoding that is listed nowhere, more layers than the model has, and overrides of
    fields that its configuration does not have or does not take.

    Args:
        oracle: says how to build the model.
        encoding: that is asked for, None for the oracle's first.
        device: `default`, `cpu`, `gpu`, or `gpu:` with indices.
        num_hidden_layers: layers to keep, or `all`.
        overrides: fields of the configuration, by name.

    Raises:
        BadInputError: with what there is; or config.json is far too large.
    """
    if encoding is not None:
        _check_encoding(oracle, encoding, device.partition(":")[0])
    folder = None if oracle.model_path is None else Path(oracle.model_path)
    config = None if folder is None else _config_of(folder)
    if folder is None or config is None:
        return
    _check_labels(config, folder)
    if num_hidden_layers != ALL_LAYERS:
        keep, count = int(num_hidden_layers), _layers_of(config)
        if count is not None and keep > count > 0:
            raise BadInputError(f"{too_many_layers(LAYER_COUNT, keep, count)}, or all")
    if overrides:
        _check_overrides(folder, overrides)


def _check_labels(config: Mapping[str, Any], folder: Path) -> None:
    """Refuse a configuration of which transformers would write names until the memory is full."""
    parts = [config, *config.values()]
    for count in (part.get("num_labels") for part in parts if isinstance(part, dict)):
        if type(count) is int and count > MOST_LABELS:
            raise BadInputError(
                f"{folder / _CONFIG}: expected num_labels of at most {MOST_LABELS}, found "
                f"{count!s:.40}"
            )


def _check_overrides(folder: Path, overrides: Mapping[str, Any]) -> None:
    from transformers import AutoConfig

    from test_common.config_overrides import apply_hf_config_override

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    # Code of the folder, or a field that its class does not take: the run says what is wrong.
    except Exception:
        return
    apply_hf_config_override(config, overrides)


def _check_encoding(oracle: NamesEncodings, encoding: str, kind: str) -> None:
    known = {
        name: tuple(encodings)
        for name, encodings in oracle.device_encoding_map.items()
        if kind in ("default", name)
    }
    if known and not any(encoding in encodings for encodings in known.values()):
        listed = "; ".join(f"{', '.join(found)} on {name!r}" for name, found in known.items())
        raise BadInputError(
            f"{oracle.label} does not support encoding {encoding!r}; supported: {listed}"
        )


def model_layers(model_path: str | None) -> int | None:
    """Return the number of layers that a model's files tell, None where they are not here.

    Args:
        model_path: a folder, or a model of the Hub that is in its cache.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if model_path is None:
        return None
    config = _config_of(Path(model_path))
    if config is not None or Path(model_path).exists():
        return None if config is None else _layers_of(config)
    with suppress(HFValidationError):
        cached = try_to_load_from_cache(model_path, _CONFIG)
        if isinstance(cached, str):
            config = _config_of(Path(cached).parent)
            return None if config is None else _layers_of(config)
    return None


def _layers_of(config: Mapping[str, Any]) -> int | None:
    """Return the number of layers where the configuration tells it of each stack, else None."""
    counts = list(_counts(config))
    known = [count for count in counts if isinstance(count, int)]
    return max(known) if len(known) == len(counts) else None


def _config_of(folder: Path) -> dict[str, Any] | None:
    """Read a folder's configuration; None where there is none, or the run says what is wrong."""
    file = folder / _CONFIG
    try:
        if not file.is_file():
            return None
        config = parse_config(read_config_text(file))
    except BadInputError:  # too large to be read by the run either
        raise
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _counts(config: Mapping[str, Any]) -> Iterator[object]:
    """Yield what each stack tells; None of one that leaves it to its class, or has other names."""
    inside = [
        value
        for name, value in config.items()
        if name.endswith(_SUB_CONFIG)
        and isinstance(value, dict)
        and not any(word in name for word in OTHER_MODALITIES)
    ]
    if LAYER_COUNT in config or not inside:
        yield config.get(LAYER_COUNT)
        yield from (config[name] for name in LAYER_COUNTS if name in config)
    for value in inside:
        yield from _counts(value)
