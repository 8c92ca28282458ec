"""Who can use the page: a browser that has used a key, for requests from the page itself."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from starlette.testclient import TestClient

from hgld.pages.server import PageKeys
from hgld.review.page.app import review_app
from hgld.review.session import ReviewSession
from tests.review.page.page_server import FROM_SCRIPT, HOME, REFERENCES, open_client, serve
from tests.review.page.tab import open_tab
from tests.review.sessions import LABELS


def new_client(session: ReviewSession, keys: PageKeys) -> TestClient:
    return TestClient(review_app(session, REFERENCES, keys), base_url=HOME, follow_redirects=False)


def test_key_is_exchanged_once_for_a_cookie_with_another_value(session: ReviewSession) -> None:
    announced: list[str] = []
    keys = PageKeys()
    keys.on_new_key = announced.append
    first = keys.key
    client = new_client(session, keys)
    assert client.get("/").status_code == 403
    assert client.post("/open", data={"key": "guess"}).status_code == 403
    assert client.post("/open").status_code == 403
    welcome = client.post("/open", data={"key": first})
    assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
    cookie = welcome.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    (secret,) = client.cookies.values()
    page = client.get("/")
    assert page.status_code == 200
    assert announced == [keys.key]
    assert len({first, keys.key, secret}) == 3
    for value in (first, keys.key, secret):
        assert value not in page.text
    assert client.get(f"/open?key={first}").headers["location"] == "/", "e.g. in a tab that was restored"
    assert client.post("/open", data={"key": first}).headers["location"] == "/", "sent twice"

    other = TestClient(client.app, base_url=HOME, follow_redirects=False)
    assert other.get(f"/open?key={first}").status_code == 403
    assert other.post("/open", data={"key": first}).status_code == 403
    for path in ("/", "/static/script/page.js", "/decisions.csv", "/changes", "/decide"):
        assert other.get(path).status_code == 403, "without the cookie"
        assert other.get(path, headers={"cookie": f"{keys.cookie_name}=guess"}).status_code == 403
    assert other.get("/static/style/base.css").status_code == 200, "which the page for the key needs"
    for name in ("page.html", "script", "script/", "script/../page.html", "script/%2e%2e/page.html", "/etc/passwd"):
        assert client.get(f"/static/{name}").status_code == 404
        assert other.get(f"/static/style/../{name}").status_code in (403, 404)
    assert other.post("/open", data={"key": keys.key}).status_code == 303
    assert other.get("/").status_code == 200
    assert client.get("/").status_code == 200, "the first browser stays admitted"
    assert len(announced) == 2


def test_looking_at_the_address_does_not_use_the_key(session: ReviewSession) -> None:
    """Link scanners and browsers that load a page in advance send GET and HEAD only."""
    keys = PageKeys()
    key = keys.key
    client = new_client(session, keys)
    for _ in range(3):
        page = client.get(f"/open?key={key}")
        assert page.status_code == client.head(f"/open?key={key}").status_code == 200
        assert page.headers["cache-control"] == "no-store"
        assert "set-cookie" not in page.headers
    assert client.put(f"/open?key={key}").status_code == 405
    assert f'<input type="hidden" name="key" value="{key}"><button>' in page.text, "works without script"
    assert client.get("/static/script/open.js").status_code == 200
    assert keys.key == key
    assert client.post("/open", data={"key": key}).status_code == 303


def test_refused_people_get_a_page_that_says_where_an_address_is(session: ReviewSession) -> None:
    client = new_client(session, PageKeys())
    page = client.get("/", headers={"accept": "text/html,*/*"})
    assert page.status_code == 403
    assert "the last address in the terminal" in page.text
    assert client.get("/changes", headers=FROM_SCRIPT).text.startswith("Refused: ")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8000"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "ada.localhost.evil.example"},
        {"host": "evil-localhost:8000"},
        {"host": "[broken"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
    ],
    ids=str,
)
def test_requests_from_other_sites_are_refused(session: ReviewSession, headers: dict[str, str]) -> None:
    client = open_client(session)
    answer = client.post("/decide", data={"choose": "drop", "focus": "0:Q1"}, headers=headers)
    assert answer.status_code == 403
    assert client.get("/", headers=headers).status_code == 403
    assert session.decisions() == []
    keys = PageKeys()
    other = new_client(session, keys)
    assert other.post("/open", data={"key": keys.key}, headers=headers).status_code == 403
    assert other.get("/static/script/open.js", headers=headers).status_code == 403


@pytest.mark.parametrize("prefix", ["/static/style/", "/static/icon.svg", "/open", "/static/style/?", "/open#"])
def test_host_with_a_path_does_not_stand_for_the_path(session: ReviewSession, prefix: str) -> None:
    """A local program can send any header; the address that is made from them is not what is served."""
    client = new_client(session, PageKeys())
    for path in ("/decisions.csv", "/", "/changes"):
        for host in (f"localhost{prefix}", f"localhost:8000{prefix}", f"127.0.0.1{prefix}", f"a@localhost{prefix}"):
            assert client.get(path, headers={"host": host}).status_code == 403
    assert client.post("/decide", data={"choose": "drop", "focus": "0:Q1"}).status_code == 403
    for path in (f"{prefix}../../decisions.csv", f"{prefix}%2e%2e/decisions.csv", f"{prefix}%3f", f"/%2f{prefix}"):
        assert client.get(path).status_code in (400, 403, 404)


@pytest.mark.parametrize(
    "host", ["localhost:8000", "ada.localhost:8000", "127.0.0.1:8000", "[::1]:8000", "192.168.0.7:8000"]
)
def test_requests_from_our_own_pages_are_answered(session: ReviewSession, host: str) -> None:
    client = open_client(session)
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin", "cookie": cookies}
    assert client.get("/", headers=headers).status_code == 200


class _Cookies(BaseHTTPRequestHandler):
    """Another program on this machine, which keeps the cookies that it gets."""

    def do_GET(self) -> None:
        self.server.cookies = self.headers.get("cookie", "")  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.mark.slow
def test_cookie_goes_to_no_other_server_if_the_page_has_a_name_of_its_own(tmp_path: Path, browser: Chrome) -> None:
    """As the reference of the review page says: at 127.0.0.1, browsers send it to every port."""
    other = HTTPServer(("127.0.0.1", 0), _Cookies)
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    try:
        for name, is_sent in (("127.0.0.1", True), ("ada.localhost", False)):
            with (
                serve(tmp_path / name, LABELS) as served,
                open_tab(browser, served.address.replace("127.0.0.1", name)) as tab,
            ):
                tab.press("d")
                tab.wait_for_decisions(Q1="✕ drop")
                (cookie,) = [each for each in browser.get_cookies() if each["name"].startswith("hgld-")]
                for host in ("127.0.0.1", "localhost"):
                    browser.get(f"http://{host}:{other.server_port}/")
                    sent = cookie["value"] in other.cookies  # type: ignore[attr-defined]
                    assert sent == (is_sent and host == name), host
                tab.go_to(served.address.replace("127.0.0.1", name))
                browser.delete_all_cookies()
    finally:
        other.shutdown()
        thread.join(15)
        other.server_close()


def test_answers_are_compressed_for_browsers_that_ask_for_it(client: TestClient) -> None:
    plain, compressed = (client.get("/", headers={"accept-encoding": name}) for name in ("identity", "gzip"))
    assert compressed.text == plain.text
    assert int(compressed.headers["content-length"]) < len(plain.content) / 3
    assert (compressed.headers["content-encoding"], compressed.headers["vary"]) == ("gzip", "Accept-Encoding")
    same = ("content-type", "content-security-policy", "cache-control", "referrer-policy")
    assert [compressed.headers[name] for name in same] == [plain.headers[name] for name in same]
