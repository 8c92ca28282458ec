"""Stop gracefully on Ctrl-C and SIGTERM: finish the current step, then save."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Record of whether a stop has been requested."""

    def __init__(self) -> None:
        self.requested = False
        self._interrupts = False

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise KeyboardInterrupt in the block as soon as a stop is requested, as it has nothing to save."""
        self._interrupts = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._interrupts = False

    def _record(self) -> None:
        self.requested = True
        if self._interrupts:
            raise KeyboardInterrupt


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM in the block into a stop request.

    A second Ctrl-C takes effect as usual. Further SIGTERMs are ignored: SLURM and torchrun send several, as they
    signal all processes of a job, some of which pass the signal on; SIGKILL follows when time is up.

    Signals can be caught in the main thread only; in other threads they take effect as usual.
    """
    stop = StopRequest()

    def request_stop(number: int, frame: FrameType | None) -> None:
        if not stop.requested:
            stop._record()
        elif number == signal.SIGINT:
            signal.signal(number, previous[signal.SIGINT])
            signal.raise_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def ignore_stop_signals() -> None:
    """Ignore Ctrl-C and SIGTERM, in a child process that ends when its parent no longer needs it.

    The terminal and SLURM signal all processes; the parent may need a few more results for its last step.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def stop_with_parent() -> None:
    """Send SIGTERM to this process when stdin ends: a pipe that the parent process keeps open while it lives."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
