"""Access control of the page: only requests with the token, from the page itself.

The token is in the address that is printed at the start. The first request with it sets a cookie that scripts cannot
read and other sites cannot send; from then on, the address without the token is enough. Requests that another site
makes the browser send are refused by ``Origin``, ``Sec-Fetch-Site`` and, against DNS rebinding, by ``Host``.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # With "no-referrer", browsers would send "Origin: null" with our own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class TokenMiddleware:
    """ASGI middleware that admits only requests with the token.

    Args:
        app: Application to protect.
        token: Secret token.
        host_names: Accepted host names, besides localhost and all numeric addresses.
    """

    def __init__(self, app: ASGIApp, token: str, host_names: Collection[str] = ()) -> None:
        self._app = app
        self._token = token
        self._host_names = {"localhost", *(name.lower() for name in host_names)}
        # Cookies are shared by all ports of a host; the name keeps the pages of two annotators apart.
        self._cookie = f"hgld-{hashlib.sha256(token.encode()).hexdigest()[:12]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SECURITY_HEADERS)
            await send(message)

        request = Request(scope)
        app = self._refusal(request) or self._login(request) or self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not self._is_known_host(host):
            return _refused("this page does not have that name; use the address that hgld printed")
        origin = request.headers.get("origin")
        is_foreign = origin is not None and origin != f"{request.url.scheme}://{host}"
        # "none": typed into the address bar, or from a bookmark or another program.
        if is_foreign or request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _refused("the request came from another site; type the address that hgld printed yourself")
        token = request.cookies.get(self._cookie) or request.query_params.get("token", "")
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return _refused("open the address with the token that hgld printed at its last start")
        return None

    def _login(self, request: Request) -> Response | None:
        """Move the token from the address into the cookie."""
        if "token" not in request.query_params:
            return None
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return response

    def _is_known_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._host_names:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _refused(reason: str) -> Response:
    return PlainTextResponse(f"Refused: {reason}.\n", status_code=403)
