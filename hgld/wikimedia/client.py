"""HTTP client of Commons and Wikidata, with one request rate over all threads and both hosts.

It follows https://www.mediawiki.org/wiki/API:Etiquette and Wikimedia's User-Agent policy: a User-Agent that names
hgld, its version and the operator's contact; a token bucket; ``maxlag``; ``Retry-After``, which pauses all threads;
gzip; and an end of the run at a 403. Transient failures (5xx, 429, lag, broken connections, truncated documents) are
retried with exponential back-off and jitter.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from requests import Response, Session

from hgld.errors import ConfigurationError, SourceError
from hgld.io.http import (
    CONNECT_TIMEOUT_S,
    RetryingSession,
    TransientError,
    raise_if_transient,
    retry_after_s,
    user_agent,
)
from hgld.wikimedia.titles import title_path

COMMONS_URL = "https://commons.wikimedia.org"
WIKIDATA_URL = "https://www.wikidata.org"

#: Limit for clients that name themselves and their operator, since 2026; it is 10 for others.
WIKIMEDIA_REQUESTS_PER_MINUTE = 200
_MAXLAG_S = 5
_MAX_PAGE_REDIRECTS = 5

_WIKIMEDIA_HOST = re.compile(r"(.+\.)?(wikimedia|wikidata|wikipedia)\.org", re.IGNORECASE)
_CONTACT = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+|https?://\S+/\S+|User:\S.*", re.IGNORECASE)

#: Error codes of the action API for transient failures.
_TRANSIENT_ERRORS = re.compile(r"maxlag|ratelimited|readonly|internal_api_error_.*|.*timeout.*|.*unavailable.*")


@dataclass(frozen=True)
class ClientConfig:
    """Addresses of the servers, and limits on requests to them.

    Args:
        commons_url: Root of Commons; category pages are at ``wiki/`` below it, the API at ``w/api.php``.
        wikidata_url: Root of Wikidata, likewise.
        contact: E-mail address of the operator, or name or URL of a wiki user page. Required for Wikimedia's hosts.
        rate_per_minute: Requests per minute over all threads and both hosts; 0 for no limit, on own servers only.
        max_retries: Number of times that a request is repeated.
        timeout_s: Seconds that a server may stay silent.
        backoff_s: Seconds before the first repetition; the wait doubles with each further one.

    Raises:
        ConfigurationError: A value is invalid or not allowed on Wikimedia's hosts.
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
                raise ConfigurationError(f'`{name}` is "{url}"; expected a URL such as {COMMONS_URL}')
            hosts.append(parts.hostname)
        wikimedia = next((host for host in hosts if _WIKIMEDIA_HOST.fullmatch(host)), None)
        if self.contact is not None and not _CONTACT.fullmatch(self.contact):
            raise ConfigurationError(
                f'`contact` is "{self.contact}"; expected an e-mail address (you@example.org) or a wiki user '
                "page (User:You, https://meta.wikimedia.org/wiki/User:You)"
            )
        if wikimedia and self.contact is None:
            raise ConfigurationError(
                f"{wikimedia} asks every client to name its operator: give an e-mail address or a wiki user page as "
                "`contact` or in the environment variable HGLD_CONTACT; it is sent in the User-Agent only"
            )
        if self.rate_per_minute < 0 or self.max_retries < 0 or self.timeout_s <= 0 or self.backoff_s < 0:
            raise ConfigurationError(
                "`rate_per_minute`, `max_retries` and `backoff_s` cannot be negative, and `timeout_s` must be above 0"
            )
        if wikimedia and not 0 < self.rate_per_minute <= WIKIMEDIA_REQUESTS_PER_MINUTE:
            raise ConfigurationError(
                f"`rate_per_minute` is {self.rate_per_minute:g}, which {wikimedia} does not allow; choose a rate "
                f"above 0 and up to {WIKIMEDIA_REQUESTS_PER_MINUTE}"
            )

    @property
    def user_agent(self) -> str:
        """User-Agent of every request."""
        # Headers are ASCII, which a user's name need not be.
        operator = (
            f"operator: {quote(self.contact, safe=string.printable)}"
            if self.contact
            else "no contact: not for Wikimedia's hosts"
        )
        return user_agent(operator)


#: Lets Wikimedia serve calls, which only read although they are POST requests, from the nearest data centre.
#: Outside the API, MediaWiki answers 400 to this header.
_READ_ONLY_HEADER = {"Promise-Non-Write-API-Action": "true"}


class TooManyValuesError(SourceError):
    """A list of values is longer than the API allows in one request."""


