"""Updates of an earlier scrape: they equal a full scrape of the changed world."""

import random
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hgld.errors import ConfigurationError, InputError
from hgld.tables import CLASSES, classes_path, read_table
from hgld.wikimedia.scraper import ScrapeSummary, journal_path, scrape_file
from tests.commands import run_hgld
from tests.scrapes import N_LANDMARKS, command, config_for, interrupt_scrape, run_scrape, untimed
from tests.wikimedia.changing_worlds import ChangingWorld, Document, by_id, by_title


class Washington(NamedTuple):
    """Washington before and after changes, served at one address, as the tables of a scrape name the servers."""

    world: ChangingWorld
    changed: Document
    port: int
    landmarks: Path
    old: Path  # scraped before anything changed
    whole: Path  # scraped in full after the changes

    def serve(self, document: Document | None = None, **faults: Any) -> AbstractContextManager[Any]:
        """Serve a document, such as that before the changes; by default the changed one."""
        return self.world.serve(document or self.changed, port=self.port, **faults)

    def check(self, out: Path) -> None:
        """Check that a scrape has the tables of the full one."""
        assert untimed(out).equals(untimed(self.whole))
        assert classes(out) == classes(self.whole)


@pytest.fixture(scope="module")
def port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    return number


@pytest.fixture(scope="module")
def here(
    shared: Path, replica: Callable[..., Any], port: int, landmarks: Path, tmp_path_factory: pytest.TempPathFactory
) -> Washington:
    world = ChangingWorld(shared / "wikimedia_replica" / "worlds" / "washington.json.gz")
    folder = tmp_path_factory.mktemp("washington")
    old, whole = folder / "old.parquet", folder / "whole.parquet"
    here = Washington(world, world.changed(change_washington), port, landmarks, old, whole)
    for document, out in ((world.before, old), (here.changed, whole)):
        with here.serve(document) as server:
            scrape_file(landmarks, out, config_for(server))
    return here


def change_washington(document: Document) -> None:
    """Change landmarks, pages and classes in every way that can make a difference."""
    new_value, no_value, category_item, deleted, merged, moved, unlinked = (
        f"Q91000{number:04}" for number in (11, 12, 13, 14, 15, 16, 17)
    )
    by_id(document, new_value)["claims"]["P31"] = ["Q23397"]
    del by_id(document, no_value)["claims"]["P31"]
    by_id(document, category_item)["claims"] |= {"P31": ["Q4167836"], "P301": ["Q910000001"]}
    document["items"].remove(by_id(document, deleted))
    document["items"].remove(by_id(document, merged))
    document["items"].append({"id": merged, "redirect": "Q910000020"})
    # A page is moved and leaves a redirect; one loses its item; one is deleted; one becomes a soft redirect.
    pages = {row.get("item"): row for row in document["categories"]}
    target = {"title": "Quite another name", "item": moved}
    pages[moved].pop("item")
    pages[moved]["redirect"] = target["title"]
    document["categories"].append(target)
    pages[unlinked].pop("item")
    document["categories"].remove(pages["Q910000030"])
    pages["Q910000031"].pop("item")
    pages["Q910000031"]["soft_redirect"] = pages["Q910000032"]["title"]
    # A class is relabelled, one gets another superclass, one is merged, one is deleted.
    by_id(document, "Q900000017")["labels"] = {"en": "park of Washington"}
    by_id(document, "Q8502")["claims"] = {"P279": ["Q900000017"]}
    for item, redirect in (("Q22746", {}), ("Q39715", {"redirect": "Q23397"})):
        document["items"].remove(by_id(document, item))
        document["items"] += [{"id": item, **redirect}] if redirect else []


def both(
    serve: Callable[[], AbstractContextManager[Any]], categories: Path, old: Path, folder: Path
) -> tuple[ScrapeSummary, ScrapeSummary]:
    """Update ``old`` and scrape all in the changed world; check that the tables are the same."""
    update, full = folder / "update.parquet", folder / "full.parquet"
    with serve() as server:
        updated = run_scrape(categories, update, config_for(server), update=old)
        scraped = run_scrape(categories, full, config_for(server))
    assert untimed(update).to_pylist() == untimed(full).to_pylist()
    assert classes(update) == classes(full)
    return updated, scraped


