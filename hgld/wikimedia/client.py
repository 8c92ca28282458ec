"""HTTP client of Commons and Wikidata, with one request rate over all threads and both hosts.

It follows https://www.mediawiki.org/wiki/API:Etiquette and Wikimedia's User-Agent policy: a User-Agent that names
hgld, its version and the operator's contact; a token bucket; ``maxlag``; ``Retry-After``, which pauses all threads;
gzip; and an end of the run at a 403. Transient failures (5xx, 429, lag, broken connections, late or truncated
documents) are retried with exponential back-off and jitter; see :meth:`hgld.io.http.RetryingSession.retry` for those
that end the run.
"""

from __future__ import annotations

import json
import re
import string
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from requests import Response, Session

from hgld.errors import ConfigurationError, SourceError
from hgld.io.http import (
    CHECK_NETWORK,
    CONNECT_TIMEOUT_S,
    RetryingSession,
    TransientError,
    raise_if_transient,
    received,
    retry_after_s,
    send,
    user_agent,
)
from hgld.wikimedia.settings import ClientConfig
from hgld.wikimedia.titles import title_path

T = TypeVar("T")
#: Reads the JSON document of an API; raises ValueError if it is not of the expected form.
ReadDocument = Callable[[dict[str, Any]], T]


_MAXLAG_S = 5
_MAX_REDIRECTS = 5
#: Largest response, unpacked; the API's own limit is 12 MB.
_MAX_BYTES = 2**25

#: Bytes of a page that are looked at to say what it is.
_MAX_HEAD = 10_000


#: Error codes of the action API for transient failures.
_TRANSIENT_ERRORS = re.compile(
    r"maxlag|ratelimited|readonly|internal_api_error_.*|.*timeout.*|.*unavailable.*"
)


def client_user_agent(config: ClientConfig) -> str:
    """Return the User-Agent of every request, which names the operator."""
    # Headers are ASCII, which a user's name need not be.
    operator = "no contact: not for Wikimedia's hosts"
    if config.contact:
        operator = f"operator: {quote(config.contact, safe=string.printable)}"
    return user_agent(operator)


#: Lets Wikimedia serve calls, which only read although they are POST requests, from the nearest data centre.
#: Outside the API, MediaWiki answers 400 to this header.
_READ_ONLY_HEADER = {"Promise-Non-Write-API-Action": "true"}


class TooManyValuesError(SourceError):
    """A list of values is longer than the API allows in one request."""


class UnknownEntityError(SourceError):
    """The API refuses a list of ids because one of them cannot be an entity."""


@dataclass(frozen=True, slots=True)
class HtmlResponse:
    """A complete response with status 200, 400 or 404; the document need not be MediaWiki's, nor HTML."""

    url: str
    status: int
    html: str


