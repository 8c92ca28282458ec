"""JSON dumps of Wikidata that hold a world of the replica, as Wikimedia's own scripts write them."""

import bz2
import gzip
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tests.wikimedia import wikidata_mix
from tests.wikimedia.wikidata_mix import Entity, statement

#: A gzip file of Wikimedia is the concatenation of hundreds of members: one for each batch of a shard.
_LINES_PER_MEMBER = 1_000
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, 6, mtime=0),
    ".bz2": bz2.compress,
    ".json": bytes,
}


def load_world(shared: Path, name: str) -> Any:
    """Return a world of the replica, which the fixture ``replica`` makes importable."""
    from wikimedia_replica import load_world as load  # type: ignore[import-not-found, unused-ignore]

    return load(shared / "wikimedia_replica" / "worlds" / name)


def world_entities(world: Any) -> Iterator[Entity]:
    """Yield the items and entity redirects of a world of the replica, by the replica's own JSON.

    A redirect is ``{"id": ..., "redirect": ...}``; the published dumps have none.
    """
    from wikimedia_replica.api_common import Params  # type: ignore[import-not-found, unused-ignore]
    from wikimedia_replica.stats import Stats  # type: ignore[import-not-found, unused-ignore]
    from wikimedia_replica.wikidata_api import WikidataApi  # type: ignore[import-not-found, unused-ignore]

    api = WikidataApi(world, Stats())
    ids = _item_ids(world)
    while batch := list(islice(ids, 50)):
        redirects = {key: world.item(key).redirect for key in batch if world.item(key).redirect}
        yield from ({"id": key, "redirect": goal} for key, goal in redirects.items())
        if items := [key for key in batch if key not in redirects]:
            response = api.answer(Params({"action": "wbgetentities", "ids": "|".join(items), "formatversion": "2"}))
            yield from map(dump_shape, response["entities"].values())


def dump_shape(entity: Entity) -> Entity:
    """Return an entity of the API as in a dump: the page comes last, and main snaks have no hash."""
    page = {key: entity[key] for key in ("pageid", "ns", "title", "lastrevid", "modified")}
    for statements in entity["claims"].values():
        for one in statements:
            one["mainsnak"].pop("hash", None)
    keys = ("type", "id", "labels", "descriptions", "aliases", "claims", "sitelinks")
    return {key: entity[key] for key in keys} | page


def dressed(entity: Entity, seed: int = 0) -> Entity:
    """Return an item with what worlds of the replica lack: more languages, statements, references and sitelinks.

    The result of a scrape stays the same.
    """
    if "redirect" in entity:
        return entity
    rng = random.Random(f"{seed}/{entity['id']}")
    made_up = wikidata_mix.item(rng.randrange(10**6) * 100 + 1, seed)
    others = {"en", "mul", "de"}
    dressed = dict(entity)
    for key in ("labels", "descriptions", "aliases"):
        more = {code: term for code, term in made_up[key].items() if code not in others}
        dressed[key] = more | entity[key] if rng.random() < 0.5 else entity[key] | more
    claims = {prop: list(statements) for prop, statements in entity["claims"].items()}
    for statements in claims.values():
        for index, one in enumerate(statements):
            like = statement(rng, "P1", "text", references=rng.randint(0, 2), qualifiers=rng.randint(0, 1))
            statements[index] = {**like, **one}
    more_claims = {prop: rows for prop, rows in made_up["claims"].items() if prop not in _READ_PROPERTIES}
    dressed["claims"] = dict(rng.sample(sorted((more_claims | claims).items()), len(more_claims | claims)))
    links = {site: link for site, link in made_up["sitelinks"].items() if site != "commonswiki"}
    dressed["sitelinks"] = dict(sorted((links | entity["sitelinks"]).items()))
    return dressed


_READ_PROPERTIES = frozenset({"P31", "P279", "P301", "P373", "P910"})


def as_line(entity: Entity, *, escaped: bool = True, empty_lists: bool = False) -> bytes:
    """Return an entity as a line without its end.

    Args:
        entity: JSON of the entity.
        escaped: Write other letters than ASCII as ``\\u00e9`` and slashes as ``\\/``, as PHP does by default.
        empty_lists: Write empty maps as empty lists, as in older dumps.
    """
    if empty_lists:
        entity = {key: [] if value == {} else value for key, value in entity.items()}
    text = json.dumps(entity, ensure_ascii=escaped, separators=(",", ":"))
    return (text.replace("/", "\\/") if escaped else text).encode()


def world_lines(world: Any, *, n_others: int = 0, dress: bool = True, seed: int = 0, **style: bool) -> list[bytes]:
    """Return the lines of a world and of other entities, in scrambled order.

    Args:
        world: World of the replica.
        n_others: Number of other entities.
        dress: Add what worlds of the replica lack (:func:`dressed`).
        seed: Seed of what is made up, and of the order.
        style: Settings of :func:`as_line`.
    """
    shown = (dressed(entity, seed) if dress else entity for entity in world_entities(world))
    lines = [as_line(entity, **style) for entity in shown]
    lines += [as_line(entity, **style) for entity in wikidata_mix.entities(n_others, seed=seed)]
    if n_others:
        lines.append(as_line({"type": "lexeme", "id": "L1", "lemmas": {"en": {"language": "en", "value": "P31"}}}))
    random.Random(seed).shuffle(lines)
    return lines


def write_dump(path: Path, lines: Iterable[bytes], lines_per_member: int = _LINES_PER_MEMBER) -> Path:
    """Write the lines of a dump as Wikimedia's scripts do; the suffix says how it is compressed.

    Args:
        path: File to write: ``.json``, ``.json.gz`` or ``.json.bz2``.
        lines: Lines without their ends.
        lines_per_member: Number of lines in each of the gzip members, or streams of bzip2, that make up the file.
    """
    compress = _COMPRESS[path.suffix]
    rows = iter(lines)
    with path.open("wb") as stream:
        stream.write(compress(b"[\n"))
        first = True
        while batch := list(islice(rows, lines_per_member)):
            if not first:
                stream.write(compress(b",\n"))
            stream.write(compress(b",\n".join(batch)))
            first = False
        stream.write(compress(b"\n]\n"))
    return path


def write_parts(folder: Path, lines: Sequence[bytes], suffixes: Sequence[str]) -> Path:
    """Write the lines into a folder of dumps, one for each suffix, such as ``.json.gz``."""
    folder.mkdir()
    for index, suffix in enumerate(suffixes):
        first, end = (len(lines) * number // len(suffixes) for number in (index, index + 1))
        write_dump(folder / f"part-{index:03d}{suffix}", lines[first:end])
    return folder


def _item_ids(world: Any) -> Iterator[str]:
    """Yield the ids of all items of a world; those of a stress world are made from the numbers of its landmarks."""
    if hasattr(world, "items"):
        yield from world.items
        return
    from wikimedia_replica import stress  # type: ignore[import-not-found, unused-ignore]

    yield from world._class_items
    for base in (stress.ITEM_BASE, stress.TOPIC_BASE, stress.MERGED_BASE):
        for number in range(world.landmarks):
            if world.item(f"Q{base + number}") is not None:
                yield f"Q{base + number}"
