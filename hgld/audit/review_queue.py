"""Queue landmarks and labels whose group is contradicted for the review page.

The queue is a pair of tables like those of :func:`hgld.labels.clean_file` and
:func:`hgld.labels.cluster_file`, in which a contradicted landmark takes the place of a label. So the
review page, sheets and agreement serve it like labels, and ``hgld build --corrections`` reads the
decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from hgld import tables
from hgld.audit.label_errors import LevelErrors, find_label_errors
from hgld.audit.settings import LabelErrorsConfig
from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.hierarchy.build_inputs import find_annotations, find_input_tables
from hgld.io.columns import preview
from hgld.review.labels import landmark_link
from hgld.taxonomy.decisions import landmark_key
from hgld.taxonomy.groups import Group, find_taxonomy, read_taxonomy
from hgld.taxonomy.label_identity import label_id

#: Number of labels and landmarks in a cluster of the queue.
BATCH = 25

_Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Contradiction of a label or landmark: the errors of its level, and its place among them."""

    errors: LevelErrors
    place: int

    @property
    def margin(self) -> float:
        """Share of the votes for the group, minus the share for another group."""
        return float(self.errors.own_shares[self.place] - self.errors.other_shares[self.place])


def write_review_queue(
    manifest: Manifest,
    errors_by_level: list[LevelErrors],
    embeddings: torch.Tensor,
    hierarchy: Path,
    out: Path,
    config: LabelErrorsConfig | None = None,
) -> tuple[int, int]:
    """Write the tables of landmarks and labels with a contradicted group.

    The tables are ``clean.parquet`` and ``clusters.parquet``.

    A label is queued if the photographs of its landmarks, at least two, are contradicted on average by
    the photographs of other labels; then its landmarks are not queued separately. Clusters are batches
    of :data:`BATCH`, the most contradicted first.

    Args:
        manifest: N images whose finest level is the landmarks of the hierarchy, and whose next level
            is the groups.
        errors_by_level: Result of :func:`~hgld.audit.find_label_errors` for the manifest.
        embeddings: float, shape (N, d), as for :func:`~hgld.audit.find_label_errors`.
        hierarchy: Table from ``hgld build``; the ``clean`` table and the taxonomy from which it was
            made are beside it.
        out: Folder to write.
        config: Settings of the search for wrong labels.

    Returns:
        Numbers of labels and of single landmarks in the queue.

    Raises:
        InputError: The clean table is not found, or the manifest has other landmarks or groups than
            the hierarchy.
    """
    config = config or LabelErrorsConfig()
    clean = _read_clean(hierarchy)
    groups = _read_groups(hierarchy)
    landmarks = _landmark_rows(manifest, hierarchy, clean)
    group_names = manifest.class_names[1]
    unknown = sorted(set(group_names).difference(groups))
    if unknown:
        raise InputError(
            f"{hierarchy}: the taxonomy it was built with has no group {preview(unknown)}"
        )
    labels = _contradicted_labels(manifest, landmarks, embeddings, config)
    single_landmarks = _contradicted_landmarks(manifest, landmarks, errors_by_level[1], labels)
    contradicted = labels | single_landmarks
    queued = [row for row in landmarks if row["unit"] in contradicted]
    inputs = tables.input_digests(hierarchy=hierarchy)
    provenance = tables.Provenance("audit labels", vars(config), inputs)
    neutral = tables.is_neutral(hierarchy)
    clean_rows = [_clean_row(row) for row in queued]
    cluster_rows = _cluster_rows(queued, contradicted, group_names, groups)
    out.mkdir(parents=True, exist_ok=True)
    for spec, rows in ((tables.CLEAN, clean_rows), (tables.CLUSTERS, cluster_rows)):
        table = pa.Table.from_pylist(rows, spec.schema)
        tables.write_table(out / f"{spec.name}.parquet", spec, table, provenance, neutral=neutral)
    return len(labels), len(single_landmarks)


def _read_clean(hierarchy: Path) -> list[_Row]:
    """Return the rows of the clean table from which a hierarchy was made."""
    clean = find_input_tables(hierarchy).clean
    if clean is None:
        raise InputError(f"{hierarchy.parent}: has no clean table that {hierarchy} was made from")
    rows: list[_Row] = tables.read_table(clean, tables.CLEAN).to_pylist()
    return rows


def _read_groups(hierarchy: Path) -> dict[str, Group]:
    """Return the groups, by name, of the taxonomy with which a hierarchy was made."""
    taxonomy = find_taxonomy(find_annotations(hierarchy).get("taxonomy"), hierarchy)
    return {group.name: group for group in read_taxonomy(taxonomy)}


def _landmark_rows(manifest: Manifest, hierarchy: Path, clean: list[_Row]) -> list[_Row]:
    """Return a row for each landmark of a manifest, in the order of its classes.

    A row has the columns of ``clean``, and ``unit``: the id of the landmark's label, or the key of the
    landmark if its group is not the group of its label, such as after an earlier correction.
    """
    hierarchy_rows = _hierarchy_rows(manifest, hierarchy)
    class_items = {(row["split"], row["landmark_id"]): row["class_item"] for row in clean}
    landmarks = []
    for name in manifest.class_names[0]:
        row = hierarchy_rows[name]
        key = (row["split"], row["landmark_id"])
        unit = landmark_key(*key)
        if key in class_items and row.get("label_source", "instance_of") == "instance_of":
            unit = label_id(row["supercategory"], class_items[key])
        class_item = class_items.get(key)
        landmarks.append({**row, "class_item": class_item, "unit": unit, "single": False})
    return landmarks


