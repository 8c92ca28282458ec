"""Manifests of datasets from the paths and labels of their images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from hgld.datasets.image_folders import FoundImages
from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.tables import MANIFEST


def image_file_manifest(
    root: Path,
    paths: Sequence[str],
    splits: Sequence[str],
    levels: Mapping[str, Sequence[str]],
    *,
    ids: Sequence[str] | None = None,
) -> Manifest:
    """Create the manifest of image files.

    Args:
        root: Folder of the dataset, for messages.
        paths: Path of each image, relative to the folder.
        splits: Split of each image.
        levels: Label of each image, by level, finest first.
        ids: Id of each image. Default: its path.

    Raises:
        InputError: See :meth:`Manifest.from_arrow`.
    """
    nones = [None] * len(paths)
    return _manifest(
        root, {"id": ids or paths, "path": paths, "offset": nones, "size": nones, "split": splits}, levels
    )


def found_image_manifest(
    source: Path,
    ids: Sequence[str],
    images: FoundImages,
    rows: Sequence[int],
    splits: Sequence[str],
    levels: Mapping[str, Sequence[str] | pa.ChunkedArray],
) -> Manifest:
    """Create the manifest of images that were found in a folder or in tar files.

    Args:
        source: File or folder that the labels are from, for messages.
        ids: Id of each of the n images.
        images: All images that were found.
        rows: Position of each of the n images among them.
        splits: Split of each image.
        levels: Label of each image, by level, finest first: texts, or an Arrow column of texts or of lists of texts.

    Raises:
        InputError: See :meth:`Manifest.from_arrow`.
    """
    places = {"path": images.files, "offset": images.offsets, "size": images.sizes}
    columns = {name: [values[row] for row in rows] for name, values in places.items()}
    return _manifest(source, {"id": ids, **columns, "split": splits}, levels)


def _manifest(
    source: Path,
    columns: Mapping[str, Sequence[str | int | None]],
    levels: Mapping[str, Sequence[str] | pa.ChunkedArray],
) -> Manifest:
    fixed = {field.name: pa.array(columns[field.name], field.type) for field in MANIFEST.schema}
    for name, labels in levels.items():
        fixed[name] = labels if isinstance(labels, pa.ChunkedArray) else pa.array(labels, pa.string())
    table = pa.table(fixed)
    try:
        return Manifest.from_arrow(table, describe_row=lambda row: f"image {row + 1}")
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def disambiguate(levels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Append the parent to every name that has several parents, so that levels are nested.

    Genera of animals and of plants may have the same name, as may categories of clothes for women and for men.

    Args:
        levels: Label of each image, by level, finest first.

    >>> disambiguate({"genus": ["Oenanthe", "Oenanthe", "Pinus"], "kingdom": ["Animalia", "Plantae", "Plantae"]})
    {'genus': ['Oenanthe (Animalia)', 'Oenanthe (Plantae)', 'Pinus'], 'kingdom': ['Animalia', 'Plantae', 'Plantae']}
    """
    unique: dict[str, list[str]] = {}
    parents: list[str] | None = None
    for level, names in reversed(list(levels.items())):
        if parents is not None:
            n_parents = Counter(name for name, _ in set(zip(names, parents, strict=True)))
            names = [
                f"{name} ({parent})" if n_parents[name] > 1 else name
                for name, parent in zip(names, parents, strict=True)
            ]
        unique[level] = parents = list(names)
    return dict(reversed(list(unique.items())))
