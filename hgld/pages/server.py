"""Serve a page on this machine until the process is told to stop."""

from __future__ import annotations

import hashlib
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from hgld.errors import ConfigurationError
from hgld.pages.access import OPEN_PATH, PageKeys

#: Time that open connections get when the server is stopped, in seconds.
_GRACE_PERIOD_S = 2
#: Bytes in the address and headers of a request. Browsers send the cookies of all programs on this machine.
_MAX_HEAD_BYTES = 64 * 2**10


@dataclass(frozen=True)
class ServerConfig:
    """Address at which the page is served.

    Args:
        host: Host name or address to listen at.
        port: Port; 0 for a free one, which is the same for the same file if possible.
    """

    host: str = "127.0.0.1"
    port: int = 0


def serve_page(
    app: ASGIApp, keys: PageKeys, listener: socket.socket, config: ServerConfig, *, on_address: Callable[[str], None]
) -> None:
    """Serve a page until SIGINT or SIGTERM.

    Args:
        on_address: Called with an address that admits one browser to the page, and with the address for the next
            browser as soon as one was used.
    """

    def announce(key: str) -> None:
        host = f"[{config.host}]" if ":" in config.host else config.host
        on_address(f"http://{host}:{listener.getsockname()[1]}{OPEN_PATH}?key={key}")

    keys.on_new_key = announce
    announce(keys.key)  # the socket listens already: a browser that is sooner than the server waits
    with _ignore_repeated_signals():
        page_server(app).run(sockets=[listener])


def page_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server for a page, which logs only faults of its own."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_config=None,
        log_level="error",  # clients that send no valid HTTP are warnings
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        timeout_graceful_shutdown=_GRACE_PERIOD_S,
    )
    return uvicorn.Server(config)


def listen(config: ServerConfig, file: Path) -> socket.socket:
    """Listen at the port that was asked for; at the usual one of a file, if it is free, when any will do."""
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
    """Ignore the signal that stopped uvicorn, which it raises again at its end and which would end the process."""
    handlers = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _usual_port(file: Path) -> int:
    """Return a port for a file, outside the range from which systems take free ones.

    A page that is open when the server is started again goes on at the same address, and what it could not save is
    kept by the browser for this address.
    """
    digest = hashlib.sha256(str(file.absolute()).encode(errors="replace")).digest()
    return 20_000 + int.from_bytes(digest[:4], "big") % 12_000
