"""Inputs of proposals: files, landmarks with and without a group, and their photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from hgld import tables
from hgld.arrays import Booleans, Integers
from hgld.completion.settings import MIN_LABELLED, CompleteConfig
from hgld.compute.parted import PartedTensor
from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import preview
from hgld.tables.embeddings import Embeddings, find_ids_file, read_embeddings
from hgld.tables.image_landmarks import images_of_landmarks, landmark_numbers, split_and_path

#: Number of vectors checked at once.
_BLOCK = 2**14


@dataclass(frozen=True)
class CompletionFiles:
    """Input files of proposals.

    Args:
        hierarchy: Table from ``hgld build``; landmarks labelled from photographs are not used.
        embeddings: Embeddings of photographs.
        image_landmarks: Files with the landmark of each image, or pairs of a split and a file.
        removed: Table of removed landmarks; None if not needed.
        clean: Table from ``hgld clean``; None if not needed.
    """

    hierarchy: Path
    embeddings: Sequence[Path]
    image_landmarks: Sequence[Path | tuple[str, Path]]
    removed: Path | None
    clean: Path | None

    def by_role(
        self, encoder_checkpoint: Path | None = None
    ) -> dict[str, Path | Sequence[Path] | None]:
        """Return all files by their role."""
        ids_files = []
        for path in self.embeddings:
            ids_file = find_ids_file(path)
            if ids_file is not None:
                ids_files.append(ids_file)
        image_files = []
        for item in self.image_landmarks:
            image_files.append(item[1] if isinstance(item, tuple) else item)
        return {
            "hierarchy": self.hierarchy,
            "embeddings": self.embeddings,
            "embedding_ids": ids_files,
            "images": image_files,
            "removed": self.removed,
            "clean": self.clean,
            "checkpoint": encoder_checkpoint,
        }

    def image_splits(self) -> list[str | None]:
        """Return each image file's split from the argument or its name; None if unknown."""
        splits: list[str | None] = []
        for item in self.image_landmarks:
            name = item[0] if isinstance(item, tuple) else item.name
            matches = [split for split in tables.SPLITS if name.startswith(split)]
            splits.append(matches[0] if matches else None)
        return splits


def find_completion_files(
    hierarchy: Path,
    embeddings: Sequence[Path],
    image_landmarks: Sequence[Path | tuple[str, Path]],
    reasons: Sequence[str],
    *,
    removed: Path | None = None,
    clean: Path | None = None,
) -> CompletionFiles:
    """Return the input files; required tables default to files beside the hierarchy.

    Args:
        hierarchy: Table from ``hgld build``.
        embeddings: Embeddings of photographs.
        image_landmarks: Files with the landmark of each image, or pairs of a split and a file.
        reasons: Reasons why landmarks have no group, see :class:`CompleteConfig`.
        removed: Table of removed landmarks. Default: ``removed.parquet`` beside the hierarchy.
        clean: Table from ``hgld clean``. Default: ``clean.parquet`` beside the hierarchy.
    """
    if not embeddings:
        raise ConfigurationError("`embeddings` is empty; hgld embed-images writes them")
    needs_clean = "excluded" in reasons
    needs_removed = any(reason != "excluded" for reason in reasons)
    removed = removed or hierarchy.with_name("removed.parquet")
    clean = clean or hierarchy.with_name("clean.parquet")
    return CompletionFiles(
        hierarchy=hierarchy,
        embeddings=embeddings,
        image_landmarks=image_landmarks,
        removed=removed if needs_removed else None,
        clean=clean if needs_clean else None,
    )


@dataclass(frozen=True, eq=False)
class Vectors:
    """N vectors of photographs or texts, which are read from their files on use.

    Args:
        embeddings: Float, shape (M, d); embeddings of all files, one after another.
        row: int64, shape (N,); row of each vector in ``embeddings``.
        item: int64, shape (N,); item of each vector: the number of a landmark or text.
    """

    embeddings: Tensor
    row: Integers
    item: Integers

    def __len__(self) -> int:
        return len(self.row)

    def of_items(self, item_mask: Booleans) -> Vectors:
        """Return the vectors of the items in a mask: bool, shape (n_items,)."""
        is_kept = item_mask[self.item]
        return Vectors(self.embeddings, self.row[is_kept], self.item[is_kept])

    def unit(self, block: slice) -> Tensor:
        """Return a block of vectors in float32, scaled to length 1, shape (n, d)."""
        vectors = self.embeddings[torch.from_numpy(self.row[block])].float()
        vectors /= torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        return vectors

    def unusable(self) -> Integers:
        """Return the numbers of the vectors with NaN or infinite values, or with zeros only."""
        is_usable = []
        for start in range(0, len(self), _BLOCK):
            block = self.unit(slice(start, start + _BLOCK))
            is_usable.append(block.isfinite().all(dim=1).numpy())
        return np.flatnonzero(~np.concatenate(is_usable))


