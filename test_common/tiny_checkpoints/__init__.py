"""Small seeded random checkpoints, one recipe an architecture."""

from test_common.tiny_checkpoints.checkpoint import ensure_tiny_checkpoint
from test_common.tiny_checkpoints.gguf_checkpoint import (
    GGUF_ENCODINGS,
    ensure_tiny_gguf,
    gguf_file_name,
)
from test_common.tiny_checkpoints.recipes import RECIPES

__all__ = [
    "GGUF_ENCODINGS",
    "RECIPES",
    "ensure_tiny_checkpoint",
    "ensure_tiny_gguf",
    "gguf_file_name",
]
