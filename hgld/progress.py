"""How far a long piece of work is: a bar on a terminal, a log line now and then elsewhere, or nothing."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Any, Protocol

from tqdm import tqdm

log = logging.getLogger(__name__)


def byte_size(n_bytes: float) -> str:
    """A number of bytes for people.

    >>> byte_size(22_640_640), byte_size(512)
    ('22.6 MB', '512 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.{0 if unit == 'B' else 1}f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


class Progress(Protocol):
    """What a stage tells of its progress."""

    def start(self, total: int, done: int = 0) -> None:
        """The work has ``total`` units, of which ``done`` were there before."""

    def advance(self, units: int = 1, **details: float) -> None:
        """``units`` more are done (fewer, if negative); ``details`` are shown beside them: counters, or measures."""


class NoProgress:
    """Shows nothing: the default of every library function."""

    def start(self, total: int, done: int = 0) -> None:
        """See :class:`Progress`."""

    def advance(self, units: int = 1, **details: float) -> None:
        """See :class:`Progress`."""


class TerminalProgress:
    """A tqdm bar where stderr is a terminal, else a log line every ``interval_s`` seconds; ends with its block.

    The unit ``B`` is bytes, which are shown as kB, MB and so on.
    """

    def __init__(self, title: str, unit: str, *, interval_s: float = 10.0) -> None:
        self._title, self._unit, self._interval_s = title, unit, interval_s
        self._bar: tqdm[Any] | None = None
        self._total = self._done = self._before = 0
        self._began = self._told = time.monotonic()

    def start(self, total: int, done: int = 0) -> None:
        """See :class:`Progress`."""
        self._total, self._done, self._before = total, done, done
        self._began = self._told = time.monotonic()
        if sys.stderr.isatty():
            unit, scaled = ("B", True) if self._unit == "B" else (f" {self._unit}", False)
            self._bar = tqdm(desc=self._title, unit=unit, unit_scale=scaled, total=total, initial=done, smoothing=0.1)

    def advance(self, units: int = 1, **details: float) -> None:
        """See :class:`Progress`."""
        self._done += units
        if self._bar is not None:
            self._bar.set_postfix(details, refresh=False)
            self._bar.update(units)
        elif time.monotonic() - self._told >= self._interval_s:
            self._told = time.monotonic()
            self._log(details)

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def _log(self, details: dict[str, float]) -> None:
        seconds = time.monotonic() - self._began
        rate = (self._done - self._before) / seconds if seconds else 0.0
        left = f"{(self._total - self._done) / rate / 60:.0f} min left" if rate else "time left unknown"
        counters = "".join(f", {_detail(name, value)}" for name, value in details.items())
        if self._unit == "B":
            far = f"{byte_size(self._done)} of {byte_size(self._total)}, {byte_size(rate)}/s"
        else:
            pace = f"{rate:.1f}/s" if rate >= 0.1 else f"{60 * rate:.1f}/min"
            far = f"{self._done} of {self._total} {self._unit}, {pace}"
        log.info("%s: %s%s, %s", self._title, far, counters, left)


def _detail(name: str, value: float) -> str:
    """A counter as ``1,200 requests``, a measure as ``loss 0.532``."""
    return f"{value:,} {name}" if isinstance(value, int) else f"{name} {value:.3g}"