@dataclass(frozen=True, eq=False)
class CompletionInputs:
    """Landmarks with their photographs.

    Args:
        landmarks: Columns split, landmark_id, category and reason: labelled landmarks, whose reason
            is null, then landmarks without a group. The number of a landmark is its row.
        group_names: Names of the groups.
        roots: Root of each group.
        groups: int64, shape (n_labelled,); group of each labelled landmark.
        labels: Label of each labelled landmark.
        photographs: Photographs of the landmarks.
    """

    landmarks: pa.Table
    group_names: Sequence[str]
    roots: Sequence[str]
    groups: Integers
    labels: Sequence[str]
    photographs: Vectors

    @property
    def n_labelled(self) -> int:
        """Number of labelled landmarks."""
        return len(self.groups)

    def names(self) -> list[str]:
        """Return the name of each labelled landmark, such as ``train/161``."""
        labelled = self.landmarks.slice(0, self.n_labelled).select(["split", "landmark_id"])
        return [f"{row['split']}/{row['landmark_id']}" for row in labelled.to_pylist()]

    def count_photographs(self, landmarks: Integers) -> int:
        """Return the total number of photographs of landmarks, given by their numbers."""
        return int(np.isin(self.photographs.item, landmarks).sum())

    def labelled_with_photographs(self) -> Integers:
        """Return the numbers of the labelled landmarks with photographs, ascending."""
        numbers = np.unique(self.photographs.item[self.photographs.item < self.n_labelled])
        if len(numbers) < MIN_LABELLED:
            raise InputError(
                f"{len(numbers)} labelled landmarks have photographs; expected {MIN_LABELLED} or more, by which "
                "proposals are calibrated"
            )
        return numbers


def calibration_sample(labelled: Integers, config: CompleteConfig) -> Integers:
    """Return at most ``calibration_landmarks`` of the labelled landmarks, chosen at random."""
    n_landmarks = config.calibration_landmarks
    if len(labelled) <= n_landmarks:
        return labelled
    return np.random.default_rng(config.seed).choice(labelled, n_landmarks, replace=False)


def read_completion_inputs(files: CompletionFiles, reasons: Sequence[str]) -> CompletionInputs:
    """Read the labelled landmarks, the landmarks without a group, and the photographs of both."""
    hierarchy = tables.without_completed(tables.read_table(files.hierarchy, tables.HIERARCHY))
    labelled = hierarchy.select(["split", "landmark_id", "category"]).replace_schema_metadata()
    labelled = labelled.append_column("reason", pa.nulls(len(labelled), pa.string()))
    unlabelled = _read_unlabelled(files, reasons, labelled)
    landmarks = pa.concat_tables([labelled, unlabelled])
    levels = tables.level_columns(hierarchy.column_names)
    groups = hierarchy[levels[0]]
    root_of_group = dict(zip(groups.to_pylist(), hierarchy[levels[-1]].to_pylist(), strict=True))
    group_names = sorted(root_of_group)
    codes = pc.index_in(groups, value_set=pa.array(group_names)).to_numpy()
    return CompletionInputs(
        landmarks=landmarks,
        group_names=group_names,
        roots=[root_of_group[name] for name in group_names],
        groups=codes.astype(np.int64),
        labels=hierarchy["supercategory"].to_pylist(),
        photographs=read_photographs(files.embeddings, files.image_landmarks, landmarks),
    )


def _read_unlabelled(
    files: CompletionFiles, reasons: Sequence[str], labelled: pa.Table
) -> pa.Table:
    """Return the landmarks without a group, sorted by key, with the columns of ``labelled``."""
    parts = []
    if files.removed is not None:
        removed = tables.read_table(files.removed, tables.REMOVED)
        parts.append(removed.filter(pc.is_in(removed["reason"], pa.array(reasons))))
    if files.clean is not None:
        clean = tables.read_table(files.clean, tables.CLEAN)
        parts.append(
            clean.append_column("reason", pa.array(["excluded"] * len(clean), pa.string()))
        )
    columns = labelled.column_names
    candidates = []
    for part in parts:
        candidates.append(part.select(columns).replace_schema_metadata().cast(labelled.schema))
    # A landmark that clean removed may be in a hierarchy with several labels per landmark.
    keys = ["split", "landmark_id"]
    unlabelled = pa.concat_tables(candidates).join(
        labelled.select(keys), keys, join_type="left anti"
    )
    unlabelled = unlabelled.select(columns).sort_by([(key, "ascending") for key in keys])
    return unlabelled.cast(labelled.schema)


