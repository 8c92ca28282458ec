"""HTTP client of Commons and Wikidata, with one request rate over all threads and both hosts.

It follows https://www.mediawiki.org/wiki/API:Etiquette and Wikimedia's User-Agent policy: a
User-Agent that names hgld, its version and the operator's contact; a token bucket; ``maxlag``;
``Retry-After``, which pauses all threads; gzip; and an end of the run at a 403. Transient failures
(5xx, 429, lag, broken connections, late or truncated documents) are retried with exponential
back-off and jitter; :meth:`hgld.io.http.RetryingSession.retry` lists the failures that end the run.
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
#: Reads the JSON document of an API; raises ValueError if it does not have the expected form.
ReadDocument = Callable[[dict[str, Any]], T]

_MAXLAG_S = 5
_MAX_REDIRECTS = 5
#: Largest unpacked response in bytes; the API's own limit is 12 MB.
_MAX_BYTES = 2**25
#: Number of bytes of a page that are inspected to classify it.
_MAX_HEAD = 10_000
#: Error codes of the action API for transient failures.
_TRANSIENT_ERRORS = re.compile(
    r"maxlag|ratelimited|readonly|internal_api_error_.*|.*timeout.*|.*unavailable.*"
)


def client_user_agent(config: ClientConfig) -> str:
    """Return the User-Agent of every request, which names the operator."""
    # Headers are ASCII, user names may have other characters.
    operator = "no contact: not for Wikimedia's hosts"
    if config.contact:
        operator = f"operator: {quote(config.contact, safe=string.printable)}"
    return user_agent(operator)


#: Header of API calls, which only read although they are POST requests: Wikimedia may serve them
#: from the nearest data centre. Outside the API, MediaWiki answers 400 to this header.
_READ_ONLY_HEADER = {"Promise-Non-Write-API-Action": "true"}


class TooManyValuesError(SourceError):
    """A list of values exceeds the API's limit for one request."""


class UnknownEntityError(SourceError):
    """The API refuses a list of ids because one of them cannot be an entity."""


