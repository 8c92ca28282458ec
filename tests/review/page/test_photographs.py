"""Photographs over HTTP: images by id, the list of all of a label, and the part beside the card."""

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from PIL import Image
from starlette.testclient import TestClient

from tests.review.conftest import Label
from tests.review.page.page_server import FROM_SCRIPT, HOME, REFERENCES, open_client
from tests.review.photograph_files import jpeg, label_photographs
from tests.review.sessions import label, open_session

NASTY = '"><script>document.title = 1</script>'
LABELS = [label(1), label(2, NASTY), label(3)]
#: Landmarks 0 to 8 have the first label, 1000 the second.
COUNTS = {**dict.fromkeys(range(8), 9), 8: 2, 1000: 2}
BROKEN = {"8-0": b"no picture", "8-1": jpeg()[:500]}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A browser that has opened the page with photographs."""
    labels = [Label("Q1", "label 1", train=9), Label("Q2", NASTY, train=1)]
    photographs = label_photographs(tmp_path, labels, COUNTS, BROKEN)
    with open_session(tmp_path / "ada.sqlite", LABELS) as session:
        yield open_client(session, references=replace(REFERENCES, photographs=photographs))


def shown(html: str) -> list[str]:
    """Ids of the photographs in some HTML."""
    return re.findall(r'src="/photographs/([^/]+)/small"', html)


def test_images_are_small_or_large_and_kept_by_the_browser_only(client: TestClient) -> None:
    small, large = (client.get(f"/photographs/0-0/{size}") for size in ("small", "large"))
    assert [Image.open(io.BytesIO(answer.content)).size for answer in (small, large)] == [(240, 180), (320, 200)]
    for answer in (small, large):
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.headers["cache-control"] == "private, max-age=86400, immutable"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    for path in ("/", "/changes", "/photographs?label=Q1", "/photographs/none/small", "/static/icon.svg"):
        assert client.get(path).headers["cache-control"] == "no-store"
    stranger = TestClient(client.app, base_url=HOME)
    for path in ("/photographs/0-0/small", "/photographs?label=Q1"):
        refused = stranger.get(path)
        assert (refused.status_code, refused.headers["cache-control"]) == (403, "no-store")


@pytest.mark.parametrize(
    "path",
    [
        "none/small",
        "0-0/huge",
        "0-0/",
        "0-0/small/x",
        "..%2f..%2ftrain.csv/small",
        "%2e%2e/train.csv",
        "%2fetc%2fpasswd/small",
        "a%2f0-0.jpg/small",
        "0-0%00/small",
        "%ff%fe/small",
        "%F0%9F%8F%94/small",
        f"{'0' * 5000}/small",
    ],
)
def test_anything_but_an_id_of_the_index_is_not_found(client: TestClient, path: str) -> None:
    assert client.get(f"/photographs/{path}").status_code == 404


@pytest.mark.parametrize(("image_id", "reason"), [("8-0", "not an image"), ("8-1", "damaged")])
def test_placeholder_says_why_a_photograph_cannot_be_shown(client: TestClient, image_id: str, reason: str) -> None:
    answer = client.get(f"/photographs/{image_id}/small")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    assert answer.headers["cache-control"] == "no-store"
    assert f">{reason}<" in answer.text


def test_changed_tar_files_are_told_and_everything_else_goes_on(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "gldv2" / "train" / "0.tar").write_bytes(b"something else")
    assert ">its file cannot be read<" in client.get("/photographs/0-0/small").text
    assert client.get("/").status_code == 200


def test_card_shows_six_photographs_of_as_many_landmarks(client: TestClient) -> None:
    for page in (client.get("/?label=Q1").text, client.get("/changes?label=Q1").json()["parts"]["photographs"]):
        assert shown(page) == [f"{landmark}-0" for landmark in range(6)]
        assert 'alt="Photograph of Q1 train 0"' in page
        assert 'href="https://commons.wikimedia.org/wiki/Category:Q1_train_0"' in page
        assert '<a class="all" href="/photographs?label=Q1">74 photographs of 9 landmarks <kbd' in page
    assert shown(client.get("/?label=Q2").text) == ["1000-0", "1000-1"]
    assert "No photographs of its landmarks." in client.get("/?label=Q3").text


def test_all_photographs_of_a_label_on_pages_without_script(client: TestClient) -> None:
    pages, address = [], "/photographs?label=Q1"
    while address:
        page = client.get(address).text
        pages.append(shown(page))
        more = re.search(r'href="([^"]+)">More<', page)
        address = unescape(more[1]) if more else ""
    assert [len(page) for page in pages] == [60, 14]
    assert len({image_id for page in pages for image_id in page}) == 74
    assert client.get("/photographs?label=Q2").text.count("<script>") == 0
    for query in ("", "?label=Q99", "?label="):
        assert client.get(f"/photographs{query}").status_code == 404


@pytest.mark.parametrize(
    ("query", "number", "following"),
    [
        ("", 60, 60),
        ("&from=60", 14, None),
        ("&from=0&count=6", 6, 6),
        ("&from=74", 0, None),
        ("&from=999999999", 0, None),
        ("&from=9999999999999999999999&count=9999", 60, 60),
        ("&from=-1&count=x", 60, 60),
        ("&from=²&count=", 60, 60),
        ("&count=0", 0, None),
    ],
)
def test_list_items_for_the_script(client: TestClient, query: str, number: int, following: int | None) -> None:
    answer = client.get(f"/photographs?label=Q1{query}", headers=FROM_SCRIPT).json()
    assert (len(shown(answer["html"])), answer["next"]) == (number, following)


def test_page_without_photographs_has_none(tmp_path: Path) -> None:
    with open_session(tmp_path / "ada.sqlite", LABELS) as session:
        client = open_client(session)
        page = client.get("/").text
        assert "photographs" not in re.sub(r"/static/[^\"]+", "", page)
        assert client.get("/photographs?label=Q1").status_code == 404
        assert client.get("/photographs/0-0/small").status_code == 404
        assert "photographs" not in client.get("/changes").json()["parts"]
