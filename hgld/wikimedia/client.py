"""The HTTP client: polite towards Wikimedia, patient with what fails, one rate for all workers and both hosts.

Manners (https://www.mediawiki.org/wiki/API:Etiquette and Wikimedia's User-Agent policy): a User-Agent that
names hgld, its version and the operator's contact; a token bucket; ``maxlag``; ``Retry-After`` obeyed by all
workers at once; gzip; a 403 ends the run. What fails for a while (5xx, 429, lag, broken connections, half
documents) is tried again with exponential backoff and jitter, up to ``max_retries`` times.
"""

from __future__ import annotations

import logging
import random
import re
import string
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import requests

from hgld import __version__
from hgld.errors import ConfigurationError, SourceError
from hgld.wikimedia.titles import title_path

log = logging.getLogger(__name__)
T = TypeVar("T")

COMMONS_URL = "https://commons.wikimedia.org"
WIKIDATA_URL = "https://www.wikidata.org"

#: What Wikimedia grants a client that names itself and its operator, since 2026; 10 without.
WIKIMEDIA_REQUESTS_PER_MINUTE = 200
#: Requests that may follow each other at once when none was sent for a while.
_BURST = 5
_MAXLAG_S = 5
_CONNECT_TIMEOUT_S = 10.0
_LONGEST_BACKOFF_S = 120.0
_MAX_PAGE_REDIRECTS = 5
#: Pauses from here on are told, lest the run seem stuck.
_LONG_PAUSE_S = 30.0

_WIKIMEDIA_HOST = re.compile(r"(.+\.)?(wikimedia|wikidata|wikipedia)\.org", re.IGNORECASE)
_CONTACT = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+|https?://\S+/\S+|User:\S.*", re.IGNORECASE)

_BROKEN_CONNECTION = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,  # fewer bytes than announced
    requests.exceptions.ContentDecodingError,
)
#: Error codes of the action API that pass with time.
_PASSING_ERRORS = re.compile(r"maxlag|ratelimited|readonly|internal_api_error_.*|.*timeout.*|.*unavailable.*")


@dataclass(frozen=True)
class ClientConfig:
    """Where the servers are and how to treat them.

    Args:
        commons_url: root of Commons; category pages are at ``wiki/`` below it, the API at ``w/api.php``.
        wikidata_url: root of Wikidata, likewise.
        contact: the operator's e-mail address, or the name or URL of a wiki user page. Wikimedia's hosts are not
            asked anything without one.
        rate_per_minute: requests a minute over all workers and both hosts; 0 is no limit, for servers of your own.
        max_retries: how often a request is repeated before its batch is given up.
        timeout_s: how long a server may stay silent.
        backoff_s: the wait before the first repetition; it doubles with each.
    """

    commons_url: str = COMMONS_URL
    wikidata_url: str = WIKIDATA_URL
    contact: str | None = None
    rate_per_minute: float = 150.0
    max_retries: int = 10
    timeout_s: float = 60.0
    backoff_s: float = 1.0

    def __post_init__(self) -> None:
        hosts = []
        for name, url in (("commons_url", self.commons_url), ("wikidata_url", self.wikidata_url)):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigurationError(f'{name} is "{url}"; expected a URL such as {COMMONS_URL}')
            hosts.append(parts.hostname)
        wikimedia = next((host for host in hosts if _WIKIMEDIA_HOST.fullmatch(host)), None)
        if self.contact is not None and not _CONTACT.fullmatch(self.contact):
            raise ConfigurationError(
                f'the contact is "{self.contact}"; expected an e-mail address (you@example.org) or a wiki user '
                "page (User:You, https://meta.wikimedia.org/wiki/User:You)"
            )
        if wikimedia and self.contact is None:
            raise ConfigurationError(
                f"{wikimedia} asks every client to name its operator: give an e-mail address or a wiki user page "
                "with --contact or in the environment variable HGLD_CONTACT; it is sent in the User-Agent only"
            )
        if self.rate_per_minute < 0 or self.max_retries < 0 or self.timeout_s <= 0 or self.backoff_s < 0:
            raise ConfigurationError("rate, retries, timeout and backoff cannot be negative")
        if wikimedia and not 0 < self.rate_per_minute <= WIKIMEDIA_REQUESTS_PER_MINUTE:
            raise ConfigurationError(
                f"a rate of {self.rate_per_minute:g} requests a minute is not allowed on {wikimedia}; choose one "
                f"above 0 and up to {WIKIMEDIA_REQUESTS_PER_MINUTE} (--rate)"
            )

    @property
    def user_agent(self) -> str:
        """What every request says of who asks."""
        # Headers are ASCII; a user's name need not be.
        operator = (
            f"operator: {quote(self.contact, safe=string.printable)}"
            if self.contact
            else "no contact: not for Wikimedia's hosts"
        )
        return f"hgld/{__version__} ({operator}) python-requests/{requests.__version__}"


