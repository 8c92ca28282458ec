"""The page of ``hgld search --serve``: uploads with and without script, what it refuses, and how it looks."""

import io
import re
import socket
import threading
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.testclient import TestClient

from hgld.pages.server import PageKeys, page_server
from hgld.search import served_page
from hgld.search.gallery import gallery_photographs, read_gallery
from hgld.search.query_model import load_query_model
from hgld.search.searcher import Searcher
from hgld.search.served_page import search_app
from tests.axe import violations
from tests.search.conftest import PATHS

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture(scope="module")
def keys() -> PageKeys:
    return PageKeys()


@pytest.fixture(scope="module")
def application(gallery_folder: Path, keys: PageKeys) -> Starlette:
    embeddings = gallery_folder / "all.npy"
    gallery = read_gallery(embeddings)
    model = load_query_model(embeddings, gallery.dim)
    return search_app(Searcher(gallery), model, gallery_photographs(embeddings), keys, top=4)


@pytest.fixture
def client(application: Starlette, keys: PageKeys) -> TestClient:
    """A browser that has opened the printed address."""
    client = TestClient(application, base_url="http://127.0.0.1:8000")
    client.post("/open", data={"key": keys.key})
    return client


@pytest.fixture(scope="module")
def picture(gallery_folder: Path) -> bytes:
    return (gallery_folder / "pictures" / PATHS[4]).read_bytes()


def test_picture_of_the_gallery_finds_itself(client: TestClient, picture: bytes) -> None:
    by_script = client.post("/search", content=picture)
    by_form = client.post("/search", files={"image": ("a photo.jpg", picture)})
    for answer in (by_script, by_form):
        assert answer.status_code == 200
        assert re.findall(r"<p class=\"id\">(.*?)</p>", answer.text)[0] == PATHS[4]
        assert re.findall(r"<span>1\.000</span>", answer.text)
        assert re.search(
            r"<dt>kind</dt><dd><span dir=\"auto\">a</span> <span class=\"share\">[01]\.\d\d", answer.text
        )
        urls = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', answer.text)
        assert [Image.open(io.BytesIO(b64decode(url))).size for url in urls] == [(20, 16)] * 5, (
            "the query and 4 results"
        )
    assert client.get("/levels.css").text.startswith(".level-2 { --level: #")


def test_nothing_is_written_to_disk(client: TestClient, picture: bytes, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file is written")

    monkeypatch.setattr("tempfile._mkstemp_inner", refuse)
    monkeypatch.chdir(tmp_path)
    client.post("/search", files={"image": ("a.jpg", picture + b"\0" * 2_000_000)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "No picture was chosen."),
        (b"no picture", "This picture cannot be read: not an image."),
        (b"\xff\xd8\xff\xe0" + b"\0" * 100, "This picture cannot be read: "),
    ],
)
def test_what_is_no_picture_is_one_line(client: TestClient, content: bytes, message: str) -> None:
    for answer in (
        client.post("/search", content=content),
        client.post("/search", files={"image": ("a.jpg", content)}),
    ):
        assert answer.status_code == 400
        assert re.findall(r'role="alert">([^<]*)<', answer.text)[0].startswith(message)


def test_form_without_a_file_is_refused(client: TestClient) -> None:
    boundary = {"content-type": "multipart/form-data; boundary=x"}
    assert client.post("/search", content=b"--x--\r\n", headers=boundary).status_code == 400


def test_huge_pictures_are_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    png = io.BytesIO()
    Image.new("1", (9_000, 9_000)).save(png, "PNG")
    assert "too large (81 megapixels)." in client.post("/search", content=png.getvalue()).text
    assert client.post("/search", content=b"x" * (served_page.MAX_UPLOAD_BYTES + 1)).status_code == 413
    stranger = TestClient(client.app, base_url="http://127.0.0.1:8000")
    assert stranger.post("/open", content=b"x" * 5_000_000).status_code == 413, "only pictures may be large"


def test_unknown_addresses(client: TestClient) -> None:
    for path in ("/photographs/0", "/queries/x", "/static/../page.html"):
        assert client.get(path).status_code == 404


def test_pages_are_for_admitted_browsers_only(application: Starlette, client: TestClient, picture: bytes) -> None:
    stranger = TestClient(application, base_url="http://127.0.0.1:8000")
    for path in ("/", "/levels.css"):
        assert stranger.get(path).status_code == 403
    assert stranger.post("/search", content=picture).status_code == 403
    assert client.post("/search", content=picture, headers={"origin": "https://example.org"}).status_code == 403
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "img-src 'self' data:;" in policy, "its pictures are in data: addresses"
    assert "unsafe" not in policy
    assert not re.search(r"<script(?! src=\"/static)|<style|\sstyle=|\son\w+=", page.text)


@pytest.fixture(scope="module")
def address(application: Starlette) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = page_server(application)
    thread = threading.Thread(target=server.run, args=[[listener]])
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join(15)
    listener.close()


@pytest.mark.slow
def test_page_in_a_browser(browser: "Chrome", address: str, keys: PageKeys, gallery_folder: Path) -> None:
    """Choose, drop and paste a picture; and without script, send the form."""
    from selenium.webdriver.support.wait import WebDriverWait

    wait = WebDriverWait(browser, 20, 0.05)

    def nearest() -> list[str]:
        script = "return [...document.querySelectorAll('.items .id')].map(id => id.textContent).slice(0, 1)"
        return list(browser.execute_script(script))

    browser.get(f"{address}open?key={keys.key}")
    wait.until(lambda _: browser.find_elements("id", "image"))
    assert violations(browser) == []
    browser.find_element("id", "image").send_keys(str(gallery_folder / "pictures" / PATHS[0]))
    wait.until(lambda _: nearest() == [PATHS[0]])
    assert violations(browser) == []
    assert browser.execute_script("return document.activeElement.id") == "answer-title"
    give = """
        const [type, bytes, property] = arguments;
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], "a.jpg", { type: "image/jpeg" }));
        dispatchEvent(Object.assign(new Event(type, { cancelable: true }), { [property]: data }));
    """
    bytes_of = [[*(gallery_folder / "pictures" / path).read_bytes()] for path in PATHS]
    browser.execute_script(give, "drop", bytes_of[5], "dataTransfer")
    wait.until(lambda _: nearest() == [PATHS[5]])
    browser.execute_script(give, "paste", bytes_of[7], "clipboardData")
    wait.until(lambda _: nearest() == [PATHS[7]])
    for width in (320, 390, 1280):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        root = "document.documentElement"
        assert browser.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth && innerWidth == {width}")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(address)
        browser.find_element("id", "image").send_keys(str(gallery_folder / "pictures" / PATHS[8]))
        browser.find_element("css selector", "#upload button").click()
        wait.until(lambda _: nearest() == [PATHS[8]])
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
