"""A file server with range requests, scripted faults and a record of its requests."""

import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote

from tests.http_servers import LocalServer, reset_connection


@dataclass(frozen=True)
class Fault:
    """Fault of one GET: an error status, a reset after some bytes, or a wrong byte."""

    status: int | None = None
    retry_after: str = "0"
    reset_after: int | None = None
    wrong_byte: bool = False


@dataclass
class FileServer(LocalServer):
    """Serves files from the first of several folders that has them.

    Args:
        roots: Folders of the files.
        faults: Faults by path, one for each GET.
        ranges: Support range requests.
        etags: Send ETags.
        lengths: Send Content-Length.
        pause_s: Seconds between two chunks.
        requests: Method, path and headers of all requests.
        sent: Number of bytes sent by path.
    """

    roots: list[Path]
    faults: defaultdict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    ranges: bool = True
    etags: bool = True
    lengths: bool = True
    pause_s: float = 0.0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__(self.answer)

    def gets(self, path: str) -> list[dict[str, str]]:
        """Return the headers of every GET of ``path``."""
        return [headers for method, asked, headers in self.requests if (method, asked) == ("GET", path)]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = unquote(handler.path).lstrip("/")
        self.requests.append((handler.command, path, dict(handler.headers)))
        file = next((root / path for root in self.roots if (root / path).is_file()), None)
        get = handler.command == "GET"
        fault = self.faults[path].pop(0) if get and self.faults[path] else Fault()
        if fault.status or file is None:
            handler.send_response(fault.status or HTTPStatus.NOT_FOUND)
            if fault.status:
                handler.send_header("Retry-After", fault.retry_after)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        body, stat = file.read_bytes(), file.stat()
        etag, date = f'"{stat.st_mtime_ns:x}"', handler.date_time_string(int(stat.st_mtime))
        wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        unchanged = handler.headers.get("If-Range") in (None, etag if self.etags else date)
        if wanted and unchanged and self.ranges:
            start = int(wanted[1])
            handler.send_response(HTTPStatus.PARTIAL_CONTENT)
            handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            body = body[start:]
        else:
            handler.send_response(HTTPStatus.OK)
        if self.etags:
            handler.send_header("ETag", etag)
        handler.send_header("Last-Modified", date)
        if self.lengths:
            handler.send_header("Content-Length", str(len(body)))
        else:
            handler.send_header("Connection", "close")
        handler.end_headers()
        if get:
            self._send(handler, path, body, fault)

    def _send(self, handler: BaseHTTPRequestHandler, path: str, body: bytes, fault: Fault) -> None:
        if fault.wrong_byte:
            body = bytes([body[0] ^ 1]) + body[1:]
        end = len(body) if fault.reset_after is None else min(fault.reset_after, len(body))
        for at in range(0, end, 2**16):
            chunk = body[at : min(at + 2**16, end)]
            handler.wfile.write(chunk)
            self.sent[path] += len(chunk)
            time.sleep(self.pause_s)
        if fault.reset_after is not None:
            reset_connection(handler)
