"""Write the tables ``scraped`` and ``classes`` from what a collector has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.tables import CLASSES, SCRAPED, Provenance, write_table
from hgld.wikimedia.categories import LandmarkCategory
from hgld.wikimedia.collector import FactCollector
from hgld.wikimedia.source import ClassFact, Resolution

_ROWS_PER_BATCH = 5_000


def write_classes(
    classes: Mapping[str, ClassFact], redirects: Mapping[str, str], path: Path, provenance: Provenance
) -> None:
    """Write the table ``classes``.

    Args:
        classes: Classes by item.
        redirects: By id of an item that statements name, the class to which it redirects.
        path: Table to write.
        provenance: Command, parameters and inputs.
    """
    redirected_from: dict[str, list[str]] = {}
    for item in sorted(redirects):
        redirected_from.setdefault(redirects[item], []).append(item)
    rows = [{**classes[item]._asdict(), "redirected_from": redirected_from.get(item)} for item in sorted(classes)]
    write_table(path, CLASSES, pa.Table.from_pylist(rows, CLASSES.schema), provenance)


def write_scraped(
    landmarks: Sequence[LandmarkCategory], collector: FactCollector, path: Path, provenance: Provenance
) -> tuple[Counter[str], Counter[str]]:
    """Write the table ``scraped``.

    Args:
        landmarks: Landmarks, which become the rows.
        collector: Has the result for each of them.
        path: Table to write.
        provenance: Command, parameters, among them ``split`` and ``source``, and inputs.

    Returns:
        Numbers of landmarks by status and by route.
    """
    statuses: Counter[str] = Counter()
    routes: Counter[str] = Counter()
    origin = {name: provenance.parameters[name] for name in ("split", "source")}

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(landmarks), _ROWS_PER_BATCH):
            rows = []
            for landmark in landmarks[start : start + _ROWS_PER_BATCH]:
                resolution, at = collector.resolution(landmark.title)
                statuses[resolution.status] += 1
                routes[resolution.route or "none"] += 1
                rows.append({**origin, **_row(landmark, resolution, at)})
            yield pa.RecordBatch.from_pylist(rows, SCRAPED.schema)

    write_table(path, SCRAPED, batches(), provenance)
    return statuses, routes


def _row(landmark: LandmarkCategory, resolution: Resolution, at: int) -> dict[str, Any]:
    return {
        "landmark_id": landmark.landmark_id,
        "category": landmark.category,
        "title": landmark.title,
        **resolution._asdict(),
        "instance_of": [value._asdict() for value in resolution.instance_of],
        "fetched_at": at,
    }
