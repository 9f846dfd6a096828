"""The oracle of a checkpoint that is made on first use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracles.generic_oracle import GenericOracle


class MadeCheckpointOracle(GenericOracle):
    """Like `GenericOracle`, for a folder that exists only once someone asks for it."""

    def __init__(self, key: str, *, make: Callable[[], Path], **settings: Any) -> None:
        """Record how to make the folder.

        Args:
            key: the oracle's key, for messages.
            make: makes the folder, or finds the one made before.
            settings: further arguments of `GenericOracle`.
        """
        self.key = key
        self._make = make
        super().__init__(key, **settings)

    # Nothing is made when the registry is imported, so the path cannot be an attribute.
    @property
    def model_path(self) -> str:
        """Return the checkpoint's folder, making the checkpoint if need be."""
        self._model_path = str(self._make())
        return self._model_path if self.lora_path is None else self._merged(self.lora_path)

    @model_path.setter
    def model_path(self, value: str) -> None:
        """Keep the key that the base class records, until the folder is made."""
        self._model_path = value

    @property
    def label(self) -> str:
        """Return the key: the folder may not exist yet."""
        return self.key

    def __repr__(self) -> str:
        """Show the class and the key."""
        return f"{type(self).__name__}({self.key!r})"
