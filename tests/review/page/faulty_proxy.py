"""A connection to the page's server that fails in the ways in which connections and servers fail."""

from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

#: Headers that belong to a connection, not to what is sent on it.
_OF_CONNECTION = ("connection", "transfer-encoding", "content-length")


class FaultyProxy:
    """A proxy in a thread of the test. Requests reach the server as they are.

    Attributes:
        fault: What happens to forms. ``no-json``: they reach the server, and the answer is a page; ``cut``: they
            reach the server, and the connection ends in the middle of the answer; ``500``: they fail before.
        n_forms: Number of forms that came.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.fault = ""
        self.n_forms = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("")

            def do_POST(self) -> None:
                proxy.n_forms += 1
                self._answer(proxy.fault)

            def _answer(self, fault: str) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if fault == "500":
                    self.send_error(500)
                    return
                server = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
                headers = {name: text for name, text in self.headers.items() if name.lower() != "accept-encoding"}
                server.request(self.command, self.path, body, headers)
                answer = server.getresponse()
                content = answer.read()
                if fault == "no-json":
                    content = b"<p>The proxy of the company is being updated.</p>"
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _OF_CONNECTION:
                        self.send_header(name, value)
                if answer.status != 204:
                    self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
                server.close()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = parts._replace(netloc=f"127.0.0.1:{self._server.server_address[1]}").geturl()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
