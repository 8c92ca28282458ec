"""Find labels that are probably wrong, of single images and of whole classes, and queue them for the review page.

The nearest images of an image vote on its finest label, as in :func:`hgld.hierarchy.vote`. At coarser levels, all
images of a class have the same label, right or wrong. Therefore only the nearest images of other classes vote there,
and the votes on the images of a class are averaged, which finds classes below the wrong group.

Labels are ranked by the normalised margin of confident learning (C. G. Northcutt, L. Jiang, I. L. Chuang, *Confident
Learning: Estimating Uncertainty in Dataset Labels*, JAIR 2021): the share of the votes for another label, minus that
for the given one. A high rank is no verdict. Photographs that do not show what they are named after look wrong, and
so do classes that look like others.

The queue is a pair of tables as :func:`hgld.labels.clean_file` and :func:`hgld.labels.cluster_file` write them, in
which a landmark that looks wrong takes the place of a label. So the review page, sheets and agreement serve it as
they serve labels, and their decisions are what ``hgld build --corrections`` reads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from hgld import tables
from hgld.arrays import Integers
from hgld.audit.nearest_images import centred, mean_direction, nearest_images, only_itself
from hgld.audit.settings import LabelErrorsConfig
from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.hierarchy.build_inputs import find_annotations, find_input_tables
from hgld.hierarchy.neighbour_vote import softmax_weights
from hgld.io.columns import preview
from hgld.ragged import RaggedIndices
from hgld.review.labels import landmark_link
from hgld.taxonomy.decisions import landmark_key
from hgld.taxonomy.groups import Group, find_taxonomy, read_taxonomy
from hgld.taxonomy.label_identity import label_id

#: Smallest share of random labels below a margin that the largest rate of errors may rest on.
MIN_RANDOM = 0.3

#: Number of random labels that are tried.
_N_RANDOM = 20_000


@dataclass(frozen=True, eq=False)
class LevelErrors:
    """Labels of a level that other images could confirm, the most contradicted first.

    Args:
        level: Column of the level, 0 for the finest.
        rows: int64, shape (n,), rows of images; at coarser levels one image of each class, the one with the smallest
            share of the votes for the label.
        labels: int64, shape (n,), their labels.
        others: int64, shape (n,), the other label with the largest share of the votes; -1 if there is none.
        own_shares: float64, shape (n,), share of the votes for the label; at coarser levels the mean over the class.
        other_shares: float64, shape (n,), share of the votes for the other label, likewise.
        neighbours: int64, shape (n, k), rows of the images that voted, nearest first; -1 where there are fewer.
        cosines: float32, shape (n, k), their cosines.
        random_margins: float64, shape (m,), margins that some of the images or classes would have with the label of
            another one drawn at random, increasing.
    """

    level: int
    rows: Integers
    labels: Integers
    others: Integers
    own_shares: NDArray[np.float64]
    other_shares: NDArray[np.float64]
    neighbours: Integers
    cosines: NDArray[np.float32]
    random_margins: NDArray[np.float64]

    @property
    def margins(self) -> NDArray[np.float64]:
        """Shares of the votes for the labels, minus those for the other ones: float64, shape (n,), increasing."""
        return self.own_shares - self.other_shares

    @property
    def n_contradicted(self) -> int:
        """Number of labels with a smaller share of the votes than another label."""
        return int((self.margins < 0).sum())

    def highest_error_rate(self, *, confidence: float = 0.95, n_resamples: int = 200) -> float:
        """Return an upper bound of the share of wrong labels; NaN at coarser levels, and if all labels are the same.

        Margins are a mixture of the margins of right labels, which nobody knows, and of wrong labels, taken to be as
        low as the margins of random labels. The share of wrong labels is therefore at most the share of all labels
        up to any margin, divided by the share of random labels up to it (G. Blanchard, G. Lee, C. Scott,
        *Semi-Supervised Novelty Detection*, JMLR 2010); the smallest of these ratios counts, where the divisor is at
        least :data:`MIN_RANDOM`. It varies with the images: a quantile over resamples of whole classes is returned.
        At coarser levels right labels often look as wrong as random labels, and the bound says nothing.

        Args:
            confidence: Probability with which the share of wrong labels is at most the returned one, between 0 and 1,
                if wrong labels look as wrong as random labels.
            n_resamples: Number of times that the finest classes are drawn with replacement.
        """
        if self.level > 0 or not len(self.random_margins):
            return nan
        random = np.searchsorted(self.random_margins, self.margins, side="right") / len(
            self.random_margins
        )
        # Equal margins are next to each other: the last of them has the count of all.
        usable = (random >= MIN_RANDOM) & np.append(np.diff(self.margins) > 0, True)
        classes, numbers = np.unique(self.labels, return_inverse=True)
        rng = np.random.default_rng(0)
        rates = []
        for _ in range(n_resamples):
            drawn = np.bincount(
                rng.integers(len(classes), size=len(classes)), minlength=len(classes)
            )
            weights = drawn[numbers]
            ratios = weights.cumsum()[usable] / weights.sum() / random[usable]
            rates.append(float(ratios.min(initial=1.0)))
        return float(np.quantile(rates, confidence))


def find_label_errors(
    manifest: Manifest, embeddings: torch.Tensor, config: LabelErrorsConfig | None = None
) -> list[LevelErrors]:
    """Rank the labels of each level by how much the nearest images contradict them.

    Args:
        manifest: N images with one label each at every level.
        embeddings: float, shape (N, d), of any model that was not trained on these labels; their mean is subtracted.
        config: Settings.

    Returns:
        Images by their finest label, then classes of the finest level by their label at each coarser one.

    Raises:
        InputError: Images have several labels, or there are no two images of a class.
    """
    config, labels = config or LabelErrorsConfig(), manifest.labels
    members = _members(manifest)
    if max(map(len, members)) < 2:
        raise InputError(
            "no class has two images, of which one could confirm the label of the other"
        )
    vectors = centred(embeddings, mean_direction(embeddings))

    def class_members(images: Integers) -> RaggedIndices:
        return RaggedIndices.from_lists([members[number] for number in labels[images, 0]])

    found = []
    for level in range(labels.shape[1]):
        if level == 0:
            judged = [*np.arange(len(labels))[:, None]]
            cosines, neighbours = nearest_images(vectors, config.neighbours, only_itself)
        else:
            judged = members
            if level == 1:  # the same images vote at all levels above the finest
                cosines, neighbours = nearest_images(vectors, config.neighbours, class_members)
        # A label of a single image, or of a single class, cannot be confirmed.
        n_with_label = np.bincount([labels[group[0], level] for group in judged])
        judged = [group for group in judged if n_with_label[labels[group[0], level]] > 1]
        found.append(
            _ranked(level, judged, labels[:, level], neighbours, cosines, config.temperature)
        )
    return found


def _members(manifest: Manifest) -> list[Integers]:
    """Return the rows of the images of each class of the finest level, ascending."""
    classes = manifest.labels[:, 0]
    ends = np.bincount(classes, minlength=manifest.n_classes[0]).cumsum()
    return np.split(np.argsort(classes, kind="stable"), ends[:-1])


def _ranked(
    level: int,
    judged: list[Integers],
    labels: Integers,
    neighbours: Integers,
    cosines: NDArray[np.float32],
    temperature: float,
) -> LevelErrors:
    """Rank groups of images that have one label each: single images, or all of a class."""
    voted = np.where(neighbours < 0, -1, labels[neighbours])
    weights = softmax_weights(cosines, neighbours >= 0, temperature)
    own_shares = (weights * (voted == labels[:, None])).sum(axis=1)
    shares_of_voted = np.stack(
        [(weights * (voted == column[:, None])).sum(axis=1) for column in voted.T], axis=1
    )

    def mean_shares(groups: list[Integers], group_labels: list[int]) -> NDArray[np.void]:
        labelled = zip(groups, group_labels, strict=True)
        values = [
            _mean_shares(voted[rows], shares_of_voted[rows], label) for rows, label in labelled
        ]
        return np.array(values, _SHARES)

    given = [int(labels[rows[0]]) for rows in judged]
    shares = mean_shares(judged, given)
    order = np.argsort(shares["own"] - shares["other"], kind="stable")
    shares = shares[order]
    shown = np.array([rows[own_shares[rows].argmin()] for rows in judged], np.int64)[order]
    drawn = (
        np.random.default_rng(0).integers(len(judged), size=(_N_RANDOM, 2))
        if judged
        else np.empty((0, 2), int)
    )
    pairs = [(group, other) for group, other in drawn.tolist() if given[group] != given[other]]
    random = mean_shares(
        [judged[group] for group, _ in pairs], [given[other] for _, other in pairs]
    )
    return LevelErrors(
        level=level,
        rows=shown,
        labels=labels[shown],
        others=shares["other_label"],
        own_shares=shares["own"],
        other_shares=shares["other"],
        neighbours=neighbours[shown],
        cosines=cosines[shown],
        random_margins=np.sort(random["own"] - random["other"]),
    )


#: Values of :func:`_mean_shares`.
_SHARES = [("own", np.float64), ("other_label", np.int64), ("other", np.float64)]


def _mean_shares(
    voted: Integers, shares: NDArray[np.float64], label: int
) -> tuple[float, int, float]:
    """Return the mean share of a label over images, and the other label with the largest mean share, with it."""
    totals: dict[int, float] = {}
    for row_labels, row_shares in zip(voted.tolist(), shares.tolist(), strict=True):
        for other, share in dict(zip(row_labels, row_shares, strict=True)).items():
            totals[other] = totals.get(other, 0.0) + share
    own = totals.pop(label, 0.0) / len(voted)
    other = max(totals, key=lambda each: (totals[each], -each), default=-1)
    return own, other, totals.get(other, 0.0) / len(voted)


def label_errors_table(manifest: Manifest, found: list[LevelErrors]) -> pa.Table:
    """Return the contradicted labels of all levels: level, image, class, label, other label, shares of the votes."""
    levels = []
    for errors in found:
        n, names = errors.n_contradicted, np.array(manifest.class_names[errors.level])
        finest = np.array(manifest.class_names[0])[manifest.labels[errors.rows[:n], 0]]
        levels.append(
            pa.table(
                {
                    "level": pa.repeat(manifest.level_names[errors.level], n),
                    "id": manifest.ids[errors.rows[:n]].to_arrow(),
                    "class": finest,
                    "label": names[errors.labels[:n]],
                    "other_label": names[errors.others[:n]],
                    "share": errors.own_shares[:n],
                    "other_share": errors.other_shares[:n],
                }
            )
        )
    return pa.concat_tables(levels)


#: Number of labels and landmarks in a cluster of the queue.
BATCH = 25

_Row = dict[str, Any]
#: Errors of a level, and the place of a label or landmark among them.
_Evidence = tuple[LevelErrors, int]


def write_review_queue(
    manifest: Manifest,
    found: list[LevelErrors],
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
        manifest: N images whose finest level are the landmarks of the hierarchy, and the next one their groups.
        found: Result of :func:`~hgld.audit.find_label_errors` for the manifest.
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
    landmarks, names = _landmarks_of(manifest, hierarchy, built, clean), manifest.class_names[1]
    if unknown := {*names}.difference(groups):
        raise InputError(
            f"{hierarchy}: the taxonomy it was built with has no group {preview(sorted(unknown))}"
        )
    labels = _contradicted_labels(manifest, landmarks, embeddings, config)
    contradicted = labels | _contradicted_landmarks(manifest, landmarks, found[1], labels)
    queued = [row for row in landmarks if row["unit"] in contradicted]
    cleaned, clusters = (
        [_clean_row(row) for row in queued],
        _cluster_rows(queued, contradicted, names, groups),
    )
    parameters, inputs = (
        vars(config or LabelErrorsConfig()),
        tables.input_digests(hierarchy=hierarchy),
    )
    made_of = tables.Provenance("audit labels", parameters, inputs)
    neutral = tables.is_neutral(hierarchy)
    out.mkdir(parents=True, exist_ok=True)
    for spec, rows in ((tables.CLEAN, cleaned), (tables.CLUSTERS, clusters)):
        table = pa.Table.from_pylist(rows, spec.schema)
        tables.write_table(out / f"{spec.name}.parquet", spec, table, made_of, neutral=neutral)
    return len(labels), len(contradicted) - len(labels)


def _contradicted_labels(
    manifest: Manifest,
    landmarks: list[_Row],
    embeddings: torch.Tensor,
    config: LabelErrorsConfig | None,
) -> dict[str, _Evidence]:
    """Return the labels of several landmarks whose group is contradicted, by their ids."""
    n_landmarks = Counter(row["unit"] for row in landmarks)
    if max(n_landmarks.values()) < 2:
        return {}
    by_label = _by_label(manifest, landmarks)
    errors = find_label_errors(by_label, embeddings, config)[1]
    units = [
        by_label.class_names[0][by_label.labels[row, 0]]
        for row in errors.rows[: errors.n_contradicted]
    ]
    return {unit: (errors, place) for place, unit in enumerate(units) if n_landmarks[unit] > 1}


def _contradicted_landmarks(
    manifest: Manifest, landmarks: list[_Row], errors: LevelErrors, labels: Container[str]
) -> dict[str, _Evidence]:
    """Return the contradicted landmarks of other labels, by their keys, which replace the label ids in their rows."""
    contradicted = {}
    for place in range(errors.n_contradicted):
        landmark = landmarks[manifest.labels[errors.rows[place], 0]]
        if landmark["unit"] not in labels:
            landmark |= {
                "unit": landmark_key(landmark["split"], landmark["landmark_id"]),
                "single": True,
            }
            contradicted[landmark["unit"]] = errors, place
    return contradicted


def _cluster_rows(
    queued: list[_Row],
    contradicted: dict[str, _Evidence],
    names: tuple[str, ...],
    groups: dict[str, Group],
) -> list[_Row]:
    """Return the rows of ``clusters``, in batches, the most contradicted labels and landmarks first."""
    members: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in queued:
        members[row["unit"]].append(row)
    queue = sorted(contradicted.items(), key=lambda item: item[1][0].margins[item[1][1]])
    rows = []
    for start in range(0, len(queue), BATCH):
        batch = queue[start : start + BATCH]
        cluster = {
            "cluster": start // BATCH,
            "cluster_name": f"{start + 1} to {start + len(batch)}",
        }
        rows += [
            cluster | _cluster_row(members[unit], *evidence, names, groups)
            for unit, evidence in batch
        ]
    return rows


def _read_sources(hierarchy: Path) -> tuple[list[_Row], dict[str, Group]]:
    """Return the rows of the clean table, and the groups by name, that a hierarchy was made from."""
    clean = find_input_tables(hierarchy).clean
    if clean is None:
        raise InputError(f"{hierarchy.parent}: has no clean table that {hierarchy} was made from")
    taxonomy = find_taxonomy(find_annotations(hierarchy).get("taxonomy"), hierarchy)
    return tables.read_table(clean, tables.CLEAN).to_pylist(), {
        group.name: group for group in read_taxonomy(taxonomy)
    }


def _landmarks_of(
    manifest: Manifest, hierarchy: Path, built: pa.Table, clean: list[_Row]
) -> list[_Row]:
    """Return a row for each landmark of a manifest, in the order of its classes.

    A row has the columns of ``clean`` and ``unit``: the id of the label, or that of the landmark if its group is not
    that of its label, such as after an earlier correction.
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
        raise InputError(
            f"{hierarchy}: has no split with the landmarks of the manifest in the same groups"
        )
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