class WikimediaClient:
    """Client of Commons and Wikidata; safe to use from several threads."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._http = RetryingSession(
            {
                "User-Agent": client_user_agent(config),
                "Accept-Encoding": "gzip",
                "Accept-Language": "en",
            },
            max_retries=config.max_retries,
            backoff_s=config.backoff_s,
            rate_per_minute=config.rate_per_minute,
        )
        #: Hosts that have sent a document that could be read.
        self._read_hosts: set[str] = set()

    @property
    def requests(self) -> int:
        """Number of requests sent, repetitions included."""
        return self._http.requests

    @property
    def retries(self) -> int:
        """Number of repetitions."""
        return self._http.retries

    def commons(self, parameters: Mapping[str, str], read: ReadDocument[T]) -> T:
        """Call the action API of Commons and read its response; see :meth:`wikidata`."""
        return self._call(f"{self.config.commons_url}/w/api.php", parameters, read)

    def wikidata(self, parameters: Mapping[str, str], read: ReadDocument[T]) -> T:
        """Call the action API of Wikidata and read its response.

        Args:
            parameters: Parameters of the call, without ``format`` and ``maxlag``.
            read: Reads the JSON document (format version 2). If it raises ValueError, the call is repeated.
        """
        return self._call(f"{self.config.wikidata_url}/w/api.php", parameters, read)

    def page(self, title: str, read: Callable[[HtmlResponse], T]) -> T:
        """Request a page of Commons in English and read it.

        HTTP redirects to the server's spelling of the title are followed. If ``read`` raises ValueError, the request
        is repeated; else what it returns is returned.
        """
        root = f"{self.config.commons_url}/wiki/"
        return self._get(root + title_path(title), partial(_read_page, read), root)

    def file(self, url: str, read: Callable[[bytes], T]) -> T | None:
        """Request a file at the address that the API names, such as a thumbnail, and read it.

        If ``read`` raises ValueError, the request is repeated; else what it returns is returned, or None if there is
        no such file (404 or 410).
        """
        return self._get(url, partial(_read_file, read))

    def close(self) -> None:
        """Wake all waiting threads; they raise :class:`SourceError`, as does every later request."""
        self._http.close()

    def _call(self, url: str, parameters: Mapping[str, str], read: ReadDocument[T]) -> T:
        # POST, because fifty titles in a URL can be longer than servers take.
        data = {**parameters, "format": "json", "formatversion": "2", "maxlag": str(_MAXLAG_S)}

        def attempt(session: Session) -> T:
            response = self._send(session, "POST", url, data=data, headers=_READ_ONLY_HEADER)
            return self._read(response, lambda response: _read_call(response, read))

        return self._http.retry(attempt)

    def _read(self, response: Response, read: Callable[[Response], T]) -> T:
        """Read a response; a web page in place of the first document of a server ends the run."""
        host = urlsplit(response.url).netloc
        try:
            outcome = read(response)
        except TransientError as error:
            if host not in self._read_hosts and _is_web_page(response):
                raise ConfigurationError(
                    f"{response.url} answered with a page that is not MediaWiki's, such as that of a network which "
                    f"asks for a login. {CHECK_NETWORK}. It says: {_text_of_page(response)!r}"
                ) from error
            raise
        self._read_hosts.add(host)
        return outcome

    def _get(self, url: str, read: Callable[[Response], T], root: str = "") -> T:
        """Request a document and follow redirects, each of which is a request of its own, below ``root``."""

        def attempt(session: Session) -> T | _Redirect:
            response = self._send(session, "GET", target)
            _check_status(response)
            if response.is_redirect:
                return _Redirect(urljoin(response.url, response.headers["Location"]))
            return self._read(response, read)

        target = url
        for _ in range(_MAX_REDIRECTS):
            outcome = self._http.retry(attempt)
            if not isinstance(outcome, _Redirect):
                return outcome
            target = outcome.target
            if not target.startswith(root):
                message = f"{url}: redirected to {target}, which is not below {root}"
                if urlsplit(url).netloc not in self._read_hosts:
                    raise ConfigurationError(f"{message}. {CHECK_NETWORK}")
                raise SourceError(message)
        raise SourceError(f"{url}: redirected more than {_MAX_REDIRECTS} times, last to {target}")

    def _send(self, session: Session, method: str, url: str, **options: Any) -> Response:
        """Return a response with its body."""
        exchange = partial(self._exchange, session, method, url, **options)
        return self._http.in_time(url, self.config.timeout_s, exchange)

    def _exchange(self, session: Session, method: str, url: str, **options: Any) -> Response:
        deadline = time.monotonic() + self.config.timeout_s
        timeout = (CONNECT_TIMEOUT_S, self.config.timeout_s)
        try:
            response = send(
                session, method, url, timeout=timeout, allow_redirects=False, stream=True, **options
            )
        except (
            ValueError
        ) as error:  # from the target of a redirect, which requests parses without following it
            raise SourceError(f"{method} {url} redirects to an invalid URL ({error})") from error
        body = bytearray()
        with response:
            for piece in received(response):
                body += piece
                if len(body) > _MAX_BYTES:
                    raise SourceError(f"{method} {url} sent more than {_MAX_BYTES:,} bytes")
                if time.monotonic() > deadline:  # nobody waits for the rest
                    raise TransientError(f"{method} {url} took too long")
        response.raw = BytesIO(body)
        return response


@dataclass(frozen=True, slots=True)
class _Redirect:
    target: str


def _is_web_page(response: Response) -> bool:
    """Return whether a response is a complete HTML page, not one that reports an error of the server.

    The tag ``<html>`` is optional in HTML; a page that begins it and does not end it is cut off. Wikimedia's pages
    about errors of its servers may come with status 200, without the tag, and name Wikimedia.
    """
    text = response.content.lstrip().lower()
    head = text[:_MAX_HEAD]
    says_so = response.headers.get("Content-Type", "").lower().startswith("text/html")
    is_html = head.startswith(b"<") and (says_so or b"<html" in head or b"<!doctype html" in head)
    is_complete = b"</html>" in text or not (b"<html" in head or b"wikimedia" in head)
    return response.status_code == 200 and is_html and is_complete


def _text_of_page(response: Response) -> str:
    """Return the first words of an HTML page."""
    text = re.sub(
        r"(?s)<(script|style).*?</\1>|<[^>]*>",
        " ",
        response.content[:_MAX_HEAD].decode("utf-8", "replace"),
    )
    return " ".join(text.split())[:200]


def _check_status(response: Response) -> None:
    """Raise on error statuses that mean the same for calls and pages."""
    if response.status_code == 403:
        raise ConfigurationError(
            f"{response.request.method} {response.url} answered 403 and the run was stopped: the server refuses this "
            f"client. It says: {' '.join(response.text.split())[:300]!r}"
        )
    raise_if_transient(response)


def _read_call(response: Response, read: ReadDocument[T]) -> T:
    """Read the JSON document of the action API; raise unless it is complete and without an error."""
    _check_status(response)
    if response.status_code != 200:
        target = response.headers.get("Location")
        raise ConfigurationError(
            f"{response.url} answered {response.status_code}{f' (go to {target})' if target else ''}; "
            "is there an action API at this address?"
        )

    def parse() -> T:
        document = json.loads(response.content)
        if not isinstance(document, dict):
            raise ValueError(f"expected an object, found {str(document)[:100]!r}")
        if "error" in document:
            raise _api_error(document["error"], response)
        return read(document)

    return _retry_unexpected(response, parse)


def _api_error(error: Any, response: Response) -> Exception:
    """Return the exception for an error that the API reports."""
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(code, str):
        return ValueError(f"an error without a code: {str(error)[:100]!r}")
    message = f"{response.url}: {code}: {error.get('info')}"
    if code == "toomanyvalues":
        return TooManyValuesError(message)
    if code == "no-such-entity":
        return UnknownEntityError(message)
    if _TRANSIENT_ERRORS.fullmatch(code):
        return TransientError(message, retry_after_s(response))
    return SourceError(f"the API refused the call: {message}")


def _read_page(read: Callable[[HtmlResponse], T], response: Response) -> T:
    """Read a page; raise unless it is complete."""
    if response.status_code not in (200, 400, 404):
        raise SourceError(f"{response.url} answered {response.status_code}")
    response.encoding = "utf-8"
    html = response.text
    # A connection that is cut at a chunk boundary can leave a well-formed response with half a document.
    if html.lstrip().startswith("<") and "</html>" not in html.lower():
        message = f"{response.url} answered {response.status_code} with a truncated page"
        raise TransientError(message, retry_after_s(response))
    return _retry_unexpected(
        response, lambda: read(HtmlResponse(response.url, response.status_code, html))
    )


def _read_file(read: Callable[[bytes], T], response: Response) -> T | None:
    """Read a file; None if there is none."""
    if response.status_code in (404, 410):
        return None
    if response.status_code != 200:
        text = " ".join(response.text.split())[:200]
        raise SourceError(f"{response.url} answered {response.status_code}: {text!r}")
    return _retry_unexpected(response, lambda: read(response.content))


def _retry_unexpected(response: Response, parse: Callable[[], T]) -> T:
    """Call ``parse``; a response that it cannot read is a transient failure."""
    try:
        return parse()
    except (ValueError, RecursionError) as error:
        raise TransientError(
            f"{response.url} sent something unexpected: {error}", retry_after_s(response)
        ) from error