def _hierarchy_rows(manifest: Manifest, hierarchy: Path) -> dict[str, _Row]:
    """Return the rows of a hierarchy, by landmark id, of the split with the landmarks of a manifest.

    The manifest does not name the split of its landmarks, and splits may have the same ids.
    """
    table = tables.read_table(hierarchy, tables.HIERARCHY)
    group_level = tables.level_columns(table.column_names)[0]
    rows_by_split: dict[str, dict[str, _Row]] = {}
    for row in table.to_pylist():
        rows_by_split.setdefault(row["split"], {})[str(row["landmark_id"])] = row
    _, first_images = np.unique(manifest.labels[:, 0], return_index=True)
    groups = [manifest.class_names[1][label] for label in manifest.labels[first_images, 1]]
    landmarks = list(zip(manifest.class_names[0], groups, strict=True))
    for rows in rows_by_split.values():
        if all(name in rows and rows[name][group_level] == group for name, group in landmarks):
            return rows
    raise InputError(
        f"{hierarchy}: has no split with the landmarks of the manifest in the same groups"
    )


def _contradicted_labels(
    manifest: Manifest,
    landmarks: list[_Row],
    embeddings: torch.Tensor,
    config: LabelErrorsConfig,
) -> dict[str, _Evidence]:
    """Return the labels of several landmarks whose group is contradicted, by their ids."""
    n_landmarks = Counter(row["unit"] for row in landmarks)
    if max(n_landmarks.values()) < 2:
        return {}
    manifest_of_labels = _with_labels_as_classes(manifest, landmarks)
    errors = find_label_errors(manifest_of_labels, embeddings, config)[1]
    contradicted = {}
    for place in range(errors.n_contradicted):
        code = manifest_of_labels.labels[errors.rows[place], 0]
        unit = manifest_of_labels.class_names[0][code]
        if n_landmarks[unit] > 1:
            contradicted[unit] = _Evidence(errors, place)
    return contradicted


def _with_labels_as_classes(manifest: Manifest, landmarks: list[_Row]) -> Manifest:
    """Return a manifest whose finest level is labels, named by their ids, instead of landmarks."""
    units, codes = np.unique([row["unit"] for row in landmarks], return_inverse=True)
    labels = manifest.labels.copy()
    labels[:, 0] = codes[labels[:, 0]]
    class_names = (tuple(units.tolist()), *manifest.class_names[1:])
    return replace(manifest, labelling=labels, class_names=class_names)


def _contradicted_landmarks(
    manifest: Manifest, landmarks: list[_Row], errors: LevelErrors, labels: Container[str]
) -> dict[str, _Evidence]:
    """Return the contradicted landmarks of other labels, by their keys.

    In the rows of these landmarks, the key replaces the id of the label.
    """
    contradicted = {}
    for place in range(errors.n_contradicted):
        landmark = landmarks[manifest.labels[errors.rows[place], 0]]
        if landmark["unit"] not in labels:
            landmark["unit"] = landmark_key(landmark["split"], landmark["landmark_id"])
            landmark["single"] = True
            contradicted[landmark["unit"]] = _Evidence(errors, place)
    return contradicted


def _clean_row(landmark: _Row) -> _Row:
    """Return the row of a landmark in ``clean``; a single landmark becomes a label of its own."""
    if not landmark["single"]:
        return landmark
    name, _ = landmark_link(landmark["landmark_id"], landmark["category"])
    return {
        **landmark,
        "supercategory": f"{name} ({landmark['supercategory']})",
        "class_item": landmark["unit"],
    }


def _cluster_rows(
    queued: list[_Row],
    contradicted: dict[str, _Evidence],
    group_names: tuple[str, ...],
    groups: dict[str, Group],
) -> list[_Row]:
    """Return the rows of ``clusters``, in batches, the most contradicted labels and landmarks first."""
    landmarks_by_unit: dict[str, list[_Row]] = {}
    for row in queued:
        landmarks_by_unit.setdefault(row["unit"], []).append(row)
    units = sorted(contradicted, key=lambda unit: contradicted[unit].margin)
    rows = []
    for start in range(0, len(units), BATCH):
        batch = units[start : start + BATCH]
        for unit in batch:
            landmarks = landmarks_by_unit[unit]
            row = _cluster_row(landmarks, contradicted[unit], group_names, groups)
            row["cluster"] = start // BATCH
            row["cluster_name"] = f"{start + 1} to {start + len(batch)}"
            rows.append(row)
    return rows


def _cluster_row(
    landmarks: list[_Row],
    evidence: _Evidence,
    group_names: tuple[str, ...],
    groups: dict[str, Group],
) -> _Row:
    """Return a row of ``clusters``, except its cluster.

    The group with the most votes is suggested first, then the present group.
    """
    errors = evidence.errors
    place = evidence.place
    is_single = landmarks[0]["single"]
    voted = "its photographs" if is_single else f"photographs of its {len(landmarks)} landmarks"
    own_share = float(errors.own_shares[place])
    other_share = float(errors.other_shares[place])
    present_group = groups[group_names[errors.labels[place]]].key
    suggested_group = groups[group_names[errors.others[place]]].key
    n_landmarks = Counter(row["split"] for row in landmarks)
    return {
        "label_id": landmarks[0]["unit"],
        "label": _clean_row(landmarks[0])["supercategory"],
        "landmarks_train": n_landmarks["train"],
        "landmarks_index": n_landmarks["index"],
        "subcluster": 1 if is_single else 0,
        "distance": 0.0,
        "suggested_group": suggested_group,
        "suggestion_score": other_share,
        "suggestions": [
            {
                "group": suggested_group,
                "score": other_share,
                "reason": f"{other_share:.0%} of the votes on {voted}",
            },
            {
                "group": present_group,
                "score": nan,  # the page hides suggestions with low scores
                "reason": f"the present group; {own_share:.0%} of the votes",
            },
        ],
    }
