"""The bundled sample is consistent, and contains the cases that its README describes; its local server responds like
the reference replica.
"""

import csv
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from hgld.demo.sample import Sample, SampleItem, SamplePage, read_sample, serve_sample
from hgld.resources import sample_file
from hgld.tables import SPLITS
from hgld.wikimedia.scrape_files import read_categories
from hgld.wikimedia.titles import normalise_title


@pytest.fixture(scope="module")
def sample() -> Sample:
    return read_sample()


@pytest.fixture(scope="module")
def titles() -> dict[str, list[str]]:
    return {
        split: [row.title for row in read_categories(sample_file(f"{split}_label_to_category.csv"))]
        for split in SPLITS
    }


def test_pages_are_the_landmarks_and_redirect_targets(sample: Sample, titles: dict[str, list[str]]) -> None:
    listed = [title for split in SPLITS for title in titles[split]]
    assert len(listed) == len(set(listed)) == 325
    targets = {page.redirect or page.soft_redirect for page in sample.pages.values()} - {None}
    missing = {title for title in listed if title not in sample.pages}
    assert missing == {"Category:Hanging Gardens of Babylon", "Category:Mount Fuji [sunrise]"}
    assert sample.pages.keys() - {*listed} <= targets <= sample.pages.keys()
    for title, page in sample.pages.items():
        assert normalise_title(title) == title
        assert sum(value is not None for value in (page.item, page.redirect, page.soft_redirect)) <= 1, title
        assert page.item is None or sample.items[page.item].category == title


def test_items_refer_to_labelled_classes_and_topics(sample: Sample) -> None:
    for item_id, item in sample.items.items():
        assert re.fullmatch(r"Q[1-9]\d*", item_id)
        assert all(sample.items[class_id].label for class_id in item.instance_of + item.subclass_of)
        assert set(item.preferred) <= set(item.instance_of)
        if item.main_topic:
            assert sample.items[item.main_topic].instance_of
            assert sample.items[item.main_topic].category is None


def test_subclass_chains_are_acyclic(sample: Sample) -> None:
    def climb(item_id: str, below: tuple[str, ...]) -> None:
        assert item_id not in below, f"{item_id} is a subclass of itself through {below}"
        for parent in sample.items[item_id].subclass_of:
            climb(parent, (*below, item_id))

    for item_id in sample.items:
        climb(item_id, ())


def test_ids_are_unique_and_invented_ones_are_in_their_range(sample: Sample) -> None:
    rows = {}
    for name in ("pages.csv", "classes.csv"):
        with sample_file(name).open(encoding="utf-8", newline="") as stream:
            rows[name] = [row["item"] for row in csv.DictReader(stream) if row["item"]]
    assert len(rows["pages.csv"] + rows["classes.csv"]) == len(sample.items)
    assert all(int(item_id[1:]) > 910_000_000 for item_id in rows["pages.csv"])
    assert all(int(item_id[1:]) < 910_000_000 for item_id in rows["classes.csv"])


def test_sample_has_enough_labels_to_cluster(sample: Sample) -> None:
    label_counts = Counter(
        sample.items[page.item].instance_of[0]
        for page in sample.pages.values()
        if page.item and len(sample.items[page.item].instance_of) == 1
    )
    assert len(label_counts) >= 100
    assert max(label_counts.values()) >= 5


def test_cases_of_the_readme_are_present(sample: Sample) -> None:
    def page_of(name: str) -> SamplePage:
        return sample.pages[f"Category:{name}"]

    def labels(name: str) -> list[str | None]:
        item = sample.items[page_of(name).item or ""]
        return [sample.items[value].label for value in item.preferred or item.instance_of]

    assert labels("Angkor Wat") == ["Hindu temple", "Buddhist temple", "archaeological site"]
    assert labels("Eiffel Tower") == ["lattice tower"]
    assert labels("Victoria Bridge") == ["Wikimedia disambiguation page"]
    assert labels("Cathédrale Notre-Dame de Reims") == ["cathedral", "Wikimedia category"]
    assert sample.items[page_of("Great Wall of China").item or ""].main_topic
    assert page_of("Ayers Rock").redirect == "Category:Uluru"
    assert page_of("富士山").soft_redirect == "Category:Mount Fuji"
    assert page_of((page_of("Tour Eiffel").soft_redirect or "").removeprefix("Category:")).redirect
    assert labels("Chand Baori") == []
    assert page_of("Sunsets in Oia").item is None


def test_splits_share_an_id_for_different_landmarks() -> None:
    train, index = (
        {row.landmark_id: row.title for row in read_categories(sample_file(f"{split}_label_to_category.csv"))}
        for split in SPLITS
    )
    shared_ids = train.keys() & index.keys()
    assert shared_ids == {46496}
    assert train[46496] != index[46496]


