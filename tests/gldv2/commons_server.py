"""A server of Commons' files: the API's imageinfo, and thumbnails of real photographs, with scripted faults."""

import io
import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from PIL import Image

from tests.http_servers import LocalServer, reset_connection


@dataclass(frozen=True)
class Fault:
    """Fault of one response: another status, a cut or replaced body, a reset, or silence."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    cut: bool = False
    reset: bool = False
    silent_s: float = 0.0


@dataclass
class CommonsFile:
    """A file of the wiki.

    Args:
        data: Content of an image file.
        metadata: Values of extmetadata.
        imageinfo: Further values of imageinfo, which replace others; None for a page without its file.
    """

    data: bytes
    metadata: dict[str, str] = field(default_factory=dict)
    imageinfo: dict[str, Any] | None = field(default_factory=dict)


@dataclass
class CommonsServer(LocalServer):
    """Serves files as Wikimedia Commons does.

    Args:
        files: Files by title.
        redirects: Titles of renamed files by their former title.
        faults: Faults by title, or "api", one for each response.
        thumbnails_in_part: Number of files that a response of the API describes at most; it continues for the rest.
        on_request: Called with the number of requests so far, before each response.
        requests: Path, headers and form of all requests, with their times.
    """

    files: dict[str, CommonsFile]
    redirects: dict[str, str] = field(default_factory=dict)
    faults: defaultdict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    thumbnails_in_part: int = 50
    on_request: Callable[[int], None] = lambda n: None
    requests: list[tuple[float, str, dict[str, str], dict[str, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self._answer)

    def paths(self, prefix: str) -> list[str]:
        """Return the paths of all requests that begin so."""
        return [path for _, path, _, _ in self.requests if path.startswith(prefix)]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "POST":
            posted = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(posted).items()}
            self._reply(handler, "api", form, lambda: self._imageinfo(form))
        else:
            _, width, name = handler.path.lstrip("/").split("/")
            title = f"File:{unquote(name)}"
            self._reply(handler, title, {}, lambda: self._thumbnail(title, int(width)))

    def _reply(
        self, handler: BaseHTTPRequestHandler, key: str, form: dict[str, str], body_of: Callable[[], bytes | None]
    ) -> None:
        self.requests.append((time.monotonic(), handler.path, dict(handler.headers), form))
        self.on_request(len(self.requests))
        fault = self.faults[key].pop(0) if self.faults[key] else Fault()
        time.sleep(fault.silent_s)
        body = fault.body if fault.body is not None else b"" if fault.status != 200 else body_of()
        handler.send_response(404 if body is None else fault.status)
        for name, value in fault.headers:
            handler.send_header(name, value)
        body = body or b""
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if fault.cut or fault.reset else body)
        handler.close_connection |= fault.cut
        if fault.reset:
            reset_connection(handler)

    def _imageinfo(self, form: dict[str, str]) -> bytes:
        assert (form["action"], form["prop"], form["formatversion"]) == ("query", "imageinfo", "2")
        assert form["maxlag"]
        titles = form["titles"].split("|")
        assert len(titles) <= 50
        redirects = [{"from": title, "to": self.redirects[title]} for title in titles if title in self.redirects]
        names = list(dict.fromkeys(self.redirects.get(title, title) for title in titles))
        start = int(form.get("iicontinue", 0))
        pages = []
        for number, title in enumerate(names):
            page: dict[str, Any] = {"ns": 6, "title": title}
            if title not in self.files:
                page |= {"missing": True, "imagerepository": ""}
            elif start <= number < start + self.thumbnails_in_part and self.files[title].imageinfo is not None:
                page |= {"imagerepository": "local", "imageinfo": [self._info(title, int(form["iiurlwidth"]))]}
            pages.append(page)
        query: dict[str, Any] = {"pages": pages}
        if redirects:
            query["redirects"] = redirects
        end = start + self.thumbnails_in_part
        rest = (
            {"continue": {"iicontinue": str(end), "continue": "||"}} if end < len(names) else {"batchcomplete": True}
        )
        return json.dumps({"query": query, **rest}).encode()

    def _info(self, title: str, width: int) -> dict[str, Any]:
        file = self.files[title]
        name = quote(title.removeprefix("File:"))
        metadata = {key: {"value": value, "source": "commons-desc-page"} for key, value in file.metadata.items()}
        return {
            "timestamp": "2012-05-18T20:16:49Z",
            "url": f"{self.url}/original/0/{name}",
            "descriptionurl": f"https://commons.wikimedia.org/wiki/{quote(title.replace(' ', '_'))}",
            "thumburl": f"{self.url}/thumb/{width}/{name}",
            "thumbwidth": width,
            "extmetadata": metadata or [],
        } | (file.imageinfo or {})

    def _thumbnail(self, title: str, width: int) -> bytes | None:
        if title not in self.files:
            return None
        data = self.files[title].data
        image = Image.open(io.BytesIO(data))
        if not width or width >= image.width:
            return data
        stream = io.BytesIO()
        image.resize((width, round(image.height * width / image.width))).save(stream, image.format, quality=87)
        return stream.getvalue()
