"""Serve the bundled sample (``data/sample/README.md``) to the scraper from a local server.

Below the URL of :func:`serve_sample`, ``/commons/w/api.php`` and ``/wikidata/w/api.php`` represent
the action APIs of Commons and Wikidata (``action=query`` and ``action=wbgetentities``, always JSON
of format version 2). Responses have the structure of the real sites; rate limits, lag and all
fields that the scraper does not read are omitted.
"""

from __future__ import annotations

import csv
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qsl

from hgld.resources import sample_file
from hgld.wikimedia.titles import CATEGORY_PREFIX, normalise_title


@dataclass(frozen=True, slots=True)
class SamplePage:
    """A category page of Commons; at most one of the fields is set.

    Args:
        item: Id of the linked Wikidata item.
        redirect: Title of the target of a hard redirect, with ``Category:``.
        soft_redirect: Title of the target of a soft redirect, with ``Category:``.
    """

    item: str | None = None
    redirect: str | None = None
    soft_redirect: str | None = None


@dataclass(frozen=True, slots=True)
class SampleItem:
    """A Wikidata item of a landmark (with ``instance_of``) or of a class (with ``label``).

    Args:
        label: Label of a class.
        category: Title of the linked category of Commons.
        instance_of: Ids of the values of P31.
        preferred: Ids of the values of P31 with the preferred rank.
        main_topic: Id of the value of P301.
        subclass_of: Ids of the values of P279.
    """

    label: str | None = None
    category: str | None = None
    instance_of: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    main_topic: str | None = None
    subclass_of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sample:
    """Pages by title (with ``Category:``), and items by id."""

    pages: Mapping[str, SamplePage]
    items: Mapping[str, SampleItem]

    @cached_property
    def item_of_category(self) -> dict[str, str]:
        """Item ids by the title of the linked category."""
        return {item.category: item_id for item_id, item in self.items.items() if item.category}


def read_sample() -> Sample:
    """Read ``pages.csv`` and ``classes.csv`` of the bundled sample."""
    classes = list(_rows("classes.csv"))
    id_of = {row["label"]: row["item"] for row in classes}

    def ids(labels: str) -> tuple[str, ...]:
        return tuple(id_of[label] for label in labels.split("; ") if label)

    items = {}
    for row in classes:
        items[row["item"]] = SampleItem(label=row["label"], subclass_of=ids(row["subclass_of"]))
    pages = {}
    for row in _rows("pages.csv"):
        title = _title(row["title"])
        if title:
            pages[title] = SamplePage(
                row["item"] or None, _title(row["redirect"]), _title(row["soft_redirect"])
            )
        if row["item"]:
            items[row["item"]] = SampleItem(
                category=title,
                instance_of=ids(row["instance_of"]),
                preferred=ids(row["preferred"]),
                main_topic=row["main_topic"] or None,
            )
    return Sample(pages, items)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with sample_file(name).open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _title(name: str) -> str | None:
    """Return the title of a category; None for an empty name."""
    if not name:
        return None
    return CATEGORY_PREFIX + name


_ILLEGAL = re.compile(r"[<>\[\]{}|]")
_CATEGORY_NAMESPACE = 14


@contextmanager
def serve_sample(sample: Sample) -> Iterator[str]:
    """Serve a sample on a free local port, from a thread, until the block ends."""
    server = _Server(sample)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def wikidata_response(sample: Sample, params: Mapping[str, str]) -> dict[str, Any]:
    """Return the response to ``action=wbgetentities``.

    Args:
        sample: The sample.
        params: Parameters of the request, with ``ids``, or ``titles`` of categories of Commons.
    """
    props = _values(params, "props")
    ids = _values(params, "ids")
    entities: dict[str, Any] = {}
    n_unknown = 0
    for title in _values(params, "titles"):
        if title in sample.item_of_category:
            ids.append(sample.item_of_category[title])
        else:
            n_unknown += 1
            entities[str(-n_unknown)] = {"site": "commonswiki", "title": title, "missing": ""}
    for item_id in ids:
        item = sample.items.get(item_id)
        if item is None:
            entities[item_id] = {"id": item_id, "missing": ""}
        else:
            entities[item_id] = _entity(item_id, item, props)
    return {"entities": entities, "success": 1}


def _entity(item_id: str, item: SampleItem, props: list[str]) -> dict[str, Any]:
    """Return the document of an item with the requested properties."""
    labels = {}
    if item.label:
        labels["en"] = {"language": "en", "value": item.label}
    sitelinks = {}
    if item.category:
        sitelinks["commonswiki"] = {"site": "commonswiki", "title": item.category, "badges": []}
    parts: dict[str, dict[str, Any]] = {
        "descriptions": {},
        "labels": labels,
        "claims": _claims(item),
        "sitelinks": sitelinks,
    }
    entity: dict[str, Any] = {"type": "item", "id": item_id}
    if "info" in props:
        entity["ns"] = 0
        entity["title"] = item_id
        entity["lastrevid"] = 1_000_000_000 + int(item_id[1:])
    for name in props:
        if name in parts:
            entity[name] = parts[name]
    return entity