class TooManyValuesError(SourceError):
    """The API takes fewer values a request than it was sent."""


@dataclass(frozen=True, slots=True)
class Page:
    """A category page as the server sent it: 200, 404 (no such page) or 400 (no valid title)."""

    status: int
    html: str


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


class Client:
    """Asks Commons and Wikidata; safe to use from several threads.

    ``requests`` and ``retries`` count what was sent and what of it was a repetition.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.requests = self.retries = 0
        self._stop = threading.Event()
        self._limiter = RateLimiter(config.rate_per_minute, sleep=self._sleep)
        self._lock = threading.Lock()
        self._local = threading.local()

    def commons(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Call the action API of Commons; see :meth:`wikidata`."""
        return self._call(f"{self.config.commons_url}/w/api.php", parameters)

    def wikidata(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Call the action API of Wikidata and return its JSON document (format version 2).

        Raises:
            SourceError: it still failed after the last repetition, or the API refuses the call.
            TooManyValuesError: a list in ``parameters`` is longer than the API allows.
            ConfigurationError: the server refuses this client (403), or there is no API at this address.
        """
        return self._call(f"{self.config.wikidata_url}/w/api.php", parameters)

    def page(self, title: str) -> Page:
        """The page ``title`` of Commons, in English, following the server's redirects to its own spelling.

        Raises:
            SourceError: it still failed after the last repetition.
            ConfigurationError: the server refuses this client (403).
        """
        root = f"{self.config.commons_url}/wiki/"
        url = root + title_path(title)
        for _ in range(_MAX_PAGE_REDIRECTS):
            page = self._repeat(partial(self._get, url), _read_page)
            if isinstance(page, Page):
                return page
            url = urljoin(url, page)
            if not url.startswith(root):
                raise SourceError(f"{title}: sent on to {url}, which is not below {root}")
        raise SourceError(f"{title}: sent on more than {_MAX_PAGE_REDIRECTS} times, last to {url}")

    def close(self) -> None:
        """Wake every thread that waits; it raises :class:`SourceError`, as does every later request."""
        self._stop.set()

    @property
    def _options(self) -> dict[str, Any]:
        return {"timeout": (_CONNECT_TIMEOUT_S, self.config.timeout_s), "allow_redirects": False}

    def _call(self, url: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        # POST, because fifty titles in a URL can be longer than servers take.
        data = {**parameters, "format": "json", "formatversion": "2", "maxlag": str(_MAXLAG_S)}
        return self._repeat(lambda session: session.post(url, data=data, **self._options), _read_call)

    def _get(self, url: str, session: requests.Session) -> requests.Response:
        return session.get(url, **self._options)

    def _repeat(
        self,
        send: Callable[[requests.Session], requests.Response],
        read: Callable[[requests.Response], T],
    ) -> T:
        """What ``read`` makes of the first answer that it does not find wanting."""
        for attempt in range(self.config.max_retries + 1):
            self._limiter.wait()
            with self._lock:
                self.requests += 1
                self.retries += attempt > 0
            try:
                return read(send(self._session()))
            except (_PassingError, *_BROKEN_CONNECTION) as error:
                failure: Exception = error
            asked_s = failure.retry_after_s if isinstance(failure, _PassingError) else None
            log.debug("attempt %d failed: %s", attempt + 1, failure)
            if asked_s is not None:
                self._limiter.pause(asked_s)
                if asked_s >= _LONG_PAUSE_S:
                    log.info("the server asks for a pause of %.0f s: %s", asked_s, failure)
            if attempt < self.config.max_retries:
                # At least half of the doubled wait: lag lasts minutes, while its Retry-After names seconds.
                longest = min(self.config.backoff_s * 2**attempt, _LONGEST_BACKOFF_S)
                self._sleep(longest * random.uniform(0.5, 1))
        raise SourceError(f"given up after {self.config.max_retries + 1} attempts: {failure}")

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise SourceError("the run is being stopped")

    def _session(self) -> requests.Session:
        """One connection a thread: sessions of requests are not made to be shared."""
        if self._stop.is_set():
            raise SourceError("the run is being stopped")
        if not hasattr(self._local, "session"):
            session = requests.Session()
            session.headers.update(
                {
                    "User-Agent": self.config.user_agent,
                    "Accept-Encoding": "gzip",
                    "Accept-Language": "en",
                    # The calls read only, though they are POST: Wikimedia may serve them from the nearest site.
                    "Promise-Non-Write-API-Action": "true",
                }
            )
            self._local.session = session
        session = self._local.session
        assert isinstance(session, requests.Session)
        return session


class _PassingError(Exception):
    """Something that may be gone at the next attempt."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


def _check_status(response: requests.Response) -> None:
    """Raise for an answer that is none, whatever was asked."""
    status, where = response.status_code, f"{response.request.method} {response.url}"
    if status == 403:
        raise ConfigurationError(
            f"{where} answered 403 and the run was stopped: the server refuses this client. Its words: "
            f"{' '.join(response.text.split())[:300]!r}"
        )
    if status == 429 or status >= 500:
        raise _PassingError(f"{where} answered {status}", _retry_after_s(response))


def _read_call(response: requests.Response) -> dict[str, Any]:
    """The JSON document of an answer of the action API; raises unless it is whole and without an error."""
    _check_status(response)
    if response.status_code != 200:
        target = response.headers.get("Location")
        raise ConfigurationError(
            f"{response.url} answered {response.status_code}{f' (go to {target})' if target else ''}; "
            "is there an action API at this address?"
        )
    try:
        document: dict[str, Any] = response.json()
    except ValueError as broken:
        raise _PassingError(f"{response.url} answered what is not JSON ({broken})") from broken
    error = document.get("error")
    if error is None:
        return document
    code, told = error.get("code", "unknown"), f"{response.url}: {error.get('code')}: {error.get('info')}"
    if code == "toomanyvalues":
        raise TooManyValuesError(told)
    if _PASSING_ERRORS.fullmatch(code):
        raise _PassingError(told, _retry_after_s(response))
    raise SourceError(f"the API refused the call: {told}")


def _read_page(response: requests.Response) -> Page | str:
    """The page, or the URL that it redirects to; raises unless it is whole."""
    _check_status(response)
    if response.is_redirect:
        return response.headers["Location"]
    if response.status_code not in (200, 400, 404):
        raise SourceError(f"{response.url} answered {response.status_code}")
    # A connection cut on a boundary can leave a well-formed message with half a document.
    response.encoding = "utf-8"
    if not response.text.rstrip().endswith("</html>"):
        raise _PassingError(f"{response.url} answered half a page")
    return Page(response.status_code, response.text)


def _retry_after_s(response: requests.Response) -> float | None:
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
