"""Send HTTP requests, repeat them after transient errors, and obey rate limits and Retry-After."""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase, HTTPBasicAuth
from requests.exceptions import InvalidProxyURL, InvalidSchema, InvalidURL
from requests.utils import get_auth_from_url
from urllib3.exceptions import (
    HTTPError,
    NewConnectionError,
    ProxyError,
    ProxySchemeUnknown,
    SSLError,
)

from hgld.errors import ConfigurationError, SourceError
from hgld.version import __version__

log = logging.getLogger(__name__)
T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0
#: Number of requests that may follow each other at once after a period without requests.
_BURST = 5
_MAX_BACKOFF_S = 120.0
#: The longest pause that a server may ask for; a longer one ends the run.
_MAX_PAUSE_S = 3600.0
#: Report requests that fail, and pauses, for at least this long; the run would otherwise seem
#: stuck.
_REPORTED_S = 10.0
#: Attempts after which a server that has never answered in time is given up.
_SILENT_ATTEMPTS = 3
_PIECE_BYTES = 2**16
#: What people can do about a server that does not answer, or another one that does.
CHECK_NETWORK = (
    "Check the address, the network (does it ask for a login?) and, behind a proxy, the environment variable "
    "HTTPS_PROXY"
)

#: Exceptions of requests for a server that cannot be reached or breaks off.
BROKEN_CONNECTION = (requests.ConnectionError, requests.Timeout)
#: Causes of a ConnectionError for which a server that has never answered is not tried again.
_NO_CONNECTION = (NewConnectionError, ProxyError, SSLError)


class TransientError(Exception):
    """A failure that may not occur again.

    Args:
        reason: What failed.
        retry_after_s: Seconds that the server asks to wait; None if it does not ask.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class NoAnswerError(TransientError):
    """A server sent no complete response to the request of ``url`` in time."""

    def __init__(self, reason: str, url: str) -> None:
        super().__init__(reason)
        self.url = url


class RetriesExhaustedError(SourceError):
    """A request and all its repetitions failed."""


class _CredentialsOfAddress(AuthBase):
    """Sends the user and password of the address, if it has them."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        user, password = get_auth_from_url(str(request.url))
        if user or password:
            HTTPBasicAuth(user, password)(request)
        return request


