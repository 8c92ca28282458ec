"""The dumps that other tests read are what they should be: complete JSON, the replica's facts, Wikidata's mix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.wikimedia import wikidata_mix
from tests.wikimedia.dumps import as_line, dressed, load_world, read_dump, world_entities, write_dump


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.bz2"])
def test_dump_is_one_json_document(tmp_path: Path, suffix: str) -> None:
    entities = list(wikidata_mix.entities(7))
    path = write_dump(tmp_path / f"dump{suffix}", map(as_line, entities), lines_per_member=3)
    assert read_dump(path) == json.loads(json.dumps(entities))


def test_lines_have_the_mix_of_wikidata() -> None:
    entities = list(wikidata_mix.entities(100))
    lines = [as_line(entity) for entity in entities]
    assert 12_000 < sum(map(len, lines)) / len(lines) < 20_000
    assert sum("P279" in entity["claims"] for entity in entities) == 4
    categories = [entity["sitelinks"]["commonswiki"]["title"] for entity in entities if has_commons(entity)]
    assert categories == [wikidata_mix.commons_title(number) for number in range(100) if number % 20 == 3]
    assert entities[40:60] == list(wikidata_mix.entities(20, start=40))


def has_commons(entity: wikidata_mix.Entity) -> bool:
    return "commonswiki" in entity.get("sitelinks", {})


def test_dressed_entities_say_the_same(shared: Path, replica: object) -> None:
    world = load_world(shared, "edge_cases.json")
    entities = list(world_entities(world))
    assert len(entities) == len(world.items)
    for plain in entities:
        rich = dressed(plain)
        if "redirect" in plain:
            assert rich == plain
            continue
        assert len(as_line(rich)) > len(as_line(plain))
        for prop, statements in plain["claims"].items():
            kept = [{"mainsnak": one["mainsnak"], "rank": one["rank"]} for one in rich["claims"][prop]]
            assert kept == [{"mainsnak": one["mainsnak"], "rank": one["rank"]} for one in statements]
        assert rich["sitelinks"].get("commonswiki") == plain["sitelinks"].get("commonswiki")
        for prop in ("P31", "P279", "P301", "P373"):
            assert (prop in rich["claims"]) == (prop in plain["claims"])
