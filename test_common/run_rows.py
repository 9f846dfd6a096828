"""The rows of a debug run's batch: token ids, the prompts they are of, and what pictures add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from comparison.schema.errors import BadInputError
from test_common.capture_job import EMBEDDINGS_TASK
from test_common.debug_context import debug_context, hub_arguments
from test_common.debug_images import taking_images
from test_common.debug_options import DebugOptions
from test_common.debuggable_oracle import DebuggableOracle

if TYPE_CHECKING:
    from test_common.images import LoadedImage
    from test_common.vision_inputs import VisionInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """The rows of a batch.

    Attributes:
        token_ids: of each row.
        prompts: what each row's ids are made of.
        vision: what their pictures add, None without pictures.
    """

    token_ids: list[list[int]]
    prompts: Sequence[str | Sequence[int]]
    vision: VisionInputs | None = None


def token_ids_of_run(oracle: DebuggableOracle, options: DebugOptions) -> list[list[int]] | None:
    """Return the token ids that a run would be made of, one list a row.

    Args:
        oracle: names the model.
        options: as for the run.

    Returns:
        The rows; None of a model that takes pictures, which says only in a run what it is given.

    Raises:
        BadInputError: as the run would.
    """
    if oracle.takes_images:
        return None
    with debug_context(oracle, options):
        return rows_of_run(oracle, options, ()).token_ids


def rows_of_run(
    oracle: DebuggableOracle, options: DebugOptions, images: Sequence[LoadedImage]
) -> RunRows:
    """Make the rows of a run; within `debug_context`, whose configuration tokenizers see.

    Args:
        oracle: names the model.
        options: of the run.
        images: that every row gets.

    Raises:
        BadInputError: prompts or pictures do not fit the model or the batch.
    """
    prompts: Sequence[str | Sequence[int]] = options.prompts or oracle.inputs
    if not options.prompts:  # the oracle's own are cut to the batch, the user's are not
        prompts = prompts[: options.max_batch_size or oracle.default_batch_size]
    room = _room_for_prompts(oracle, options)
    if images:
        return _rows_with_pictures(oracle, options, prompts, images, room)
    from test_common.prompts import encode_prompts

    ids = encode_prompts(
        oracle.model_path,
        prompts,
        apply_chat_template=oracle.apply_chat_template,
        add_bos_token=oracle.add_bos_token,
        max_length=room,
        **hub_arguments(oracle),
    )
    return RunRows(token_ids=ids, prompts=prompts)


def _rows_with_pictures(
    oracle: DebuggableOracle,
    options: DebugOptions,
    prompts: Sequence[str | Sequence[int]],
    images: Sequence[LoadedImage],
    room: int | None,
) -> RunRows:
    if oracle.task_name == EMBEDDINGS_TASK:
        raise BadInputError(
            f"{options.pipeline} takes images and makes embeddings, and these are run on text only"
        )
    from test_common.prepared_vision import prepared_vision

    ids, vision = prepared_vision(taking_images(oracle), prompts, images, max_length=room)
    return RunRows(token_ids=ids, prompts=prompts, vision=vision)


def _room_for_prompts(oracle: DebuggableOracle, options: DebugOptions) -> int | None:
    """Return the greatest number of tokens that leaves room for the steps, None for no limit."""
    max_length = oracle.config_params.get("max_length")
    if max_length is None:
        return None
    room = int(max_length) - options.num_steps
    if room < 1:
        raise BadInputError(
            f"num_steps {options.num_steps} leaves no room for a prompt: the pipeline's "
            f"max_length is {max_length}"
        )
    return room
