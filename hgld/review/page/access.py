"""Who may use the page: who has the token, from the page itself.

The token stands in the address that is printed once. The first request with it puts it into a cookie that scripts
cannot read and other sites cannot send; the address without the token is enough from then on. What another site
makes the browser ask is refused by ``Origin``, ``Sec-Fetch-Site`` and, against a name that was made to point to this
machine (DNS rebinding), by ``Host``.
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

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # With "no-referrer" browsers would send "Origin: null" along with our own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Access:
    """ASGI middleware that lets only the annotator in.

    Args:
        app: what is guarded.
        token: what the annotator has.
        names: host names that the page goes by, besides localhost and any address in numbers.
    """

    def __init__(self, app: ASGIApp, token: str, names: Collection[str] = ()) -> None:
        self._app = app
        self._token = token
        self._names = {"localhost", *(name.lower() for name in names)}
        # Cookies do not tell ports apart; pages of two annotators on one machine do.
        self._cookie = f"hgld-{hashlib.sha256(token.encode()).hexdigest()[:12]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        request = Request(scope)
        answer = self._refusal(request) or self._welcome(request) or self._app
        await answer(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return _refused("this page does not go by that name; use the address that hgld printed")
        origin = request.headers.get("origin")
        foreign = origin is not None and origin != f"{request.url.scheme}://{host}"
        # "none": typed, or from a bookmark or another program.
        if foreign or request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _refused("asked by another site; put the address that hgld printed into the address bar yourself")
        given = request.cookies.get(self._cookie) or request.query_params.get("token", "")
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return _refused("open the address with the token that hgld printed when it was started last")
        return None

    def _welcome(self, request: Request) -> Response | None:
        """Put the token from the address into the cookie."""
        if "token" not in request.query_params:
            return None
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return answer

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._names:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _refused(reason: str) -> Response:
    return PlainTextResponse(f"Refused: {reason}.\n", status_code=403)
