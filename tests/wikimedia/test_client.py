"""The client against a server with scripted replies."""

import gzip
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hgld.errors import ConfigurationError, SourceError
from hgld.version import __version__
from hgld.wikimedia.client import (
    HtmlResponse,
    TooManyValuesError,
    UnknownEntityError,
    WikimediaClient,
    client_user_agent,
)
from hgld.wikimedia.settings import ClientConfig
from tests.http_servers import BODY_BEGUN, HEADERS_BEGUN, LocalServer, dripping_server

Serve = Callable[..., "ScriptedServer"]


def whole(document: dict[str, Any]) -> dict[str, Any]:
    """Read a document as it is."""
    return document


def status_and_html(response: HtmlResponse) -> tuple[int, str]:
    return response.status, response.html


class Reply(NamedTuple):
    status: int = 200
    body: str | bytes = '{"ok": true}'
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False  # whether the connection ends after half of the body


def api_error(code: str, *headers: tuple[str, str]) -> Reply:
    return Reply(body=json.dumps({"error": {"code": code, "info": "details"}}), headers=headers)


class ScriptedServer(LocalServer):
    """Sends the replies one after the other, then the last one again; records the requests and their times."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[tuple[str, dict[str, str], str]] = []
        self.times: list[float] = []
        super().__init__(self._answer)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()
        self.times.append(time.monotonic())
        self.requests.append((handler.path, dict(handler.headers), body))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        content = reply.body.encode() if isinstance(reply.body, str) else reply.body
        handler.send_response(reply.status)
        for name, value in reply.headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2] if reply.cut else content)
        handler.close_connection = reply.cut

    def client(self, **settings: object) -> WikimediaClient:
        root = self.url
        defaults: dict[str, object] = {"rate_per_minute": 0, "backoff_s": 0.001, "contact": "me@example.org"}
        return WikimediaClient(ClientConfig(f"{root}/commons", f"{root}/wikidata", **(defaults | settings)))  # type: ignore[arg-type]


def close_during_a_call(client: WikimediaClient, has_begun: Callable[[], object]) -> None:
    """Close a client when its call has begun, and check that the call ends with an error."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.commons, {}, whole)
        while not has_begun():
            time.sleep(0.001)
        client.close()
        with pytest.raises(SourceError, match="being stopped"):
            call.result(timeout=5)


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    with ExitStack() as servers:
        yield lambda *replies: servers.enter_context(closing(ScriptedServer(*replies)))


def test_headers_and_parameters_of_a_call(serve: Serve) -> None:
    server = serve(Reply())
    assert server.client().wikidata({"action": "x"}, whole) == {"ok": True}
    path, headers, body = server.requests[0]
    assert path == "/wikidata/w/api.php"
    assert headers["User-Agent"].startswith(f"hgld/{__version__} (operator: me@example.org) ")
    assert headers["Accept-Encoding"] == "gzip"
    assert headers["Promise-Non-Write-API-Action"] == "true"
    assert set(body.split("&")) == {"action=x", "format=json", "formatversion=2", "maxlag=5"}


@pytest.mark.parametrize(
    "failure",
    [
        Reply(500),
        Reply(502, "<html>bad gateway"),
        Reply(429, headers=(("Retry-After", "0"),)),
        Reply(body='{"ok": tr'),
        Reply(body="not json"),
        api_error("maxlag", ("Retry-After", "0")),
        api_error("ratelimited"),
        api_error("internal_api_error_DBQueryError"),
    ],
)
def test_transient_failure_is_retried(serve: Serve, failure: Reply) -> None:
    server = serve(failure, failure, Reply())
    client = server.client()
    assert client.commons({}, whole) == {"ok": True}
    assert (client.requests, client.retries) == (3, 2)


def test_retries_are_exhausted(serve: Serve) -> None:
    server = serve(Reply(503))
    with pytest.raises(SourceError, match=r"given up after 4 attempts.*answered 503"):
        server.client(max_retries=3).commons({}, whole)
    assert len(server.requests) == 4


@pytest.mark.parametrize("host", ["127.0.0.1:9", "[fe80::1%25no-such-network]"])
def test_server_that_has_never_answered_is_not_tried_again(host: str) -> None:
    client = WikimediaClient(ClientConfig(f"http://{host}", f"http://{host}", rate_per_minute=0))
    with pytest.raises(
        ConfigurationError, match=r"cannot be reached: .* Check the address, the network .* HTTPS_PROXY"
    ):
        client.commons({}, whole)
    assert client.requests == 1


