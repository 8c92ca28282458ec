"""Wikimedia with Washington's landmarks, on which a year passes when an example asks for it."""

import copy
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Document = dict[str, Any]

#: A request of this path lets a year pass: from then on, the server answers from the edited world.
LATER_PATH = "/__later__"
#: Items of landmarks with their value of P31 after the year.
_NEW_VALUES = {
    "Q910000180": "Q169358",  # Glacier Peak: mountain, then stratovolcano
    "Q910000433": "Q856584",  # Carnegie Library: museum, then library building
    "Q910000037": "Q1802963",  # Neely Mansion: building, then mansion
    "Q910000574": "Q1378975",  # Spokane Convention Center: architectural structure, then convention center
    "Q910000072": "Q367914",  # Thornewood: building, then bed and breakfast
}
_NEW_CLASS = {"id": "Q367914", "labels": {"en": "bed and breakfast"}, "claims": {"P279": ["Q27686"]}}
_CATEGORY_DELETED_OF = "Q910000030"  # Fairfax Bridge


@contextmanager
def serve_changing_wikimedia(shared: Path) -> Iterator[str]:
    """Serve Washington's landmarks, and yield the URL below which ``commons`` and ``wikidata`` are.

    Args:
        shared: Folder of the replica, which has to be importable.
    """
    from wikimedia_replica import (  # type: ignore[import-not-found, unused-ignore]
        ReplicaServer,
        wikidata_api,
    )
    from wikimedia_replica.world import FileWorld  # type: ignore[import-not-found, unused-ignore]

    document = json.loads(gzip.decompress((shared / "wikimedia_replica/worlds/washington.json.gz").read_bytes()))
    now, later = FileWorld(document), FileWorld(_edited(document))
    # The replica computes revisions from ids: those of edited items have to be later ones.
    edited = {id(item) for name, item in later.items.items() if item != now.items.get(name)}
    page_info = wikidata_api._page_info

    def later_page_info(item: Any) -> dict[str, Any]:
        page: dict[str, Any] = page_info(item)
        return page | {"lastrevid": page["lastrevid"] + 10_000_000_000 * (id(item) in edited)}

    class ChangingReplica(ReplicaServer):  # type: ignore[misc, unused-ignore]
        """A replica on which a year can pass."""

        def control(self, path: str) -> Any:
            if path == LATER_PATH:
                replica = ReplicaServer(later)
                self.world, self._apis = replica.world, replica._apis
                path = "/__stats__"
            return super().control(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wikidata_api, "_page_info", later_page_info)
        with ChangingReplica(now) as server:
            yield server.base_url


def _edited(document: Document) -> Document:
    """Return the world after the edits of a year."""
    edited = copy.deepcopy(document)
    for item in edited["items"]:
        if item["id"] in _NEW_VALUES:
            item["claims"]["P31"] = [_NEW_VALUES[item["id"]]]
    edited["items"].append(_NEW_CLASS)
    edited["categories"] = [row for row in edited["categories"] if row.get("item") != _CATEGORY_DELETED_OF]
    return edited