def classes(scraped: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(classes_path(scraped), CLASSES).to_pylist()
    return rows


def test_update_equals_a_full_scrape(here: Washington, tmp_path: Path) -> None:
    updated, _ = both(here.serve, here.landmarks, here.old, tmp_path)
    changes = updated.changes
    assert changes is not None
    assert changes["unchanged"] + changes["changed"] == N_LANDMARKS
    assert changes["new"] == changes["gone"] == 0
    relabelled = sum("Q900000017" in str(row["instance_of"]) for row in untimed(here.old).to_pylist())
    assert changes["changed"] >= relabelled > 10
    statuses = updated.statuses
    assert (statuses["no_item"], statuses["item_missing"], statuses["missing"]) == (1, 1, 1)
    assert {"hard_redirect", "soft_redirect", "topic"} <= updated.routes.keys()


def test_update_without_changes_asks_a_hundred_landmarks_at_a_time(here: Washington, out: Path) -> None:
    with here.serve(here.world.before) as server:
        updated = run_scrape(here.landmarks, out, config_for(server), update=here.old)
        asked = server.stats.snapshot()["asked"]
        assert scrape_file(here.landmarks, out, config_for(server), update=here.old) is None
    assert updated.changes == {"unchanged": N_LANDMARKS, "changed": 0, "new": 0, "gone": 0}
    assert (asked["wikidata_titles"], asked.get("commons_titles", 0)) == (N_LANDMARKS // 2, 0)
    assert updated.requests == 8  # 11 for a full scrape
    assert untimed(out).equals(untimed(here.old))


def test_update_with_another_list(here: Washington, tmp_path: Path) -> None:
    header, *rows = here.landmarks.read_text(encoding="utf-8").splitlines(keepends=True)
    prefix = "https://commons.wikimedia.org/wiki/Category:"
    categories = tmp_path / "next.csv"
    categories.write_text("".join([header, *rows[5:], f"990001,{prefix}Nowhere\n", f"990002,{prefix}No_one\n"]))
    updated, _ = both(partial(here.serve, here.world.before), categories, here.old, tmp_path)
    assert updated.changes == {"unchanged": N_LANDMARKS - 5, "changed": 0, "new": 2, "gone": 5}


# -- every kind of change, at random -----------------------------------------------------------------------------


def change_at_random(document: Document, seed: int) -> None:
    """Change a few things, as they happen on Wikidata and Commons."""
    draw = random.Random(seed)
    items = list(document["items"])
    ids = [row["id"] for row in items]
    titles = [row["title"] for row in document["categories"]]
    for _ in range(draw.randint(1, 12)):
        item, page = draw.choice(items), draw.choice(document["categories"])
        kind = draw.choice(
            ["values", "topic", "label", "superclass", "delete", "merge", "link", "page", "move", "new"]
        )
        if kind in ("values", "superclass", "topic") and "redirect" not in item:
            claims = item.setdefault("claims", {})
            if kind == "topic":
                claims |= {"P31": ["Q4167836"], "P301": [draw.choice(ids)]}
            else:
                claims["P31" if kind == "values" else "P279"] = draw.sample(ids, draw.randint(0, 3))
        elif kind == "label" and "redirect" not in item:
            item["labels"] = {draw.choice(["en", "mul", "de", "ja"]): f"label {seed}"}
        elif kind == "delete" and item in document["items"]:
            document["items"].remove(item)
        elif kind == "merge":
            goal = draw.choice(ids)
            item.clear()
            item |= {"id": goal + "9", "redirect": goal}
        elif kind == "link":
            page["item"] = draw.choice(ids)
            page.pop("redirect", None)
            page.pop("soft_redirect", None)
        elif kind == "page" and len(document["categories"]) > 1:
            document["categories"].remove(page)
        elif kind == "move":
            page.pop("item", None)
            page[draw.choice(["redirect", "soft_redirect"])] = draw.choice([*titles, "Nowhere"])
        elif kind == "new":
            document["categories"].append({"title": "Edge nowhere", "item": draw.choice(ids)})
            if sum(row["title"] == "Edge nowhere" for row in document["categories"]) > 1:
                document["categories"].pop()


@pytest.mark.parametrize(
    "seeds", [range(8), pytest.param(range(8, 200), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_changes(
    replica: Callable[..., Any],
    shared: Path,
    edge_categories: Path,
    port: int,
    tmp_path: Path,
    seeds: range,
) -> None:
    world = ChangingWorld(shared / "wikimedia_replica" / "worlds" / "edge_cases.json")
    with world.serve(world.before, port=port) as server:
        scrape_file(edge_categories, tmp_path / "old.parquet", config_for(server))
    for seed in seeds:
        document = world.changed(partial(change_at_random, seed=seed))
        serve = partial(world.serve, document, port=port)
        both(serve, edge_categories, tmp_path / "old.parquet", tmp_path / str(seed))


# -- interruptions, faults and refusals --------------------------------------------------------------------------


def test_interrupted_update_equals_an_uninterrupted_one(here: Washington, tmp_path: Path, out: Path) -> None:
    with here.serve() as server:
        uninterrupted = run_scrape(here.landmarks, tmp_path / "once.parquet", config_for(server), update=here.old)
        server.stats.reset()
        for batches in (1, 4, 3):
            interrupt_scrape(batches, here.landmarks, out, config_for(server), update=here.old)
            assert not out.exists()
        summary = run_scrape(here.landmarks, out, config_for(server), update=here.old)
        assert server.stats.snapshot()["requests"] <= uninterrupted.requests + 3 * 2  # a batch of classes takes two
    assert summary.changes == uninterrupted.changes
    here.check(out)
    assert not journal_path(out).exists()


def test_journal_of_a_full_scrape_serves_an_update_and_the_other_way_round(here: Washington, tmp_path: Path) -> None:
    with here.serve() as server:
        for first, second in ((None, here.old), (here.old, None)):
            out = tmp_path / f"{first is None}.parquet"
            interrupt_scrape(8, here.landmarks, out, config_for(server), update=first)
            scrape_file(here.landmarks, out, config_for(server), update=second)
            here.check(out)


@pytest.mark.parametrize(
    "faults",
    [
        {"max_entities": 7},
        {"error_rate": 0.2, "error_kinds": ("http503", "reset", "truncate", "garble", "oddjson"), "retry_after": 0},
    ],
    ids=["cut", "broken"],
)
def test_faults_do_not_change_an_update(here: Washington, out: Path, faults: dict[str, Any]) -> None:
    with here.serve(seed=2, **faults) as server:
        summary = run_scrape(here.landmarks, out, config_for(server), update=here.old)
    assert not summary.errors
    here.check(out)


def test_failed_rows_of_an_update_are_tried_again(here: Washington, out: Path) -> None:
    with here.serve(error_rate=0.4, error_kinds=("http500",), seed=4) as server:
        failed = run_scrape(here.landmarks, out, config_for(server, max_retries=0), update=here.old)
    assert failed.errors
    with here.serve() as server:
        summary = run_scrape(here.landmarks, out, config_for(server), update=here.old)
    assert summary.taken_over == N_LANDMARKS - failed.statuses["error"]
    here.check(out)


def test_updates_that_cannot_be_made(here: Washington, tmp_path: Path, out: Path) -> None:
    with here.serve(here.world.before) as server:
        config = config_for(server)
        for other, update, message in (
            (config_for(server, "html"), here.old, "category pages do not name revisions"),
            (replace(config, split="index"), here.old, "not a scrape of this split, source and servers"),
            (config_for(server, wikidata_url="http://127.0.0.1:1"), here.old, "servers"),
        ):
            with pytest.raises(ConfigurationError, match=message):
                scrape_file(here.landmarks, out, other, update=update)
        with pytest.raises(InputError, match="no such file"):
            scrape_file(here.landmarks, out, config, update=tmp_path / "none.parquet")
        with pytest.raises(ConfigurationError, match="to keep the earlier scrape"):
            scrape_file(here.landmarks, here.old, config, update=here.old)
        out.write_bytes(here.old.read_bytes())
        with pytest.raises(ConfigurationError, match="is not an update of this table"):
            scrape_file(here.landmarks, out, config, update=here.old)
        assert server.stats.snapshot()["requests"] == 0


def test_update_command(here: Washington, tmp_path: Path) -> None:
    document = here.world.changed(lambda world: by_title(world, "Illahee State Park").pop("item"))
    with here.serve(document) as server:
        options = command(here.landmarks, tmp_path / "new.parquet", server, "--update", str(here.old))
        result = run_hgld(*options[3:])
    assert "since the earlier scrape: 299 unchanged, 1 changed, 0 new, 0 gone" in result.output
