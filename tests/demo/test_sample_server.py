"""The local server answers as the reference replica does, and as the scraper needs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from bs4 import BeautifulSoup

from hgld.demo.sample import Item, Page, Sample, read_sample
from hgld.demo.server import serving
from hgld.wikimedia.titles import title_path

# hard -> soft -> hard, a loop, a redirect to nowhere, a topic, ranks, markup in a label, other scripts
WORLD = Sample(
    pages={
        "Category:Tower": Page(item="Q910000001"),
        "Category:Old tower": Page(redirect="Category:Tower"),
        "Category:Older tower": Page(redirect="Category:Old tower"),
        "Category:塔": Page(soft_redirect="Category:Old tower"),
        "Category:Loop A": Page(redirect="Category:Loop B"),
        "Category:Loop B": Page(redirect="Category:Loop A"),
        "Category:Lost": Page(redirect="Category:Nowhere"),
        "Category:No item": Page(),
        "Category:Walls": Page(item="Q910000002"),
        "Category:List of walls": Page(item="Q910000004"),
        "Category:Unknown": Page(item="Q910000005"),
        "Category:Where is it? (A & B's)": Page(item="Q910000006"),
    },
    items={
        "Q12518": Item(label="tower", subclass_of=("Q811979",)),
        "Q811979": Item(label="architectural structure"),
        "Q570116": Item(label="tourist attraction"),
        "Q900000001": Item(label="<wall> & 'ditch'", subclass_of=("Q811979", "Q570116")),
        "Q4167836": Item(label="Wikimedia category"),
        "Q910000001": Item(category="Category:Tower", instance_of=("Q570116", "Q12518"), preferred=("Q12518",)),
        "Q910000002": Item(category="Category:Walls", instance_of=("Q4167836",), main_topic="Q910000003"),
        "Q910000003": Item(instance_of=("Q900000001", "Q570116")),
        "Q910000004": Item(category="Category:List of walls", instance_of=("Q4167836",)),
        "Q910000005": Item(category="Category:Unknown"),
        "Q910000006": Item(category="Category:Where is it? (A & B's)", instance_of=("Q12518",)),
    },
)
COMMONS, WIKIDATA = "commons", "wikidata"
BY_TITLE = {
    "action": "wbgetentities",
    "sites": "commonswiki",
    "props": "info|claims|sitelinks|labels",
    "sitefilter": "commonswiki",
    "languages": "en",
    "languagefallback": "1",
}
BY_ID = {key: value for key, value in BY_TITLE.items() if key != "sites"}
QUERY = {
    "action": "query",
    "prop": "pageprops|templates",
    "ppprop": "wikibase_item",
    "tltemplates": "Template:Category redirect",
    "redirects": "1",
}
TEXT = {"action": "query", "prop": "revisions", "rvprop": "content", "rvslots": "main"}
CALLS = {
    "titles": (WIKIDATA, BY_TITLE | {"titles": "Category:Tower|Category:Nowhere|Category:Walls|Tower"}),
    "titles must be exact": (WIKIDATA, BY_TITLE | {"titles": "Category:tower"}),
    "ids": (WIKIDATA, BY_ID | {"ids": "Q910000001|Q910000002|Q910000003|Q12518|Q900000001|Q999999999"}),
    "only claims": (WIKIDATA, BY_ID | {"ids": "Q910000001", "props": "claims"}),
    "only labels": (WIKIDATA, BY_ID | {"ids": "Q12518|Q910000001", "props": "labels"}),
    "51 titles": (WIKIDATA, BY_TITLE | {"titles": "|".join(f"Category:{n}" for n in range(51))}),
    "51 ids": (WIKIDATA, BY_ID | {"ids": "|".join(f"Q{n}" for n in range(1, 52))}),
    "unknown action": (WIKIDATA, {"action": "wbsearch"}),
    "every page": (COMMONS, QUERY | {"titles": "|".join(WORLD.pages)}),
    "pages of one redirect": (COMMONS, QUERY | {"titles": "Category:Older tower|Category:Tower"}),
    "redirects not followed": (
        COMMONS,
        {k: v for k, v in QUERY.items() if k != "redirects"} | {"titles": "Category:Old tower|Category:塔"},
    ),
    "loop": (COMMONS, QUERY | {"titles": "Category:Loop A"}),
    "normalised": (COMMONS, QUERY | {"titles": "category:tower|Category:No_item|Category:No item"}),
    "missing": (COMMONS, QUERY | {"titles": "Category:Nowhere|Category:Lost"}),
    "invalid": (COMMONS, QUERY | {"titles": "Category:A [b]|Category:Tower"}),
    "51 pages": (COMMONS, QUERY | {"titles": "|".join(f"Category:{n}" for n in range(51))}),
    "templates": (COMMONS, QUERY | {"tltemplates": "", "titles": "Category:Tower|Category:塔"}),
    "text": (COMMONS, TEXT | {"titles": "Category:塔|Category:Tower|Category:Old tower"}),
}
FORMAT = {"format": "json", "formatversion": "2"}
AGENT = {"User-Agent": "hgld-tests/1 (https://example.org/; tests@example.org)"}


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with serving(WORLD) as url:
        yield url


@pytest.fixture(scope="module")
def theirs(shared: Path) -> Iterator[str]:
    if not (shared / "wikimedia_replica").is_dir():
        pytest.skip(f"{shared} has no wikimedia_replica")
    sys.path.insert(0, str(shared))
    try:
        replica = importlib.import_module("wikimedia_replica")
        worlds = importlib.import_module("wikimedia_replica.world")
    finally:
        sys.path.remove(str(shared))
    with replica.ReplicaServer(worlds.FileWorld(replica_document(WORLD))) as server:
        yield server.base_url


def replica_document(sample: Sample) -> dict[str, Any]:
    """The same world in the replica's format, whose titles have no prefix."""

    def short(title: str | None) -> str | None:
        return title and title.removeprefix("Category:")

    categories = [
        {
            "title": short(title),
            "item": page.item,
            "redirect": short(page.redirect),
            "soft_redirect": short(page.soft_redirect),
            "infobox": page.redirect is None,
        }
        for title, page in sample.pages.items()
    ]
    items = []
    for item_id, item in sample.items.items():
        claims: dict[str, list[Any]] = {
            "P31": [
                {"value": value, "rank": "preferred" if value in item.preferred else "normal"}
                for value in item.instance_of
            ],
            "P279": list(item.subclass_of),
            "P301": [item.main_topic] if item.main_topic else [],
        }
        items.append(
            {
                "id": item_id,
                "labels": {"en": item.label} if item.label else {},
                "claims": {name: values for name, values in claims.items() if values},
                "infobox_link": "wikidata",
            }
        )
    return {"format": "wikimedia-replica-world", "version": 1, "categories": categories, "items": items}


