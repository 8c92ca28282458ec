"""Serve a page on this machine, only to browsers that have used a key.

The address that is printed at the start leads to a small page, whose form exchanges the key in the
address for a cookie that scripts cannot read and other sites cannot send. Only sending the form
uses the key, so that programs that look at links before a person does leave it valid. Requests that
another site makes the browser send are refused by ``Origin``, by the strict cookie and, against DNS
rebinding, by ``Host``.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from email.message import Message
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import ImmutableMultiDict, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as ServerMessage

from hgld.errors import ConfigurationError
from hgld.pages.templates import COMMON, page_templates, template_folder

# What pages read from requests: forms and uploaded files, with limits on their sizes.

FormFields = ImmutableMultiDict[str, str]
#: Bytes in the body of a request. The largest form decides on all labels of a review at once: about
#: 180 kB for the 5,700 labels of GLDv2.
MAX_BODY_BYTES = 4 * 2**20


async def _read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request; answer with the status 413 if it is too large."""
    chunks = []
    n_bytes = 0
    async for chunk in request.stream():
        n_bytes += len(chunk)
        if n_bytes > max_bytes:
            raise HTTPException(413, f"a request has at most {max_bytes:,} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def read_form(request: Request) -> FormFields:
    """Return the fields of a URL-encoded form."""
    text = (await _read_body(request, MAX_BODY_BYTES)).decode("utf-8", "replace")
    return ImmutableMultiDict(parse_qsl(text, keep_blank_values=True))


async def read_upload(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the file in the body of a request: the body itself, or the first file of a form.

    Scripts send a file as it is, and forms without script as ``multipart/form-data`` (RFC 7578).
    Nothing is written to disk.
    """
    body = await _read_body(request, max_bytes)
    header = Message()
    header["content-type"] = request.headers.get("content-type", "")
    boundary = header.get_param("boundary")
    if header.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        return body
    separator = b"\r\n--" + boundary.encode("latin-1", "replace")
    for part in (b"\r\n" + body).split(separator)[1:]:
        head, _, content = part.partition(b"\r\n\r\n")
        if b"filename=" in head.lower():
            return content
    raise HTTPException(400, "the form has no file")


def parse_number(text: str) -> int | None:
    """Return a number of at most 18 digits 0 to 9; None if the text is anything else.

    >>> parse_number("12"), parse_number("-1"), parse_number("²"), parse_number("9" * 5000)
    (12, None, None, None)
    """
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    return None


# Access control.

#: Path of the page that exchanges a key for the cookie.
OPEN_PATH = "/open"
#: Prefixes of the paths of files that this page needs.
_PUBLIC = ("/static/style/", "/static/script/open.js", "/static/icon.svg")
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src {}; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = {
    # With "no-referrer", browsers would send "Origin: null" with our own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_N_BYTES = 24
#: Compression of answers; higher levels take several times as long for a tenth of the bytes.
_GZIP_LEVEL = 1


class PageKeys:
    """Keys of one running page: a key works once and is exchanged for a secret in a cookie.

    An address stays in the history of a browser, in logs and in the scrollback of a terminal; a
    used key there is worthless. One key is valid at a time. When it is used, a new key for the next
    browser replaces it.
    """

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(_N_BYTES)
        # Browsers share cookies between all ports of a host; the name keeps the pages of two
        # annotators apart.
        self.cookie_name = f"hgld-{secrets.token_hex(6)}"
        self.on_new_key: Callable[[str], None] | None = None
        self._secret = secrets.token_urlsafe(_N_BYTES)

    def is_valid(self, key: str) -> bool:
        """Return whether a key is the present key, in constant time."""
        return secrets.compare_digest(key.encode(), self.key.encode())

    def admits(self, request: Request) -> bool:
        """Return whether a request has the cookie with the secret."""
        secret = request.cookies.get(self.cookie_name, "")
        return secrets.compare_digest(secret.encode(), self._secret.encode())

    def admit(self, response: Response) -> None:
        """Set the cookie in the answer to the valid key, and make a new key."""
        response.set_cookie(self.cookie_name, self._secret, httponly=True, samesite="strict")
        self.key = secrets.token_urlsafe(_N_BYTES)
        if self.on_new_key is not None:
            self.on_new_key(self.key)


def page_app(
    name: str,
    routes: Sequence[Route],
    keys: PageKeys,
    host_names: Collection[str] = (),
    *,
    image_sources: str = "'self'",
) -> Starlette:
    """Return the web application of a kind of page.

    Args:
        name: Name of the folder of templates, style sheets, scripts and icons, which are served
            below ``/static/``.
        routes: Routes of the page.
        keys: Keys that admit browsers.
        host_names: Accepted host names, besides localhost, names below it and all numeric
            addresses.
        image_sources: Allowed sources of images (``img-src`` of the content security policy).
    """
    files = {}
    for folder in (template_folder(COMMON), template_folder(name)):
        for path in sorted(folder.rglob("*")):
            if path.suffix in _MEDIA_TYPES:
                files[path.relative_to(folder).as_posix()] = path

    async def static_file(request: Request) -> Response:
        path = files.get(request.path_params["name"])
        if path is None:
            return Response(status_code=404)
        return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix])

    async def exchange_key(request: Request) -> Response:
        if keys.admits(request):
            # The browser has used a key before, such as in a tab that was restored.
            return RedirectResponse("/", status_code=303)
        if request.method == "POST":
            key = (await read_form(request)).get("key", "")
        else:
            key = request.query_params.get("key", "")
        if not keys.is_valid(key):
            return _refused(
                request, "an address with a key works once, and only until hgld is started again"
            )
        if request.method != "POST":
            page = page_templates(COMMON).get_template("open.html")
            return HTMLResponse(page.render(key=key, path=OPEN_PATH))
        response = RedirectResponse("/", status_code=303)
        keys.admit(response)
        return response

    async def disconnected(_: Request, __: Exception) -> Response:
        return Response(status_code=400)

    return Starlette(
        routes=[
            *routes,
            Route("/static/{name:path}", static_file),
            Route(OPEN_PATH, exchange_key, methods=["GET", "POST"]),
        ],
        middleware=[
            Middleware(
                _AccessMiddleware, keys=keys, host_names=host_names, image_sources=image_sources
            ),
            Middleware(GZipMiddleware, compresslevel=_GZIP_LEVEL),
        ],
        exception_handlers={ClientDisconnect: disconnected},
    )


class _AccessMiddleware:
    """ASGI middleware that admits only requests from the page, by browsers that have used a key."""

    def __init__(
        self, app: ASGIApp, keys: PageKeys, host_names: Collection[str], image_sources: str
    ) -> None:
        self._app = app
        self._keys = keys
        self._host_names = {"localhost", *(name.lower() for name in host_names)}
        self._headers = {
            "content-security-policy": _CONTENT_SECURITY_POLICY.format(image_sources),
            **_SECURITY_HEADERS,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: ServerMessage) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                # Only photographs set this header: browsers may keep them.
                headers.setdefault("cache-control", "no-store")
            await send(message)

        request = Request(scope)
        reason = self._reason_to_refuse(request)
        application = _refused(request, reason) if reason else self._app
        await application(scope, receive, send_with_headers)

    def _reason_to_refuse(self, request: Request) -> str:
        """Return why a request is refused; "" if it is admitted."""
        host = request.headers.get("host", "")
        if not self._is_known_host(host):
            return "this page does not have that name; use the address that hgld printed"
        home = f"{request.scope['scheme']}://{host}"
        if request.headers.get("origin", home) != home:
            return "the request came from another site; type the address that hgld printed yourself"
        path = request.scope["path"]
        if self._keys.admits(request) or path == OPEN_PATH or path.startswith(_PUBLIC):
            return ""
        return "this browser has not used an address that hgld printed at its last start"

    def _is_known_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            # Names below "localhost" lead to this machine, wherever they are looked up (RFC 6761).
            if name in self._host_names or name.endswith(".localhost"):
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _refused(request: Request, reason: str) -> Response:
    """Return the answer to a refused request: a page for browsers, and text for other programs."""
    if "text/html" in request.headers.get("accept", ""):
        html = page_templates(COMMON).get_template("open.html").render(key=None, reason=reason)
        return HTMLResponse(html, 403)
    return PlainTextResponse(f"Refused: {reason}.\n", 403)


# Serving.

#: Time that open connections get when the server is stopped, in seconds.
_GRACE_PERIOD_S = 2
#: Bytes in the address and headers of a request. Browsers send the cookies of all programs on this
#: machine.
_MAX_HEAD_BYTES = 64 * 2**10


@dataclass(frozen=True)
class ServerConfig:
    """Address at which the page is served.

    Args:
        host: Host name or address to listen at.
        port: Port; 0 for a free port, which is the same for the same file if possible.
    """

    host: str = "127.0.0.1"
    port: int = 0


def serve_page(
    app: ASGIApp,
    keys: PageKeys,
    listener: socket.socket,
    config: ServerConfig,
    *,
    on_address: Callable[[str], None],
) -> None:
    """Serve a page until SIGINT or SIGTERM.

    Args:
        app: The web application.
        keys: Keys that admit browsers.
        listener: Socket that listens at the address.
        config: Address of the page.
        on_address: Called with an address that admits one browser, and with the address for the
            next browser as soon as an address was used.
    """

    def announce(key: str) -> None:
        host = f"[{config.host}]" if ":" in config.host else config.host
        on_address(f"http://{host}:{listener.getsockname()[1]}{OPEN_PATH}?key={key}")

    keys.on_new_key = announce
    # The socket listens already: a browser waits until the server has started.
    announce(keys.key)
    with _ignore_repeated_signals():
        page_server(app).run(sockets=[listener])


def page_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server for a page, which logs only its own errors."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_config=None,
        log_level="error",  # invalid requests of clients are warnings
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        timeout_graceful_shutdown=_GRACE_PERIOD_S,
    )
    return uvicorn.Server(config)


def listen(config: ServerConfig, file: Path) -> socket.socket:
    """Listen at the port of the settings; for port 0 at the usual port of the file if it is free."""
    if config.port == 0:
        with suppress(ConfigurationError):
            return listen(replace(config, port=_usual_port(file)), file)
    try:
        family = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"cannot serve at {config.host}, port {config.port} ({error}); choose another `port`, or 0 for a free one"
        ) from error


@contextmanager
def _ignore_repeated_signals() -> Iterator[None]:
    """Ignore the signal that stopped uvicorn.

    Uvicorn raises the signal again at its end, which would end the process.
    """
    handlers = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        handlers[number] = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _usual_port(file: Path) -> int:
    """Return a port for a file, outside the range from which systems take free ports.

    A page that is open when the server is started again continues at the same address, and the
    browser keeps unsaved entries for this address.
    """
    digest = hashlib.sha256(str(file.absolute()).encode(errors="replace")).digest()
    return 20_000 + int.from_bytes(digest[:4], "big") % 12_000
