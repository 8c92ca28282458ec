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


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C and SIGTERM in the block into a stop request; a second one takes effect as usual.

    Signals can be caught in the main thread only; in other threads they take effect as usual.
    """
    stop, owner = StopRequest(), os.getpid()

    def request_stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked process that reads images
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        stop.requested = True
        signal.signal(number, previous[signal.Signals(number)])

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def stop_with_parent() -> None:
    """Send SIGTERM to this process when stdin ends: a pipe that the parent process keeps open while it lives."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
