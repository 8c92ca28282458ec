"""The HTTP client: polite towards Wikimedia, patient with what fails, one rate for all workers and both hosts.

Manners (https://www.mediawiki.org/wiki/API:Etiquette and Wikimedia's User-Agent policy): a User-Agent that
names hgld, its version and the operator's contact; a token bucket; ``maxlag``; ``Retry-After`` obeyed by all
workers at once; gzip; a 403 ends the run. What fails for a while (5xx, 429, lag, broken connections, half
documents) is tried again with exponential backoff and jitter, up to ``max_retries`` times.
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

#: What Wikimedia grants a client that names itself and its operator, since 2026; 10 without.
WIKIMEDIA_REQUESTS_PER_MINUTE = 200
_MAXLAG_S = 5
_MAX_PAGE_REDIRECTS = 5

_WIKIMEDIA_HOST = re.compile(r"(.+\.)?(wikimedia|wikidata|wikipedia)\.org", re.IGNORECASE)
_CONTACT = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+|https?://\S+/\S+|User:\S.*", re.IGNORECASE)

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
        return user_agent(operator)


#: API calls only read, though they are POST requests: Wikimedia may serve them from the nearest data centre.
#: MediaWiki answers 400 to this header outside the API.
_READ_ONLY_CALL = {"Promise-Non-Write-API-Action": "true"}


class TooManyValuesError(SourceError):
    """The API takes fewer values a request than it was sent."""


@dataclass(frozen=True, slots=True)
class Page:
    """A category page as the server sent it: 200, 404 (no such page) or 400 (no valid title)."""

    status: int
    html: str


class Client:
    """Asks Commons and Wikidata; safe to use from several threads."""

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
        """How many requests were sent."""
        return self._http.requests

    @property
    def retries(self) -> int:
        """How many of them were a repetition."""
        return self._http.retries

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
            page = self._http.retry(partial(self._get, url))
            if isinstance(page, Page):
                return page
            url = urljoin(url, page)
            if not url.startswith(root):
                raise SourceError(f"{title}: sent on to {url}, which is not below {root}")
        raise SourceError(f"{title}: sent on more than {_MAX_PAGE_REDIRECTS} times, last to {url}")

    def close(self) -> None:
        """Wake every thread that waits; it raises :class:`SourceError`, as does every later request."""
        self._http.close()

    @property
    def _options(self) -> dict[str, Any]:
        return {"timeout": (CONNECT_TIMEOUT_S, self.config.timeout_s), "allow_redirects": False}

    def _call(self, url: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        # POST, because fifty titles in a URL can be longer than servers take.
        data = {**parameters, "format": "json", "formatversion": "2", "maxlag": str(_MAXLAG_S)}
        return self._http.retry(
            lambda session: _read_call(session.post(url, data=data, headers=_READ_ONLY_CALL, **self._options))
        )

    def _get(self, url: str, session: Session) -> Page | str:
        return _read_page(session.get(url, **self._options))


def _check_status(response: Response) -> None:
    """Raise for an answer that is none, whatever was asked."""
    if response.status_code == 403:
        raise ConfigurationError(
            f"{response.request.method} {response.url} answered 403 and the run was stopped: the server refuses this "
            f"client. Its words: {' '.join(response.text.split())[:300]!r}"
        )
    raise_if_transient(response)


def _read_call(response: Response) -> dict[str, Any]:
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
        raise TransientError(f"{response.url} answered what is not JSON ({broken})") from broken
    error = document.get("error")
    if error is None:
        return document
    code, told = error.get("code", "unknown"), f"{response.url}: {error.get('code')}: {error.get('info')}"
    if code == "toomanyvalues":
        raise TooManyValuesError(told)
    if _PASSING_ERRORS.fullmatch(code):
        raise TransientError(told, retry_after_s(response))
    raise SourceError(f"the API refused the call: {told}")


def _read_page(response: Response) -> Page | str:
    """The page, or the URL that it redirects to; raises unless it is whole."""
    _check_status(response)
    if response.is_redirect:
        return response.headers["Location"]
    if response.status_code not in (200, 400, 404):
        raise SourceError(f"{response.url} answered {response.status_code}")
    # A connection cut on a boundary can leave a well-formed message with half a document.
    response.encoding = "utf-8"
    if not response.text.rstrip().endswith("</html>"):
        raise TransientError(f"{response.url} answered half a page")
    return Page(response.status_code, response.text)
