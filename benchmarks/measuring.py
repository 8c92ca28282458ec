"""Measure time and memory of jobs, each in a process of its own."""

from __future__ import annotations

import json
import math
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
    """Time and peak memory of one measurement, or the medians of several."""

    seconds: float
    gb: float
    processor_s: float = math.nan


class MeasurementConfig(NamedTuple):
    """Device, number of repetitions, and how long to wait for idle cores before each measurement."""

    device: str
    repeats: int
    wait_s: float


class BenchmarkProcess(NamedTuple):
    """A script in this folder that calls :func:`print_cost`, its arguments, and environment variables."""

    script: str
    arguments: Sequence[str]
    variables: Mapping[str, str] = MappingProxyType({})


def measure(processes: Mapping[T, BenchmarkProcess], config: MeasurementConfig) -> dict[T, Cost]:
    """Run the processes in turns, and return the medians of each."""
    costs: dict[T, list[Cost]] = {name: [] for name in processes}
    for _ in range(config.repeats):
        for name, (script, arguments, variables) in processes.items():
            wait_for_idle_cores(config.wait_s)
            command = [
                sys.executable,
                str(Path(__file__).with_name(script)),
                *arguments,
                config.device,
            ]
            environment = {**os.environ, **variables}
            run = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            costs[name].append(Cost(**json.loads(run.stdout)))
            print(name, *arguments, costs[name][-1], file=sys.stderr, flush=True)
    return {
        name: Cost(*(statistics.median(values) for values in zip(*runs, strict=True)))
        for name, runs in costs.items()
    }


def wait_for_idle_cores(limit_s: float) -> None:
    """Wait until nine tenths of the cores are idle, at most ``limit_s`` seconds; does nothing outside Linux."""
    stat = Path("/proc/stat")
    deadline = time.monotonic() + limit_s if stat.exists() else 0.0
    while time.monotonic() < deadline:
        before = [int(ticks) for ticks in stat.read_text().split()[1:9]]
        time.sleep(0.5)
        ticks_spent = [
            int(ticks) - old
            for ticks, old in zip(stat.read_text().split()[1:9], before, strict=True)
        ]
        if ticks_spent[3] > 0.9 * sum(ticks_spent):
            return


def print_cost(work: Callable[[], None], device: str) -> None:
    """Run a job, and print its seconds, GB and seconds of processor time as JSON."""
    with peak_memory(device) as peak:
        started, processor_started = time.perf_counter(), time.process_time()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds, processor_s = (
            time.perf_counter() - started,
            time.process_time() - processor_started,
        )
    print(json.dumps({"seconds": seconds, "gb": peak(), "processor_s": processor_s}))


@contextmanager
def peak_memory(device: str) -> Iterator[Callable[[], float]]:
    """Yield a function that returns, after the block, the peak of allocated memory in GB above the level before it.

    On a CPU this is anonymous memory (RssAnon), sampled every 2 ms: the pages of a memory-mapped file are resident as
    well, but belong to the system's cache. On a GPU torch counts it, including the embeddings.
    """
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        yield lambda: torch.cuda.max_memory_allocated() / 1e9
        return
    before, finished = anonymous_memory(), threading.Event()
    peak = before

    def watch() -> None:
        nonlocal peak
        while not finished.wait(0.002):
            peak = max(peak, anonymous_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: peak - before
    finally:
        finished.set()
        watcher.join()


def anonymous_memory() -> float:
    """Return the GB of this process's memory that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("RssAnon"))
