"""The label files that the published training code of the paper reads."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld.hierarchy.official import without_completed
from hgld.io.files import atomic_write
from hgld.tables import SPLITS

#: Columns of the files, and the columns of the table ``hierarchy`` that they hold.
_COLUMNS = {
    "landmark_id": "landmark_id",
    "cluster": "hierarchical_label",
    "overall_cluster": "natural_or_human_made",
}


def suprank_file_name(split: str) -> str:
    """Return the name of the file of a split.

    >>> suprank_file_name("train")
    'train_label_to_subcategory_with_clusters.csv'
    """
    return f"{split}_label_to_subcategory_with_clusters.csv"


def write_suprank_files(folder: Path, hierarchy: pa.Table) -> None:
    """Write a file per split for the SupRank code.

    ``suprank/datasets/gldv2.py`` of https://github.com/elias-ramzi/SupRank (commit 99041e8) reads these files beside
    GLDv2's own, and the columns ``landmark_id``, ``cluster`` (the group) and ``overall_cluster`` (the root). It skips
    images of landmarks without a row. Landmarks whose group comes from photographs are left out.

    Args:
        folder: Folder to write to; created if missing.
        hierarchy: The table ``hierarchy``, of one or both splits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hierarchy = without_completed(hierarchy)
    for split in SPLITS:
        rows = hierarchy.filter(pc.equal(hierarchy["split"], split)).sort_by("landmark_id")
        if not len(rows):
            continue
        path = folder / suprank_file_name(split)
        with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(_COLUMNS)
            writer.writerows(zip(*(rows[name].to_pylist() for name in _COLUMNS.values()), strict=True))
