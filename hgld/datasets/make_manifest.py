"""``hgld manifest``: the manifest of a data set in the layout in which it is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.manifest import Manifest, write_manifest
from hgld.datasets.readers.text_lists import Reader
from hgld.errors import InputError
from hgld.io.files import sha256_of
from hgld.tables import Provenance, is_up_to_date


@dataclass(frozen=True)
class ManifestSummary:
    """What a manifest holds.

    Args:
        images: how many, by split.
        n_classes: by the name of the level, finest first.
        left_out: how many images are not in it, by the reason.
    """

    images: Mapping[str, int]
    n_classes: Mapping[str, int]
    left_out: Mapping[str, int]

    @classmethod
    def of(cls, manifest: Manifest, left_out: Mapping[str, int]) -> ManifestSummary:
        """Count."""
        splits = {split: int((manifest.splits == split).sum()) for split in manifest.split_names}
        return cls(splits, dict(zip(manifest.level_names, manifest.n_classes, strict=True)), left_out)

    def __str__(self) -> str:
        splits = ", ".join(f"{count:,} {split}" for split, count in self.images.items())
        levels = ", ".join(f"{count:,} {name}" for name, count in self.n_classes.items())
        lost = "".join(f"\nleft out: {count:,} images {reason}" for reason, count in self.left_out.items())
        n_images, n_levels = sum(self.images.values()), len(self.n_classes)
        return f"{n_images:,} images ({splits}) with labels at {n_levels} levels ({levels}){lost}"


def make_manifest(reader: Reader, root: Path, out: Path, *, force: bool = False) -> ManifestSummary | None:
    """Write the manifest of a data set.

    Args:
        reader: of its layout, such as :class:`hgld.datasets.readers.products.StanfordOnlineProducts`.
        root: the folder that its images are below.
        out: the table.
        force: write it although it is up to date.

    Returns:
        What it holds; None if ``out`` was made from the same files with the same settings.

    Raises:
        InputError: the folder or a file is missing, or a file is not what it should be.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; name the one that holds the data set's files")
    # Files are told by what is in them, so their paths do not count; one that is missing is the reader's to tell.
    settings = {name: value for name, value in vars(reader).items() if not isinstance(value, Path)}
    digests = {part: sha256_of(path) for part, path in reader.files(root).items() if path.is_file()}
    provenance = Provenance("manifest", {"layout": type(reader).__name__, **settings}, digests)
    if not force and is_up_to_date(out, provenance):
        return None
    reading = reader.read(root)
    write_manifest(out, reading.manifest, provenance)
    return ManifestSummary.of(reading.manifest, reading.left_out)
