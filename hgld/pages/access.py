"""Access control of the page: only browsers that have used a key, and only requests from the page itself.

The address that is printed at the start leads to a small page, whose form exchanges the key in the address for a
cookie that scripts cannot read and other sites cannot send (:mod:`hgld.pages.keys`). Only sending the form uses
the key, so that programs that look at links before a person does leave it valid. Requests that another site makes the
browser send are refused by ``Origin``, ``Sec-Fetch-Site`` and, against DNS rebinding, by ``Host``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hgld.pages.forms import read_form
from hgld.pages.keys import PageKeys
from hgld.pages.templates import COMMON, page_templates

#: Path of the page that exchanges a key for the cookie.
OPEN_PATH = "/open"
#: How the paths of the files that this page needs begin.
_PUBLIC_FILES = ("/static/style/", "/static/script/open.js", "/static/icon.svg")
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
#: Delay of the answer to the first wrong key, in seconds; it doubles with every further one, up to the maximum.
_FIRST_DELAY_S = 0.05
_MAX_DELAY_S = 5.0

_logger = logging.getLogger(__name__)


class AccessMiddleware:
    """ASGI middleware that admits only browsers that have used a key.

    Args:
        app: Application to protect.
        keys: Keys of the page.
        host_names: Accepted host names, besides localhost and all numeric addresses.
    """

    def __init__(self, app: ASGIApp, keys: PageKeys, host_names: Collection[str] = ()) -> None:
        self._app = app
        self._keys = keys
        self._host_names = {"localhost", *(name.lower() for name in host_names)}
        self._n_failures = 0
        self._template = page_templates(COMMON).get_template("open.html")

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

        app = await self._answer(Request(scope, receive)) or self._app
        await app(scope, receive, send_with_headers)

    async def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that does not reach the application."""
        if reason := self._foreign(request):
            return self._refused(request, reason)
        cookie = request.cookies.get(self._keys.cookie_name)
        if cookie is not None and not self._keys.is_secret(cookie):
            return await self._wrong(request)
        if request.scope["path"] == OPEN_PATH:
            return await self._open(request, admitted=cookie is not None)
        if cookie is None and not request.scope["path"].startswith(_PUBLIC_FILES):
            return self._refused(request, "this browser has not used an address that hgld printed at its last start")
        return None

    def _foreign(self, request: Request) -> str:
        """Return why a request does not come from our own page or from the user; empty if it does."""
        host = request.headers.get("host", "")
        if not self._is_known_host(host):
            return "this page does not have that name; use the address that hgld printed"
        origin = request.headers.get("origin")
        is_foreign = origin is not None and origin != f"{request.scope['scheme']}://{host}"
        # "none": typed into the address bar, or from a bookmark or another program.
        site = request.headers.get("sec-fetch-site", "none")
        # A key may come from anywhere, such as the file that opens the page in the browser.
        is_link = request.scope["path"] == OPEN_PATH and request.headers.get("sec-fetch-dest") == "document"
        if is_foreign or (site not in ("same-origin", "none") and not (is_link and request.method == "GET")):
            return "the request came from another site; type the address that hgld printed yourself"
        return ""

    async def _open(self, request: Request, *, admitted: bool) -> Response:
        """Show the page that exchanges a key, or exchange it."""
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Method Not Allowed\n", 405, {"allow": "GET, HEAD, POST"})
        if admitted:  # by a key that was used before, e.g. in a tab that was restored
            return RedirectResponse("/", status_code=303)
        if request.method != "POST":
            key = request.query_params.get("key", "")
            if not self._keys.is_valid(key):
                return await self._wrong(request)
            return HTMLResponse(self._template.render(key=key, path=OPEN_PATH))
        secret = self._keys.exchange((await read_form(request)).get("key", ""))
        if secret is None:
            return await self._wrong(request)
        self._n_failures = 0
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(self._keys.cookie_name, secret, httponly=True, samesite="strict")
        return response

    async def _wrong(self, request: Request) -> Response:
        """Refuse a wrong key or secret after a delay, during which other requests are answered."""
        if not self._n_failures:
            client = request.client.host if request.client else "unknown"
            _logger.warning("refused a wrong key from %s; further ones are not reported", client)
        self._n_failures += 1
        await asyncio.sleep(min(_FIRST_DELAY_S * 2 ** min(self._n_failures - 1, 10), _MAX_DELAY_S))
        return self._refused(request, "an address with a key works once, and only until hgld is started again")

    def _refused(self, request: Request, reason: str) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(self._template.render(key=None, reason=reason), 403)
        return PlainTextResponse(f"Refused: {reason}.\n", 403)

    def _is_known_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._host_names:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
