"""Time and memory of pieces of work, each in a process of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import torch

T = TypeVar("T")


class Cost(NamedTuple):
    """Of one measurement, or the median of some."""

    seconds: float
    gb: float


class How(NamedTuple):
    """How to measure: where, how often, and how long to wait for idle cores before each time."""

    device: str
    repeats: int
    wait_s: float


class Process(NamedTuple):
    """A script beside this one that calls :func:`print_cost`, its arguments, and variables of its environment."""

    script: str
    arguments: Sequence[str]
    variables: Mapping[str, str] = MappingProxyType({})


def measure(processes: Mapping[T, Process], how: How) -> dict[T, Cost]:
    """The medians of all, which run in turns."""
    costs: dict[T, list[Cost]] = {name: [] for name in processes}
    for _ in range(how.repeats):
        for name, (script, arguments, variables) in processes.items():
            wait_for_idle_cores(how.wait_s)
            command = [sys.executable, str(Path(__file__).with_name(script)), *arguments, how.device]
            environment = {**os.environ, **variables}
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            costs[name].append(Cost(**json.loads(run.stdout)))
            print(name, *arguments, costs[name][-1], file=sys.stderr, flush=True)
    return {name: Cost(*(statistics.median(of) for of in zip(*runs, strict=True))) for name, runs in costs.items()}


def wait_for_idle_cores(limit_s: float) -> None:
    """Wait until other programs leave nine tenths of the cores alone; on Linux, and not for ever."""
    stat = Path("/proc/stat")
    until = time.monotonic() + limit_s if stat.exists() else 0.0
    while time.monotonic() < until:
        before = [int(ticks) for ticks in stat.read_text().split()[1:9]]
        time.sleep(0.5)
        spent = [int(ticks) - old for ticks, old in zip(stat.read_text().split()[1:9], before, strict=True)]
        if spent[3] > 0.9 * sum(spent):
            return


def print_cost(work: Callable[[], None], device: str) -> None:
    """Do the work, and print seconds and GB as JSON."""
    with peak_memory(device) as peak:
        began = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "gb": peak()}))


@contextmanager
def peak_memory(device: str) -> Iterator[Callable[[], float]]:
    """A function that says, after the block, how many GB were allocated at most above those before it.

    On a CPU that is anonymous memory (RssAnon), looked at every 2 ms: the pages of a memory-mapped file count as
    resident, too, but belong to the system's cache. On a GPU torch counts, the embeddings there included.
    """
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        yield lambda: torch.cuda.max_memory_allocated() / 1e9
        return
    before, over = anonymous(), threading.Event()
    peak = before

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.002):
            peak = max(peak, anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: peak - before
    finally:
        over.set()
        watcher.join()


def anonymous() -> float:
    """GB of this process's memory that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("RssAnon"))
