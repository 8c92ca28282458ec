"""Photographs from a real MediaWiki: its own thumbnails, redirects and answers for files that do not exist."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from hgld.gldv2.photographs import fetch_photographs
from hgld.gldv2.settings import PhotographsConfig
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.commons_files import request_file_facts
from hgld.wikimedia.settings import ClientConfig
from tests.gldv2.photograph_files import contents_of, listed, real_photographs, rows_of
from tests.wikimedia.mediawiki import MediaWiki, is_installed

pytestmark = pytest.mark.slow

NAMES = [
    "Comet Falls (2937382438).jpg",
    'Devils Thumb 5172\' & "north", 50% + more;.jpg'.replace('"', "“"),
    "Ωραία Αθήνα 東京.jpg",
    "Long " + "ü" * 110 + ".jpg",
]
#: File pages that lead elsewhere, and one without a file.
PAGES = {
    "File:Former name.jpg": "#REDIRECT [[File:Comet Falls (2937382438).jpg]]",
    "File:Page without a file.jpg": "It was deleted.",
}


def large(data: bytes) -> bytes:
    stream = io.BytesIO()
    Image.open(io.BytesIO(data)).resize((640, 480)).save(stream, "JPEG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def photographs(shared: Path) -> dict[str, bytes]:
    return real_photographs(shared, len(NAMES) + 5)


@pytest.fixture(scope="module")
def wiki(photographs: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[MediaWiki]:
    if not is_installed():
        pytest.skip("no MediaWiki: apt-get install mediawiki php-cli php-sqlite3 php-intl")
    contents = list(photographs.values())
    files = {name: large(data) for name, data in zip(NAMES, contents, strict=False)}
    files["Small.jpg"] = contents[len(NAMES)]
    stream = io.BytesIO()
    Image.new("RGB", (600, 400), "red").save(stream, "PNG")
    files["Plan.png"] = stream.getvalue()
    with MediaWiki(tmp_path_factory.mktemp("wiki"), PAGES, files) as server:
        yield server


def client_config(wiki: MediaWiki) -> ClientConfig:
    url = f"{wiki.base_url}/commons"
    return ClientConfig(url, url, rate_per_minute=0, backoff_s=0.1, max_retries=2)


def test_photographs_and_what_became_of_others(
    wiki: MediaWiki, photographs: dict[str, bytes], tmp_path: Path
) -> None:
    names = [
        *NAMES,
        "Small.jpg",
        "Plan.png",
        "Former name.jpg",
        "Page without a file.jpg",
        "Nobody uploaded this.jpg",
    ]
    titles = {image_id: f"File:{name}" for image_id, name in zip(photographs, names, strict=True)}
    config = PhotographsConfig(width=250, client=client_config(wiki))
    summary = fetch_photographs(listed(titles), tmp_path, config)
    assert summary is not None
    assert summary.problems == []
    by_name = {names[row]: rows_of(tmp_path)[image_id] for row, image_id in enumerate(photographs)}
    statuses = {name: row["status"] for name, row in by_name.items()}
    assert statuses == dict.fromkeys(names[:7], "ok") | dict.fromkeys(names[7:], "missing")
    sizes = {name: (row["width"], row["height"]) for name, row in by_name.items()}
    assert {sizes[name] for name in (*NAMES, "Former name.jpg")} == {(250, 188)}
    assert (sizes["Small.jpg"], sizes["Plan.png"]) == ((224, 224), (250, 167))
    assert str(by_name["Former name.jpg"]["page"]).endswith("/wiki/File:Comet_Falls_(2937382438).jpg")
    assert by_name["Comet Falls (2937382438).jpg"]["uploaded_at"] is not None
    small = next(image_id for image_id, title in titles.items() if title == "File:Small.jpg")
    assert contents_of(tmp_path)["/".join((*small[:3], f"{small}.jpg"))] == photographs[small]


def test_titles_that_no_file_has(wiki: MediaWiki) -> None:
    client = WikimediaClient(client_config(wiki))
    titles = ["File:A|b.jpg", "File:A[b].jpg", f"File:{'x' * 300}.jpg", "File:Small.jpg"]
    facts = request_file_facts(client, titles, 120)
    assert [facts[title].status for title in titles] == ["invalid_title", "invalid_title", "invalid_title", "ok"]