def test_server_that_has_answered_before_is_tried_again(serve: Serve) -> None:
    server = serve(Reply(headers=(("Connection", "close"),)))
    client = server.client(max_retries=2)
    client.commons({}, whole)
    server.close()
    with pytest.raises(SourceError, match=r"given up after 3 attempts: .*Connection refused"):
        client.commons({}, whole)


def test_retries_are_reported_before_ten_seconds_have_passed(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = serve(Reply(502)).client(backoff_s=20)
    close_during_a_call(client, lambda: caplog.records)
    assert f"attempt 1 of 11 failed: POST {client.config.commons_url}/w/api.php answered 502" in caplog.text


@pytest.mark.parametrize("begun", [HEADERS_BEGUN, BODY_BEGUN])
def test_response_has_a_deadline(begun: bytes) -> None:
    with dripping_server(begun) as url:
        client = WikimediaClient(ClientConfig(url, url, rate_per_minute=0, backoff_s=0, max_retries=1, timeout_s=0.5))
        for request in (lambda: client.commons({}, whole), lambda: client.page("Category:X", status_and_html)):
            with pytest.raises(
                SourceError, match=r"given up after 2 attempts: http://\S+ sent no complete response within 0\.5 s"
            ):
                request()


@pytest.mark.parametrize("begun", [HEADERS_BEGUN, BODY_BEGUN])
def test_close_ends_a_request_that_waits_for_the_server(begun: bytes) -> None:
    with dripping_server(begun) as url:
        client = WikimediaClient(ClientConfig(url, url, rate_per_minute=0))
        close_during_a_call(client, lambda: client.requests)


def test_response_of_any_size_takes_little_memory(serve: Serve) -> None:
    gzipped = Reply(body=gzip.compress(bytes(2**28), 1), headers=(("Content-Encoding", "gzip"),))
    for server in (serve(gzipped), serve(Reply(body=" " * 2**26))):
        client = server.client()
        requests: list[Callable[[], object]] = [
            partial(client.commons, {}, whole),
            partial(client.page, "Category:X", status_and_html),
            partial(client.file, f"{server.url}/x.jpg", len),
        ]
        for request in requests:
            tracemalloc.start()
            with pytest.raises(SourceError, match=r"sent more than 33,554,432 bytes"):
                request()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 2**28
        assert client.requests == len(requests)


def test_403_is_not_retried(serve: Serve) -> None:
    server = serve(Reply(403, "Please  respect our\n robot policy"))
    with pytest.raises(ConfigurationError, match="403.*Please respect our robot policy"):
        server.client().commons({}, whole)
    assert len(server.requests) == 1


PORTAL = "<!DOCTYPE html><html><head><style>b {}</style></head><body><h1>Hotel Wi-Fi</h1> Log in</body></html>"


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (Reply(body=PORTAL), "Hotel Wi-Fi Log in"),
        (Reply(body="<!doctype html>\n<title>Hotel Wi-Fi</title><form>"), "Hotel Wi-Fi"),
        (Reply(body="<script>location = '/login'</script>", headers=(("Content-Type", "text/html"),)), ""),
    ],
)
def test_web_page_in_place_of_the_first_document_ends_the_run(serve: Serve, reply: Reply, text: str) -> None:
    """Networks that ask for a login answer every request with their page, and status 200."""
    server = serve(reply)
    client = server.client()
    with pytest.raises(ConfigurationError, match=f"page that is not MediaWiki's.* ask.*login.* says: '{text}'"):
        client.commons({}, whole)

    def read(response: HtmlResponse) -> str:
        raise ValueError("not the page of a category")

    with pytest.raises(ConfigurationError, match="page that is not MediaWiki's"):
        client.page("Category:X", read)
    assert client.requests == 2
    later = serve(Reply(), Reply(body=PORTAL), Reply()).client()
    assert [later.commons({}, whole), later.commons({}, whole)] == [{"ok": True}] * 2


def test_server_that_has_never_answered_in_time_is_given_up() -> None:
    with dripping_server(HEADERS_BEGUN) as url:
        client = WikimediaClient(ClientConfig(url, url, rate_per_minute=0, backoff_s=0, timeout_s=0.1))
        with pytest.raises(ConfigurationError, match="has not answered 3 requests in time, nor any other. Check the"):
            client.commons({}, whole)
        assert client.requests == 3