def _by_label(manifest: Manifest, landmarks: list[_Row]) -> Manifest:
    """Return a manifest with labels, named by their ids, in place of its landmarks."""
    units, codes = np.unique([row["unit"] for row in landmarks], return_inverse=True)
    labels = manifest.labels.copy()
    labels[:, 0] = codes[labels[:, 0]]
    return replace(
        manifest, labelling=labels, class_names=(tuple(units.tolist()), *manifest.class_names[1:])
    )


def _clean_row(landmark: _Row) -> _Row:
    if not landmark["single"]:
        return landmark
    name, _ = landmark_link(landmark["landmark_id"], landmark["category"])
    return {
        **landmark,
        "supercategory": f"{name} ({landmark['supercategory']})",
        "class_item": landmark["unit"],
    }


def _cluster_row(
    members: list[_Row],
    errors: LevelErrors,
    place: int,
    names: tuple[str, ...],
    groups: dict[str, Group],
) -> _Row:
    """Return a row of ``clusters``; the group that most votes are for is suggested first, then the present one."""
    present = names[errors.labels[place]]
    voted = (
        "its photographs"
        if members[0]["single"]
        else f"photographs of its {len(members)} landmarks"
    )
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
            {"group": groups[name].key, "score": score, "reason": reason}
            for name, score, reason in suggestions
        ],
    }
