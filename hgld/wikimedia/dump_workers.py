"""Make parts of a dump's extract in several processes."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from hgld.errors import SourceError
from hgld.progress import Progress
from hgld.wikimedia.dump_part import DumpPart


def make_parts(parts: Sequence[DumpPart], workers: int, progress: Progress) -> None:
    """Make parts in parallel processes, or in the calling process if there is only one worker or part.

    Raises:
        InputError: See :meth:`DumpPart.make`.
        SourceError: A process was killed, such as for want of memory.
    """
    if min(workers, len(parts)) <= 1:
        for part in parts:
            part.make()
            progress.advance(part.range.end - part.range.start)
        return
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(min(workers, len(parts)), context, _end_with_parent)
    try:
        futures = {executor.submit(part.make): part for part in parts}
        for future in as_completed(futures):
            future.result()
            progress.advance(futures[future].range.end - futures[future].range.start)
    except BrokenProcessPool:
        raise SourceError(
            "a worker process was killed, perhaps because memory ran out; the parts that were made are kept: run the "
            "same command again, with fewer `workers`"
        ) from None
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Leave Ctrl-C to the parent process, and end when it does, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
