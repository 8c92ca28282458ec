"""A scrape of a dump has the rows of a scrape of the APIs, but for what only Commons knows."""

import random
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from hgld.tables import SCRAPED, read_table
from hgld.wikimedia.scraper import scrape_file
from hgld.wikimedia.source import InstanceOfValue
from tests.scrapes import config_for, write_categories
from tests.wikimedia.changing_worlds import ChangingWorld
from tests.wikimedia.dump_scrapes import FREQUENT, classes_of, differences, from_api, from_dump, rows_by_title
from tests.wikimedia.dumps import as_line, load_world, world_lines, write_dump, write_parts
from tests.wikimedia.wikidata_mix import Entity, dump_entity, statement

Replica = Callable[..., Any]
LANGUAGES = ("en", "mul", "de")  # the edge cases fall back to German as well

NO_ITEM = ("no_item", None, None)
GOAL = "Q950000035"
#: Edge cases that end otherwise, by the reason: the status, item and route from the API.
ONLY_COMMONS_KNOWS: dict[str, dict[str, tuple[str, str | None, str | None]]] = {
    "which pages exist": {
        "Edge missing": ("missing", None, None),
        "Edge hard to nowhere": ("missing", None, None),
        "Edge soft to nowhere": ("missing", None, None),
    },
    "that a page names an item that was deleted": {"Edge deleted item": ("item_missing", "Q969999999", "direct")},
    "where categories redirect to": {
        "Edge hard redirect": ("ok", GOAL, "hard_redirect"),
        "Edge double hard redirect": ("ok", GOAL, "hard_redirect"),
        "Edge soft redirect": ("ok", GOAL, "soft_redirect"),
        "Edge soft then hard": ("ok", GOAL, "soft_redirect+hard_redirect"),
        "Edge hard then soft": ("ok", GOAL, "hard_redirect+soft_redirect"),
        "Edge double soft redirect": ("redirect_unresolved", None, None),
        "Edge hard loop A": ("redirect_loop", None, None),
        "Edge hard self": ("redirect_loop", None, None),
        "Edge soft loop A": ("redirect_loop", None, None),
        "Edge soft self": ("redirect_loop", None, None),
    },
    "which titles MediaWiki refuses": {
        "Edge " + "é" * 130: ("invalid_title", None, None),
        "Edge [bracket]": ("invalid_title", None, None),
        "Edge%20encoded": ("invalid_title", None, None),
    },
}


@pytest.fixture(scope="module")
def edge_world(shared: Path, replica: Replica) -> Any:
    return load_world(shared, "edge_cases.json")