def test_credentials_of_other_programs_are_not_sent(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ada password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server = serve(Reply(301, "", (("Location", "/commons/wiki/Category:Y"),)), Reply(body=PAGE))
    server.client().page("Category:X", status_and_html)
    server.client().file(f"{server.url}/x.jpg", len)
    named = server.url.replace("http://", "http://ada:lovelace@")
    WikimediaClient(ClientConfig(named, named, rate_per_minute=0)).page("Category:X", status_and_html)
    assert [headers.get("Authorization") for _, headers, _ in server.requests] == [
        None,
        None,
        None,
        "Basic YWRhOmxvdmVsYWNl",
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("HTTP_PROXY", "foo://", "cannot be requested by the proxy that the environment variables HTTPS_PROXY"),
        ("HTTP_PROXY", "foo://127.0.0.1:1", "cannot be requested by the proxy"),
        ("REQUESTS_CA_BUNDLE", "/no/such/file.pem", "invalid path: /no/such/file.pem; correct or remove .* REQUESTS"),
    ],
)
def test_wrong_environment_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str) -> None:
    for proxies in ("no_proxy", "NO_PROXY", "http_proxy", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(proxies, raising=False)
    monkeypatch.setenv(name, value)
    scheme = "http" if name == "HTTP_PROXY" else "https"
    client = WikimediaClient(ClientConfig(f"{scheme}://127.0.0.1:9", f"{scheme}://127.0.0.1:9", rate_per_minute=0))
    with pytest.raises(ConfigurationError, match=message):
        client.commons({}, whole)
    assert client.requests == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (api_error("badvalue"), SourceError),
        (Reply(404), ConfigurationError),
        (api_error("toomanyvalues"), TooManyValuesError),
        (api_error("no-such-entity"), UnknownEntityError),
    ],
)
def test_permanent_failure_is_not_retried(serve: Serve, reply: Reply, kind: type[Exception]) -> None:
    server = serve(reply)
    with pytest.raises(kind):
        server.client().commons({}, whole)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body", ["[]", "null", '"error"', "7", '{"error": []}', '{"error": "x"}', '{"error": {"code": 1}}', "[" * 100_000]
)
def test_json_that_is_no_document_of_the_api_is_retried(serve: Serve, body: str) -> None:
    assert serve(Reply(body=body), Reply()).client().commons({}, whole) == {"ok": True}
    with pytest.raises(
        SourceError, match=r"given up after 3 attempts: http://\S+/w/api.php sent something unexpected: ."
    ):
        serve(Reply(body=body)).client(max_retries=2).commons({}, whole)


def test_document_that_cannot_be_read_is_retried(serve: Serve) -> None:
    def read(document: dict[str, Any]) -> int:
        if "value" not in document:
            raise ValueError("no value")
        return int(document["value"])

    server = serve(Reply(), Reply(body='{"value": 3}'))
    assert server.client().commons({}, read) == 3
    with pytest.raises(SourceError, match="given up after 2 attempts.*unexpected: no value"):
        serve(Reply()).client(max_retries=1).commons({}, read)


def test_page_that_cannot_be_read_is_retried(serve: Serve) -> None:
    def read(response: HtmlResponse) -> str:
        if "é" not in response.html:
            raise ValueError("not the page")
        return response.html

    assert serve(Reply(body="Log in, please"), Reply(body=PAGE)).client().page("Category:X", read) == PAGE


@pytest.mark.parametrize("value", ["3601", "99999999999", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_pause_of_more_than_an_hour_ends_the_run(serve: Serve, value: str) -> None:
    server = serve(Reply(429, headers=(("Retry-After", value),)))
    with pytest.raises(
        ConfigurationError, match=r"answered 429 and asks for a pause of \S+ s .* run the same command again"
    ):
        server.client().commons({}, whole)
    assert len(server.requests) == 1


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_pauses_all_threads(serve: Serve, as_date: bool) -> None:
    # A date has whole seconds: two of them ahead are at least one.
    value = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=2), usegmt=True) if as_date else "1"
    server = serve(Reply(429, headers=(("Retry-After", value),)), Reply())
    client = server.client()
    first = threading.Thread(target=client.commons, args=({}, whole))
    first.start()
    while client._http._limiter._paused_until <= time.monotonic():  # the answer is not read yet
        time.sleep(0.001)
    client.wikidata({}, whole)
    first.join()
    assert len(server.times) == 3
    assert min(server.times[1:]) - server.times[0] > 0.9


def test_retry_after_of_an_incomplete_response_holds(serve: Serve) -> None:
    pause = (("Retry-After", "0.3"),)
    calls = serve(Reply(503, "cut in the middle", pause, cut=True), Reply(200, '{"error": {"co', pause), Reply())
    assert calls.client().commons({}, whole) == {"ok": True}
    pages = serve(Reply(200, "<html>half", pause), Reply(body=PAGE))
    assert pages.client().page("Category:X", status_and_html) == (200, PAGE)
    assert min(np.diff(calls.times).tolist() + np.diff(pages.times).tolist()) > 0.25


