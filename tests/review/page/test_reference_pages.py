"""Facts of a label on the page, and pages to read beside it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from hgld.review.labels import FactBook, find_inputs
from hgld.review.page.render import References
from hgld.review.session import ReviewSession
from hgld.tables import CLASSES
from tests.review.conftest import Label, clean_table
from tests.review.page.page_server import REFERENCES, open_client

LAKE = {"item": "Q1", "label": "lake", "description": "body of <still> water", "subclass_of": ["Q55659167"]}


@pytest.fixture
def references(tmp_path: Path) -> References:
    guideline = tmp_path / "guideline.md"
    guideline.write_text("# How\n\n| label | group |\n| --- | --- |\n| <b>tarn</b> | *lake* |\n", encoding="utf-8")
    clean = clean_table([Label("Q1", "lake", train=520, index=3)])
    return References(FactBook(clean, [pa.Table.from_pylist([LAKE], CLASSES.schema)]), guideline)


@pytest.fixture
def client(session: ReviewSession, references: References) -> TestClient:
    return open_client(session, references=references)


def test_card_has_description_superclasses_and_links(client: TestClient) -> None:
    card = client.get("/?label=Q1").text.partition('id="card"')[2].partition("</section>")[0]
    assert '<p class="description" dir="auto">body of &lt;still&gt; water</p>' in card
    assert re.findall(r'href="(https://www\.wikidata[^"]*)"', card) == [
        "https://www.wikidata.org/wiki/Q55659167",
        "https://www.wikidata.org/wiki/Q1",
        "https://www.wikidata.org/wiki/Special:GoToLinkedPage/commonswiki/Q1",
    ]


def test_all_landmarks_are_listed_500_at_a_time(client: TestClient) -> None:
    first = client.get("/landmarks?label=Q1").text
    assert "523 landmarks" in first
    (address,) = re.findall(r'<a class="button" href="([^"]*)"', first)
    second = client.get(address.replace("&amp;", "&")).text
    names = [re.findall(r'<li dir="auto"><a [^>]*>([^<]*)<', page) for page in (first, second)]
    assert [len(page) for page in names] == [500, 23]
    assert names[0] + names[1] == sorted({*names[0], *names[1]}, key=str.casefold)
    assert 'class="button"' not in second


@pytest.mark.parametrize(
    "query", ["", "?label=Q404", "?label=Q1&from=-1", "?label=Q1&from=9999999999999", "?label=Q1&from=²"]
)
def test_unknown_labels_and_numbers(client: TestClient, query: str) -> None:
    assert client.get(f"/landmarks{query}").status_code == (200 if "from" in query else 404)


def test_guideline_is_shown_with_its_tables_and_without_its_html(client: TestClient) -> None:
    page = client.get("/guideline").text
    assert "<td>&lt;b&gt;tarn&lt;/b&gt;</td>\n<td><em>lake</em></td>" in page


def test_page_without_guideline_has_no_link_to_it(session: ReviewSession) -> None:
    client = open_client(session, references=replace(REFERENCES, guideline=None))
    assert client.get("/guideline").status_code == 404
    assert "/guideline" not in client.get("/").text


def test_guideline_beside_the_taxonomy_is_shown(tables: Callable[..., Path], tmp_path: Path) -> None:
    clusters = tables()
    assert find_inputs(clusters).guideline is not None, "of the taxonomy that comes with hgld"
    taxonomy = tmp_path / "own" / "taxonomy.csv"
    assert find_inputs(clusters, taxonomy=taxonomy).guideline is None
