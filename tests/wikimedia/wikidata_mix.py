"""Made-up entities in the shape and the mix of Wikidata, for JSON dumps of any size.

The entity of a number depends on that number and a seed alone. Of 25 items one is a class (P279), and of 20 one has a
category on Commons, as in Wikidata; most of the others are scholarly articles. A line takes about 15 kB, of which
references, qualifiers, hashes and labels in many languages are the most. Some statements are traps for those who look
for properties in the bytes of a line: P31, P279, P301 and P373 as properties of qualifiers and references, and within
texts.
"""

import functools
import random
from collections.abc import Iterator
from typing import Any

Entity = dict[str, Any]

_LANGUAGE_CODES = (
    "fr es it nl pl pt ru ja zh ar uk sv cs fi hu ko tr da nb he ca eu gl ast eo ro bg sr hr sl sk lt lv et el fa hi "
    "bn ta te ml th vi id ms cy ga sq mk ka hy az kk uz"
)
_LANGUAGES = _LANGUAGE_CODES.split()
_SCRIPTS = {"ru": 0x430, "uk": 0x430, "ja": 0x30A2, "zh": 0x4E00, "ar": 0x627, "el": 0x3B1, "he": 0x5D0, "hi": 0x905}
_ENGLISH = (
    "analysis church study river bridge castle protein mountain effect lake house patient museum model growth "
    "history village structure school cell garden response station theory disease old north treatment saint "
    "development water evaluation tower population role method forest species park"
)
_WORDS = _ENGLISH.split()
_TRAPS = (r'"P31":[{"mainsnak"', '{"P279":[]}', '"commonswiki":{"title":"Category:Trap"}', "\\", '"', "P373\u2028")
#: References and qualifiers repeat: the same source, the same ordinal.
_HASHES = [f"{random.Random(number).getrandbits(160):040x}" for number in range(2000)]
#: Larger than the ids in the worlds of the replica.
FIRST_ITEM = 3_000_000_001
ARTICLE, HUMAN, STAR, TAXON, CATEGORY = "Q13442814", "Q5", "Q523", "Q16521", "Q4167836"


def is_class(number: int) -> bool:
    """Return whether the item with this number has P279: 4 % of all."""
    return number % 25 == 7


def has_category(number: int) -> bool:
    """Return whether the item with this number has a sitelink to a category on Commons: 5 % of all."""
    return number % 20 == 3


def item_id(number: int) -> str:
    """Return the id of the item with this number."""
    return f"Q{FIRST_ITEM + number}"


def commons_title(number: int) -> str:
    """Return the title of the category on Commons of the item with this number, if it has one."""
    return f"Category:Generated {_WORDS[number // 20 % len(_WORDS)]} {number} (Élancourt/Žižkov)"


def entities(count: int, *, seed: int = 0, start: int = 0) -> Iterator[Entity]:
    """Yield entities: items, and in between a property now and then.

    Args:
        count: Number of entities.
        seed: Seed of everything but the ids and the classes.
        start: Number of the first entity.
    """
    for number in range(start, start + count):
        yield _property(number) if number % 5000 == 11 else item(number, seed)


def item(number: int, seed: int = 0) -> Entity:
    """Return the item with this number."""
    rng = random.Random((seed << 40) + number)
    if is_class(number):
        claims, title = _class_claims(rng, number), _text(rng, 2)
    elif has_category(number):
        claims, title = _place_claims(rng, number), commons_title(number).removeprefix("Category:")
    elif (kind := rng.random()) < 0.55:
        claims, title = _article_claims(rng), _text(rng, 12)
    else:
        instance = HUMAN if kind < 0.7 else STAR if kind < 0.82 else TAXON if kind < 0.88 else CATEGORY
        claims, title = _other_claims(rng, instance), _text(rng, 3)
    is_text = kind_of(claims) == ARTICLE
    languages = rng.sample(_LANGUAGES, rng.randint(1, 6) if is_text else rng.randint(2, 30))
    labels = {"en": title} | {code: _text(rng, 2, code) if code in _SCRIPTS else title for code in languages}
    if is_class(number) and number % 3 == 0:
        labels = {"mul": title} | {code: text for code, text in labels.items() if code != "en"}
    said = rng.randrange(40)  # descriptions are written by bots, the same ones for many items
    written = ["en", *rng.sample(_LANGUAGES, rng.randint(4, 30))]
    descriptions = {code: _description(said, code) for code in written}
    aliases = {code: [_text(rng, 2, code) for _ in range(rng.randint(1, 3))] for code in languages[::4]}
    if rng.random() < 0.02:
        aliases["en"] = [rng.choice(_TRAPS)]
    return dump_entity(item_id(number), labels, descriptions, aliases, claims, _sitelinks(rng, number, title), rng)


