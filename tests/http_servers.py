"""HTTP servers of tests, on a free port of this machine."""

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

#: Beginnings of responses that end within the headers or within the body.
HEADERS_BEGUN = b"HTTP/1.1 200 OK\r\nX-Endless: "
BODY_BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: object) -> None:  # a client that was killed
        pass


class LocalServer:
    """A server in a thread of its own, which answers requests of every method by one function; see ``url``."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                answer(self)

            do_HEAD = do_POST = do_GET  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        self._http = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def reset_connection(handler: BaseHTTPRequestHandler) -> None:
    """End the connection by a reset, after what was sent."""
    time.sleep(0.02)  # a reset overtakes what was sent before it
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True


@contextmanager
def dripping_server(begun: bytes) -> Iterator[str]:
    """Serve responses that send one byte every twentieth of a second and break off after ten; yields the address."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        handler.wfile.write(begun)
        for _ in range(200):
            if handler.command == "HEAD":
                break
            handler.wfile.write(b"x")
            time.sleep(0.05)

    with closing(LocalServer(answer)) as server:
        yield server.url


@contextmanager
def interrupted_soon() -> Iterator[None]:
    """Expect that one Ctrl-C ends the block and leaves no thread that keeps the process alive."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest in the background ignores it
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, handler)
        timer.join()  # its thread may outlive the signal that it sent
    assert [thread for thread in threading.enumerate() if not thread.daemon] == [threading.main_thread()]
