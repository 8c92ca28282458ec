"""Lines read by their bytes where possible say what they say when all of them is parsed."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.wikimedia.dump_part import DumpItem, ReadLine, read_line
from tests.wikimedia import wikidata_mix
from tests.wikimedia.dumps import as_line
from tests.wikimedia.wikidata_mix import Entity

LANGUAGES = ("en", "mul")
READ = ("P31", "P279", "P301", "P373", "P910")
MODIFIED = "2023-01-02T03:04:05Z"
#: Texts that look like the places in a line that are read.
TRAPS = (
    *('"P31":[{"mainsnak"', '","aliases":', '"lastrevid":1,"modified":"2020"}', '"commonswiki"', '{"P279":[]}'),
    *("}]", "\\", '\\"', "église\u2028/🏰", ""),
)

texts = st.sampled_from(TRAPS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(1, 2**31)
terms = st.dictionaries(st.sampled_from(["en", "mul", "de", "fr", "aliases", "P31"]), texts, max_size=4)


def obvious(entity: Entity) -> ReadLine:
    """Read a parsed entity in the most obvious way."""
    modified = entity.get("modified", "")
    if entity["type"] != "item":
        return ReadLine(None, False, modified)
    claims, links = entity.get("claims") or {}, entity.get("sitelinks") or {}

    def best(prop: str) -> list[Any]:
        statements = claims.get(prop, [])
        ranks = {one["rank"] for one in statements}
        rank = "preferred" if "preferred" in ranks else "normal"
        snaks = [one["mainsnak"] for one in statements if one["rank"] == rank]
        return [snak["datavalue"]["value"] for snak in snaks if snak["snaktype"] == "value"]

    def items(prop: str) -> list[int]:
        return [value["numeric-id"] for value in best(prop)]

    def first(key: str) -> tuple[str | None, str | None]:
        found = entity.get(key) or {}
        return next(((found[code]["value"], code) for code in LANGUAGES if code in found), (None, None))

    title = links.get("commonswiki", {}).get("title", "")
    item = DumpItem(
        int(entity["id"][1:]),
        revision=entity.get("lastrevid"),
        category=title if title.startswith("Category:") else None,
        commons_categories=[f"Category:{value}" for value in best("P373")],
        instance_of=items("P31"),
        subclass_of=items("P279"),
        main_topic=next(iter(items("P301")), None),
        label=first("labels")[0],
        language=first("labels")[1],
        description=first("descriptions")[0],
    )
    named = item.category, item.commons_categories, item.main_topic
    return ReadLine(item, any(named) or "P279" in claims or "P910" in claims, modified)


def comparable(line: ReadLine) -> Any:
    """Return what a line says, with lists for all sequences."""
    if line.item is None:
        return line
    item = {key: list(value) if isinstance(value, tuple) else value for key, value in line.item._asdict().items()}
    return item, line.is_linked, line.modified


@st.composite
def snaks(draw: st.DrawFn, prop: str) -> Any:
    kind = draw(st.sampled_from(["value", "value", "value", "somevalue", "novalue"]))
    snak: dict[str, Any] = {"snaktype": kind, "property": prop}
    if kind == "value":
        number = draw(numbers)
        value: Any = draw(st.sampled_from(["Towers", "A/B"])) if prop == "P373" else entity_value(number)
        snak |= {"datavalue": {"value": value, "type": "any"}, "datatype": "any"}
    return snak


def entity_value(number: int) -> Any:
    return {"entity-type": "item", "numeric-id": number, "id": f"Q{number}"}


@st.composite
def statements(draw: st.DrawFn, prop: str) -> Any:
    one: dict[str, Any] = {"mainsnak": draw(snaks(prop)), "type": "statement"}
    if draw(st.booleans()):
        inner = draw(st.sampled_from([*READ, "P642"]))
        one |= {"qualifiers": {inner: [draw(snaks(inner))]}, "qualifiers-order": [inner]}
    one |= {"id": draw(texts), "rank": draw(st.sampled_from(["normal", "preferred", "deprecated"]))}
    if draw(st.booleans()):
        inner = draw(st.sampled_from([*READ, "P248"]))
        one["references"] = [{"hash": "0" * 40, "snaks": {inner: [draw(snaks(inner))]}, "snaks-order": [inner]}]
    return one


@st.composite
def entities(draw: st.DrawFn) -> Entity:
    """Entities with some of their keys, in the order of the dumps or another."""
    number = draw(numbers)
    claims = draw(st.lists(st.sampled_from([*READ, "P18", "P2031"]), unique=True, max_size=4))
    links = draw(st.lists(st.sampled_from(["enwiki", "commonswiki"]), unique=True))
    title = draw(st.sampled_from(["Category:Tour d'église", "Gallery"]))
    entity: Entity = {
        "type": draw(st.sampled_from(["item", "item", "item", "property"])),
        "id": f"Q{number}",
        "labels": {code: {"language": code, "value": text} for code, text in draw(terms).items()},
        "descriptions": {code: {"language": code, "value": text} for code, text in draw(terms).items()},
        "aliases": {code: [{"language": code, "value": text}] for code, text in draw(terms).items()},
        "claims": {prop: draw(st.lists(statements(prop), min_size=1, max_size=3)) for prop in claims},
        "sitelinks": {site: {"site": site, "title": title, "badges": []} for site in links},
        # Short lines are always parsed.
        "padding": "x" * draw(st.sampled_from([0, 1500])),
        "lastrevid": draw(numbers),
        "modified": MODIFIED,
    }
    if entity["type"] == "property":
        entity["id"] = f"P{number}"
    for key in draw(st.lists(st.sampled_from(["labels", "descriptions", "aliases", "claims", "sitelinks"]))):
        entity.pop(key, None)
    if draw(st.booleans()):
        entity = {key: [] if value == {} else value for key, value in entity.items()}
    order = draw(st.none() | st.permutations(list(entity)))
    return entity if order is None else {key: entity[key] for key in order}


def check_line(entity: Entity, escaped: bool, separators: tuple[str, str]) -> None:
    text = json.dumps(entity, ensure_ascii=escaped, separators=separators)
    line = (text.replace("/", "\\/") if escaped else text).encode()
    assert comparable(read_line(line, LANGUAGES)) == comparable(obvious(entity))


styles = st.booleans(), st.sampled_from([(",", ":"), (",", ":"), (", ", ": "), (" ,\t", " :")])
test_lines_say_what_parsing_says = settings(max_examples=15)(given(entities(), *styles)(check_line))
test_more_lines_say_what_parsing_says = pytest.mark.slow(
    settings(max_examples=1000)(given(entities(), *styles)(check_line))
)


def test_lines_of_wikidata_say_what_parsing_says() -> None:
    for number, entity in enumerate(wikidata_mix.entities(30, start=11)):
        for empty_lists in (False, True):
            line = as_line(entity, escaped=number % 2 == 0, empty_lists=empty_lists)
            assert comparable(read_line(line, LANGUAGES)) == comparable(obvious(json.loads(line)))


@pytest.mark.parametrize(
    "line",
    [b'{"id": 3}', b"{}", b"[1]", b'{"type":"item","id":"Q1","labels":{"en"', b'{"id":"Q1","claims":{"P31":5}}'],
)
def test_lines_that_are_no_entities_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|entity|the id"):
        read_line(line, LANGUAGES)