@dataclass(frozen=True, slots=True)
class CategoryPage:
    """A category page as the server sent it.

    Args:
        status: HTTP status: 200, 404 (no such page) or 400 (invalid title).
        html: Complete HTML document.
    """

    status: int
    html: str


class WikimediaClient:
    """Client of Commons and Wikidata; safe to use from several threads.

    Args:
        config: Addresses of the servers, and limits on requests to them.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        headers = {
            "User-Agent": config.user_agent,
            "Accept-Encoding": "gzip",
            "Accept-Language": "en",
        }
        self._http = RetryingSession(
            headers,
            max_retries=config.max_retries,
            backoff_s=config.backoff_s,
            rate_per_minute=config.rate_per_minute,
        )

    @property
    def requests(self) -> int:
        """Number of requests sent, repetitions included."""
        return self._http.requests

    @property
    def retries(self) -> int:
        """Number of repetitions."""
        return self._http.retries

    def commons(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Call the action API of Commons and return its JSON document; see :meth:`wikidata`."""
        return self._call(f"{self.config.commons_url}/w/api.php", parameters)

    def wikidata(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Call the action API of Wikidata and return its JSON document (format version 2).

        Args:
            parameters: Parameters of the call, without ``format`` and ``maxlag``.

        Raises:
            SourceError: The call failed after the last repetition, or the API refuses it.
            TooManyValuesError: A list in ``parameters`` is longer than the API allows.
            ConfigurationError: The server refuses this client (403), or there is no API at this address.
        """
        return self._call(f"{self.config.wikidata_url}/w/api.php", parameters)

    def page(self, title: str) -> CategoryPage:
        """Return a page of Commons in English, following HTTP redirects to the server's spelling of the title.

        Raises:
            SourceError: The request failed after the last repetition, or the redirects lead elsewhere.
            ConfigurationError: The server refuses this client (403).
        """
        root = f"{self.config.commons_url}/wiki/"
        url = root + title_path(title)
        for _ in range(_MAX_PAGE_REDIRECTS):
            outcome = self._http.retry(partial(self._get_page, url))
            if isinstance(outcome, CategoryPage):
                return outcome
            url = urljoin(url, outcome)
            if not url.startswith(root):
                raise SourceError(f"{title}: redirected to {url}, which is not below {root}")
        raise SourceError(f"{title}: redirected more than {_MAX_PAGE_REDIRECTS} times, last to {url}")

    def close(self) -> None:
        """Wake all waiting threads; they raise :class:`SourceError`, as does every later request."""
        self._http.close()

    @property
    def _request_options(self) -> dict[str, Any]:
        return {"timeout": (CONNECT_TIMEOUT_S, self.config.timeout_s), "allow_redirects": False}

    def _call(self, url: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        # POST, because fifty titles in a URL can be longer than servers take.
        data = {**parameters, "format": "json", "formatversion": "2", "maxlag": str(_MAXLAG_S)}
        return self._http.retry(
            lambda session: _read_call(
                session.post(url, data=data, headers=_READ_ONLY_HEADER, **self._request_options)
            )
        )

    def _get_page(self, url: str, session: Session) -> CategoryPage | str:
        return _read_page(session.get(url, **self._request_options))


def _check_status(response: Response) -> None:
    """Raise on error statuses that mean the same for calls and pages."""
    if response.status_code == 403:
        raise ConfigurationError(
            f"{response.request.method} {response.url} answered 403 and the run was stopped: the server refuses this "
            f"client. It says: {' '.join(response.text.split())[:300]!r}"
        )
    raise_if_transient(response)


def _read_call(response: Response) -> dict[str, Any]:
    """Return the JSON document of the action API; raise unless it is complete and without an error."""
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
        raise TransientError(f"{response.url} sent invalid JSON ({broken})") from broken
    error = document.get("error")
    if error is None:
        return document
    code, message = error.get("code", "unknown"), f"{response.url}: {error.get('code')}: {error.get('info')}"
    if code == "toomanyvalues":
        raise TooManyValuesError(message)
    if _TRANSIENT_ERRORS.fullmatch(code):
        raise TransientError(message, retry_after_s(response))
    raise SourceError(f"the API refused the call: {message}")


def _read_page(response: Response) -> CategoryPage | str:
    """Return the page, or the URL that it redirects to; raise unless it is complete."""
    _check_status(response)
    if response.is_redirect:
        return response.headers["Location"]
    if response.status_code not in (200, 400, 404):
        raise SourceError(f"{response.url} answered {response.status_code}")
    # A connection that is cut at a chunk boundary can leave a well-formed response with half a document.
    response.encoding = "utf-8"
    if not response.text.rstrip().endswith("</html>"):
        raise TransientError(f"{response.url} sent a truncated page")
    return CategoryPage(response.status_code, response.text)