def dump_entity(
    entity_id: str,
    labels: dict[str, str],
    descriptions: dict[str, str],
    aliases: dict[str, list[str]],
    claims: dict[str, list[Any]],
    sitelinks: dict[str, Any],
    rng: random.Random,
) -> Entity:
    """Return an item in the order of keys of the dumps, with a revision and a time of its own."""
    number = int(entity_id[1:])
    for prop, statements in claims.items():
        for statement in statements:
            statement["id"] = f"{entity_id}${_guid(rng)}"
            assert prop == statement["mainsnak"]["property"]
    return {
        "type": "item",
        "id": entity_id,
        "labels": {code: {"language": code, "value": text} for code, text in labels.items()},
        "descriptions": {code: {"language": code, "value": text} for code, text in descriptions.items()},
        "aliases": {code: [{"language": code, "value": text} for text in texts] for code, texts in aliases.items()},
        "claims": claims,
        "sitelinks": sitelinks,
        "pageid": number % 2**31 + 1000,
        "ns": 0,
        "title": entity_id,
        "lastrevid": number + 2_000_000_000,
        "modified": f"2023-{number % 12 + 1:02d}-{number % 28 + 1:02d}T{number % 24:02d}:{number % 60:02d}:07Z",
    }


def kind_of(claims: dict[str, list[Any]]) -> str | None:
    """Return the first value of P31."""
    if "P31" not in claims:
        return None
    value: str = claims["P31"][0]["mainsnak"]["datavalue"]["value"]["id"]
    return value


def statement(rng: random.Random, prop: str, value: Any, *, references: int = 1, qualifiers: int = 0) -> Any:
    """Return a statement of a dump: an item for an id, a time for a year, else a string."""
    result: dict[str, Any] = {"mainsnak": _snak(prop, value), "type": "statement"}
    if qualifiers:
        pairs = [("P1545", str(rng.randint(1, 40))), ("P31", HUMAN), ("P279", TAXON), ("P301", STAR), ("P642", STAR)]
        # One qualifier in a hundred is a property that matters as a property of the item.
        chosen = [pairs[0] if rng.random() < 0.99 else rng.choice(pairs[1:]) for _ in range(qualifiers)]
        result["qualifiers"] = {name: [_snak(name, text, rng)] for name, text in chosen}
        result["qualifiers-order"] = list(result["qualifiers"])
    result |= {"id": "", "rank": "preferred" if rng.random() < 0.03 else "normal"}
    if references:
        result["references"] = [_reference(rng) for _ in range(references)]
    return result