# Redirects hard -> soft -> hard, a loop, a missing target, a topic, ranks, markup in a label, other scripts.
WORLD = Sample(
    pages={
        "Category:Tower": SamplePage(item="Q910000001"),
        "Category:Old tower": SamplePage(redirect="Category:Tower"),
        "Category:Older tower": SamplePage(redirect="Category:Old tower"),
        "Category:塔": SamplePage(soft_redirect="Category:Old tower"),
        "Category:Loop A": SamplePage(redirect="Category:Loop B"),
        "Category:Loop B": SamplePage(redirect="Category:Loop A"),
        "Category:Lost": SamplePage(redirect="Category:Nowhere"),
        "Category:No item": SamplePage(),
        "Category:Walls": SamplePage(item="Q910000002"),
        "Category:List of walls": SamplePage(item="Q910000004"),
        "Category:Unknown": SamplePage(item="Q910000005"),
        "Category:Where is it? (A & B's)": SamplePage(item="Q910000006"),
    },
    items={
        "Q12518": SampleItem(label="tower", subclass_of=("Q811979",)),
        "Q811979": SampleItem(label="architectural structure"),
        "Q570116": SampleItem(label="tourist attraction"),
        "Q900000001": SampleItem(label="<wall> & 'ditch'", subclass_of=("Q811979", "Q570116")),
        "Q4167836": SampleItem(label="Wikimedia category"),
        "Q910000001": SampleItem(category="Category:Tower", instance_of=("Q570116", "Q12518"), preferred=("Q12518",)),
        "Q910000002": SampleItem(category="Category:Walls", instance_of=("Q4167836",), main_topic="Q910000003"),
        "Q910000003": SampleItem(instance_of=("Q900000001", "Q570116")),
        "Q910000004": SampleItem(category="Category:List of walls", instance_of=("Q4167836",)),
        "Q910000005": SampleItem(category="Category:Unknown"),
        "Q910000006": SampleItem(category="Category:Where is it? (A & B's)", instance_of=("Q12518",)),
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
    "templates": (COMMONS, QUERY | {"tltemplates": "", "titles": "Category:Tower|Category:塔"}),
    "text": (COMMONS, TEXT | {"titles": "Category:塔|Category:Tower|Category:Old tower"}),
}
FORMAT = {"format": "json", "formatversion": "2"}
AGENT = {"User-Agent": "hgld-tests/1 (https://example.org/; tests@example.org)"}


@pytest.fixture(scope="module")
def local_url() -> Iterator[str]:
    with serve_sample(WORLD) as url:
        yield url


@pytest.fixture(scope="module")
def replica_url(shared: Path) -> Iterator[str]:
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
    """Return the sample in the replica's format, whose titles have no prefix."""

    def short(title: str | None) -> str | None:
        return title and title.removeprefix("Category:")

    categories = [
        {
            "title": short(title),
            "item": page.item,
            "redirect": short(page.redirect),
            "soft_redirect": short(page.soft_redirect),
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
            }
        )
    return {"format": "wikimedia-replica-world", "version": 1, "categories": categories, "items": items}


def ask(base: str, site: str, params: dict[str, str]) -> Any:
    reply = requests.post(f"{base}/{site}/w/api.php", params | FORMAT, headers=AGENT, timeout=10)
    assert reply.status_code == 200
    assert reply.headers["Content-Type"].startswith("application/json")
    return reply.json()


#: Keys of the replica's responses that hgld does not read and the local server omits.
UNREAD = {"pageid", "modified", "hash", "fromencoded", "warnings"}


def comparable(document: Any) -> Any:
    """Return a response without unread keys, its lists (of pages, redirects, ...) sorted."""
    if isinstance(document, list):
        rows = [comparable(value) for value in document]
        is_ordered = any("mainsnak" in row for row in rows)  # the order of statements matters
        return rows if is_ordered else sorted(rows, key=str)
    if not isinstance(document, dict):
        return document
    kept = {key: comparable(value) for key, value in document.items() if key not in UNREAD}
    if "mainsnak" in kept:
        kept.pop("id", None)
    if "lastrevid" in kept:
        kept["lastrevid"] = type(kept["lastrevid"])
    return kept


@pytest.mark.parametrize("name", CALLS)
def test_responses_equal_those_of_the_replica(local_url: str, replica_url: str, name: str) -> None:
    site, params = CALLS[name]
    local, reference = (ask(base, site, params) for base in (local_url, replica_url))
    assert comparable(local) == comparable(reference)


def test_connections_are_kept_alive_without_delay(local_url: str) -> None:
    call = {"url": f"{local_url}/commons/w/api.php", "data": QUERY | {"titles": "Category:Tower"}}
    with requests.Session() as session:
        seconds = [session.post(**call, timeout=10).elapsed.total_seconds() for _ in range(20)]  # type: ignore[arg-type]
        assert session.post(**call, timeout=10).raw.version == 11  # type: ignore[arg-type]
        assert session.post(f"{local_url}/elsewhere", timeout=10).status_code == 404
        page = session.get(f"{local_url}/commons/wiki/Category:Tower", timeout=10)
        assert (page.status_code, "Only the APIs are here" in page.text) == (404, True), "it is not tried again"
    assert sorted(seconds)[10] < 0.035  # less than the 40 ms of a delayed acknowledgement
