"""Pages of an audit: copies side by side, and labels that the nearest images contradict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hgld.arrays import Floats32, Integers
from hgld.audit.duplicates import Duplicates
from hgld.audit.label_errors import LevelErrors
from hgld.audit.settings import COPY, NEAR_VIEW
from hgld.datasets.manifest import Manifest
from hgld.errors import counted
from hgld.evaluation.retrieval_task import label_judgements
from hgld.figures.style import level_styles
from hgld.hierarchy.label_sets import take_images
from hgld.inspection.photos import ManifestImages, Photo, PhotoSource, manifest_photo
from hgld.inspection.queries import TopK
from hgld.inspection.query_pages import PageQuery, PageRanking, write_photo_page

#: Largest number of labels shown of each level.
_MAX_LABELS = 100
#: Largest number of images shown beside each label.
_MAX_NEIGHBOURS = 6
#: Headings of groups of copies.
_SPLITS = "across splits"
_LABELS = "across labels"
_OTHERS = "within a label and a split"
_COPIES = (
    "Copies are versions of one photograph; near views show one scene at nearly the same time. The image on the left "
    "is kept. Each image on the right was compared with it, and shows the level that they share and the share of the "
    "details in which they agree. The split is named after the labels."
)
_CONTRADICTED = (
    "On the left is an image, with the share of the votes of its nearest images for its label, and the label that "
    "most others are for. At coarser levels it stands for all images of its class, on which images of other classes "
    "vote, on average. Looking wrong is not being wrong: decide by the photographs."
)


def write_duplicates_page(found: Duplicates, out: Path, root: Path, *, limit: int = 100) -> None:
    """Write a page of groups of copies and of near views: across splits, across labels, and others.

    Args:
        found: Copies and near views.
        out: File of the page.
        root: Folder of the images.
        limit: Largest number of groups in a section; the groups that agree most are shown.
    """
    manifest = found.manifest
    sections: dict[str, list[PageQuery]] = {}
    for relation, name in ((COPY, "Copies"), (NEAR_VIEW, "Near views")):
        queries: dict[str, list[PageQuery]] = {_SPLITS: [], _LABELS: [], _OTHERS: []}
        for group in sorted(found.of(relation), key=lambda group: -group.agreements.max()):
            if found.is_across_splits(group):
                heading = _SPLITS
            elif found.is_across_labels(group):
                heading = _LABELS
            else:
                heading = _OTHERS
            if len(queries[heading]) < limit:
                queries[heading].append(
                    _query(manifest, group.kept, group.others, group.agreements)
                )
        for heading, groups in queries.items():
            if groups:
                sections[f"{name} {heading}"] = groups
    n_copies = len(found.of(COPY))
    n_near_views = len(found.of(NEAR_VIEW))
    write_photo_page(
        out,
        sections or {"": []},
        _photos(manifest, root),
        title="Copies and near views",
        about=f"{counted(n_copies, 'group')} of copies and {n_near_views:,} of near views among {len(manifest):,} "
        f"images; at most {limit} of each kind are shown.",
        levels=level_styles(len(manifest.level_names), manifest.level_names),
        explanation=_COPIES,
    )


def write_label_errors_page(
    manifest: Manifest, found: Sequence[LevelErrors], out: Path, root: Path
) -> None:
    """Write a page of the most contradicted labels of each level, with the nearest images that voted."""
    sections = {}
    for errors in found:
        names = manifest.class_names[errors.level]
        queries = []
        for number in range(min(errors.n_contradicted, _MAX_LABELS)):
            row = int(errors.rows[number])
            label = f"{names[errors.labels[number]]} {errors.own_shares[number]:.2f}"
            other_label = f"{names[errors.others[number]]} {errors.other_shares[number]:.2f}"
            note = f"{label}, but {other_label}"
            if errors.level > 0:
                class_name = manifest.class_names[0][manifest.labels[row, 0]]
                note = f"All of {class_name}: {note}"
            neighbours = errors.neighbours[number, :_MAX_NEIGHBOURS]
            cosines = errors.cosines[number, :_MAX_NEIGHBOURS]
            query = _query(manifest, row, neighbours[neighbours >= 0], cosines)
            queries.append(replace(query, note=note))
        heading = manifest.level_names[errors.level].replace("_", " ").capitalize()
        sections[heading] = queries
    write_photo_page(
        out,
        sections,
        _photos(manifest, root),
        title="Labels that the nearest images contradict",
        about=f"At most {_MAX_LABELS} labels of each level are shown, the most contradicted first.",
        levels=level_styles(len(manifest.level_names), manifest.level_names),
        explanation=_CONTRADICTED,
    )


def _photos(manifest: Manifest, root: Path) -> PhotoSource:
    """Return the photographs of images, described by their labels and their split."""

    def photo(row: int) -> Photo:
        described = manifest_photo(manifest, row)
        return Photo(described.id, (*described.names, manifest.splits[row]))

    return PhotoSource(photo, photo, ManifestImages(manifest, root))


def _query(manifest: Manifest, row: int, others: Integers, scores: Floats32) -> PageQuery:
    """Return an image with others beside it, and the levels that they share with it."""
    labels = take_images(manifest.labelling, np.array([row]))
    labels_of_others = take_images(manifest.labelling, others)
    judgements = label_judgements(labels, labels_of_others)["judgements"]
    levels: torch.Tensor = judgements.levels(slice(0, 1), slice(0, len(others)))
    top_k = TopK(scores[None], others[None], levels.numpy().astype(np.int64))
    return PageQuery(row, (), [PageRanking(top_k, 0, ())])
