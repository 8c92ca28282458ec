"""Requests that are too large or make no sense, over real connections."""

import logging
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.routing import Route

from hgld.pages import server
from hgld.pages.templates import template_folder
from hgld.review.session import MAX_CLUSTER_NAME, MAX_COMMENT, MAX_GROUP_NAME, MAX_GUIDELINE, ReviewSession
from tests.review.page.page_server import FROM_SCRIPT, ServedSession, open_client
from tests.review.sessions import label, open_session

TEMPLATES = [path for name in ("pages", "review") for path in template_folder(name).glob("*.html")]


class ServedPage(ServedSession):
    """The page in a thread of the test, to which tests speak HTTP by hand."""

    def __init__(self, session: ReviewSession) -> None:
        super().__init__(session)
        self.routes = [route for route in self.app.routes if isinstance(route, Route)]
        self.port = int(self.home.rstrip("/").rpartition(":")[2])
        self.cookie = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.cookies)

    def send(self, data: bytes) -> bytes:
        """Send something on a connection of its own, and return the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            with suppress(OSError):  # the server may refuse before the end
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            return read_to_end(connection)

    def head(self, line: str, *headers: str) -> bytes:
        """Return the head of a request from the admitted browser."""
        lines = [line, "Host: localhost", f"Cookie: {self.cookie}", *headers, "", ""]
        return "\r\n".join(lines).encode("latin-1")

    def answers(self) -> bool:
        answer = self.send(self.head("GET / HTTP/1.1", "Connection: close"))
        return answer.startswith(b"HTTP/1.1 200 ") and b'id="list"' in answer


def read_to_end(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    with open_session(tmp_path_factory.mktemp("page") / "ada.sqlite") as session:
        page = ServedPage(session)
        try:
            yield page
        finally:
            page.stop()


@pytest.fixture(autouse=True)
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that a client sends is worth a line in the terminal."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("request_line", "headers", "expected"),
    [
        ("HEAD / HTTP/1.1", [], 200),
        ("GET //evil.example/ HTTP/1.1", [], 404),
        ("GET /%00%ff%fe/%zz% HTTP/1.1", [], 404),
        ("GET /static/%2e%2e/%2e%2e/errors.py HTTP/1.1", [], 404),
        ("GET /?cluster=%ff%00&label=%F0%9F&q=%&step=%& HTTP/1.1", [], 200),
        (f"GET /?cluster={'9' * 5000}&step={'9' * 3000} HTTP/1.1", [], 200),
        (f"GET /changes?since={'9' * 5000}&at_label=%00 HTTP/1.1", [], 200),
        ("GET http://localhost/ HTTP/1.1", [], 404),
        ("OPTIONS / HTTP/1.1", [], 405),
        ("BREW / HTTP/1.1", [], 405),
        ("GET /decide HTTP/1.1", [], 405),
        ("GET / HTTP/1.1", ["Connection: upgrade", "Upgrade: websocket"], 200),
        ("GET / HTTP/1.1", ["Accept: \xff\xfe"], 200),
        ("GET / HTTP/1.1", ["Cookie: =;;=; other=\xff"], 200),
        ("GET / HTTP/1.1", ["no colon"], 400),
        ("GET / HTTP/1.1", [f"X-Long: {'x' * 200_000}"], 400),
        ("POST /undo HTTP/1.1", [], 400),
        ("POST /open HTTP/1.1", ["Content-Length: 10"], 303),
    ],
    ids=lambda value: str(value)[:40],
)
def test_odd_requests_get_a_status_of_the_client(
    page: ServedPage, request_line: str, headers: list[str], expected: int
) -> None:
    assert status(page.send(page.head(request_line, *headers))) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /open HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nkey",
        b"POST /open HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nkey",
        b"GET / HTTP/1.1\r\nHost: [localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
    ],
    ids=repr,
)
def test_garbage_is_refused(page: ServedPage, data: bytes) -> None:
    assert status(page.send(data)) in (0, 400, 403)
    assert page.answers()


def test_too_large_bodies_are_refused(page: ServedPage) -> None:
    """A chunked body has no length beforehand; the answer comes as soon as it is too long."""
    chunks = (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * (server.MAX_BODY_BYTES // 0x10000 + 1)
    for path in ("/decide", "/open"):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        cookie = f"Cookie: {page.cookie}\r\n" if path == "/decide" else ""
        assert status(page.send(f"{head}{cookie}\r\n".encode() + chunks)) == 413
    assert page.answers()


def test_all_labels_of_the_full_dataset_can_be_decided_at_once(tmp_path: Path) -> None:
    labels = [label(100_000_000 + number) for number in range(5_700)]
    with open_session(tmp_path / "a.sqlite", labels) as session:
        client = open_client(session)
        versions = [f"0:{key}" for key in session.labels]
        answer = client.post("/decide", data={"choose": "drop", "label": versions}, headers=FROM_SCRIPT)
        assert answer.status_code == 200
        assert len(session.decisions()) == 5_700
        assert int(answer.request.headers["content-length"]) < server.MAX_BODY_BYTES / 10


@pytest.mark.parametrize(
    ("path", "data", "field", "limit"),
    [
        ("/decide", {"choose": "drop", "focus": "0:Q1"}, "comment", MAX_COMMENT),
        ("/rename-cluster", {"cluster": "1", "version": "0"}, "name", MAX_CLUSTER_NAME),
        ("/move", {"focus": "0:Q1", "into": ""}, "name", MAX_CLUSTER_NAME),
        ("/propose-group", {"parent": "natural", "guideline": "x"}, "name", MAX_GROUP_NAME),
        ("/propose-group", {"parent": "natural", "name": "x"}, "guideline", MAX_GUIDELINE),
        ("/rename-group", {"group": "0:lake"}, "name", MAX_GROUP_NAME),
    ],
)
def test_texts_have_a_longest_length(tmp_path: Path, path: str, data: dict[str, str], field: str, limit: int) -> None:
    with open_session(tmp_path / "a.sqlite") as session:
        client = open_client(session)
        answer = client.post(path, data=data | {field: "ä" * (limit + 1)}, headers=FROM_SCRIPT)
        assert answer.status_code == 400
        assert f"has {limit + 1:,} characters; the longest has {limit:,}" in answer.json()["error"]
        assert session.state.last_event == 0
        assert client.post(path, data=data | {field: "ä" * limit}).status_code == 200
        assert session.state.last_event > 0


def test_fields_of_the_page_have_the_same_longest_lengths() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in TEMPLATES)
    lengths = {
        (name, int(length))
        for tag in re.findall(r"<(?:input|textarea)[^>]*>", text)
        for name, length in re.findall(r'name="(name|comment|guideline)".*maxlength="(\d+)"', tag)
    }
    assert lengths == {
        ("comment", MAX_COMMENT),
        ("name", MAX_CLUSTER_NAME),
        ("name", MAX_GROUP_NAME),
        ("guideline", MAX_GUIDELINE),
    }