def ask(base: str, site: str, params: dict[str, str], method: str = "POST") -> Any:
    url = f"{base}/{site}/w/api.php"
    form = {"data" if method == "POST" else "params": params | FORMAT}
    reply = requests.request(method, url, headers=AGENT, timeout=10, **form)
    assert reply.status_code == 200
    assert reply.headers["Content-Type"].startswith("application/json")
    return reply.json()


#: Keys of the replica's answers that hgld does not read and our server leaves out.
UNREAD = {"pageid", "modified", "hash", "fromencoded", "docref", "servedby", "parameter", "limit"} | {
    "warnings",
    "lowlimit",
    "highlimit",
}


def comparable(document: Any) -> Any:
    """An answer without what nothing reads; pages, redirects and the like in one order."""
    if isinstance(document, list):
        rows = [comparable(value) for value in document]
        in_order = any("mainsnak" in row for row in rows)  # that of statements says something
        return rows if in_order else sorted(rows, key=str)
    if not isinstance(document, dict):
        return document
    kept = {key: comparable(value) for key, value in document.items() if key not in UNREAD}
    if "mainsnak" in kept:
        kept.pop("id", None)
    if "lastrevid" in kept:
        kept["lastrevid"] = type(kept["lastrevid"])
    return kept


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", CALLS)
def test_the_answers_are_the_replicas(ours: str, theirs: str, name: str, method: str) -> None:
    site, params = CALLS[name]
    mine, reference = (ask(base, site, params, method) for base in (ours, theirs))
    assert comparable(mine) == comparable(reference)


SELECTORS = (
    "table#wdinfobox",
    "h1#firstHeading",
    "table#wdinfobox .wikidatainfobox-edit a",
    "div#category-redirect a",
    "span.mw-redirectedfrom a",
)


def parts_of(html: str) -> dict[str, list[tuple[str, Any]]]:
    """Texts and links of the parts of a page that can be read of it."""
    page = BeautifulSoup(html, "lxml")
    values = [li for row in page.select("#wdinfobox tr") if row.th for li in row.select("li")]
    parts = {"values": [(li.text.strip(), li.a["href"]) for li in values if li.a]}
    for selector in SELECTORS:
        parts[selector] = [
            (tag.get("href"), tag.get_text() if tag.name == "h1" else "") for tag in page.select(selector)
        ]
    return parts


# What a page says of a redirect that leads nowhere is left to the replica.
@pytest.mark.parametrize(
    "title", sorted(WORLD.pages.keys() - {"Category:Lost"} | {"Category:Nowhere", "Category:A [b]"})
)
def test_the_pages_are_the_replicas(ours: str, theirs: str, title: str) -> None:
    path = f"/commons/wiki/{title_path(title)}"
    mine, reference = (requests.get(base + path, headers=AGENT, timeout=10) for base in (ours, theirs))
    assert mine.status_code == reference.status_code
    assert mine.headers["Content-Type"].lower() == reference.headers["Content-Type"].lower()
    if mine.status_code != 400:  # what is said of a bad title is free
        assert parts_of(mine.text) == parts_of(reference.text)
    assert mine.text.endswith("</html>\n")


def test_the_links_of_a_page_lead_to_pages(ours: str) -> None:
    page = requests.get(f"{ours}/commons/wiki/Category:%E5%A1%94", timeout=10)
    link = BeautifulSoup(page.text, "lxml").select_one("#category-redirect a")
    assert link is not None
    assert requests.get(ours + str(link["href"]), timeout=10).status_code == 200


def test_an_unknown_path_is_not_found(ours: str) -> None:
    assert requests.get(f"{ours}/elsewhere", timeout=10).status_code == 404


def test_connections_are_kept_and_answers_do_not_wait(ours: str) -> None:
    with requests.Session() as session:
        seconds = [
            session.get(f"{ours}/commons/wiki/Category:Tower", timeout=10).elapsed.total_seconds() for _ in range(20)
        ]
        assert session.get(f"{ours}/commons/wiki/Category:Tower", timeout=10).raw.version == 11
    assert sorted(seconds)[10] < 0.035  # the delay of acknowledgements is 40 ms


def test_the_port_is_free_again_afterwards() -> None:
    with serving(read_sample()) as url:
        assert requests.get(f"{url}/commons/wiki/Category:Eiffel_Tower", timeout=10).status_code == 200
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{url}/commons/wiki/Category:Eiffel_Tower", timeout=10)
