"""Limits on the size of requests to a page, which hold before anything is read or parsed."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Bytes in the address of a request.
MAX_ADDRESS_BYTES = 8 * 2**10
#: Bytes in the headers of a request. Browsers send the cookies of all programs on this machine, up to 180 of them.
MAX_HEADER_BYTES = 32 * 2**10
#: Bytes in the body of a request. The largest form decides on all labels of a review at once: about 180 kB for the
#: 5,700 labels of GLDv2.
MAX_BODY_BYTES = 4 * 2**20


class LimitsMiddleware:
    """ASGI middleware that refuses requests that are too large, without reading them to the end.

    Args:
        app: Application to protect.
        body_bytes: Bytes in the body of a request by its path, where it is another number than ``MAX_BODY_BYTES``.
    """

    def __init__(self, app: ASGIApp, body_bytes: Mapping[str, int] | None = None) -> None:
        self._app = app
        self._body_bytes = body_bytes or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        max_bytes = self._body_bytes.get(scope["path"], MAX_BODY_BYTES)
        n_bytes = 0
        answering = False

        async def receive_limited() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > max_bytes:
                raise HTTPException(413, f"a request has at most {max_bytes:,} bytes")
            return message

        async def send_noted(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        app: ASGIApp = _refusal(scope, max_bytes) or self._app
        try:
            await app(scope, receive_limited, send_noted)
        except ClientDisconnect:
            return  # nobody waits for the answer
        except HTTPException as error:
            if answering:
                raise
            await PlainTextResponse(f"{error.detail}\n", error.status_code)(scope, receive, send)


def _refusal(scope: Scope, max_bytes: int) -> Response | None:
    """Return the refusal of a request whose address or headers are too large, or whose address is none of ours."""
    if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_ADDRESS_BYTES:
        return _refused(HTTPStatus.REQUEST_URI_TOO_LONG)
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
        return _refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    if not scope["path"].startswith("/"):  # the address of a proxy, or "*"
        return _refused(HTTPStatus.BAD_REQUEST)
    declared = dict(scope["headers"]).get(b"content-length", b"")
    if declared.isdigit() and int(declared) > max_bytes:
        return _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return None


def _refused(status: HTTPStatus) -> Response:
    return PlainTextResponse(f"{status.phrase}\n", status)