def read_photographs(
    embeddings: Sequence[Path],
    image_landmarks: Sequence[Path | tuple[str, Path]],
    landmarks: pa.Table,
) -> Vectors:
    """Read the photographs of the given landmarks; photographs of other landmarks are ignored.

    Args:
        embeddings: Files of embeddings.
        image_landmarks: Files with the landmark of each image, such as ``train.csv``, each with its
            split unless its name begins with a split. Without files, the embeddings must have
            landmark ids.
        landmarks: Columns split and landmark_id; the number of a landmark is its row.

    Raises:
        InputError: A file cannot be read, embeddings have no ids or no landmark ids, their
            dimensions differ, no landmark has a photograph, or a vector has no direction.
    """
    splits = tables.in_order(pc.unique(landmarks["split"]).to_pylist())
    files = [read_embeddings(path) for path in embeddings]
    if len({file.dim for file in files}) > 1:
        dims = ", ".join(f"{file.path}: {file.dim}" for file in files)
        raise InputError(
            f"embeddings differ in dimension ({dims}); embed all images with the same model"
        )
    if image_landmarks:
        lists = [split_and_path(item, splits) for item in image_landmarks]
        image_ids, numbers = images_of_landmarks(lists, landmarks)
    landmark_by_row = []
    for file in files:
        if image_landmarks:
            landmark_by_row.append(_landmarks_by_image(file, image_ids, numbers))
        else:
            landmark_by_row.append(_landmarks_by_id(file, landmarks, splits))
    items = np.concatenate(landmark_by_row)
    rows = np.flatnonzero(items >= 0)
    photographs = Vectors(PartedTensor([file.vectors for file in files]), rows, items[rows])
    _check_photographs(files, photographs)
    return photographs


def _landmarks_by_image(file: Embeddings, image_ids: pa.Array, numbers: Integers) -> Integers:
    """Return the landmark number of each embedding by the id of its image, -1 if unknown."""
    if file.ids is None:
        raise InputError(
            f"{file.path}: has no ids, by which `image_landmarks` names the landmark of each image; write them to "
            f"{file.path.stem}.ids.txt beside it, one per line"
        )
    positions = pc.fill_null(pc.index_in(file.ids.to_arrow(), value_set=image_ids), -1).to_numpy()
    numbers_or_missing = np.append(numbers, -1)  # position -1 is the appended -1
    landmarks: Integers = numbers_or_missing[positions]
    return landmarks


def _landmarks_by_id(file: Embeddings, landmarks: pa.Table, splits: Sequence[str]) -> Integers:
    """Return the landmark number of each embedding by its landmark id, -1 if unknown."""
    if file.landmark_ids is None:
        raise InputError(
            f"{file.path}: has no landmark ids; name the landmark of each image in `image_landmarks`"
        )
    if len(splits) > 1:
        raise ConfigurationError(
            f"{file.path}: landmark ids without a split, but there are landmarks of {' and '.join(splits)}; name the "
            "landmark of each image in `image_landmarks`"
        )
    return landmark_numbers(landmarks, splits[0], file.landmark_ids)


def _check_photographs(files: Sequence[Embeddings], photographs: Vectors) -> None:
    """Raise an :class:`InputError` without photographs, or for vectors without a direction."""
    paths = ", ".join(str(file.path) for file in files)
    if not len(photographs):
        raise InputError(
            f"{paths}: none of these images is of a landmark of the tables; check `image_landmarks` and its split"
        )
    unusable = photographs.unusable()
    if len(unusable):
        names = []
        for file in files:
            if file.ids is None:
                names += [f"row {row}" for row in range(len(file))]
            else:
                names += file.ids.tolist()
        unusable_names = [names[row] for row in photographs.row[unusable]]
        raise InputError(
            f"{paths}: {len(unusable):,} embeddings have NaN or infinite values or only zeros: "
            f"{preview(unusable_names)}; embed these images again or exclude them"
        )
