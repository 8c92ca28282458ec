"""Progress of long work: a bar on a terminal, occasional log lines elsewhere, or nothing."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tqdm import tqdm

log = logging.getLogger(__name__)


def byte_size(n_bytes: float) -> str:
    """Format a number of bytes with a decimal unit.

    >>> byte_size(22_640_640), byte_size(512)
    ('22.6 MB', '512 B')
    """
    if n_bytes < 1000:
        return f"{n_bytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        n_bytes /= 1000
        if n_bytes < 1000:
            return f"{n_bytes:.1f} {unit}"
    return f"{n_bytes / 1000:.1f} TB"


class Progress(Protocol):
    """Receives the progress of a stage."""

    def start(self, total: int, done: int = 0) -> None:
        """Start a count.

        Args:
            total: Number of units of work.
            done: Number of units that were done before.
        """

    def advance(self, units: int = 1, **details: float) -> None:
        """Count units as done.

        Args:
            units: Number of units; negative to take back earlier ones.
            **details: Values shown beside the count: integers are counters, floats measures.
        """


class NoProgress:
    """Shows nothing; the default of every library function."""

    def start(self, total: int, done: int = 0) -> None:
        """See :class:`Progress`."""

    def advance(self, units: int = 1, **details: float) -> None:
        """See :class:`Progress`."""


class TerminalProgress:
    """A context manager that shows a tqdm bar on a terminal, and log lines elsewhere.

    Args:
        title: Name of the work.
        unit: Name of the units in the plural; ``B`` for bytes, which are shown as kB, MB and so on.
        interval_s: Minimum seconds between two log lines.
    """

    def __init__(self, title: str, unit: str, *, interval_s: float = 10.0) -> None:
        self._title = title
        self._unit = unit
        self._interval_s = interval_s
        self._bar: tqdm[Any] | None = None
        self._total = 0
        self._done = 0
        self._initial = 0
        self._started_at = self._logged_at = time.monotonic()

    def start(self, total: int, done: int = 0) -> None:
        """See :class:`Progress`."""
        self._total = total
        self._done = done
        self._initial = done
        self._started_at = self._logged_at = time.monotonic()
        if sys.stderr.isatty():
            from tqdm import tqdm

            is_bytes = self._unit == "B"
            self._bar = tqdm(
                desc=self._title,
                unit="B" if is_bytes else f" {self._unit}",
                unit_scale=is_bytes,
                total=total,
                initial=done,
                smoothing=0.1,
            )

    def advance(self, units: int = 1, **details: float) -> None:
        """See :class:`Progress`."""
        self._done += units
        if self._bar is not None:
            self._bar.set_postfix(details, refresh=False)
            self._bar.update(units)
        elif time.monotonic() - self._logged_at >= self._interval_s:
            self._logged_at = time.monotonic()
            self._log(details)

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def _log(self, details: dict[str, float]) -> None:
        seconds = time.monotonic() - self._started_at
        rate = 0.0
        if seconds:
            rate = (self._done - self._initial) / seconds
        time_left = "time left unknown"
        if rate:
            minutes_left = (self._total - self._done) / rate / 60
            time_left = f"{minutes_left:.0f} min left"
        if self._unit == "B":
            count = f"{byte_size(self._done)} of {byte_size(self._total)}, {byte_size(rate)}/s"
        elif rate >= 0.1:
            count = f"{self._done} of {self._total} {self._unit}, {rate:.1f}/s"
        else:
            count = f"{self._done} of {self._total} {self._unit}, {60 * rate:.1f}/min"
        for name, value in details.items():
            count += f", {_format_detail(name, value)}"
        log.info("%s: %s, %s", self._title, count, time_left)


def _format_detail(name: str, value: float) -> str:
    """Format a counter as ``1,200 requests`` and a measure as ``loss 0.532``."""
    if isinstance(value, int):
        return f"{value:,} {name}"
    return f"{name} {value:.3g}"
