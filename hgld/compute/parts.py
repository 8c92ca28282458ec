"""Parts of work that are done separately: as jobs of any scheduler, or as tasks of a Ray cluster.

A part is the same command line with ``--part N/COUNT``, which writes a part of the output from the same inputs. A
part that is repeated gives the same result. Ray is one way to do all parts: it decides where they run, and repeats
parts whose process or node is lost.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hgld.compute.machine import disable_trimming
from hgld.errors import ConfigurationError, ProcessError, indented_list, require_at_least
from hgld.progress import Progress
from hgld.resources import import_extra

T = TypeVar("T")

#: How often Ray repeats a part whose process or node was lost.
_MAX_RETRIES = 3


@dataclass(frozen=True)
class Part:
    """One of several parts of nearly the same size, into which work is divided.

    Args:
        number: Number of the part, from 1.
        count: Number of parts.

    Raises:
        ConfigurationError: The number is not one of 1 to ``count``.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ConfigurationError(
                f"`part` is {self}; expected 1/{self.count} to {self.count}/{self.count}"
            )

    @classmethod
    def parse(cls, text: str) -> Part:
        """Return the part that a text such as ``3/16`` names.

        Raises:
            ConfigurationError: The text names no part.

        >>> Part.parse("3/16")
        Part(number=3, count=16)
        """
        match = re.fullmatch(r"(\d+)/([1-9]\d*)", text.strip())
        if match is None:
            raise ConfigurationError(
                f'`part` is "{text}"; expected a part and the number of parts, such as 3/16'
            )
        return cls(int(match[1]), int(match[2]))

    def of(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items of this part, which are consecutive: all parts together have each item once.

        >>> [Part(number, 3).of("abcdefgh") for number in (1, 2, 3)]
        ['ab', 'cde', 'fgh']
        """
        start = len(items) * (self.number - 1) // self.count
        stop = len(items) * self.number // self.count
        return items[start:stop]

    @property
    def file_name(self) -> str:
        """Name of the file of the part without its suffix; names sort in the order of the parts.

        >>> Part(3, 16).file_name
        '03-of-16'
        """
        return f"{self.number:0{len(str(self.count))}}-of-{self.count}"

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class PartsConfig:
    """How the work of a command is divided.

    Args:
        part: Part of the work that the command does. Default: all of the work.
        ray: Address of a Ray cluster that computes ``parts``, such as auto or 10.0.0.1:6379; the command then joins
            them. Default: none.
        parts: Number of parts for ``ray``. Choose many more than run at the same time, as a lost part is repeated.

    Raises:
        ConfigurationError: Options are missing, or exclude each other.
    """

    part: Part | None = None
    ray: str | None = None
    parts: int | None = None

    def __post_init__(self) -> None:
        if (self.ray is None) != (self.parts is None):
            raise ConfigurationError("`ray` and `parts` need each other; give both")
        if self.ray is not None and self.part is not None:
            raise ConfigurationError(
                "`part` does one part, and `ray` all of them; give one of them"
            )
        require_at_least(1, parts=self.parts)

    def run_on_ray(
        self, work: Callable[..., object], progress: Progress, *, device: str = "cpu"
    ) -> None:
        """Do all parts on the Ray cluster; return when they are done.

        Args:
            work: Function that does a part, called with the keyword ``part``. It and its arguments are pickled.
            progress: Progress in parts.
            device: Device of a part: for ``cuda``, Ray gives each part a GPU.

        Raises:
            ConfigurationError: Ray is not installed, or no cluster answers.
            ProcessError: Parts have failed; the others are done.
        """
        assert self.ray is not None
        assert self.parts is not None
        with redirect_stdout(sys.stderr):  # Ray prints what it repeats
            failures = _run_on_ray(self.ray, work, self.parts, int(device == "cuda"), progress)
        if failures:
            raise ProcessError(
                f"{len(failures):,} of {self.parts:,} parts failed, the others are done; the same command goes on "
                f"from here:\n{indented_list(failures)}"
            )


def _run_on_ray(
    address: str, work: Callable[..., object], count: int, n_gpus: int, progress: Progress
) -> list[str]:
    """Do parts as tasks of a Ray cluster; return the errors of failed parts."""
    ray = _connected_ray(address)
    task = ray.remote(num_gpus=n_gpus, max_retries=_MAX_RETRIES)(_do_part)
    parts = {}
    for number in range(1, count + 1):
        part = Part(number, count)
        parts[task.remote(work, part, Path.cwd())] = part
    failures = []
    progress.start(count)
    while parts:
        (reference,), _ = ray.wait(list(parts), num_returns=1)
        part = parts.pop(reference)
        try:
            ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            failures.append(f"part {part}: {error.cause}")
        except ray.exceptions.RayError as error:
            failures.append(f"part {part}: given up by Ray: {str(error).splitlines()[0]}")
        progress.advance(failed=len(failures))
    ray.shutdown()
    return failures


def _connected_ray(address: str) -> Any:
    """Return the module ``ray``, connected to a cluster."""
    # Each attempt takes 40 s; with Ray's twenty, a cluster that is gone would seem to be starting for 14 minutes.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    ray = import_extra("ray", name="Ray")
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"no Ray cluster answers at `ray` {address} ({reason}); start one (ray start --head)"
        ) from None
    return ray


def _do_part(work: Callable[..., object], part: Part, folder: Path) -> None:
    """Do a part in a worker of Ray."""
    os.chdir(folder)
    # Ray's connections do not survive a fork.
    multiprocessing.set_start_method("forkserver", force=True)
    disable_trimming()
    work(part=part)
