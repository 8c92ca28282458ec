"""``hgld manifest``: write the manifest of a dataset in its published layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.manifest import write_manifest
from hgld.datasets.readers.base import Reader, ReaderResult
from hgld.errors import InputError
from hgld.io.files import sha256_of
from hgld.tables import Provenance, is_up_to_date


@dataclass(frozen=True)
class ManifestSummary:
    """Counts of a manifest.

    Args:
        images: Number of images, by split.
        n_classes: Number of classes, by name of the level, finest first.
        excluded: Number of images of the dataset that are not in the manifest, by reason.
    """

    images: Mapping[str, int]
    n_classes: Mapping[str, int]
    excluded: Mapping[str, int]


def make_manifest(reader: Reader, root: Path, out: Path, *, force: bool = False) -> ManifestSummary | None:
    """Write the manifest of a dataset.

    Args:
        reader: Reader of its layout, such as :class:`hgld.datasets.readers.sop.StanfordOnlineProducts`.
        root: Folder that contains its images.
        out: Table to write.
        force: Whether to write the table although it is up to date.

    Returns:
        Counts of the manifest; None if ``out`` was made from the same files with the same settings.

    Raises:
        InputError: The folder or a file is missing, or a file is malformed.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; name the one that holds the dataset's files")
    # Files are identified by their content, so paths are no settings. The reader reports missing files.
    settings = {name: value for name, value in vars(reader).items() if not isinstance(value, Path)}
    digests = {role: sha256_of(path) for role, path in reader.files(root).items() if path.is_file()}
    provenance = Provenance("manifest", {"layout": type(reader).__name__, **settings}, digests)
    if not force and is_up_to_date(out, provenance):
        return None
    result = reader.read(root)
    write_manifest(out, result.manifest, provenance)
    return _summary(result)


def _summary(result: ReaderResult) -> ManifestSummary:
    manifest = result.manifest
    images = {split: int((manifest.splits == split).sum()) for split in manifest.split_names}
    return ManifestSummary(images, dict(zip(manifest.level_names, manifest.n_classes, strict=True)), result.excluded)
