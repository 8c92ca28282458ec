"""Worlds of the replica that change, with later revisions of what has changed."""

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Document = dict[str, Any]


class ChangingWorld:
    """The world in a file of the replica, which can be served before and after a change of its document.

    Args:
        path: File of the world; the fixture ``replica`` makes the server importable.
    """

    def __init__(self, path: Path) -> None:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        self.before: Document = json.loads(text)
        self._items_before: dict[str, Any] | None = None

    def changed(self, change: Callable[[Document], None]) -> Document:
        """Return the document after a change."""
        document: Document = copy.deepcopy(self.before)
        change(document)
        return document

    @contextmanager
    def serve(self, document: Document, **options: Any) -> Iterator[Any]:
        """Serve a document; the items that differ from those before have later revisions."""
        from wikimedia_replica import (  # type: ignore[import-not-found, unused-ignore]
            ReplicaServer,
            wikidata_api,
        )
        from wikimedia_replica.world import FileWorld  # type: ignore[import-not-found, unused-ignore]

        if self._items_before is None:
            self._items_before = FileWorld(self.before).items
        old, new = self._items_before, FileWorld(document)
        later = {item for item in new.items if new.items[item] != old.get(item)}
        info = wikidata_api._page_info

        def page_info(item: Any) -> dict[str, Any]:
            page: dict[str, Any] = info(item)
            page["lastrevid"] += 10_000_000_000 if item.id in later else 0
            return page

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wikidata_api, "_page_info", page_info)
            with ReplicaServer(new, **options) as server:
                yield server


def by_id(document: Document, item: str) -> Document:
    """Return the description of an item."""
    found: Document = next(row for row in document["items"] if row["id"] == item)
    return found


def by_title(document: Document, title: str) -> Document:
    """Return the description of a category."""
    found: Document = next(row for row in document["categories"] if row["title"] == title)
    return found
