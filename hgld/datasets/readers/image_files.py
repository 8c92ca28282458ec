"""Manifests of datasets whose images are plain files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.tables import MANIFEST


def image_file_manifest(
    root: Path, paths: Sequence[str], splits: Sequence[str], levels: Mapping[str, Sequence[str]]
) -> Manifest:
    """Create the manifest of image files; the path of each is its id.

    Args:
        root: Folder of the dataset, for messages.
        paths: Path of each image, relative to the folder.
        splits: Split of each image.
        levels: Label of each image, by level, finest first.

    Raises:
        InputError: See :meth:`Manifest.from_arrow`.
    """
    texts = {"id": paths, "path": paths, "split": splits, **levels}
    columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    nulls = pa.nulls(len(paths), pa.int64())
    table = pa.table(columns | {"offset": nulls, "size": nulls}).select([*MANIFEST.schema.names, *levels])
    try:
        return Manifest.from_arrow(table, describe_row=lambda row: f"image {row + 1}")
    except InputError as error:
        raise InputError(f"{root}: {error}") from error


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
