"""Whether overrides of a configuration, which may be a stranger's, fit the model's weights."""

from __future__ import annotations

from pathlib import Path

from comparison.schema.errors import BadInputError
from oracles.oracle import PipelineOracle
from test_common.configured_size import bytes_of_configured
from test_common.debug_context import debug_context
from test_common.debug_options import DebugOptions
from test_common.error_text import shown

_TIMES, _SPARE_BYTES = 8, 1 << 28  # of the files: narrow ones are widened, and some are tied


def require_size_of_files(oracle: PipelineOracle, options: DebugOptions) -> None:
    """Refuse overrides that make a model far larger than its files, before memory is taken for it.

    Args:
        oracle: names the model; one whose files are not in a folder is let through.
        options: of the run.

    Raises:
        BadInputError: they do; the message names them.
    """
    if not options.hf_config_overrides or oracle.model_path is None:
        return
    folder = Path(oracle.model_path)
    there = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if there == 0:
        return
    with debug_context(oracle, options):
        needed = bytes_of_configured(folder, trusted=options.trust_remote_code)
    if needed is not None and needed > _TIMES * there + _SPARE_BYTES:
        raise BadInputError(
            f"hf_config_overrides {shown(dict(options.hf_config_overrides))} makes a model of "
            f"{needed / 1e9:.1f} GB of the {there / 1e9:.2f} GB of weights in {folder}: expected "
            "fields that leave the weights' shapes as they are"
        )
