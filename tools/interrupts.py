"""Ends a command on Ctrl-C or SIGTERM: cleanly where that goes, at once where it does not."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType
from typing import Final

from tools.standard_streams import complain

INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# How long the main thread may take to notice. It does not while it is in native code, and an
# engine's compiler is there for minutes.
_PATIENCE_SECONDS: Final = 5.0


class Interrupts:
    """Turns the first signal into KeyboardInterrupt, and lets a second one end the process.

    Where the exception cannot be raised, since the main thread is in native code, a thread of its
    own ends the process.

    Attributes:
        seen: whether there was a signal, since libraries turn the exception into errors of their
            own.
    """

    def __init__(self, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        """Take the signals over.

        Args:
            patience_seconds: how long the main thread may take to notice the first signal.
        """
        self.seen = False
        self._patience_seconds = patience_seconds
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # Held back over a fork: the child would take a signal for its parent's, and lose it.
        os.register_at_fork(
            before=_hold_back, after_in_parent=_let_through, after_in_child=_leave_to_parent
        )
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()
        for number in _SIGNALS:
            signal.signal(number, self._interrupt)

    def ignore(self) -> None:
        """Take no more signals: the process is about to end by itself."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.set_wakeup_fd(-1) == self._writer:
            os.close(self._writer)  # which ends the thread

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.seen:  # the user has no patience for the clean end of the first one
            os._exit(INTERRUPTED)
        self.seen = True
        raise KeyboardInterrupt

    def _watch(self) -> None:
        """See signals as they come in, whatever the main thread is doing."""
        if self._next_signal(None):
            again = self._next_signal(self._patience_seconds)
            if not again and self.seen:
                again = self._next_signal(None)
            if again or (again is None and not self.seen):
                self._end()
        os.close(self._reader)

    def _next_signal(self, timeout_seconds: float | None) -> bool | None:
        """Wait for a signal that ends the command.

        Returns:
            True for a signal, False once there is no more to wait for, None after the timeout.
        """
        while select.select([self._reader], [], [], timeout_seconds)[0]:
            number = os.read(self._reader, 1)
            if not number:
                return False
            if number[0] in _SIGNALS:
                return True
        return None

    def _end(self) -> None:
        if not self.seen:
            complain("interrupted")
        os._exit(INTERRUPTED)


def _hold_back() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _leave_to_parent() -> None:
    """Let signals mean in a forked child what they mean without us."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_through()
