"""Requests that are too large, too slow, too many or no HTTP at all, over real connections."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from hgld.pages import connections, limits
from hgld.pages.keys import PageKeys
from hgld.pages.server import page_server
from hgld.pages.templates import template_folder
from hgld.review.entered_texts import MAX_CLUSTER_NAME, MAX_COMMENT, MAX_GROUP_NAME, MAX_GUIDELINE
from hgld.review.page.app import review_app
from hgld.review.session import ReviewSession
from tests.review.page.clients import REFERENCES, open_client
from tests.review.sessions import label, open_session

TEMPLATES = [path for name in ("pages", "review") for path in template_folder(name).glob("*.html")]


class ServedPage:
    """The page in a thread of the test, to which tests speak HTTP by hand."""

    def __init__(self, session: ReviewSession, send_buffer: int | None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        if send_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self.port: int = self._listener.getsockname()[1]
        keys = PageKeys()
        started = threading.Event()
        app = review_app(session, REFERENCES, keys)
        self.routes = [route for route in app.routes if isinstance(route, Route)]
        self.server = page_server(app, started.set)
        self._thread = threading.Thread(target=self.server.run, args=[[self._listener]])
        self._thread.start()
        assert started.wait(10)
        body = f"key={keys.key}"
        answer = self.send(f"POST /open HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}")
        self.cookie = re.findall(rb"set-cookie: ([^;]+)", answer)[0].decode()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def send(self, data: str | bytes) -> bytes:
        """Send something on a connection of its own, and return the answer."""
        with self.connect() as connection:
            with suppress(OSError):  # the server may refuse before the end
                connection.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
                connection.shutdown(socket.SHUT_WR)
            return read_to_end(connection)

    def head(self, line: str, *headers: str) -> bytes:
        """Return the head of a request from the admitted browser."""
        lines = [line, "Host: localhost", f"Cookie: {self.cookie}", *headers, "", ""]
        return "\r\n".join(lines).encode("latin-1")

    def answers(self) -> bool:
        """Return whether the page is shown."""
        answer = self.send(self.head("GET / HTTP/1.1", "Connection: close"))
        return answer.startswith(b"HTTP/1.1 200 ") and b'id="list"' in answer

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(15)
        self._listener.close()


def read_to_end(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def send_until_closed(connection: socket.socket) -> None:
    """Send single bytes until the other side has closed the connection."""
    for _ in range(400):
        connection.send(b"x")
        time.sleep(0.025)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0


@contextmanager
def served(tmp_path: Path, send_buffer: int | None = None) -> Iterator[ServedPage]:
    with open_session(tmp_path / "ada.sqlite") as session:
        page = ServedPage(session, send_buffer)
        try:
            yield page
        finally:
            page.stop()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    with served(tmp_path_factory.mktemp("page")) as page:
        yield page


@pytest.fixture(autouse=True)
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that a client sends is worth a line in the terminal."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("request_line", "headers", "expected"),
    [
        ("GET / HTTP/1.1", [], 200),
        ("HEAD / HTTP/1.1", [], 200),
        ("GET //evil.example/ HTTP/1.1", [], 404),
        ("GET /%00%ff%fe/%zz% HTTP/1.1", [], 404),
        ("GET /static/%2e%2e/%2e%2e/errors.py HTTP/1.1", [], 404),
        ("GET /?cluster=%ff%00&label=%F0%9F&q=%&step=%& HTTP/1.1", [], 200),
        (f"GET /?cluster={'9' * 5000}&step={'9' * 3000} HTTP/1.1", [], 200),
        (f"GET /changes?since={'9' * 5000}&at_label=%00 HTTP/1.1", [], 200),
        ("GET http://localhost/ HTTP/1.1", [], 400),
        ("GET [x HTTP/1.1", [], 400),
        ("OPTIONS * HTTP/1.1", [], 400),
        ("OPTIONS / HTTP/1.1", [], 405),
        ("BREW / HTTP/1.1", [], 405),
        ("CONNECT localhost:80 HTTP/1.1", [], 400),
        ("TRACE / HTTP/1.1", [], 405),
        ("GET /decide HTTP/1.1", [], 405),
        ("GET / HTTP/1.1", ["Host: other"], 400),
        ("GET / HTTP/3.9", [], 200),
        ("GET /", [], 400),
        ("G\x00T / HTTP/1.1", [], 400),
        ("GET /\x80 HTTP/1.1", [], 400),
        ("GET / HTTP/1.1", ["Connection: upgrade", "Upgrade: websocket"], 200),
        ("GET / HTTP/1.1", ["Expect: 100-continue"], 200),
        ("GET / HTTP/1.1", ["Accept: \xff\xfe"], 200),
        ("GET / HTTP/1.1", ["Cookie: =;;=; hgld-theme=\xff"], 200),
        ("GET / HTTP/1.1", ["no colon"], 400),
        ("GET / HTTP/1.1", ["Content-Length: -1"], 400),
        ("GET / HTTP/1.1", ["Content-Length: many"], 400),
        ("POST /undo HTTP/1.1", ["Content-Length: 1", "Content-Length: 2"], 400),
        ("POST /undo HTTP/1.1", ["Transfer-Encoding: gzip"], 400),
        ("POST /undo HTTP/1.1", [], 400),
        (f"GET /{'a' * 9_000} HTTP/1.1", [], 414),
        (f"GET /?q={'a' * 9_000} HTTP/1.1", [], 414),
        (f"GET /{'a' * 200_000} HTTP/1.1", [], 400),
        ("GET / HTTP/1.1", [f"X-{number}: {'x' * 600}" for number in range(60)], 431),
        ("GET / HTTP/1.1", [f"X-Long: {'x' * 200_000}"], 400),
        ("POST /decide HTTP/1.1", [f"Content-Length: {limits.MAX_BODY_BYTES + 1}"], 413),
        ("POST /decide HTTP/1.1", [f"Content-Length: {'9' * 30}"], 400),
        ("POST /open HTTP/1.1", [f"Content-Length: {limits.MAX_BODY_BYTES + 1}"], 413),
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
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"POST /open HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /open HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nkey",
        b"POST /open HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nkey",
        b"POST /decide HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n-1\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGARBAGE\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost:99999999999\r\n\r\n",
    ],
    ids=repr,
)
def test_garbage_is_refused(page: ServedPage, data: bytes) -> None:
    assert status(page.send(data)) in (0, 400, 403)
    assert page.answers()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.binary(max_size=60).filter(lambda path: b"\n" not in path and b" " not in path))
def test_no_path_is_a_fault_of_the_server(page: ServedPage, path: bytes) -> None:
    assert status(page.send(page.head(f"GET /{path.decode('latin-1')} HTTP/1.1"))) < 500


#: Names of the fields of all forms, and of those that only the script sends.
FIELDS = [
    *sorted({name for path in TEMPLATES for name in re.findall(r'name="(\w+)"', path.read_text())}),
    *("at_cluster", "at_label", "cluster", "request", "shown", "since", "store"),
]
VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "1", "-1", "²", "٣", "9" * 5000, "0:Q1", "1:Q1", "0:lake", ":", "Q1", "lake", "church"]
    ),
    st.sampled_from(["drop", "group:lake", "take:1", "take:1@0:Q1", "take:²", "accept", "undecided", "none", "on"]),
    st.binary(max_size=20),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), fields=st.lists(st.tuples(st.sampled_from(FIELDS), VALUES), max_size=6))
def test_no_form_is_a_fault_of_the_server(
    page: ServedPage, data: st.DataObject, fields: list[tuple[str, str | bytes]]
) -> None:
    route = data.draw(st.sampled_from(page.routes))
    path = re.sub(r"\{.*?\}", "x", route.path)
    form = urlencode(fields)
    if "POST" in (route.methods or ()):
        request = page.head(f"POST {path} HTTP/1.1", f"Content-Length: {len(form)}") + form.encode()
    else:
        request = page.head(f"GET {path}?{form} HTTP/1.1")
    assert 200 <= status(page.send(request)) < 500


def test_body_is_refused_while_it_is_sent(page: ServedPage) -> None:
    """A chunked body has no length beforehand; the answer comes as soon as it is too long."""
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with page.connect() as connection:
        connection.sendall(page.head("POST /decide HTTP/1.1", "Transfer-Encoding: chunked"))
        n_sent = 0
        connection.settimeout(0)
        answer = b""
        while not answer:
            assert n_sent < 10 * limits.MAX_BODY_BYTES
            try:
                n_sent += connection.send(chunk[n_sent % len(chunk) :])
            except BlockingIOError:
                time.sleep(0.001)
            try:
                answer = connection.recv(65536)
            except BlockingIOError:
                continue
    assert status(answer) == 413
    assert page.answers()


def test_all_labels_of_the_full_dataset_can_be_decided_at_once(tmp_path: Path) -> None:
    labels = [label(100_000_000 + number) for number in range(5_700)]
    with open_session(tmp_path / "a.sqlite", labels) as session:
        client = open_client(session)
        versions = [f"0:{key}" for key in session.labels]
        answer = client.post(
            "/decide",
            data={"choose": "drop", "label": versions},
            headers={"accept": "application/json"},
        )
        assert answer.status_code == 200
        assert len(session.decisions()) == 5_700
        assert int(answer.request.headers["content-length"]) < limits.MAX_BODY_BYTES / 10
        answer = client.post("/decide", data={"choose": "drop", "label": ["0:Q1"] * 50_000})
        assert answer.status_code == 400
        assert "too many fields" in answer.text


@pytest.mark.parametrize(
    ("path", "data", "field", "limit"),
    [
        ("/decide", {"choose": "drop", "focus": "0:Q1"}, "comment", MAX_COMMENT),
        ("/rename-cluster", {"cluster": "1", "version": "0"}, "name", MAX_CLUSTER_NAME),
        ("/move", {"focus": "0:Q1", "into": ""}, "name", MAX_CLUSTER_NAME),
        ("/propose-group", {"root": "natural", "guideline": "x"}, "name", MAX_GROUP_NAME),
        ("/propose-group", {"root": "natural", "name": "x"}, "guideline", MAX_GUIDELINE),
        ("/rename-group", {"group": "0:lake"}, "name", MAX_GROUP_NAME),
    ],
)
def test_texts_have_a_longest_length(tmp_path: Path, path: str, data: dict[str, str], field: str, limit: int) -> None:
    with open_session(tmp_path / "a.sqlite") as session:
        client = open_client(session)
        answer = client.post(path, data=data | {field: "ä" * (limit + 1)}, headers={"accept": "application/json"})
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


def test_slow_requests_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing sent, a head that trickles in, a body that trickles in, and a body that was refused already."""
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 1.0)
    with served(tmp_path) as page:
        slow = {
            "silent": b"",
            "head": b"GET / HTTP/1.1\r\nX-Slow: ",
            "body": page.head("POST /decide HTTP/1.1", "Content-Length: 100000"),
            "refused body": b"POST /decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
            "second request": page.head("GET /static/icon.svg HTTP/1.1") + b"GET /",
        }
        opened = {name: page.connect() for name in slow}
        began = time.monotonic()
        for name, connection in opened.items():
            connection.sendall(slow[name])
        closed: dict[str, float] = {}
        while len(closed) < len(slow) and time.monotonic() - began < 10:
            for name in slow.keys() - closed.keys() - {"silent"}:
                try:
                    opened[name].send(b"x")
                except OSError:
                    closed[name] = time.monotonic() - began
            opened["silent"].settimeout(0.05)
            try:
                if not opened["silent"].recv(1):
                    closed.setdefault("silent", time.monotonic() - began)
            except TimeoutError:
                pass
            except OSError:
                closed.setdefault("silent", time.monotonic() - began)
        for connection in opened.values():
            connection.close()
        assert closed.keys() == slow.keys()
        assert min(closed.values()) >= 0.9, closed
        assert page.answers()


def test_client_that_does_not_read_the_answer_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_TIMEOUT_S", 0.5)
    with served(tmp_path, send_buffer=4096) as page, closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", page.port))
        connection.sendall(page.head("GET / HTTP/1.1") * 20)
        began = time.monotonic()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_until_closed(connection)
        assert time.monotonic() - began >= 0.4
        assert page.answers()


def test_many_open_connections_do_not_keep_a_browser_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    with served(tmp_path) as page:
        opened = [page.connect() for _ in range(60)]
        assert page.answers()
        assert len(page.server.server_state.connections) <= 20
        for connection in opened:
            connection.close()