def _claims(item: SampleItem) -> dict[str, list[dict[str, Any]]]:
    """Return the statements of an item by property."""
    claims: dict[str, list[dict[str, Any]]] = {}
    for value in item.instance_of:
        is_preferred = value in item.preferred
        claims.setdefault("P31", []).append(_statement("P31", value, is_preferred))
    for value in item.subclass_of:
        claims.setdefault("P279", []).append(_statement("P279", value))
    if item.main_topic:
        claims["P301"] = [_statement("P301", item.main_topic)]
    return claims


def _statement(name: str, item_id: str, preferred: bool = False) -> dict[str, Any]:
    value = {"entity-type": "item", "numeric-id": int(item_id[1:]), "id": item_id}
    return {
        "mainsnak": {
            "snaktype": "value",
            "property": name,
            "datavalue": {"value": value, "type": "wikibase-entityid"},
            "datatype": "wikibase-item",
        },
        "type": "statement",
        "rank": "preferred" if preferred else "normal",
    }


def commons_response(sample: Sample, params: Mapping[str, str]) -> dict[str, Any]:
    """Return the response to ``action=query``.

    Args:
        sample: The sample.
        params: Parameters of the request: ``titles``, ``prop`` with ``pageprops``, ``templates``
            and ``revisions``, and ``redirects``.
    """
    props = _values(params, "prop")
    templates = _values(params, "tltemplates")
    normalized = []
    redirects = []
    pages = []
    titles: list[str] = []
    for raw in _values(params, "titles"):
        illegal = _ILLEGAL.search(raw)
        if illegal:
            reason = f'The requested page title contains invalid characters: "{illegal.group()}".'
            pages.append({"title": raw, "invalidreason": reason, "invalid": True})
            continue
        title = normalise_title(raw)
        if title != raw:
            normalized.append({"from": raw, "to": title})
        if title not in titles:
            titles.append(title)
    # The list grows by the targets of redirects.
    for title in titles:
        page = sample.pages.get(title)
        if page is None:
            pages.append({"ns": _CATEGORY_NAMESPACE, "title": title, "missing": True})
        elif page.redirect and "redirects" in params:
            redirects.append({"from": title, "to": page.redirect})
            if page.redirect not in titles:
                titles.append(page.redirect)
        else:
            pages.append(_page(title, page, props, templates))
    lists = {"normalized": normalized, "redirects": redirects, "pages": pages}
    return {"batchcomplete": True, "query": {name: rows for name, rows in lists.items() if rows}}


def _page(title: str, page: SamplePage, props: list[str], templates: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {"ns": _CATEGORY_NAMESPACE, "title": title}
    if "pageprops" in props and page.item:
        result["pageprops"] = {"wikibase_item": page.item}
    if "templates" in props and page.redirect is None:
        used = "Template:Category redirect" if page.soft_redirect else "Template:Wikidata Infobox"
        if used in templates or not templates:
            result["templates"] = [{"ns": 10, "title": used}]
    if "revisions" in props:
        slot = {
            "contentmodel": "wikitext",
            "contentformat": "text/x-wiki",
            "content": _wikitext(page),
        }
        result["revisions"] = [{"slots": {"main": slot}}]
    return result


def _wikitext(page: SamplePage) -> str:
    if page.redirect:
        return f"#REDIRECT [[{page.redirect}]]"
    if page.soft_redirect:
        return f"{{{{Category redirect|1={page.soft_redirect.partition(':')[2]}}}}}"
    return "{{Wikidata Infobox}}\n"


def _values(params: Mapping[str, str], name: str) -> list[str]:
    """Return the values of a parameter, which are separated by ``|``."""
    return [value for value in params.get(name, "").split("|") if value]


class _Server(ThreadingTCPServer):
    """A server with one thread per connection, which does not look up the host name."""

    daemon_threads = True

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers calls of the APIs; connections are kept alive."""

    protocol_version = "HTTP/1.1"
    #: Header and body are sent together; otherwise the client waits 40 ms for the body.
    wbufsize = -1
    server: _Server

    def do_GET(self) -> None:
        self.send_error(404, "Only the APIs are here; category pages are at Wikimedia Commons")

    def do_POST(self) -> None:
        query = self.rfile.read(int(self.headers["Content-Length"])).decode()
        responses = {
            "/commons/w/api.php": commons_response,
            "/wikidata/w/api.php": wikidata_response,
        }
        if self.path not in responses:
            self.send_error(404)
            return
        params = dict(parse_qsl(query, keep_blank_values=True))
        document = responses[self.path](self.server.sample, params)
        body = json.dumps(document, ensure_ascii=False).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, as the scraper reports its progress."""
