"""What all HTTP of hgld shares: which failures pass with time, how long to wait after them, when to give up."""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TypeVar

import requests

from hgld.errors import SourceError
from hgld.version import __version__

log = logging.getLogger(__name__)
T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0
#: Requests that may follow each other at once when none was sent for a while.
_BURST = 5
_LONGEST_BACKOFF_S = 120.0
#: Pauses from here on are told, lest the run seem stuck.
_LONG_PAUSE_S = 30.0

#: What requests raises for a server that cannot be reached or an answer that is cut short.
BROKEN_CONNECTION = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,  # fewer bytes than announced
    requests.exceptions.ContentDecodingError,
)


class TransientError(Exception):
    """Something that may be gone at the next attempt."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class RetriesExhaustedError(SourceError):
    """The last repetition failed, too."""


class RateLimiter:
    """A token bucket, and a pause that holds for everyone.

    Args:
        per_minute: tokens a minute; 0 is no limit, but pauses hold all the same.
        clock: seconds that only grow.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        per_minute: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_minute / 60
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._tokens = float(_BURST)
        self._filled_at = self._paused_until = clock()

    def wait(self) -> None:
        """Return when the next request may be sent."""
        while (delay := self._take()) > 0:
            self._sleep(delay)

    def pause(self, seconds: float) -> None:
        """Let nobody send anything for so long."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock() + seconds)

    def _take(self) -> float:
        """Take a token and return 0, or return how long to wait before asking again."""
        with self._lock:
            now = self._clock()
            delay = self._paused_until - now
            if not self._per_second:
                return delay
            self._tokens = min(_BURST, self._tokens + (now - self._filled_at) * self._per_second)
            self._filled_at = now
            delay = max(delay, (1 - self._tokens) / self._per_second)
            if delay <= 0:
                self._tokens -= 1
            return delay


class RetryingSession:
    """Sends requests and repeats what failed; safe to use from several threads, each with its own connections.

    ``requests`` and ``retries`` count what was sent and what of it was a repetition.

    Args:
        headers: sent with every request.
        max_retries: how often a request is repeated before it is given up.
        backoff_s: the wait before the first repetition; it doubles with each.
        rate_per_minute: requests a minute over all threads; 0 is no limit.
    """

    def __init__(
        self, headers: Mapping[str, str], *, max_retries: int, backoff_s: float, rate_per_minute: float = 0
    ) -> None:
        self.requests = self.retries = 0
        self._headers, self._max_retries, self._backoff_s = headers, max_retries, backoff_s
        self._stop = threading.Event()
        self._limiter = RateLimiter(rate_per_minute, sleep=self._sleep)
        self._lock = threading.Lock()
        self._local = threading.local()

    def repeat(self, attempt: Callable[[requests.Session], T]) -> T:
        """What the first ``attempt`` returns that raises neither TransientError nor for a broken connection.

        Raises:
            RetriesExhaustedError: the last repetition failed, too.
            SourceError: this is closed.
        """
        for number in range(self._max_retries + 1):
            self._limiter.wait()
            with self._lock:
                self.requests += 1
                self.retries += number > 0
            try:
                return attempt(self._session())
            except (TransientError, *BROKEN_CONNECTION) as error:
                failure: Exception = error
            asked_s = failure.retry_after_s if isinstance(failure, TransientError) else None
            log.debug("attempt %d failed: %s", number + 1, failure)
            if asked_s is not None:
                self._limiter.pause(asked_s)
                if asked_s >= _LONG_PAUSE_S:
                    log.info("the server asks for a pause of %.0f s: %s", asked_s, failure)
            if number < self._max_retries:
                # At least half of the doubled wait: lag lasts minutes, while its Retry-After names seconds.
                longest = min(self._backoff_s * 2**number, _LONGEST_BACKOFF_S)
                self._sleep(longest * random.uniform(0.5, 1))
        raise RetriesExhaustedError(f"given up after {self._max_retries + 1} attempts: {failure}")

    def close(self) -> None:
        """Wake every thread that waits; it raises :class:`SourceError`, as does every later request."""
        self._stop.set()

    def check_open(self) -> None:
        """Raise :class:`SourceError` if this is closed."""
        if self._stop.is_set():
            raise SourceError("the run is being stopped")

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)
        self.check_open()

    def _session(self) -> requests.Session:
        """One connection a thread: sessions of requests are not made to be shared."""
        self.check_open()
        if not hasattr(self._local, "session"):
            session = requests.Session()
            session.headers.update(self._headers)
            self._local.session = session
        session = self._local.session
        assert isinstance(session, requests.Session)
        return session


def user_agent(operator: str | None = None) -> str:
    """What every request says of who asks."""
    comment = f" ({operator})" if operator else ""
    return f"hgld/{__version__}{comment} python-requests/{requests.__version__}"


def raise_if_transient(response: requests.Response) -> None:
    """Raise TransientError for an answer that says: later (429, 5xx)."""
    if response.status_code == 429 or response.status_code >= 500:
        told = f"{response.request.method} {response.url} answered {response.status_code}"
        raise TransientError(told, retry_after_s(response))


def retry_after_s(response: requests.Response) -> float | None:
    """The seconds that ``Retry-After`` names, as a number or as a date; None without a usable one.

    Wikimedia sends whole seconds; decimals are taken, too.
    """
    text = response.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - datetime.now(timezone.utc)).total_seconds())
