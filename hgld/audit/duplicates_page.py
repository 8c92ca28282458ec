"""A page of the copies that were found, side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.audit.duplicates import Duplicates, thumbnail_correlations
from hgld.errors import counted
from hgld.evaluation.retrieval_task import label_judgements
from hgld.figures.style import level_styles
from hgld.hierarchy.label_sets import take_images
from hgld.inspection.photos import Photo, PhotoSource, images_of_manifest, manifest_photo
from hgld.inspection.queries import TopK
from hgld.inspection.query_pages import PageQuery, PageRanking, write_photo_page

_SPLITS, _LABELS, _OTHERS = "Across splits", "Across labels", "Within a label and a split"
_EXPLANATION = (
    "The first image of each group is on the left, its copies are on the right, with the level that they share with "
    "it and the correlation of their details. The split is named after the labels."
)


def write_duplicates_page(found: Duplicates, out: Path, root: Path, *, limit: int = 100) -> None:
    """Write a page of groups of copies: across splits, across labels, and others, the most alike first.

    Args:
        found: The copies.
        out: HTML file to write.
        root: Folder that the paths of the manifest are relative to.
        limit: Largest number of groups in each section.
    """
    manifest = found.manifest
    order = np.argsort(-found.correlations, kind="stable")
    group_of_pair = found.groups[found.pairs[:, 0]]
    across_splits = set(group_of_pair[found.across_splits].tolist())
    across_labels = set(group_of_pair[found.across_labels].tolist())
    sections: dict[str, list[PageQuery]] = {_SPLITS: [], _LABELS: [], _OTHERS: []}
    for group in dict.fromkeys(group_of_pair[order].tolist()):
        heading = _SPLITS if group in across_splits else _LABELS if group in across_labels else _OTHERS
        if len(sections[heading]) < limit:
            sections[heading].append(_query(found, np.flatnonzero(found.groups == group)))

    def photo(row: int) -> Photo:
        described = manifest_photo(manifest, row)
        return Photo(described.id, (*described.names, manifest.splits[row]))

    n_groups = int(found.groups.max(initial=-1)) + 1
    write_photo_page(
        out,
        {heading: queries for heading, queries in sections.items() if queries} or {"": []},
        PhotoSource(photo, photo, images_of_manifest(manifest, root)),
        title="Copies",
        about=f"{counted(n_groups, 'group')} among {len(manifest):,} images; at most {limit} of each kind are shown.",
        levels=level_styles(found.n_levels, manifest.level_names),
        explanation=_EXPLANATION,
    )


def _query(found: Duplicates, rows: NDArray[np.int64]) -> PageQuery:
    first, copies = rows[0], rows[1:]
    pairs = np.stack([np.full(len(copies), first), copies], axis=1)
    labels = found.manifest.labelling
    judgements = label_judgements(take_images(labels, rows[:1]), take_images(labels, copies))["judgements"]
    levels: torch.Tensor = judgements.levels(slice(0, 1), slice(0, len(copies)))
    scores = thumbnail_correlations(found.thumbnails, pairs)
    ranking = PageRanking(TopK(scores[None], copies[None], levels.numpy().astype(np.int64)), 0, ())
    return PageQuery(int(first), (), [ranking])
