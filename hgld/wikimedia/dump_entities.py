"""What hgld keeps of the entities of a dump of Wikidata, read from their lines.

Three kinds of lines matter. Items that have a category of Commons (a sitelink or P373), superclasses (P279), a main
category (P910) or are one (P301) are about a tenth of all; they are recognised by the bytes of these names, and
parsed whole. Any other item may be a value of "instance of" all the same. Of these only the beginning (label,
description), the values of P31 and the end (revision, date) are parsed, at a fraction of the cost. A line in which
these places are not found as Wikidata writes them is parsed whole as well, so that the result never depends on the
shortcut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from hgld.wikimedia.source import best_rank
from hgld.wikimedia.titles import CATEGORY_PREFIX, normalise_title

#: Names that lines of items contain which may be landmarks, categories, topics or classes. An expression that begins
#: with a letter and no quotation mark, of which lines are full, is searched as fast as a single name.
_PROPERTIES = re.compile(rb'P(?:279|301|373|910)"')
_SITELINK_MARK = b'"commonswiki"'
_HEAD = re.compile(rb'\{"type":"item","id":"Q([1-9][0-9]{0,9})","labels":')
_TAIL = re.compile(rb'"lastrevid":([0-9]+),"modified":"([0-9TZ:-]+)"\}\Z')
_ITEM = re.compile(r"Q([1-9][0-9]{0,9})")
_FIRST_STATEMENT = b':[{"mainsnak"'
#: Length up to which a line may be a redirect.
_LONGEST_REDIRECT = 1000


class DumpItem(NamedTuple):
    """An item, with items as numbers (42 for Q42) and categories as titles with the prefix ``Category:``.

    The columns of :data:`hgld.wikimedia.dump_part.ITEM_SCHEMA` describe the fields; those of an item that redirects
    to another are empty.
    """

    item: int
    redirect: int | None = None
    revision: int | None = None
    category: str | None = None
    commons_categories: Sequence[str] = ()
    instance_of: Sequence[int] = ()
    subclass_of: Sequence[int] = ()
    main_topic: int | None = None
    label: str | None = None
    language: str | None = None
    description: str | None = None


class ReadLine(NamedTuple):
    """The item in a line (None for other entities), and when it was last edited (ISO 8601, or empty).

    A linked item has a category or superclasses, or is a redirect; others are named by statements at most.
    """

    item: DumpItem | None
    is_linked: bool
    modified: str


def read_line(line: bytes, languages: Sequence[str]) -> ReadLine:
    """Read the line of an entity, without the comma at its end, or raise ValueError if it is not one.

    Languages of labels and descriptions are in order of preference.
    """
    if len(line) > _LONGEST_REDIRECT and not _may_be_linked(line):
        unlinked = _read_unlinked(line, languages)
        if unlinked is not None:
            return unlinked
    return _read_whole(line, languages)


def _may_be_linked(line: bytes) -> bool:
    """Return whether a line contains one of the names above; each is searched where it can be.

    A key with its colon never occurs within a text of JSON, where its quotation marks are escaped. Where a key is
    written otherwise, all of the line is searched.
    """
    sitelinks = line.rfind(b'"sitelinks":')
    if line.find(_SITELINK_MARK, max(sitelinks, 0)) >= 0:
        return True
    claims = max(line.find(b'"claims":'), 0)
    end = sitelinks if sitelinks > claims else len(line)
    return _PROPERTIES.search(line, claims, end) is not None


def _read_unlinked(line: bytes, languages: Sequence[str]) -> ReadLine | None:
    """Read an item without any of the names above from parts of its line; None if it is not written as usual."""
    head, tail = _HEAD.match(line), _TAIL.search(line, len(line) - 200)
    if head is None or tail is None:
        return None
    labels_end = line.find(b',"descriptions":', head.end())
    descriptions_end = line.find(b',"aliases":', labels_end)
    if min(labels_end, descriptions_end) < 0:
        return None
    instance_of: tuple[int, ...] = ()
    try:
        label, language = _find_term(line, head.end(), labels_end, languages)
        description, _ = _find_term(line, labels_end, descriptions_end, languages)
        if line.find(b'"P31"', head.end()) >= 0:
            instance_of = tuple(_items(_statements(line, b'"P31"', head.end())))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    item = DumpItem(
        int(head[1]),
        revision=int(tail[1]),
        instance_of=instance_of,
        label=label,
        language=language,
        description=description,
    )
    return ReadLine(item, False, tail[2].decode())


def _find_term(line: bytes, start: int, end: int, languages: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the text in the first of the languages that has one, and that language, from a range of bytes."""
    for language in languages:
        code = language.encode()
        key = b'"%b":{"language":"%b","value":"' % (code, code)
        at = line.find(key, start, end)
        if at >= 0:
            begin = at + len(key)
            close = line.index(b'"}', begin, end)
            text = line[begin - 1 : close + 1]
            return orjson.loads(text), language  # which refuses a text that goes on after an escaped quotation mark
        if line.find(b'"%b"' % code, start, end) >= 0:
            raise ValueError("a label that is not written as usual")
    return None, None