class _Session(requests.Session):
    """A session that sends no credentials of ``~/.netrc``, unlike its base."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _CredentialsOfAddress()

    def rebuild_auth(
        self, prepared_request: requests.PreparedRequest, response: requests.Response
    ) -> None:
        """Send credentials to the target of a redirect only if it is on the same server."""
        is_elsewhere = self.should_strip_auth(response.request.url, prepared_request.url)  # type: ignore[no-untyped-call]
        if is_elsewhere:
            prepared_request.headers.pop("Authorization", None)


class RateLimiter:
    """Token bucket and pause that all threads share.

    Args:
        per_minute: Number of requests per minute; 0 for no limit, with pauses only.
        clock: Returns the time in seconds; must not go backwards.
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
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._tokens = float(_BURST)
        self._filled_at = self._paused_until = clock()

    def wait(self) -> None:
        """Wait until the next request may be sent."""
        delay = self._take_token()
        while delay > 0:
            self._sleep(delay)
            delay = self._take_token()

    def pause(self, seconds: float) -> None:
        """Stop all threads from sending requests; of overlapping pauses the latest end counts."""
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

    All threads share one rate limit, and one pause where a server sends Retry-After.

    Attributes:
        requests: Number of requests sent, repetitions included.
        retries: Number of repetitions.

    Args:
        max_retries: Number of times that a request is repeated.
        backoff_s: Seconds before the first repetition; the wait doubles with each further one, up
            to two minutes.
        rate_per_minute: Requests per minute over all threads; 0 for no limit.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        max_retries: int,
        backoff_s: float,
        rate_per_minute: float = 0,
    ) -> None:
        self.requests = self.retries = 0
        self._headers = headers
        self._max_retries = max_retries
        self._backoff_s = backoff_s
        self._closed: Future[None] = Future()
        self._limiter = RateLimiter(rate_per_minute, sleep=self._sleep)
        self._lock = threading.Lock()
        #: Sessions of requests, which are not thread-safe, that no thread uses now.
        self._idle: list[requests.Session] = []
        self._hosts_that_answered: set[str] = set()

    def retry(self, attempt: Callable[[requests.Session], T]) -> T:
        """Call ``attempt`` until it succeeds.

        Args:
            attempt: Sends one request with the session that it is given and reads the response. It
                is called again after a TransientError and after a broken connection.

        Returns:
            Result of the first successful call.

        Raises:
            RetriesExhaustedError: The last repetition failed as well.
            ConfigurationError: The server has never answered and there is no connection to it, or
                three attempts had no answer in time; or it asks for a pause of more than an hour.
            SourceError: The session is closed.
        """
        start = time.monotonic()
        n_attempts = self._max_retries + 1
        for number in range(1, n_attempts + 1):
            self._limiter.wait()
            with self._lock:
                self.requests += 1
                self.retries += number > 1
            session = self._take_session()
            try:
                outcome = attempt(session)
            except (TransientError, *BROKEN_CONNECTION) as error:
                failure: Exception = error
            else:
                self._idle.append(session)
                return outcome
            self._check_reachable(failure)
            self._check_answering(failure, number)
            self._pause_as_asked(failure)
            # Wait at least half of the back-off: Retry-After is often too short.
            longest_wait = min(self._backoff_s * 2 ** (number - 1), _MAX_BACKOFF_S)
            backoff = longest_wait * random.uniform(0.5, 1)
            level = logging.DEBUG
            if time.monotonic() + backoff - start >= _REPORTED_S:
                level = logging.WARNING
            log.log(level, "attempt %d of %d failed: %s", number, n_attempts, failure)
            if number < n_attempts:
                self._sleep(backoff)
        raise RetriesExhaustedError(f"given up after {n_attempts} attempts: {failure}")

    def in_time(self, url: str, seconds: float, work: Callable[[], T]) -> T:
        """Call ``work``, which waits for the server at ``url``, and return its result.

        The call runs in another thread, which continues after the time limit: a thread that waits
        for a server cannot be stopped. The call must therefore have no effect besides its result.

        Raises:
            TransientError: The call takes longer than ``seconds``.
            SourceError: The session is closed.
        """
        future: Future[T] = Future()
        deadline = time.monotonic() + seconds

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        events: tuple[Future[Any], ...] = (future, self._closed)
        wait(events, seconds, FIRST_COMPLETED)
        self.check_open()
        # A call that fails at the deadline is reported like a call that takes too long.
        is_late = not future.done()
        if not is_late and future.exception():
            is_late = time.monotonic() >= deadline
        if is_late:
            raise NoAnswerError(f"{url} sent no complete response within {seconds:g} s", url)
        return future.result()

    def close(self) -> None:
        """Wake all waiting threads; they raise :class:`SourceError`, as does every later request."""
        with self._lock:
            if not self._closed.done():
                self._closed.set_result(None)

    def check_open(self) -> None:
        """Raise :class:`SourceError` if the session is closed."""
        if self._closed.done():
            raise SourceError("the run is being stopped")

    def _check_reachable(self, failure: Exception) -> None:
        """Raise a ConfigurationError if a server was never reached and a repetition cannot help."""
        if not isinstance(failure, requests.ConnectionError) or failure.request is None:
            return
        reason = getattr(failure.args[0], "reason", None)
        host = urlsplit(str(failure.request.url)).netloc
        if isinstance(reason, _NO_CONNECTION) and host not in self._hosts_that_answered:
            raise ConfigurationError(
                f"{host} cannot be reached: {str(reason).rpartition('): ')[2]}. {CHECK_NETWORK}"
            ) from failure

    def _check_answering(self, failure: Exception, number: int) -> None:
        """Raise a ConfigurationError if a server has not answered several attempts, or ever before."""
        if number < _SILENT_ATTEMPTS or self._closed.done():
            return
        if isinstance(failure, NoAnswerError):
            url = failure.url
        elif isinstance(failure, requests.Timeout) and failure.request is not None:
            url = str(failure.request.url)
        else:
            return
        if not self.has_answered(url):
            raise ConfigurationError(
                f"{urlsplit(url).netloc} has not answered {number} requests in time, nor any other. {CHECK_NETWORK}"
            ) from failure

    def has_answered(self, url: str) -> bool:
        """Return whether the server of an address has sent the headers of a response."""
        return urlsplit(url).netloc in self._hosts_that_answered

    def _pause_as_asked(self, failure: Exception) -> None:
        """Pause all threads for the time that the server asks for."""
        if not isinstance(failure, TransientError) or failure.retry_after_s is None:
            return
        if failure.retry_after_s > _MAX_PAUSE_S:
            raise ConfigurationError(
                f"{failure} and asks for a pause of {failure.retry_after_s:,.0f} s (Retry-After), more than an hour: "
                "the run was stopped. What has arrived is kept; run the same command again after that time"
            ) from failure
        self._limiter.pause(failure.retry_after_s)
        if failure.retry_after_s >= _REPORTED_S:
            log.info("the server asks for a pause of %.0f s: %s", failure.retry_after_s, failure)

    def _sleep(self, seconds: float) -> None:
        wait((self._closed,), seconds)
        self.check_open()

    def _take_session(self) -> requests.Session:
        self.check_open()
        try:
            return self._idle.pop()
        except IndexError:
            session = _Session()
            session.headers.update(self._headers)
            session.hooks["response"].append(self._note_answer)
            return session

    def _note_answer(self, response: requests.Response, **options: Any) -> None:
        self._hosts_that_answered.add(urlsplit(response.url).netloc)


