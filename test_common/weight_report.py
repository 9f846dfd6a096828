"""Accounts for every weight of a checkpoint that transformers loaded."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from comparison.schema.errors import EngineError
from test_common.layer_overrides import layer_count

_LOGGER = logging.getLogger(__name__)
_LAYER_NUMBER = re.compile(r"\.(?:layers?|h|blocks?)\.(\d+)\.")
_SHOWN = 5


@contextmanager
def quiet_load() -> Iterator[None]:
    """Keep transformers' table of weights and its progress bars off the console.

    `check_weights` says what is wrong in one line; the table would bury it.
    """
    from transformers.utils import logging as transformers_logging

    had_progress_bar = transformers_logging.is_progress_bar_enabled()
    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(_is_no_report)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        logger.removeFilter(_is_no_report)
        if had_progress_bar:
            transformers_logging.enable_progress_bar()


def check_weights(model_path: str, info: Mapping[str, Any], config: Any) -> None:
    """Refuse a model whose weights are partly the random ones of its constructor.

    Weights of layers that the configuration does not have are left out on purpose; other weights
    that the model has no place for are named in a warning.

    Args:
        model_path: what was loaded, for the message.
        info: what `from_pretrained(..., output_loading_info=True)` returned.
        config: the configuration that the model was built from.

    Raises:
        EngineError: weights are missing, or of another shape than the model's.
    """
    problems = [
        f"{name}: {tuple(there)} in the checkpoint, {tuple(here)} in the model"
        for name, there, here in sorted(info["mismatched_keys"])
    ]
    # A pooler is no part of what sentence models compute, and many checkpoints leave it out.
    missing = sorted(name for name in info["missing_keys"] if "pooler." not in name)
    problems += [f"{name}: not in the checkpoint" for name in missing]
    if problems:
        raise EngineError(
            f"torch loads {model_path} without {len(problems)} weight(s), which would be random: "
            + _listed(problems)
        )
    if info["missing_keys"]:
        _LOGGER.warning("%s has no pooler weights; the pooler's output is random", model_path)
    unused = [name for name in info["unexpected_keys"] if not _is_dropped_layer(name, config)]
    if unused:
        _LOGGER.warning(
            "%s has %d weight(s) without a place in the model: %s",
            model_path,
            len(unused),
            _listed(sorted(unused)),
        )


def _is_no_report(record: logging.LogRecord) -> bool:
    return "LOAD REPORT" not in record.getMessage()


def _is_dropped_layer(name: str, config: Any) -> bool:
    number, count = _LAYER_NUMBER.search(f".{name}"), layer_count(config)
    return number is not None and count is not None and int(number.group(1)) >= count


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
