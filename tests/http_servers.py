"""HTTP servers of tests, on a free port of this machine."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: object) -> None:  # a client that was killed
        pass


def start_server(handler: type[BaseHTTPRequestHandler]) -> tuple[ThreadingHTTPServer, str]:
    """Serve in a thread of its own; returns the server and its address."""
    http = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    return http, f"http://127.0.0.1:{http.server_port}"