def _class_claims(rng: random.Random, number: int) -> dict[str, list[Any]]:
    parents = [item_id(25 * (number // 50) + 7)] if number > 25 else ["Q35120"]
    claims = {"P279": [statement(rng, "P279", parent) for parent in parents]}
    if number % 2:
        claims["P31"] = [statement(rng, "P31", "Q16889133")]
    return claims | _identifiers(rng, 9)


def _place_claims(rng: random.Random, number: int) -> dict[str, list[Any]]:
    # Classes low in number are frequent; now and then the value is an item without P279.
    first = item_id(25 * int(rng.paretovariate(0.7)) % max(number, 50) // 25 * 25 + 7)
    values = [first] if rng.random() < 0.98 else [first, item_id(1)]
    title = commons_title(number).removeprefix("Category:")
    claims = {
        "P31": [statement(rng, "P31", value) for value in values],
        "P17": [statement(rng, "P17", "Q142", references=2)],
        "P373": [statement(rng, "P373", title, references=0)],
        "P625": [statement(rng, "P625", (round(rng.uniform(-85, 85), 4), round(rng.uniform(-180, 180), 4)))],
        "P18": [statement(rng, "P18", f"{title}.jpg", references=0)],
    }
    return claims | _identifiers(rng, 8)


def _article_claims(rng: random.Random) -> dict[str, list[Any]]:
    names = [_text(rng, 2).title() for _ in range(rng.randint(2, 8))]
    claims = {
        "P31": [statement(rng, "P31", ARTICLE)],
        "P1476": [statement(rng, "P1476", _text(rng, 12))],
        "P577": [statement(rng, "P577", rng.randint(1950, 2023))],
        "P1433": [statement(rng, "P1433", f"Q{rng.randint(10**5, 10**8)}")],
        "P2093": [statement(rng, "P2093", name, qualifiers=1) for name in names],
        "P2860": [statement(rng, "P2860", f"Q{rng.randint(10**7, 10**8)}") for _ in range(rng.randint(0, 10))],
    }
    return claims | _identifiers(rng, 4)


def _other_claims(rng: random.Random, instance: str) -> dict[str, list[Any]]:
    claims = {"P31": [statement(rng, "P31", instance)]}
    if instance == CATEGORY:
        claims["P301"] = [statement(rng, "P301", f"Q{rng.randint(10**7, 10**8)}", references=0)]
        return claims
    claims["P361"] = [statement(rng, "P361", f"Q{rng.randint(10**5, 10**8)}", qualifiers=1) for _ in range(3)]
    claims["P571"] = [statement(rng, "P571", rng.randint(1000, 2020), references=2)]
    return claims | _identifiers(rng, 6)


def _identifiers(rng: random.Random, count: int) -> dict[str, list[Any]]:
    properties = rng.sample(range(200, 9000), count)
    return {
        f"P{2000 + prop}": [statement(rng, f"P{2000 + prop}", f"{rng.getrandbits(24)}", references=1)]
        for prop in properties
    }


def _snak(prop: str, value: Any, rng: random.Random | None = None) -> dict[str, Any]:
    """Return a snak; those of qualifiers and references have a hash in dumps."""
    kind, data = _datavalue(value)
    snak = {"snaktype": "value", "property": prop}
    if rng is not None:
        snak["hash"] = _hash(rng)
    types = {"wikibase-entityid": "wikibase-item", "globecoordinate": "globe-coordinate"}
    return {**snak, "datavalue": {"value": data, "type": kind}, "datatype": types.get(kind, kind)}


def _datavalue(value: Any) -> tuple[str, Any]:
    if isinstance(value, int):
        calendar = "http://www.wikidata.org/entity/Q1985727"
        time = {"time": f"+{value:04d}-00-00T00:00:00Z", "timezone": 0, "before": 0, "after": 0, "precision": 9}
        return "time", {**time, "calendarmodel": calendar}
    if isinstance(value, tuple):
        latitude, longitude = value
        point = {"latitude": latitude, "longitude": longitude, "altitude": None, "precision": 0.0001}
        return "globecoordinate", {**point, "globe": "http://www.wikidata.org/entity/Q2"}
    if value[0] == "Q" and value[1:].isdecimal():
        return "wikibase-entityid", {"entity-type": "item", "numeric-id": int(value[1:]), "id": value}
    return "string", value


def _reference(rng: random.Random) -> dict[str, Any]:
    snaks = {"P248": [_snak("P248", f"Q{rng.choice((180686, 5412157, 229883))}", rng)]}
    if rng.random() < 0.5:
        snaks["P854"] = [_snak("P854", f"https://example.org/records/{rng.getrandbits(32)}", rng)]
    if rng.random() < 0.002:
        snaks["P31"] = [_snak("P31", HUMAN, rng)]
    snaks["P813"] = [_snak("P813", 2020, rng)]
    return {"hash": _hash(rng), "snaks": snaks, "snaks-order": list(snaks)}


def _sitelinks(rng: random.Random, number: int, title: str) -> dict[str, Any]:
    sites = {f"{code}wiki": title for code in rng.sample(_LANGUAGES, rng.randint(0, 4) if number % 4 == 0 else 0)}
    if has_category(number):
        sites["commonswiki"] = commons_title(number)
    elif number % 997 == 996:
        sites["commonswiki"] = f"Gallery of {title}"
    return {
        site: {"site": site, "title": text, "badges": ["Q17437796"] if rng.random() < 0.02 else []}
        for site, text in sorted(sites.items())
    }


def _property(number: int) -> Entity:
    rng = random.Random(number)
    prop = f"P{number // 5000 + 20_000}"
    entity = dump_entity("Q1", {"en": _text(rng, 2)}, {"en": _text(rng, 5)}, {}, {}, {}, rng)
    del entity["sitelinks"]
    claims = {"P31": [statement(rng, "P31", "Q18616576")], "P1629": [statement(rng, "P1629", "Q5")]}
    page = {"id": prop, "title": f"Property:{prop}", "ns": 120, "claims": claims}
    return {"type": "property", "datatype": "string", **{**entity, "type": "property"}, **page}


@functools.cache
def _description(number: int, language: str) -> str:
    return _text(random.Random(number), 4, language)


def _text(rng: random.Random, n_words: int, language: str = "en") -> str:
    if rng.random() < 0.0005:
        return rng.choice(_TRAPS)
    if first := _SCRIPTS.get(language):
        return " ".join(
            "".join(chr(first + ord(letter) % 26) for letter in rng.choice(_WORDS)) for _ in range(n_words)
        )
    return " ".join(rng.choices(_WORDS, k=n_words))


def _hash(rng: random.Random) -> str:
    return _HASHES[int(len(_HASHES) * rng.random() ** 3)]


def _guid(rng: random.Random) -> str:
    text = f"{rng.getrandbits(128):032X}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
