"""Access control of a page: only browsers that have used a key, and only requests from the page itself.

The address that is printed at the start leads to a small page, whose form exchanges the key in the address for a
cookie that scripts cannot read and other sites cannot send. Only sending the form uses the key, so that programs that
look at links before a person does leave it valid. Requests that another site makes the browser send are refused by
``Origin``, by the strict cookie and, against DNS rebinding, by ``Host``.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Collection, Sequence
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hgld.pages.requests import read_form
from hgld.pages.templates import COMMON, page_templates, template_folder

#: Path of the page that exchanges a key for the cookie.
OPEN_PATH = "/open"
#: How the paths of the files begin that this page needs.
_PUBLIC = ("/static/style/", "/static/script/open.js", "/static/icon.svg")
_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
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
    """Keys of one running page: one that works once is exchanged for a secret in a cookie.

    An address stays in the history of a browser, in logs and in the scrollback of a terminal; a used key there is
    worthless. One key is valid at a time. It is replaced when it is used, and the new one is for the next browser.
    """

    def __init__(self, on_new_key: Callable[[str], None] = lambda key: None) -> None:
        self.key = secrets.token_urlsafe(_N_BYTES)
        # Browsers share cookies between all ports of a host; the name keeps the pages of two annotators apart.
        self.cookie_name = f"hgld-{secrets.token_hex(6)}"
        self.on_new_key = on_new_key
        self._secret = secrets.token_urlsafe(_N_BYTES)

    def is_valid(self, key: str) -> bool:
        """Return whether this is the key that is valid now, in constant time."""
        return secrets.compare_digest(key.encode(), self.key.encode())

    def admits(self, request: Request) -> bool:
        """Return whether a request has the secret that a key is exchanged for."""
        return secrets.compare_digest(request.cookies.get(self.cookie_name, "").encode(), self._secret.encode())

    def admit(self, response: Response) -> None:
        """Set the cookie in the answer to the valid key, and make a new key."""
        response.set_cookie(self.cookie_name, self._secret, httponly=True, samesite="strict")
        self.key = secrets.token_urlsafe(_N_BYTES)
        self.on_new_key(self.key)


def page_app(name: str, routes: Sequence[Route], keys: PageKeys, host_names: Collection[str] = ()) -> Starlette:
    """Return the web application of a kind of page.

    Args:
        name: Name of the folder of its templates, style sheets, scripts and icons, served below ``/static/``.
        host_names: Accepted host names, besides localhost and all numeric addresses.
    """
    files = {
        path.relative_to(folder).as_posix(): path
        for folder in (template_folder(COMMON), template_folder(name))
        for suffix in _MEDIA_TYPES
        for path in folder.rglob(f"*{suffix}")
    }

    async def static_file(request: Request) -> Response:
        path = files.get(request.path_params["name"])
        if path is None:
            return Response(status_code=404)
        return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix])

    async def exchange_key(request: Request) -> Response:
        if keys.admits(request):  # by a key that was used before, e.g. in a tab that was restored
            return RedirectResponse("/", status_code=303)
        fields = await read_form(request) if request.method == "POST" else request.query_params
        key = fields.get("key", "")
        if not keys.is_valid(key):
            return _refused(request, "an address with a key works once, and only until hgld is started again")
        if request.method != "POST":
            return HTMLResponse(page_templates(COMMON).get_template("open.html").render(key=key, path=OPEN_PATH))
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
            Middleware(_AccessMiddleware, keys=keys, host_names=host_names),
            Middleware(GZipMiddleware, compresslevel=_GZIP_LEVEL),
        ],
        exception_handlers={ClientDisconnect: disconnected},
    )


class _AccessMiddleware:
    """ASGI middleware that admits only requests from the page, by browsers that have used a key."""

    def __init__(self, app: ASGIApp, keys: PageKeys, host_names: Collection[str]) -> None:
        self._app = app
        self._keys = keys
        self._host_names = {"localhost", *(name.lower() for name in host_names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_SECURITY_HEADERS)
                headers.setdefault("cache-control", "no-store")  # only photographs may be kept
            await send(message)

        request = Request(scope)
        reason = self._reason_to_refuse(request)
        await (_refused(request, reason) if reason else self._app)(scope, receive, send_with_headers)

    def _reason_to_refuse(self, request: Request) -> str:
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
            if name in self._host_names:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _refused(request: Request, reason: str) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        html = page_templates(COMMON).get_template("open.html").render(key=None, reason=reason)
        return HTMLResponse(html, 403)
    return PlainTextResponse(f"Refused: {reason}.\n", 403)
