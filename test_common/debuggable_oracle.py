"""The part of an oracle that a debug run needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from test_common.capture_job import BuildsPipelines


class DebuggableOracle(BuildsPipelines, Protocol):
    """The part of an oracle that a debug run needs."""

    model_path: str | None
    default_batch_size: int | None
    apply_chat_template: bool
    add_bos_token: bool | None
    lora_path: str | None
    takes_images: bool

    @property
    def inputs(self) -> Sequence[str | Sequence[int]]:
        """The oracle's own prompts."""

    @property
    def device_encoding_map(self) -> Mapping[str, Sequence[str]]:
        """Encodings by kind of device."""

    @property
    def label(self) -> str:
        """What messages call it."""

    def resolve_encoding(self, encoding: str | None, *, device_type: str) -> str:
        """Choose the encoding for a kind of device."""
