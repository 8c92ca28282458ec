"""Write and filter manifests of datasets: the library side of ``hgld manifest``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

    images: Number of images, by split.
    n_classes: Number of classes, by name of the level, finest first.
    excluded: Number of images of the dataset that are not in the manifest, by reason.
    other_files: Number of files among the images that are not images, by suffix.
    labels_per_image: Mean number of labels per image; None if every image has one label.
    broken_links: Number of links to missing images.
    case_variants: Class names of one level that differ by case alone, by name of the level, each
        as ``a / A``.
    untrained: Finest classes of the split test that the split train lacks; empty if it lacks all
        test classes, as in an open set.
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
        reader: Reader of its layout, such as
            :class:`hgld.datasets.readers.fine_grained.StanfordOnlineProducts`.
        root: Folder that contains its images; or a tar file, for readers of the user's own images.
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
    # Files are identified by their content, so paths are not settings.
    parameters = {"layout": type(reader).__name__}
    for name, value in vars(reader).items():
        if not isinstance(value, Path):
            parameters[name] = value
    inputs = {}
    digests = {}
    for role, path in reader.files(root).items():
        if path.is_dir() or is_tar(path):
            digests[role] = find_images_digest(path)
        elif path.exists():  # the reader reports missing files
            inputs[role] = path
    return MANIFEST_STAGE.run(
        {"out": out},
        lambda: _with_summary(reader.read(root)),
        inputs=inputs,
        digests=digests,
        parameters=parameters,
        force=force,
    )


def leave_out_images(
    path: Path, table: Path, out: Path, *, near_views: bool = False, force: bool = False
) -> ManifestSummary | None:
    """Write a manifest without some of its images.

    Args:
        path: Manifest.
        table: Table of images to leave out, see ``hgld manifest leave-out``.
        out: Table to write.
        near_views: Whether to leave out near views that are not kept, too.
        force: Run although the output is up to date.

    Returns:
        Counts of the manifest; None if ``out`` was made from the same files.

    Raises:
        InputError: A file is malformed, an id is not in the manifest, a value of ``leave_out`` or
            ``kept`` is neither true nor false, or no image would be left.
    """

    def compute() -> tuple[Sequence[Rows], ManifestSummary]:
        manifest = read_manifest(path)
        columns = _read_marks(table, near_views)
        unknown = sorted(set(columns["id"].to_pylist()).difference(manifest.ids))
        if unknown:
            raise InputError(f"{table}: {len(unknown):,} ids are not in {path}: {preview(unknown)}")
        excluded_ids = _marked_ids(table, columns, near_views)
        kept = np.flatnonzero([image not in excluded_ids for image in manifest.ids])
        if not len(kept):
            raise InputError(f"{table}: leaves no image of {path}")
        excluded = {f"named in {table.name}": len(excluded_ids)}
        return _with_summary(ReaderResult(manifest.take(kept), excluded))

    inputs = {"manifest": path, "leave_out": table}
    parameters = {"near_views": near_views}
    return LEAVE_OUT_STAGE.run(
        {"out": out}, compute, inputs=inputs, parameters=parameters, force=force
    )


def _read_marks(path: Path, near_views: bool) -> pa.Table:
    """Read the ids of a table of images, and its columns about leaving them out."""
    names = ["id"]
    if near_views:
        names += ["leave_out", "relation", "kept"]
        if not set(names[1:]) <= set(column_names(path)):
            raise InputError(f"{path}: near views need the columns leave_out, relation and kept")
    elif "leave_out" in column_names(path):
        names.append("leave_out")
    return read_text_columns(path, names)


def _marked_ids(path: Path, columns: pa.Table, near_views: bool) -> set[str]:
    """Return the ids of the images to leave out: all ids of a table without marks."""
    if "leave_out" in columns.column_names:
        is_marked = _flags(path, columns, "leave_out")
        if near_views:
            is_near_view = pc.equal(columns["relation"], "near view")
            is_kept = _flags(path, columns, "kept")
            is_marked = pc.or_(is_marked, pc.and_(is_near_view, pc.invert(is_kept)))
        columns = columns.filter(is_marked)
    return set(columns["id"].to_pylist())


def _flags(path: Path, columns: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of true and false as booleans."""
    texts = pc.utf8_lower(columns[name])
    wrong = set(texts.to_pylist()) - {"true", "false"}
    if wrong:
        raise InputError(f"{path}: {name} is {min(wrong)}; expected true or false")
    return pc.equal(texts, "true")


def _with_summary(result: ReaderResult) -> tuple[Sequence[Rows], ManifestSummary]:
    """Return the rows of a manifest and its counts."""
    manifest = result.manifest
    labels_per_image = None
    if manifest.label_sets is not None:
        labels_per_image = float(manifest.label_sets.counts().mean())
    summary = ManifestSummary(
        images={split: int((manifest.splits == split).sum()) for split in manifest.split_names},
        n_classes=dict(zip(manifest.level_names, manifest.n_classes, strict=True)),
        excluded={reason: count for reason, count in result.excluded.items() if count},
        other_files=result.other_files,
        labels_per_image=labels_per_image,
        broken_links=result.broken_links,
        case_variants=_case_variants(manifest),
        untrained=_untrained_classes(manifest),
    )
    return [manifest.to_batches()], summary


def _case_variants(manifest: Manifest) -> dict[str, list[str]]:
    """Return the class names of each level that differ by case alone."""
    variants = {}
    for level, names in zip(manifest.level_names, manifest.class_names, strict=True):
        spellings: dict[str, list[str]] = {}
        for name in names:
            spellings.setdefault(name.casefold(), []).append(name)
        several = [" / ".join(variants) for variants in spellings.values() if len(variants) > 1]
        if several:
            variants[level] = several
    return variants


def _untrained_classes(manifest: Manifest) -> Sequence[str]:
    """Return the finest classes that are tested but not trained; empty for an open set."""
    classes = manifest.label_column(manifest.level_names[0])
    if classes is None:
        return ()
    names = manifest.class_names[0]
    tested = np.unique(classes[manifest.splits == "test"])
    trained = np.unique(classes[manifest.splits == "train"])
    is_trained = np.isin(tested, trained)
    if not is_trained.any():
        return ()
    return [names[code] for code in tested[~is_trained]]
