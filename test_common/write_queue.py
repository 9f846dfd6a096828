"""Writing in the background: tensors are copied at once, and written in order by one thread."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from comparison.numerics.threads import usable_cores
from test_common.copy_ring import CopyRing
from test_common.torch_tensors import in_memory, plain, plain_copy

if TYPE_CHECKING:
    import torch

# Enough for the tensors of some layers: a writer that is as fast as the model on the whole, but not
# in each instant, then holds no one up.
DEFAULT_QUEUE_BYTES = 64 << 20

Write = Callable[["torch.Tensor"], None]


def useful_queue_bytes(most: int = DEFAULT_QUEUE_BYTES) -> int:
    """Return how large a queue is to be, 0 where tensors are better written at once.

    A thread that writes helps where a device computes, or where a core is left over. Else it takes
    the time from the model's own threads, and copies on top of that: on two cores and a disk that
    is faster than the model, a capture took 0.54 s with it and 0.49 s without, of which 0.32 s were
    the model's (`benchmarks.capture`).

    Args:
        most: what it is to be where it helps, bytes.
    """
    import torch

    idle = usable_cores() > torch.get_num_threads()
    return most if idle or torch.accelerator.is_available() else 0


class WriteQueue:
    """Takes tensors, copies them, and has them written in the order in which they came.

    Whoever adds a tensor may change it right after. It waits while the copies take up all of the
    memory that there is for them, and while a tensor is written that is larger than that. After an
    error nothing more is written, and every later call raises it.
    """

    def __init__(self, capacity_bytes: int) -> None:
        """Make an empty queue; its thread begins with the first tensor.

        Args:
            capacity_bytes: greatest size of all copies together.
        """
        self._ring = CopyRing(capacity_bytes)
        self._state = _State(ring=self._ring)
        self._worker: _Worker | None = None
        self._raised = False

    def add(self, tensor: torch.Tensor, write: Write) -> None:
        """Copy a tensor and have it written.

        Args:
            tensor: one that `reason_unreadable` has no reason for.
            write: writes a contiguous tensor in main memory, which it must not keep.

        Raises:
            Exception: what writing an earlier tensor has raised.
        """
        self.check()
        size = tensor.numel() * tensor.element_size()
        if size > self._ring.capacity_bytes:
            self.flush()
            write(in_memory(tensor))
            return
        copy, arrived = self._copy(tensor, size)

        def arrived_and_written() -> None:
            arrived()
            write(copy)

        self._begun().put((arrived_and_written, size > 0))

    def call(self, work: Callable[[], None], *, also_after_error: bool = True) -> None:
        """Have something done after all that was added before.

        Args:
            work: what to do.
            also_after_error: whether to do it even where writing has failed before.
        """
        self._begun().put((work, None if also_after_error else False))

    def check(self, *, again: bool = True) -> None:
        """Raise what writing has raised so far.

        Args:
            again: whether also what a call has raised already.
        """
        if self._state.error is not None and (again or not self._raised):
            self._raised = True
            raise self._state.error

    def flush(self, *, again: bool = True) -> None:
        """Wait until all is written.

        Args:
            again: whether to raise also what a call has raised already.

        Raises:
            Exception: what writing has raised.
        """
        if self._worker is not None:
            written = threading.Event()
            self._begun().put((written.set, None))
            written.wait()
        self.check(again=again)

    def close(self) -> None:
        """Wait until all is written, and end the thread; a later call of `add` begins another.

        Raises:
            Exception: what writing has raised, if no call has raised it yet.
        """
        if self._worker is not None:
            self._worker.end()
            self._worker = None
        self.check(again=False)

    def _begun(self) -> _Worker:
        """Return the worker, which has its thread; Ctrl-C may cut this off at any line."""
        if self._worker is None:
            self._worker = _Worker(self._state)
        if not self._worker.has_thread:
            # Also with the last reference, and at the end of the process: nothing is lost.
            weakref.finalize(self, self._worker.end)
            self._worker.start()
        return self._worker

    def _copy(self, tensor: torch.Tensor, size: int) -> tuple[torch.Tensor, Callable[[], None]]:
        """Copy into the ring; a copy from a device has arrived once the second value returns."""
        import torch

        source = plain(tensor)
        if size == 0:
            return plain_copy(tensor), _nothing
        on_gpu = source.is_cuda
        memory = self._ring.take(size, pinned=on_gpu)
        try:
            copy = memory.view(source.dtype).reshape(source.shape)
            if not on_gpu:
                copy.copy_(source)
                return copy, _nothing
            # The device's next work waits for the copy, and may then overwrite the tensor.
            with torch.cuda.device(source.device):
                copy.copy_(source.contiguous(), non_blocking=True)
                event = torch.cuda.Event()
                event.record()
            return copy, event.synchronize
        except BaseException:
            self._begun().put((_nothing, True))  # gives the memory back, in its turn
            raise


_Work = Callable[[], None]
# Whether a part of the ring goes back then; None: it is to be done after an error too.
_Item = tuple[_Work, bool | None]


@dataclass(slots=True, kw_only=True)
class _State:
    """What a queue shares with its workers, which must not keep the queue itself.

    Attributes:
        ring: memory of the copies.
        error: what was raised first.
    """

    ring: CopyRing
    error: Exception | None = None


class _Worker:
    """A thread that does work, one after the other.

    Ctrl-C may end `start` and `end` anywhere: either may be called again, and of several threads
    that were started only one ever does anything.
    """

    def __init__(self, state: _State) -> None:
        self._state = state
        self._owner = os.getpid()
        self._items: SimpleQueue[_Item | None] = SimpleQueue()
        self._claim = threading.Lock()  # never let go
        self._began, self._ended = threading.Event(), threading.Event()
        self._thread: int | None = None

    @property
    def has_thread(self) -> bool:
        return self._began.is_set()

    def start(self) -> None:
        """Have the thread."""
        # Not one that Python waits for before it calls `end`, which is what ends it.
        threading.Thread(target=self._run, name="dump writer", daemon=True).start()
        self._began.wait()

    def put(self, item: _Item) -> None:
        """Have something done after all that was put before."""
        self._items.put(item)

    def end(self) -> None:
        """Wait until all is done, and end the thread."""
        if os.getpid() != self._owner or self._ended.is_set():
            return  # a fork has the queue, but not its thread
        self._items.put(None)
        if not self.has_thread:
            self.start()
        if self._thread != threading.get_ident():
            self._ended.wait()

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        self._thread = threading.get_ident()
        self._began.set()
        try:
            while (item := self._items.get()) is not None:
                work, holds_memory = item
                del item
                self._do(work, holds_memory)
                del work
        finally:
            self._ended.set()

    def _do(self, work: _Work, holds_memory: bool | None) -> None:
        try:
            if self._state.error is None or holds_memory is None:
                work()
        except Exception as error:  # told to whoever adds, flushes or closes
            self._state.error = self._state.error or error
        finally:
            if holds_memory:
                self._state.ring.give_back()


def _nothing() -> None:
    """Wait for nothing."""
