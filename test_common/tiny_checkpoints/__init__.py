"""Small seeded random checkpoints, one recipe an architecture."""

from test_common.tiny_checkpoints.checkpoint import ensure_tiny_checkpoint
from test_common.tiny_checkpoints.recipes import RECIPES

__all__ = ["RECIPES", "ensure_tiny_checkpoint"]