@pytest.fixture(scope="module")
def edge_from_api(replica: Replica, edge_categories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return from_api(replica, "edge_cases.json", edge_categories, tmp_path_factory.mktemp("api") / "out.parquet")


def test_edge_cases(edge_world: Any, edge_categories: Path, edge_from_api: Path, tmp_path: Path, out: Path) -> None:
    dump = write_dump(tmp_path / "dump.json.gz", world_lines(edge_world, n_others=5), lines_per_member=20)
    summary = from_dump(dump, edge_categories, out, languages=LANGUAGES, workers=1)
    expected = {
        f"Category:{title}": (row, NO_ITEM) for rows in ONLY_COMMONS_KNOWS.values() for title, row in rows.items()
    }
    assert differences(edge_from_api, out) == expected
    assert (summary.requests, summary.errors) == (0, 0)
    assert classes_of(out) == classes_of(edge_from_api)
    rows = read_table(out, SCRAPED)
    assert set(rows["source"].to_pylist()) == {"dump"}
    assert len(set(rows["fetched_at"].to_pylist())) == 1


def test_published_dumps_have_no_entity_redirects(
    edge_world: Any, edge_categories: Path, edge_from_api: Path, tmp_path: Path, out: Path
) -> None:
    """Then a merged class is like a deleted one, and a merged topic is none."""
    lines = [line for line in world_lines(edge_world) if b'"redirect"' not in line[:60]]
    dump = write_dump(tmp_path / "dump.json", lines)
    from_dump(dump, edge_categories, out, languages=LANGUAGES, workers=1)
    only_commons = {f"Category:{title}" for rows in ONLY_COMMONS_KNOWS.values() for title in rows}
    api, found = rows_by_title(edge_from_api), rows_by_title(out)
    differing = {title for title in api if api[title] != found[title]} - only_commons
    assert differing == {"Category:Edge merged class", "Category:Edge merged topic"}
    merged, topic = (found[title] for title in sorted(differing))
    assert merged["instance_of"] == [InstanceOfValue("Q960000008", "Q960000008", None)._asdict()]
    assert (topic["route"], topic["instance_of"][0]["label"]) == ("direct", "Wikimedia category")


def test_renamed_categories_are_found_by_the_only_item_that_names_the_old_one(tmp_path: Path, out: Path) -> None:
    """An item about the category itself counts only if no other names it."""

    def item(number: int, category: str, *, instance: str = "Q16970", sitelink: str | None = None) -> Entity:
        rng = random.Random(number)
        claims = {"P31": [statement(rng, "P31", instance)], "P373": [statement(rng, "P373", category)]}
        title = f"Category:{sitelink}"
        links = {"commonswiki": {"site": "commonswiki", "title": title, "badges": []}} if sitelink else {}
        return dump_entity(f"Q{number}", {"en": "label"}, {}, {}, claims, links, rng)

    entities = [
        item(1, "Old", sitelink="New"),
        item(2, "Shared"),
        item(3, "Shared"),
        item(4, "Topic", instance="Q4167836"),
        item(5, "Topic"),
        item(6, "New"),
        item(16970, "Churches"),
    ]
    titles = ["Old", "New", "Shared", "Topic", "Churches", "Nowhere"]
    urls = [f"http://commons.wikimedia.org/wiki/Category:{title}" for title in titles]
    categories = write_categories(tmp_path / "categories.csv", urls)
    from_dump(write_dump(tmp_path / "dump.json", map(as_line, entities)), categories, out, workers=1)
    rows = [(row["status"], row["item"], row["route"]) for row in rows_by_title(out).values()]
    assert rows == [
        ("ok", "Q1", "commons_category"),
        ("ok", "Q1", "direct"),
        NO_ITEM,
        ("ok", "Q5", "commons_category"),
        ("ok", "Q16970", "commons_category"),
        NO_ITEM,
    ]


def test_edited_world_differs_only_where_wikidata_has_no_sitelink(
    replica: Replica, shared: Path, washington: Path, tmp_path: Path, out: Path
) -> None:
    """Categories are renamed, deleted and unlinked, while most items go on to name the old title (P373)."""
    rng = random.Random(0)

    def edit(world: dict[str, Any]) -> None:
        for category in list(world["categories"]):
            title, edit = category["title"], rng.choice(EDITS)
            if edit in ("renamed", "moved", "deleted"):
                world["categories"].remove(category)
            if edit in ("renamed", "moved"):
                world["categories"].append(category | {"title": f"{title} (new)"})
            if edit == "renamed":
                world["categories"].append({"title": title, "redirect": f"{title} (new)"})
            if edit == "item deleted":
                category["item"] = "Q999999999"
            if edit in ("unlinked", "loop"):
                del category["item"]
            if edit == "loop":
                category["soft_redirect"] = title
        for item in world["items"]:
            if rng.random() < 0.2:
                item.get("claims", {}).pop("P373", None)

    from wikimedia_replica.world import FileWorld  # type: ignore[import-not-found, unused-ignore]

    world = ChangingWorld(shared / "wikimedia_replica" / "worlds" / "washington.json.gz")
    edited = world.changed(edit)
    api = tmp_path / "api.parquet"
    with world.serve(edited) as server:
        scrape_file(washington, api, config_for(server, allow_frequent=FREQUENT))
        dump = write_dump(tmp_path / "dump.json", world_lines(FileWorld(edited), dress=False))
    from_dump(dump, washington, out, workers=1)
    differing = differences(api, out).values()
    assert len(differing) > 400
    assert all(found == NO_ITEM or found[2] == "commons_category" for _, found in differing)
    rows = [row.split("|") for row in GUIDE.read_text(encoding="utf-8").splitlines() if "| by P373" in row]
    documented = {status for row in rows for status in re.findall(r"`(\w+)`", row[2])}
    assert {expected[0] for expected, found in differing if found[0] == "ok"} == (
        documented - {"redirect_unresolved"} | {"ok"}
    )


GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "dump.md"
EDITS = 4 * ("as before",) + ("renamed", "moved", "deleted", "unlinked", "item deleted", "loop")


@pytest.mark.slow
@pytest.mark.parametrize("form", [".json.gz", "folder"])
def test_washington(replica: Replica, shared: Path, washington: Path, tmp_path: Path, out: Path, form: str) -> None:
    lines = world_lines(load_world(shared, "washington.json.gz"), n_others=30, escaped=form != "folder")
    suffixes = (".json", ".json.gz", ".json.bz2", ".json.gz")
    folder = tmp_path / "dump"
    dump = write_parts(folder, lines, suffixes) if form == "folder" else write_dump(tmp_path / f"dump{form}", lines)
    api = from_api(replica, "washington.json.gz", washington, tmp_path / "api.parquet")
    from_dump(dump, washington, out, workers=2)
    assert differences(api, out) == {}
    assert classes_of(out) == classes_of(api)


@pytest.mark.slow
def test_full_size(replica: Replica, tmp_path: Path) -> None:
    """304,000 landmarks; the replica's world has all kinds of landmarks in the shares of the real list."""
    from wikimedia_replica.make_stress_world import main as make_stress_world  # type: ignore[import-not-found, unused-ignore]
    from wikimedia_replica.stress import StressWorld  # type: ignore[import-not-found, unused-ignore]

    world = StressWorld(304_000)
    categories, api, out = tmp_path / "categories.csv", tmp_path / "api.parquet", tmp_path / "out.parquet"
    with redirect_stdout(StringIO()):
        make_stress_world(["--landmarks", str(world.landmarks), "--csv", str(categories)])
    from_api(replica, world.name, categories, api)
    dump = write_dump(tmp_path / "dump.json.gz", world_lines(world, dress=False))
    from_dump(dump, categories, out, workers=2)
    differing = differences(api, out)
    assert len(differing) == sum(world.kind(number) in COMMONS_KINDS for number in range(world.landmarks))
    pairs = {(expected[0], expected[2], found) for expected, found in differing.values()}
    assert pairs == {("missing", None, NO_ITEM), ("ok", "hard_redirect", NO_ITEM), ("ok", "soft_redirect", NO_ITEM)}
    assert len(classes_of(out)) > 5_000


#: Kinds of landmarks of stress worlds that Wikidata knows nothing of under the title in the list.
COMMONS_KINDS = ("missing", "soft_to_missing", "hard_redirect", "soft_redirect")
