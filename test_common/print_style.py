"""How tensors are printed or written: the styles of MAX's debug print options, on every engine."""

from enum import StrEnum


class PrintStyle(StrEnum):
    """A form of output.

    Members:
        NATIVE: full tensors in files of the engine's own kind: `.max` from MAX, else `.pt`.
        COMPACT: the corners of each tensor, on the console.
        FULL: every element, on the console.
        BINARY: files of bare bytes, without suffix; dtype and shape are in the manifest.
        BINARY_MAX_CHECKPOINT: `.max` files, with dtype and shape in them.
        SAFETENSORS: one file a step, on the engines whose tensors we write.
    """

    NATIVE = "native"
    COMPACT = "compact"
    FULL = "full"
    BINARY = "binary"
    BINARY_MAX_CHECKPOINT = "binary-max-checkpoint"
    SAFETENSORS = "safetensors"

    @property
    def on_console(self) -> bool:
        """Whether tensors are printed rather than written to files."""
        return self in (PrintStyle.COMPACT, PrintStyle.FULL)