@dataclass(frozen=True, slots=True)
class HtmlResponse:
    """A complete response with status 200, 400 or 404, which may be any document."""

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
        #: Hosts that have sent a valid document.
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
            read: Reads the JSON document (format version 2). If it raises ValueError, the call is
                repeated.
        """
        return self._call(f"{self.config.wikidata_url}/w/api.php", parameters, read)

    def page(self, title: str, read: Callable[[HtmlResponse], T]) -> T:
        """Request a page of Commons in English and read it.

        HTTP redirects to the server's spelling of the title are followed.

        Args:
            title: Title of the page.
            read: Reads the response. If it raises ValueError, the request is repeated.
        """
        root = f"{self.config.commons_url}/wiki/"
        return self._get(root + title_path(title), partial(_read_page, read), root)

    def file(self, url: str, read: Callable[[bytes], T]) -> T | None:
        """Request a file, such as a thumbnail, and read it; None for a missing file (404 or 410).

        Args:
            url: Address of the file, from the API.
            read: Reads the file. If it raises ValueError, the request is repeated.
        """
        return self._get(url, partial(_read_file, read))

    def close(self) -> None:
        """Wake all waiting threads; they and all later requests raise :class:`SourceError`."""
        self._http.close()

    def _call(self, url: str, parameters: Mapping[str, str], read: ReadDocument[T]) -> T:
        # A URL with fifty titles may exceed the limits of servers, so calls are POST requests.
        data = {**parameters, "format": "json", "formatversion": "2", "maxlag": str(_MAXLAG_S)}

        def attempt(session: Session) -> T:
            response = self._send(session, "POST", url, data=data, headers=_READ_ONLY_HEADER)
            return self._read(response, lambda response: _read_call(response, read))

        return self._http.retry(attempt)

    def _read(self, response: Response, read: Callable[[Response], T]) -> T:
        """Read a response; a web page in place of the first document of a server ends the run."""
        host = urlsplit(response.url).netloc
        try:
            result = read(response)
        except TransientError as error:
            if host not in self._read_hosts and _is_web_page(response):
                raise ConfigurationError(
                    f"{response.url} answered with a page that is not MediaWiki's, such as that of a network which "
                    f"asks for a login. {CHECK_NETWORK}. It says: {_text_of_page(response)!r}"
                ) from error
            raise
        self._read_hosts.add(host)
        return result

    def _get(self, url: str, read: Callable[[Response], T], root: str = "") -> T:
        """Request a document and follow redirects below ``root``, one request per redirect."""

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
        """Send a request, and return the response with its body."""
        exchange = partial(self._exchange, session, method, url, **options)
        return self._http.in_time(url, self.config.timeout_s, exchange)

    def _exchange(self, session: Session, method: str, url: str, **options: Any) -> Response:
        deadline = time.monotonic() + self.config.timeout_s
        timeout = (CONNECT_TIMEOUT_S, self.config.timeout_s)
        try:
            response = send(
                session, method, url, timeout=timeout, allow_redirects=False, stream=True, **options
            )
        except ValueError as error:  # requests parses the target of a redirect without following it
            raise SourceError(f"{method} {url} redirects to an invalid URL ({error})") from error
        body = bytearray()
        with response:
            for piece in received(response):
                body += piece
                if len(body) > _MAX_BYTES:
                    raise SourceError(f"{method} {url} sent more than {_MAX_BYTES:,} bytes")
                if time.monotonic() > deadline:  # the caller has given up
                    raise TransientError(f"{method} {url} took too long")
        response.raw = BytesIO(body)
        return response


@dataclass(frozen=True, slots=True)
class _Redirect:
    target: str


def _is_web_page(response: Response) -> bool:
    """Return whether a response is a complete HTML page other than a report of a server error.

    The tag ``<html>`` is optional in HTML; a page with an opening tag and without a closing tag is
    truncated. Wikimedia's reports of server errors may have status 200 and no such tag, but contain
    the word Wikimedia.
    """
    if response.status_code != 200:
        return False
    text = response.content.lstrip().lower()
    head = text[:_MAX_HEAD]
    has_tag = b"<html" in head
    content_type = response.headers.get("Content-Type", "").lower()
    is_html = has_tag or b"<!doctype html" in head or content_type.startswith("text/html")
    is_complete = b"</html>" in text or not (has_tag or b"wikimedia" in head)
    return head.startswith(b"<") and is_html and is_complete


def _text_of_page(response: Response) -> str:
    """Return the first words of an HTML page."""
    html = response.content[:_MAX_HEAD].decode("utf-8", "replace")
    text = re.sub(r"(?s)<(script|style).*?</\1>|<[^>]*>", " ", html)
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
    """Read the JSON document of the action API; raise if it is incomplete or reports an error."""
    _check_status(response)
    if response.status_code != 200:
        answer = f"{response.url} answered {response.status_code}"
        if "Location" in response.headers:
            answer += f" (go to {response.headers['Location']})"
        raise ConfigurationError(f"{answer}; is there an action API at this address?")

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
    # A connection that breaks at a chunk boundary can leave a well-formed response with half a
    # document.
    if html.lstrip().startswith("<") and "</html>" not in html.lower():
        message = f"{response.url} answered {response.status_code} with a truncated page"
        raise TransientError(message, retry_after_s(response))
    page = HtmlResponse(response.url, response.status_code, html)
    return _retry_unexpected(response, lambda: read(page))


def _read_file(read: Callable[[bytes], T], response: Response) -> T | None:
    """Read a file; return None for a missing file."""
    if response.status_code in (404, 410):
        return None
    if response.status_code != 200:
        text = " ".join(response.text.split())[:200]
        raise SourceError(f"{response.url} answered {response.status_code}: {text!r}")
    return _retry_unexpected(response, lambda: read(response.content))


def _retry_unexpected(response: Response, parse: Callable[[], T]) -> T:
    """Call ``parse``; raise a TransientError if it cannot read the response."""
    try:
        return parse()
    except (ValueError, RecursionError) as error:
        message = f"{response.url} sent something unexpected: {error}"
        raise TransientError(message, retry_after_s(response)) from error
