"""The file stems of a dump's tensors, the same in every step."""

from __future__ import annotations

from comparison.schema.tensor_names import file_stem, name_of_stem


class TensorStems:
    """Gives each tensor name a stem of its own."""

    def __init__(self) -> None:
        """Know no names."""
        self._stems: dict[str, str] = {}
        self._taken: set[str] = set()

    def stem(self, name: str) -> tuple[str, bool]:
        """Return the stem of a tensor.

        Args:
            name: full tensor name.

        Returns:
            The stem, and whether it is new and does not spell the name.
        """
        known = self._stems.get(name)
        if known is not None:
            return known, False
        stem = file_stem(name, taken=self._taken)
        self._taken.add(stem.casefold())
        self._stems[name] = stem
        return stem, name_of_stem(stem) != name

    @property
    def file_names(self) -> dict[str, str]:
        """The stems that do not spell their tensor's name, with that name."""
        return {stem: name for name, stem in self._stems.items() if name_of_stem(stem) != name}
