"""Scrapes of a real MediaWiki, which the replica's Wikidata accompanies: Debian has no package of Wikibase."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hgld import tables
from hgld.wikimedia.settings import ScrapeConfig
from tests.scrapes import config_for, run_scrape, write_categories
from tests.wikimedia.mediawiki import MediaWiki, is_installed

pytestmark = pytest.mark.slow

WATERFALL, CHURCH, MUSEUM = "Q34038", "Q16970", "Q33506"


def infobox(item: str, *labels: str) -> str:
    """Return wikitext of a category page with an infobox, in the markup that Commons' template produces."""
    values = "".join(f"<li>{label}</li>" for label in labels)
    row = f"<tr><th>Instance of</th><td><ul>{values}</ul></td></tr>" if labels else ""
    edit = f'<span class="wikidatainfobox-edit">[https://www.wikidata.org/wiki/{item} edit]</span>'
    return (
        f"<wikibaseitem>{item}</wikibaseitem>"
        f'<table id="wdinfobox"><tr><th>Country</th><td>Italy</td></tr>{row}<tr><td>{edit}</td></tr></table>'
    )


PAGES = {
    "Template:Category redirect": '<div class="catredirect">This category is located at '
    "[[:Category:{{{1}}}]].</div>[[Category:Category redirects]]",
    "Template:Seecat": "{{Category redirect|{{{1}}}}}",
    "Template:Moved category": "{|\n| Now at [[:Category:{{{1}}}]]\n|}[[Category:Category redirects]]",
    "Category:Comet Falls": infobox("Q1001", "waterfall"),
    "Category:Where is Edge?": infobox("Q1002", "church building", "museum"),
    "Category:Café “Zum Löwen” & Sons": infobox("Q1003", "museum"),
    "Category:თბილისი": infobox("Q1002", "church building", "museum"),
    "Category:Nothing known": infobox("Q1004"),
    "Category:No item": "A category without an item, in another one. [[Category:Nobody wrote this, but it is used]]",
    "Category:Old name": "#REDIRECT [[:Category:Comet Falls]]",
    "Category:Soft": "{{Category redirect|Comet Falls}}",
    "Category:Soft to Georgian": "{{Category redirect|თბილისი}}",
    "Category:Soft by an alias": "{{seecat|1=Where is Edge?}}",
    "Category:Hard to soft": "#REDIRECT [[:Category:Soft]]",
    "Category:Soft by another template": "{{Moved category|Comet Falls}}",
    "Category:Soft to nowhere": "{{Category redirect|Nobody wrote this}}",
    "Category:Circle 1": "{{Category redirect|Circle 2}}",
    "Category:Circle 2": "{{Category redirect|Circle 1}}",
}


class Case(NamedTuple):
    """A landmark: the last part of its URL, its status and labels, and the route."""

    path: str
    status: str
    labels: tuple[str, ...] = ()
    route: str | None = None


