"""The queue keeps the order, holds no more than it may, and loses neither tensors nor errors."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
import torch

from test_common.copy_ring import CopyRing
from test_common.write_queue import DEFAULT_QUEUE_BYTES, WriteQueue, useful_queue_bytes

LIMIT_SECONDS = 60


@pytest.mark.parametrize(
    ("cores", "threads", "device", "expected"),
    [
        (8, 2, False, DEFAULT_QUEUE_BYTES),
        (2, 2, False, 0),
        (2, 4, False, 0),
        (2, 2, True, DEFAULT_QUEUE_BYTES),
    ],
)
def test_a_queue_is_useful_where_a_core_is_left_over_or_a_device_computes(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: int, device: bool, expected: int
) -> None:
    monkeypatch.setattr("test_common.write_queue.usable_cores", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: device)
    assert useful_queue_bytes() == expected
    assert useful_queue_bytes(1 << 20) == min(expected, 1 << 20)


def test_what_is_written_is_what_the_tensor_was_when_it_was_added() -> None:
    queue, written = WriteQueue(1000), list[torch.Tensor]()
    tensor, begun = torch.zeros(7), threading.Event()

    def write(copy: torch.Tensor) -> None:
        begun.wait(LIMIT_SECONDS)
        written.append(copy.clone())

    for number in range(5):
        tensor.fill_(number)
        queue.add(tensor, write)
    tensor.fill_(-1)
    assert written == []
    begun.set()
    queue.flush()
    assert [copy.tolist() for copy in written] == [[float(n)] * 7 for n in range(5)]


@pytest.mark.parametrize("size", [1, 3, 64, 100, 190, 999])
def test_copies_keep_their_values_while_room_is_used_again(size: int) -> None:
    queue, written = WriteQueue(1000), list[bytes]()
    tensors = [torch.randint(256, (size + n % 3,), dtype=torch.uint8) for n in range(300)]

    def write(copy: torch.Tensor) -> None:
        if len(written) % 7 == 0:
            time.sleep(0.001)
        written.append(copy.numpy().tobytes())

    for tensor in tensors:
        queue.add(tensor, write)
    queue.close()
    assert written == [tensor.numpy().tobytes() for tensor in tensors]


def test_whoever_adds_waits_for_room() -> None:
    queue, go, added = WriteQueue(1024), threading.Event(), list[int]()

    def wait(_: torch.Tensor) -> None:
        go.wait(LIMIT_SECONDS)

    def add() -> None:
        for number in range(4):
            queue.add(torch.zeros(400, dtype=torch.uint8), wait)
            added.append(number)

    thread = threading.Thread(target=add)
    thread.start()
    time.sleep(0.2)
    assert added == [0, 1]
    go.set()
    thread.join(LIMIT_SECONDS)
    queue.flush()
    assert added == [0, 1, 2, 3]


def test_a_tensor_larger_than_the_queue_is_written_in_its_turn_and_not_copied() -> None:
    queue, order = WriteQueue(64), list[int]()
    small, large = torch.zeros(2), torch.zeros(100)
    queue.add(small, lambda copy: order.append(copy.numel()))
    queue.add(large, lambda copy: order.append(copy.data_ptr() == large.data_ptr()))
    queue.add(large.view(2, 50).T, lambda copy: order.append(copy.stride(0)))
    queue.close()
    assert order == [2, True, 2]


def test_an_error_ends_the_writing_and_reaches_every_later_call() -> None:
    queue, written = WriteQueue(1000), list[str]()

    def fail(_: torch.Tensor) -> None:
        raise OSError(28, "No space left on device")

    queue.add(torch.zeros(3), lambda _: written.append("before"))
    queue.add(torch.zeros(3), fail)
    with pytest.raises(OSError, match="No space"):
        queue.flush()
    for call in (queue.flush, lambda: queue.add(torch.zeros(3), lambda _: written.append("no"))):
        with pytest.raises(OSError, match="No space"):
            call()
    queue.flush(again=False)
    queue.close()
    assert written == ["before"]


def test_an_error_that_no_call_has_raised_is_raised_at_the_end() -> None:
    queue = WriteQueue(1000)

    def fail(_: torch.Tensor) -> None:
        int("x")

    queue.add(torch.zeros(3), fail)
    with pytest.raises(ValueError, match="invalid literal"):
        queue.close()
    queue.close()


def test_what_cannot_be_copied_leaves_the_queue_in_order() -> None:
    queue, written = WriteQueue(256), list[int]()
    broken = torch.empty(3, device="meta")
    for number in range(20):
        with pytest.raises(NotImplementedError):
            queue.add(broken, partial(_append, written, -1))
        queue.add(torch.zeros(30), partial(_append, written, number))
    queue.close()
    assert written == list(range(20))


def test_what_was_added_is_written_though_no_one_waits_for_it() -> None:
    code = """
import time, torch
from test_common.write_queue import WriteQueue
queue = WriteQueue(1000)
for number in range(5):
    queue.add(torch.full((3,), number), lambda copy: (time.sleep(0.05), print(copy.tolist())))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str([n] * 3) for n in range(5)]


def _append(written: list[int], number: int, copy: torch.Tensor) -> None:
    assert copy.numel() == 30
    written.append(number)


def test_parts_of_a_ring_never_meet() -> None:
    ring, taken = CopyRing(1000), list[tuple[int, int]]()
    generator = torch.Generator().manual_seed(3)
    for _ in range(2000):
        size = int(torch.randint(1, 300, (), generator=generator))
        while len(taken) > 0 and (sum(e - b + 64 for b, e in taken) + size > 500):
            ring.give_back()
            taken.pop(0)
        part = ring.take(size)
        begin = part.storage_offset()
        assert begin % 64 == 0
        assert begin + size <= 1000
        assert all(begin + size <= b or begin >= e for b, e in taken)
        taken.append((begin, begin + size))


@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.parametrize("is_started", [True, False], ids=["after", "before"])
def test_ctrl_c_while_the_thread_starts_leaves_one_that_ends(
    is_started: bool, attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, written = threading.Thread.start, list[int]()
    queue = WriteQueue(1000)

    def cut_off(thread: threading.Thread) -> None:
        if is_started:
            start(thread)
        monkeypatch.setattr(threading.Thread, "start", start)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", cut_off)
    with pytest.raises(KeyboardInterrupt):
        queue.call(partial(written.append, -1))
    for number in range(3):
        queue.call(partial(written.append, number))
    _ends_in_time(queue.close)
    assert written == [0, 1, 2]


def test_ctrl_c_while_it_waits_for_the_end_does_not_keep_it_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, go, written = WriteQueue(1000), threading.Lock(), list[int]()
    wait = threading.Event.wait

    def cut_off(event: threading.Event, timeout: float | None = None) -> bool:
        monkeypatch.setattr(threading.Event, "wait", wait)
        raise KeyboardInterrupt

    with go:
        queue.call(lambda: go.acquire(timeout=LIMIT_SECONDS))
        queue.call(partial(written.append, 1))
        monkeypatch.setattr(threading.Event, "wait", cut_off)
        with pytest.raises(KeyboardInterrupt):
            queue.close()
        assert written == []
    _ends_in_time(queue.close)
    assert written == [1]


def _ends_in_time(close: Callable[[], None]) -> None:
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(LIMIT_SECONDS / 3)
    assert not closing.is_alive()
