"""HTTP servers of tests, on a free port of this machine."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

#: Beginnings of responses that end within the headers or within the body.
HEADERS_BEGUN = b"HTTP/1.1 200 OK\r\nX-Endless: "
BODY_BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: object) -> None:  # a client that was killed
        pass


def start_server(handler: type[BaseHTTPRequestHandler]) -> tuple[ThreadingHTTPServer, str]:
    """Serve in a thread of its own; returns the server and its address."""
    http = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    return http, f"http://127.0.0.1:{http.server_port}"


@contextmanager
def dripping_server(begun: bytes) -> Iterator[str]:
    """Serve responses that begin at once and go on by a byte every twentieth of a second; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.wfile.write(begun)
            while self.command != "HEAD":
                self.wfile.write(b"x")
                time.sleep(0.05)

        do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    http, url = start_server(Handler)
    yield url
    http.shutdown()
    http.server_close()


@contextmanager
def interrupted_soon() -> Iterator[None]:
    """Expect that one Ctrl-C ends the block, within seconds, and leaves no thread that keeps the process alive."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest in the background ignores it
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - start < 5
    assert [thread for thread in threading.enumerate() if not thread.daemon] == [threading.main_thread()]