CASES = [
    Case("Category:Comet_Falls", "ok", ("waterfall",), "direct"),
    Case("category:comet_Falls", "ok", ("waterfall",), "direct"),
    Case("Category:Where_is_Edge%3F", "ok", ("church building", "museum"), "direct"),
    Case("Category:Caf%C3%A9_%E2%80%9CZum_L%C3%B6wen%E2%80%9D_%26_Sons", "ok", ("museum",), "direct"),
    Case(
        "Category:%E1%83%97%E1%83%91%E1%83%98%E1%83%9A%E1%83%98%E1%83%A1%E1%83%98",
        "ok",
        ("church building", "museum"),
        "direct",
    ),
    Case("Category:Soft_to_Georgian", "ok", ("church building", "museum"), "soft_redirect"),
    Case("Category:Nothing_known", "no_instance_of", (), "direct"),
    Case("Category:No_item", "no_item"),
    Case("Category:Old_name", "ok", ("waterfall",), "hard_redirect"),
    Case("Category:Soft", "ok", ("waterfall",), "soft_redirect"),
    Case("Category:Soft_by_an_alias", "ok", ("church building", "museum"), "soft_redirect"),
    Case("Category:Hard_to_soft", "ok", ("waterfall",), "hard_redirect+soft_redirect"),
    Case("Category:Circle_1", "redirect_loop"),
    Case("Category:Soft_by_another_template", "ok", ("waterfall",), "soft_redirect"),
    Case("Category:Soft_to_nowhere", "missing"),
    Case("Category:Nobody_wrote_this", "missing"),
    Case("Category:Nobody_wrote_this,_but_it_is_used", "missing"),
    Case("Category:A%5Bb%5D", "invalid_title"),
    Case(f"Category:{'x' * 300}", "invalid_title"),
]


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MediaWiki]:
    if not is_installed():
        pytest.skip("no MediaWiki: apt-get install mediawiki php-cli php-sqlite3 php-intl")
    with MediaWiki(tmp_path_factory.mktemp("wiki"), PAGES) as server:
        yield server


@pytest.fixture
def wikidata(replica: Callable[..., Any], shared: Path, tmp_path: Path) -> Iterator[Any]:
    """A Wikidata that knows the items of the wiki, but has no sitelinks to its categories."""
    classes = {WATERFALL: "waterfall", CHURCH: "church building", MUSEUM: "museum"}
    claims = {"Q1001": [WATERFALL], "Q1002": [CHURCH, MUSEUM], "Q1003": [MUSEUM], "Q1004": []}
    items: list[dict[str, Any]] = [
        {"id": item, "labels": {"en": item}, "claims": {"P31": values}} for item, values in claims.items()
    ]
    items += [{"id": item, "labels": {"en": label}, "claims": {}} for item, label in classes.items()]
    world = {"format": "wikimedia-replica-world", "version": 1, "name": "real wiki", "categories": [], "items": items}
    path = tmp_path / "world.json"
    path.write_text(json.dumps(world), encoding="utf-8")
    with replica(str(path)) as server:
        yield server


def config_of(wiki: MediaWiki, wikidata: Any, source: str) -> ScrapeConfig:
    return config_for(wikidata, source, commons_url=f"{wiki.base_url}/commons")


def scrape(wiki: MediaWiki, wikidata: Any, source: str, folder: Path, cases: list[Case]) -> list[dict[str, Any]]:
    urls = [f"https://commons.wikimedia.org/wiki/{case.path}" for case in cases]
    categories, out = write_categories(folder / f"{source}.csv", urls), folder / f"{source}.parquet"
    summary = run_scrape(categories, out, config_of(wiki, wikidata, source))
    assert not summary.errors
    rows: list[dict[str, Any]] = tables.read_table(out, tables.SCRAPED).to_pylist()
    return rows


@pytest.mark.parametrize("source", ["api", "html"])
def test_every_kind_of_page_has_its_status_and_labels(
    wiki: MediaWiki, wikidata: Any, tmp_path: Path, source: str
) -> None:
    rows = scrape(wiki, wikidata, source, tmp_path, CASES)
    results = [
        Case(case.path, row["status"], tuple(value["label"] for value in row["instance_of"]), row["route"])
        for case, row in zip(CASES, rows, strict=True)
    ]
    # A page does not tell whether it has no item or no infobox.
    expected = [
        case._replace(status="no_infobox") if source == "html" and case.status == "no_item" else case
        for case in CASES
    ]
    assert results == expected


def test_sources_agree_on_items_and_titles(wiki: MediaWiki, wikidata: Any, tmp_path: Path) -> None:
    found = [case for case in CASES if case.labels]
    by_source = [scrape(wiki, wikidata, source, tmp_path, found) for source in ("api", "html")]
    for field in ("item", "resolved_title", "route"):
        assert [row[field] for row in by_source[0]] == [row[field] for row in by_source[1]]
