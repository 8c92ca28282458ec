"""HTTP requests with retries: which failures may pass, how long to wait after them, and when to give up."""

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
#: Number of requests that may follow each other at once after a period without requests.
_BURST = 5
_MAX_BACKOFF_S = 120.0
#: Limit of the pause that a server may ask for: a day. A longer one is a mistake, and none that a clock can measure.
_MAX_PAUSE_S = 86_400.0
#: Log pauses of at least this length, during which a run would otherwise seem stuck.
_LOGGED_PAUSE_S = 30.0

#: Exceptions of requests for a server that cannot be reached or a response that is cut short.
BROKEN_CONNECTION = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,  # fewer bytes than announced
    requests.exceptions.ContentDecodingError,
)


class TransientError(Exception):
    """A failure that may pass.

    Args:
        reason: Description of the failure.
        retry_after_s: Seconds that the server asks to wait; None if it does not say.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class RetriesExhaustedError(SourceError):
    """A request failed as often as it may be repeated."""


class RateLimiter:
    """Token bucket shared by all threads, with a pause that holds for all of them.

    Args:
        per_minute: Tokens per minute; 0 for no limit, in which case pauses still hold.
        clock: Returns the current time in seconds; must not go backwards.
        sleep: Waits for a number of seconds.
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
        """Wait until the next request may be sent."""
        while (delay := self._take_token()) > 0:
            self._sleep(delay)

    def pause(self, seconds: float) -> None:
        """Let no thread send a request for this long; of overlapping pauses the one that ends last counts."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock() + seconds)

    def _take_token(self) -> float:
        """Take a token and return 0, or return the seconds to wait before the next attempt."""
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
    """Sends requests and repeats those that failed; safe to use from several threads.

    All threads share one rate limit, and one pause where a server sends Retry-After. Each has its own connections.

    Attributes:
        requests: Number of requests sent, repetitions included.
        retries: Number of repetitions.

    Args:
        headers: Headers of every request.
        max_retries: Number of times that a request is repeated.
        backoff_s: Seconds before the first repetition; the wait doubles with each further one, up to two minutes.
        rate_per_minute: Requests per minute over all threads; 0 for no limit.
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

    def retry(self, attempt: Callable[[requests.Session], T]) -> T:
        """Call ``attempt`` until it succeeds.

        Args:
            attempt: Sends one request with the session that it is given and reads the response. It is called again
                after a TransientError and after a broken connection.

        Returns:
            Result of the first successful call.

        Raises:
            RetriesExhaustedError: The last repetition failed as well.
            SourceError: The session is closed.
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
            log.debug("attempt %d failed: %s", number + 1, failure)
            self._pause_as_asked(failure)
            if number < self._max_retries:
                # Wait at least half of the back-off: lag lasts minutes, while its Retry-After says seconds.
                backoff = min(self._backoff_s * 2**number, _MAX_BACKOFF_S)
                self._sleep(backoff * random.uniform(0.5, 1))
        raise RetriesExhaustedError(f"given up after {self._max_retries + 1} attempts: {failure}")

    def close(self) -> None:
        """Wake all waiting threads; they raise :class:`SourceError`, as does every later request."""
        self._stop.set()

    def check_open(self) -> None:
        """Raise :class:`SourceError` if the session is closed."""
        if self._stop.is_set():
            raise SourceError("the run is being stopped")

    def _pause_as_asked(self, failure: Exception) -> None:
        """Pause all threads for the time that the server asks for."""
        if not isinstance(failure, TransientError) or failure.retry_after_s is None:
            return
        self._limiter.pause(failure.retry_after_s)
        if failure.retry_after_s >= _LOGGED_PAUSE_S:
            log.info("the server asks for a pause of %.0f s: %s", failure.retry_after_s, failure)

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)
        self.check_open()

    def _session(self) -> requests.Session:
        """Return the session of this thread: sessions of requests are not thread-safe."""
        self.check_open()
        if not hasattr(self._local, "session"):
            session = requests.Session()
            session.headers.update(self._headers)
            self._local.session = session
        session = self._local.session
        assert isinstance(session, requests.Session)
        return session


def user_agent(operator: str | None = None) -> str:
    """Return the User-Agent: hgld and its version, the operator if given, and the HTTP library."""
    comment = f" ({operator})" if operator else ""
    return f"hgld/{__version__}{comment} python-requests/{requests.__version__}"


def raise_if_transient(response: requests.Response) -> None:
    """Raise TransientError for the statuses 429 and 5xx."""
    if response.status_code == 429 or response.status_code >= 500:
        message = f"{response.request.method} {response.url} answered {response.status_code}"
        raise TransientError(message, retry_after_s(response))


def retry_after_s(response: requests.Response) -> float | None:
    """Return the seconds of the header Retry-After, at most a day, or None without a valid one.

    The header holds a number of seconds or a date (RFC 9110, section 10.2.3); decimals are accepted as well.
    """
    text = response.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return min(float(text), _MAX_PAUSE_S)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return min(max(0.0, (moment - datetime.now(timezone.utc)).total_seconds()), _MAX_PAUSE_S)
