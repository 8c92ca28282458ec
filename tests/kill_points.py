"""Kill a function at each point where it changes the file system."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")


def killed_before_change(number: int, work: Callable[[], object], folder: Path) -> bool:
    """Run ``work`` in a fork of this process that is killed before its given change of the files in a folder, from 0.

    The process should have no threads: call this in a child process of the tests.

    Returns:
        Whether it was killed; False if it makes fewer changes.
    """
    child = os.fork()
    if child == 0:
        sys.addaudithook(_kill_hook(number, folder))
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), "the work fails"
    return status != 0


def kill_points(work: Callable[[], object], folder: Path, prepare: Callable[[], object]) -> Iterator[int]:
    """Yield after each kill: at the first change of the files in a folder, the second, and so on until the work ends.

    Args:
        work: What is killed.
        folder: Absolute path of the folder, with all below it.
        prepare: Restores the files before each run.
    """
    for number in range(10_000):
        prepare()
        if not killed_before_change(number, work, folder):
            return
        yield number


def _kill_hook(number: int, folder: Path) -> Callable[[str, tuple[Any, ...]], None]:
    remaining = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal remaining
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        # Paths below an open folder are relative to it.
        if (event in _CHANGES or writes) and (folder / str(arguments[0])).is_relative_to(folder):
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            remaining -= 1

    return hook
