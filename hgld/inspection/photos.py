"""Captions and photographs of images in pages and pictures: ids, names of levels, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hgld.datasets.manifest import Manifest
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.inspection.thumbnails import FindImage
from hgld.wikimedia.titles import CATEGORY_PREFIX, title_of_url


@dataclass(frozen=True)
class Photo:
    """Description of an image.

    Args:
        id: Id by which the photograph is found.
        names: Names of what the image shows, finest first, such as the landmark and its group.
        link: Source of the photograph; pages ignore links that are not http or https.
        has_labels: Whether its labels are known; without them, it shares no level with anything.
    """

    id: str
    names: tuple[str, ...] = ()
    link: str | None = None
    has_labels: bool = True


@dataclass(frozen=True)
class PhotoSource:
    """Descriptions and photographs of the images of a retrieval task.

    Args:
        query: Return the description of the query at a position.
        gallery: Return the description of the gallery item at a position.
        image: Return the photograph of an id, or None where it is not available.
        query_image: The same for queries whose ids are not those of the gallery. Default: ``image``.
    """

    query: Callable[[int], Photo]
    gallery: Callable[[int], Photo]
    image: FindImage
    query_image: FindImage | None = None


def manifest_photo(manifest: Manifest, row: int, titles: Mapping[str, str] | None = None) -> Photo:
    """Return the description of an image in a manifest.

    Args:
        manifest: The manifest.
        row: Row of the image.
        titles: Titles of classes of the finest level, by class name. Classes without a title whose name is only a
            number are shown with their level, e.g. "landmark 17". Several labels are separated by semicolons.
    """
    labels = manifest.labels_of(row).reshape(-1, len(manifest.level_names))
    names = []
    for column, level in enumerate(manifest.level_names):
        classes = [
            manifest.class_names[column][code] for code in dict.fromkeys(labels[:, column].tolist()) if code >= 0
        ]
        texts = [f"{level.replace('_', ' ')} {name}" if name.isdecimal() else name for name in classes]
        if titles is not None and column == 0:
            texts = [titles.get(name, text) for name, text in zip(classes, texts, strict=True)]
        names.append("; ".join(texts))
    return Photo(manifest.ids[row], tuple(names))


def landmark_names(hierarchy: Hierarchy, labels: LabelMatrix) -> tuple[str, str]:
    """Return the names of a landmark (the title of its category where known) and of its group.

    Args:
        hierarchy: Hierarchy of the landmark.
        labels: int64, shape (L,); row of the landmark in :meth:`Hierarchy.labels_of`.
    """
    row, group = labels[:2].tolist()
    if hierarchy.categories is None:
        landmark = f"landmark {hierarchy.landmark_ids[row]}"
    else:
        try:
            landmark = title_of_url(hierarchy.categories[row]).removeprefix(CATEGORY_PREFIX)
        except ValueError:  # not the URL of a category
            landmark = hierarchy.categories[row]
    return landmark, hierarchy.nodes[0][group]


def label_name(
    names: Sequence[Mapping[int, str]],
    level_names: Sequence[str],
    column: int,
    value: int,
    hierarchy: Hierarchy | None = None,
) -> str:
    """Return the name of a label; a number gets the name of its level in front.

    Args:
        names: Names of the labels at each level, where a file states them as texts; otherwise empty.
        level_names: Names of the levels, finest first.
        column: Column of the label.
        value: The label.
        hierarchy: Hierarchy of the landmarks, where there are no names.
    """
    if names:
        name = names[column].get(value, str(value))
    elif hierarchy is None:
        name = str(value)
    elif column:
        return hierarchy.nodes[column - 1][value]
    else:
        return landmark_names(hierarchy, hierarchy.labels[value])[0]
    return f"{level_names[column].replace('_', ' ')} {name}" if name.isdecimal() else name


def landmark_names_of(hierarchy: Hierarchy, labels: Labelling, position: int) -> tuple[str, ...]:
    """Return the names of the landmark of an image and of its group, or of its groups between semicolons.

    Args:
        hierarchy: Hierarchy of the landmarks.
        labels: Labels of images.
        position: Position of the image.
    """
    own = labels.of(position) if isinstance(labels, LabelSets) else labels[[position]]
    columns = zip(*(landmark_names(hierarchy, row) for row in own), strict=True)
    return tuple("; ".join(dict.fromkeys(names)) for names in columns)


def landmark_titles(hierarchy: Hierarchy, landmarks: Sequence[str]) -> dict[str, str]:
    """Return the titles of landmarks by their ids as text; landmarks that the hierarchy lacks are omitted."""
    ids = np.array([int(landmark) for landmark in landmarks if landmark.isdecimal()], np.int64)
    ids = ids[hierarchy.contains(ids)]
    return {
        str(landmark): landmark_names(hierarchy, labels)[0]
        for landmark, labels in zip(ids.tolist(), hierarchy.labels_of(ids), strict=True)
    }
