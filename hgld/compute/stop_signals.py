"""Ctrl-C and SIGTERM as wishes: the step that is under way is finished, and what was learned is saved."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether someone wants the work to end."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Take Ctrl-C and SIGTERM as wishes in the block, each once; a second one ends the process as ever.

    Only the main thread can do so; in others signals do what they always do.
    """
    wish, owner = StopRequest(), os.getpid()

    def note(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked process that reads images: it ends with this one
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        wish.requested = True
        signal.signal(number, before[signal.Signals(number)])

    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_with_parent() -> None:
    """Take it as SIGTERM when stdin ends, which is to be a pipe that a parent holds for as long as it lives."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