def test_close_wakes_waiting_threads(serve: Serve) -> None:
    server = serve(Reply(503, headers=(("Retry-After", "3600"),)))
    close_during_a_call(server.client(), lambda: server.requests)


PAGE = "<!DOCTYPE html>\n<html><body>é</body></html>\n"


def test_page_redirects_to_another_spelling_are_followed(serve: Serve) -> None:
    server = serve(Reply(301, "", (("Location", "/commons/wiki/Category:Where%3F"),)), Reply(body=PAGE))
    assert server.client().page("Category:where?", status_and_html) == (200, PAGE)
    assert [path for path, _, _ in server.requests] == [
        "/commons/wiki/Category:where%3F",
        "/commons/wiki/Category:Where%3F",
    ]
    assert not any("Promise-Non-Write-API-Action" in headers for _, headers, _ in server.requests)


def test_truncated_page_is_retried_and_a_missing_page_returned(serve: Serve) -> None:
    server = serve(Reply(404, PAGE[:30]), Reply(404, PAGE))
    assert server.client().page("Category:X", status_and_html) == (404, PAGE)
    assert len(server.requests) == 2


def test_page_redirects_elsewhere_or_in_a_loop_are_errors(serve: Serve) -> None:
    elsewhere = Reply(302, "", (("Location", "http://example.org/"),))
    with pytest.raises(ConfigurationError, match=r"redirected to http://example.org/.*does it ask for a login"):
        serve(elsewhere).client().page("Category:X", status_and_html)
    client = serve(Reply(body=PAGE), elsewhere).client()
    client.page("Category:X", status_and_html)
    with pytest.raises(SourceError, match="redirected to http://example.org/"):
        client.page("Category:X", status_and_html)
    with pytest.raises(SourceError, match="redirects to an invalid URL"):
        serve(Reply(302, "", (("Location", "http://["),))).client().page("Category:X", status_and_html)
    with pytest.raises(SourceError, match="redirected more than 5 times"):
        serve(Reply(302, "", (("Location", "/commons/wiki/Category:X"),))).client().page(
            "Category:X", status_and_html
        )


@pytest.mark.parametrize("contact", ["me@example.org", "User:Me", "https://meta.wikimedia.org/wiki/User:Me"])
def test_wikimedia_contacts_are_accepted(contact: str) -> None:
    assert contact in client_user_agent(ClientConfig(contact=contact))


def test_contact_in_any_script_fits_into_a_header() -> None:
    assert client_user_agent(ClientConfig(contact="User:Żółw")).isascii()


def test_config_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGLD_CONTACT", "me@example.org")
    for name in ("HGLD_COMMONS_URL", "HGLD_WIKIDATA_URL"):
        monkeypatch.delenv(name, raising=False)
    assert ClientConfig.from_environment() == ClientConfig(contact="me@example.org")
    monkeypatch.setenv("HGLD_CONTACT", "")
    with pytest.raises(ConfigurationError, match="asks every client to name its operator"):
        ClientConfig.from_environment()
    monkeypatch.setenv("HGLD_COMMONS_URL", "http://127.0.0.1:1/commons/")
    monkeypatch.setenv("HGLD_WIKIDATA_URL", "http://127.0.0.1:1/wikidata")
    assert ClientConfig.from_environment() == ClientConfig(
        "http://127.0.0.1:1/commons", "http://127.0.0.1:1/wikidata"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "commons.wikimedia.org asks every client to name its operator.*`contact`.*HGLD_CONTACT"),
        ({"commons_url": "http://127.0.0.1:1/commons"}, "www.wikidata.org asks"),
        ({"commons_url": "https://commons.wikimedia.org."}, "commons.wikimedia.org asks"),
        ({"contact": "me"}, '`contact` is "me"; expected an e-mail address'),
        ({"contact": "me@example.org\r\nX: y"}, "`contact` is"),
        ({"contact": "me@example.org", "rate_per_minute": 0}, "`rate_per_minute` is 0, .*does not allow"),
        ({"contact": "me@example.org", "rate_per_minute": 201}, "`rate_per_minute` is 201"),
        ({"contact": "me@example.org", "commons_url": "commons.wikimedia.org"}, "expected a URL"),
        ({"contact": "me@example.org", "max_retries": -1}, "cannot be negative"),
    ],
)
def test_invalid_config(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ClientConfig(**settings)  # type: ignore[arg-type]
