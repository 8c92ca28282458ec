"""Queue the labels that photographs contradict for the review page: single landmarks, and whole labels.

The queue is a pair of tables as :func:`hgld.labels.clean` and :func:`hgld.labels.cluster` write them, in which a
landmark that looks wrong takes the place of a label. So the review page, sheets and agreement serve it as they serve
labels, and their decisions are what ``hgld build --corrections`` reads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from hgld import tables
from hgld.audit.label_errors import LabelErrorsConfig, LevelErrors, find_label_errors
from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.hierarchy.build_inputs import find_annotations, find_input_tables
from hgld.io.columns import preview
from hgld.resources import annotation_file
from hgld.review.labels import landmark_link
from hgld.taxonomy.decisions import landmark_key
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.label_identity import label_id

#: Number of labels and landmarks in a cluster of the queue.
BATCH = 25

_Row = dict[str, Any]


def write_review_queue(
    found: list[LevelErrors],
    manifest: Manifest,
    embeddings: torch.Tensor,
    hierarchy: Path,
    out: Path,
    config: LabelErrorsConfig | None = None,
) -> tuple[int, int]:
    """Write ``clean.parquet`` and ``clusters.parquet`` of the landmarks and labels whose group is contradicted.

    A label is queued if the photographs of its landmarks, at least two, are contradicted on average by those of other
    labels; then its landmarks are not queued one by one. Clusters are batches of :data:`BATCH`, the most contradicted
    first.

    Args:
        found: Result of :func:`~hgld.audit.find_label_errors` for the manifest.
        manifest: N images whose finest level are the landmarks of the hierarchy, and the next one their groups.
        embeddings: float, shape (N, d), as for :func:`~hgld.audit.find_label_errors`.
        hierarchy: Table from ``hgld build``, with the ``clean`` table and the taxonomy that it was made from beside
            it.
        out: Folder to write.
        config: Settings of the search for wrong labels.

    Returns:
        Numbers of labels and of single landmarks in the queue.

    Raises:
        InputError: The clean table is not found, or the manifest has other landmarks or groups than the hierarchy.
    """
    built = tables.read_table(hierarchy, tables.HIERARCHY)
    clean, groups = _read_sources(hierarchy)
    landmarks = _landmarks_of(manifest, hierarchy, built, clean)
    names = manifest.class_names[1]
    if unknown := {*names}.difference(groups):
        raise InputError(f"{hierarchy}: the taxonomy it was built with has no group {preview(sorted(unknown))}")
    n_landmarks = Counter(row["unit"] for row in landmarks)
    contradicted = {}
    if max(n_landmarks.values()) > 1:
        by_label, units = _by_label(manifest, landmarks)
        errors = find_label_errors(by_label, embeddings, config)[1]
        contradicted = {
            units[by_label.labels[errors.rows[place], 0]]: (errors, place) for place in range(errors.n_contradicted)
        }
        contradicted = {unit: evidence for unit, evidence in contradicted.items() if n_landmarks[unit] > 1}
    n_labels = len(contradicted)
    for place in range(found[1].n_contradicted):
        landmark = landmarks[manifest.labels[found[1].rows[place], 0]]
        if landmark["unit"] not in contradicted:
            landmark |= {"unit": landmark_key(landmark["split"], landmark["landmark_id"]), "single": True}
            contradicted[landmark["unit"]] = found[1], place

    queued = [row for row in landmarks if row["unit"] in contradicted]
    members: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in queued:
        members[row["unit"]].append(row)
    queue = sorted(contradicted.items(), key=lambda item: item[1][0].margins[item[1][1]])
    entries = []
    for start in range(0, len(queue), BATCH):
        batch = queue[start : start + BATCH]
        cluster = {"cluster": start // BATCH, "cluster_name": f"{start + 1} to {start + len(batch)}"}
        entries += [cluster | _entry(members[unit], *evidence, names, groups) for unit, evidence in batch]
    parameters, inputs = vars(config or LabelErrorsConfig()), tables.input_digests(hierarchy=hierarchy)
    made_of = tables.Provenance("audit labels", parameters, inputs)
    neutral = tables.is_neutral(hierarchy)
    out.mkdir(parents=True, exist_ok=True)
    for spec, rows in ((tables.CLEAN, [_clean_row(row) for row in queued]), (tables.CLUSTERS, entries)):
        table = pa.Table.from_pylist(rows, spec.schema)
        tables.write_table(out / f"{spec.name}.parquet", spec, table, made_of, neutral=neutral)
    return n_labels, len(contradicted) - n_labels


def _read_sources(hierarchy: Path) -> tuple[list[_Row], dict[str, Group]]:
    """Return the rows of the clean table, and the groups by name, that a hierarchy was made from."""
    clean = find_input_tables(hierarchy).clean
    if clean is None:
        raise InputError(f"{hierarchy.parent}: has no clean table that {hierarchy} was made from")
    taxonomy = find_annotations(hierarchy).get("taxonomy") or annotation_file("taxonomy.csv")
    return tables.read_table(clean, tables.CLEAN).to_pylist(), {
        group.name: group for group in read_taxonomy(taxonomy)
    }


def _landmarks_of(manifest: Manifest, hierarchy: Path, built: pa.Table, clean: list[_Row]) -> list[_Row]:
    """Return a row for each landmark of a manifest, in the order of its classes.

    A row has the columns of ``clean`` and ``unit``: the id of the label, or that of the landmark if its group is not
    that of its label, such as after an earlier correction.

    Raises:
        InputError: The hierarchy does not have these landmarks in these groups.
    """
    level, built_rows = tables.level_columns(built.column_names)[0], built.to_pylist()
    _, first = np.unique(manifest.labels[:, 0], return_index=True)
    group_of = {
        name: manifest.class_names[1][label]
        for name, label in zip(manifest.class_names[0], manifest.labels[first, 1], strict=True)
    }
    of_split = {
        split: {str(row["landmark_id"]): row for row in built_rows if row["split"] == split}
        for split in dict.fromkeys(row["split"] for row in built_rows)
    }
    # The manifest does not tell the split of its landmarks, and splits may have the same ids.
    for rows in of_split.values():
        if all(name in rows and rows[name][level] == group for name, group in group_of.items()):
            break
    else:
        raise InputError(f"{hierarchy}: has no split with the landmarks of the manifest in the same groups")
    items = {(row["split"], row["landmark_id"]): row["class_item"] for row in clean}
    landmarks = []
    for name in group_of:
        row = rows[name]
        key = row["split"], row["landmark_id"]
        unit = landmark_key(*key)
        if key in items and row.get("label_source", "instance_of") == "instance_of":
            unit = label_id(row["supercategory"], items[key])
        landmarks.append({**row, "class_item": items.get(key), "unit": unit, "single": False})
    return landmarks


def _by_label(manifest: Manifest, landmarks: list[_Row]) -> tuple[Manifest, list[str]]:
    """Return a manifest with labels in place of its landmarks, and their ids."""
    units, codes = np.unique([row["unit"] for row in landmarks], return_inverse=True)
    labels = manifest.labels.copy()
    labels[:, 0] = codes[labels[:, 0]]
    class_names = (tuple(units.tolist()), *manifest.class_names[1:])
    return replace(manifest, labelling=labels, class_names=class_names), units.tolist()


def _clean_row(landmark: _Row) -> _Row:
    if not landmark["single"]:
        return landmark
    name, _ = landmark_link(landmark["landmark_id"], landmark["category"])
    return {
        **landmark,
        "supercategory": f"{name} ({landmark['supercategory']})",
        "class_item": landmark["unit"],
    }


def _entry(
    members: list[_Row], errors: LevelErrors, place: int, names: tuple[str, ...], groups: dict[str, Group]
) -> _Row:
    """Return a row of ``clusters``; the group that most votes are for is suggested first, then the present one."""
    present = names[errors.labels[place]]
    voted = "its photographs" if members[0]["single"] else f"photographs of its {len(members)} landmarks"
    other, own = float(errors.other_shares[place]), float(errors.own_shares[place])
    suggestions = [
        (names[errors.others[place]], other, f"{other:.0%} of the votes on {voted}"),
        # NaN, as the page hides suggestions with low scores.
        (present, nan, f"the present group; {own:.0%} of the votes"),
    ]
    splits = Counter(row["split"] for row in members)
    return {
        "label_id": members[0]["unit"],
        "label": _clean_row(members[0])["supercategory"],
        "landmarks_train": splits["train"],
        "landmarks_index": splits["index"],
        "subcluster": 1 if members[0]["single"] else 0,
        "distance": 0.0,
        "suggested_group": groups[suggestions[0][0]].key,
        "suggestion_score": other,
        "suggestions": [
            {"group": groups[name].key, "score": score, "reason": reason} for name, score, reason in suggestions
        ],
    }
