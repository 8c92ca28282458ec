"""Connections to a page, with limits on their number and on the time that a request and its answer take.

uvicorn limits the time between two requests. For the rest of a request, and for a client that does not read the
answer, it waits as long as it takes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from asyncio import TimerHandle

#: Connections at the same time; browsers open up to six.
MAX_CONNECTIONS = 100
#: Time for a whole request, from the opening of the connection or the last answer, in seconds.
REQUEST_TIMEOUT_S = 20.0
#: Time in which a client has to make room for more of an answer, in seconds.
STALL_TIMEOUT_S = 30.0


class LimitedConnection(H11Protocol):
    """A connection that is closed when it is too slow, or when there are too many and it was silent the longest."""

    _heard_at = 0.0
    _request_timer: TimerHandle | None = None
    _stall_timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Limit the number of connections, and wait for a request."""
        super().connection_made(transport)
        self._heard_at = self.loop.time()
        others = [other for other in self.connections if isinstance(other, LimitedConnection) and other.is_open]
        if len(others) > MAX_CONNECTIONS:
            min(others, key=lambda other: other._heard_at).transport.abort()
        self._time_request()

    def data_received(self, data: bytes) -> None:
        """Process a part of a request."""
        self._heard_at = self.loop.time()
        super().data_received(data)
        self._time_request()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._time_request()

    def pause_writing(self) -> None:
        """Wait until the client has read a part of the answer."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALL_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        self._stop_stall_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._stop_request_timer()
        self._stop_stall_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP, unless the answer to the same request has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    @property
    def is_open(self) -> bool:
        """Whether the connection is not being closed."""
        return not self.transport.is_closing()

    def _time_request(self) -> None:
        """Limit the time while a request is awaited or incomplete."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_request_timer()
        elif self._request_timer is None:
            self._request_timer = self.loop.call_later(REQUEST_TIMEOUT_S, self.transport.abort)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