def _statements(line: bytes, key: bytes, start: int) -> Any:
    """Return the statements of a property in a range of bytes: up to the next property, or the end of all."""
    begin = line.index(key + _FIRST_STATEMENT, start) + len(key) + 1
    following = line.find(b'"' + _FIRST_STATEMENT, begin)
    end = line.rindex(b',"', begin, following) if following >= 0 else line.index(b'},"sitelinks":', begin)
    return orjson.loads(line[begin:end])


def _read_whole(line: bytes, languages: Sequence[str]) -> ReadLine:
    try:
        entity = orjson.loads(line)
        if not isinstance(entity, dict):
            raise ValueError("not a JSON object")
        target = _item_number(entity.get("redirect"))
        if target is not None:
            source = _item_number(entity.get("id") or entity.get("entity"))
            return ReadLine(None if source is None else DumpItem(source, redirect=target), True, "")
        identifier = entity["id"]
        if not isinstance(identifier, str):
            raise ValueError("the id is no text")
        modified = str(entity.get("modified") or "")
        number = _item_number(identifier)
        if number is None:
            return ReadLine(None, False, modified)
        return _read_item(number, entity, languages, modified)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an entity of Wikidata: {type(error).__name__} {error}") from None


def _read_item(number: int, entity: Mapping[str, Any], languages: Sequence[str], modified: str) -> ReadLine:
    claims = entity.get("claims") or {}
    sitelinks = entity.get("sitelinks") or {}
    title = sitelinks["commonswiki"]["title"] if "commonswiki" in sitelinks else ""
    topics = list(_items(claims.get("P301", ())))
    label, language = _term(entity.get("labels"), languages)
    description, _ = _term(entity.get("descriptions"), languages)
    item = DumpItem(
        number,
        revision=entity.get("lastrevid"),
        category=title if title.startswith(CATEGORY_PREFIX) else None,
        commons_categories=[
            normalise_title(CATEGORY_PREFIX + value.strip())
            for value in _best_values(claims.get("P373", ()))
            if isinstance(value, str)
        ],
        instance_of=list(_items(claims.get("P31", ()))),
        subclass_of=list(_items(claims.get("P279", ()))),
        main_topic=topics[0] if topics else None,
        label=label,
        language=language,
        description=description,
    )
    is_linked = bool(
        item.category or item.commons_categories or item.main_topic or "P279" in claims or "P910" in claims
    )
    return ReadLine(item, is_linked, modified)


def _best_values(statements: Sequence[Mapping[str, Any]]) -> Iterable[Any]:
    """Yield the values of the best-rank statements."""
    for statement in best_rank(statements, itemgetter("rank")):
        if (value := statement["mainsnak"].get("datavalue")) is not None:
            yield value["value"]


def _items(statements: Sequence[Mapping[str, Any]]) -> Iterable[int]:
    for value in _best_values(statements):
        # Dumps before 2017 have the number alone.
        number = _item_number(value.get("id") or f"Q{value['numeric-id']}")
        if number is not None:
            yield number


def _item_number(identifier: Any) -> int | None:
    """Return 42 for Q42; None for what is not the id of an item."""
    match = _ITEM.fullmatch(identifier) if isinstance(identifier, str) else None
    return int(match[1]) if match else None


def _term(terms: Mapping[str, Any] | None, languages: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the text in the first of the languages that has one, and that language."""
    for language in languages:
        if terms and language in terms:
            return terms[language]["value"], language
    return None, None
