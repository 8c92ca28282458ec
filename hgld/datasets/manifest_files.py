"""``hgld manifest``: write the manifest of a dataset, in its published layout or one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgld.datasets.image_folders import find_images_digest, is_tar
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.readers.base import Reader, ReaderResult
from hgld.errors import InputError
from hgld.io.columns import column_names, preview, read_text_columns
from hgld.stage import Stage
from hgld.tables import MANIFEST, Rows

MANIFEST_STAGE = Stage("manifest", (MANIFEST,))
LEAVE_OUT_STAGE = Stage("manifest leave-out", (MANIFEST,), inputs={"manifest": MANIFEST})


@dataclass(frozen=True)
class ManifestSummary:
    """Counts of a manifest.

    Args:
        images: Number of images, by split.
        n_classes: Number of classes, by name of the level, finest first.
        excluded: Number of images of the dataset that are not in the manifest, by reason.
        other_files: Number of files among the images that are none, by suffix.
        labels_per_image: Mean number of labels per image; None where each has one.
        broken_links: Number of links to images that are not there.
        case_variants: Class names of one level that differ by case alone, by name of the level, each as ``a / A``.
        untrained: Finest classes of the split test that the split train lacks, unless it lacks all of them, as in
            an open set.
    """

    images: Mapping[str, int]
    n_classes: Mapping[str, int]
    excluded: Mapping[str, int]
    other_files: Mapping[str, int]
    labels_per_image: float | None = None
    broken_links: int = 0
    case_variants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    untrained: Sequence[str] = ()


def make_manifest(
    reader: Reader, root: Path, out: Path, *, force: bool = False
) -> ManifestSummary | None:
    """Write the manifest of a dataset.

    Args:
        reader: Reader of its layout, such as :class:`hgld.datasets.readers.fine_grained.StanfordOnlineProducts`.
        root: Folder that contains its images; or a tar file, for readers of one's own images.
        out: Table to write.
        force: Run although the output is up to date.

    Returns:
        Counts of the manifest; None if ``out`` was made from the same files with the same settings.

    Raises:
        InputError: The folder or a file is missing, or a file is malformed.
        ConfigurationError: ``out`` is one of the files that are read.
    """
    if not (root.is_dir() or is_tar(root)):
        found = "a file, not a folder" if root.exists() else "no such folder"
        raise InputError(
            f"{root}: {found}; name the folder that holds the dataset's files, or a tar file (.tar)"
        )
    # Files are identified by their content, so paths are not settings. The reader reports missing files.
    settings = {name: value for name, value in vars(reader).items() if not isinstance(value, Path)}
    files = {role: path for role, path in reader.files(root).items() if path.exists()}
    folders = {role: path for role, path in files.items() if path.is_dir() or is_tar(path)}
    return MANIFEST_STAGE.run(
        {"out": out},
        lambda: _with_summary(reader.read(root)),
        inputs={role: path for role, path in files.items() if role not in folders},
        digests={role: find_images_digest(path) for role, path in folders.items()},
        parameters={"layout": type(reader).__name__, **settings},
        force=force,
    )


def leave_out_images(
    path: Path, table: Path, out: Path, *, near_views: bool = False, force: bool = False
) -> ManifestSummary | None:
    """Write a manifest without some of its images.

    ``hgld manifest leave-out`` describes the parameters.

    Returns:
        Counts of the manifest; None if ``out`` was made from the same files.

    Raises:
        InputError: A file is malformed, an id is not in the manifest, a value of ``leave_out`` or ``kept`` is
            neither true nor false, or no image would be left.
    """

    def compute() -> tuple[Sequence[Rows], ManifestSummary]:
        manifest = read_manifest(path)
        wanted = ("leave_out", "relation", "kept") if near_views else ("leave_out",)
        names = [name for name in wanted if name in column_names(table)]
        if near_views and len(names) < len(wanted):
            raise InputError(f"{table}: near views need the columns leave_out, relation and kept")
        columns = read_text_columns(table, ["id", *names])
        if unknown := sorted({*columns["id"].to_pylist()}.difference(manifest.ids)):
            raise InputError(f"{table}: {len(unknown):,} ids are not in {path}: {preview(unknown)}")
        if "leave_out" in names:
            marked = _flags(table, columns, "leave_out")
            if near_views:
                is_near_view = pc.equal(columns["relation"], "near view")
                marked = pc.or_(
                    marked, pc.and_(is_near_view, pc.invert(_flags(table, columns, "kept")))
                )
            columns = columns.filter(marked)
        left_out = {*columns["id"].to_pylist()}
        kept = np.flatnonzero([image not in left_out for image in manifest.ids])
        if not len(kept):
            raise InputError(f"{table}: leaves no image of {path}")
        return _with_summary(
            ReaderResult(manifest.take(kept), {f"named in {table.name}": len(left_out)})
        )

    inputs = {"manifest": path, "leave_out": table}
    parameters = {"near_views": near_views}
    return LEAVE_OUT_STAGE.run(
        {"out": out}, compute, inputs=inputs, parameters=parameters, force=force
    )


def _flags(path: Path, columns: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of true and false as booleans."""
    texts = pc.utf8_lower(columns[name])
    if wrong := {*texts.to_pylist()} - {"true", "false"}:
        raise InputError(f"{path}: {name} is {min(wrong)}; expected true or false")
    return pc.equal(texts, "true")


def _with_summary(result: ReaderResult) -> tuple[Sequence[Rows], ManifestSummary]:
    return [result.manifest.to_batches()], _summary(result)


def _summary(result: ReaderResult) -> ManifestSummary:
    manifest = result.manifest
    images = {split: int((manifest.splits == split).sum()) for split in manifest.split_names}
    n_classes = dict(zip(manifest.level_names, manifest.n_classes, strict=True))
    excluded = {reason: count for reason, count in result.excluded.items() if count}
    labels_per_image = (
        None if manifest.label_sets is None else float(manifest.label_sets.counts().mean())
    )
    return ManifestSummary(
        images,
        n_classes,
        excluded,
        result.other_files,
        labels_per_image,
        result.broken_links,
        _case_variants(manifest),
        _untrained_classes(manifest),
    )


def _case_variants(manifest: Manifest) -> dict[str, list[str]]:
    """Return the class names of each level that differ by case alone."""
    variants = {}
    for level, names in zip(manifest.level_names, manifest.class_names, strict=True):
        spellings: dict[str, list[str]] = {}
        for name in names:
            spellings.setdefault(name.casefold(), []).append(name)
        several = [" / ".join(same) for same in spellings.values() if len(same) > 1]
        if several:
            variants[level] = several
    return variants


def _untrained_classes(manifest: Manifest) -> Sequence[str]:
    classes = manifest.label_column(manifest.level_names[0])
    if classes is None:
        return ()
    tested, trained = np.zeros((2, len(manifest.class_names[0])), np.bool_)
    tested[classes[manifest.splits == "test"]] = True
    trained[classes[manifest.splits == "train"]] = True
    return (
        [*compress(manifest.class_names[0], tested & ~trained)] if (tested & trained).any() else ()
    )
