"""How much memory a model's run takes at a time, on a device that has none."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class LiveMemory:
    """Adds up the storages that are alive after each operation; a context manager.

    Attributes:
        weight_bytes: size of the model's parameters and buffers, each storage once.
        largest_weight_bytes: size of the largest of them.
        most_bytes: greatest size of all other storages at a time.
    """

    def __init__(self, model: torch.nn.Module, *, conditions: bool) -> None:
        """Look at the weights.

        Args:
            model: the model that is to be run.
            conditions: what the model's code is told when it asks for a truth value. That of
                transformers asks only whether the mask hides nothing.
        """
        self._conditions = conditions
        weights = [*model.parameters(), *model.buffers()]
        sizes = {_number(tensor): tensor.untyped_storage().nbytes() for tensor in weights}
        self.weight_bytes = sum(sizes.values())
        self.largest_weight_bytes = max(sizes.values(), default=0)
        self.most_bytes = 0
        self._weights = set(sizes)
        self._alive: dict[int, tuple[Any, int]] = {}
        self._bytes = 0
        self._mode: Any = None

    def __enter__(self) -> None:
        """Begin to look."""
        self._mode = _mode(self._saw, conditions=self._conditions)
        self._mode.__enter__()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Look no more."""
        self._mode.__exit__(exception_type, exception, traceback)

    def _saw(self, results: Any) -> None:
        import torch
        from torch.multiprocessing.reductions import StorageWeakRef
        from torch.utils._pytree import tree_leaves

        for tensor in tree_leaves(results):
            if not isinstance(tensor, torch.Tensor) or _number(tensor) in self._weights:
                continue
            storage = tensor.untyped_storage()
            reference = StorageWeakRef(storage)
            if reference.cdata not in self._alive:
                self._alive[reference.cdata] = reference, storage.nbytes()
                self._bytes += storage.nbytes()
        if self._bytes > self.most_bytes:  # some may be gone by now
            gone = [number for number, (ref, _) in self._alive.items() if ref.expired()]
            self._bytes -= sum(self._alive.pop(number)[1] for number in gone)
            self.most_bytes = max(self.most_bytes, self._bytes)


def _number(tensor: torch.Tensor) -> int:
    """Return what tells a tensor's storage from all others that are alive."""
    return int(tensor.untyped_storage()._cdata)


def _mode(saw: Callable[[Any], None], *, conditions: bool) -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        """Tells of the results of every operation."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked = func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta
            if asked and args[0].dtype is torch.bool:
                return conditions
            results = func(*args, **(kwargs or {}))
            saw(results)
            return results

    return Mode()