def send(session: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
    """Send a request by ``session.request``.

    Raises:
        ConfigurationError: An environment variable names an invalid proxy, or certificates that do
            not exist.
    """
    try:
        return session.request(method, url, **options)
    except (InvalidURL, InvalidSchema) as error:
        has_unknown_scheme = isinstance(error.args[0], ProxySchemeUnknown)
        if not has_unknown_scheme and not isinstance(error, InvalidProxyURL | InvalidSchema):
            raise
        raise ConfigurationError(
            f"{url} cannot be requested by the proxy that the environment variables HTTPS_PROXY, HTTP_PROXY or "
            f"ALL_PROXY name: {error}"
        ) from error
    except OSError as error:
        if "TLS CA certificate bundle" in str(error):
            raise ConfigurationError(
                f"{error}; correct or remove the environment variable REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE"
            ) from error
        raise


def received(response: requests.Response) -> Iterator[bytes]:
    """Yield the decoded body of a streamed response as it arrives, in pieces of up to 64 KiB."""
    try:
        piece = response.raw.read1(_PIECE_BYTES, decode_content=True)
        while piece:
            yield piece
            piece = response.raw.read1(_PIECE_BYTES, decode_content=True)
    except HTTPError as error:
        # The headers arrived: a pause that they ask for holds, even if the body is cut short.
        raise TransientError(
            f"{response.request.method} {response.url}: {error}", retry_after_s(response)
        ) from error


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
    """Return the seconds of the header Retry-After; None if the header is missing or invalid.

    The header holds a number of seconds or a date (RFC 9110, section 10.2.3); decimals are accepted
    as well. A date is compared with the server's date, since the clock of this machine may be
    wrong.
    """
    text = response.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    moment = _date(text)
    if moment is None:
        return None
    now = _date(response.headers.get("Date", "")) or datetime.now(timezone.utc)
    return max(0.0, (moment - now).total_seconds())


def _date(text: str) -> datetime | None:
    """Return the time in a header; None if the header is not a date."""
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return moment.replace(tzinfo=timezone.utc)
    return moment
