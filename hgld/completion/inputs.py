"""Inputs of proposals: settings, files, and the photographs of landmarks with and without a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from hgld import tables
from hgld.arrays import Booleans, Integers
from hgld.completion.settings import MIN_LABELLED
from hgld.compute.parted import PartedTensor
from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import preview
from hgld.tables.embeddings import Embeddings, find_ids_file, read_embeddings
from hgld.tables.image_landmarks import images_of_landmarks, landmark_numbers, split_and_path

#: Vectors whose lengths are measured at once.
_BLOCK = 2**14


@dataclass(frozen=True)
class CompletionFiles:
    """Files that proposals are made from.

    Args:
        hierarchy: Table from ``hgld build``; landmarks labelled from photographs are not used.
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
        return {
            "hierarchy": self.hierarchy,
            "embeddings": self.embeddings,
            "embedding_ids": [
                ids for path in self.embeddings if (ids := find_ids_file(path)) is not None
            ],
            "images": [
                item[1] if isinstance(item, tuple) else item for item in self.image_landmarks
            ],
            "removed": self.removed,
            "clean": self.clean,
            "checkpoint": encoder_checkpoint,
        }

    def image_splits(self) -> list[str | None]:
        """Return the split of each file of images by what is given or by its name; None if neither tells."""
        names = (item[0] if isinstance(item, tuple) else item.name for item in self.image_landmarks)
        return [
            next((split for split in tables.SPLITS if name.startswith(split)), None)
            for name in names
        ]


def find_completion_files(
    hierarchy: Path,
    embeddings: Sequence[Path],
    image_landmarks: Sequence[Path | tuple[str, Path]],
    reasons: Sequence[str],
    *,
    removed: Path | None = None,
    clean: Path | None = None,
) -> CompletionFiles:
    """Return the files, with ``removed.parquet`` and ``clean.parquet`` beside the hierarchy where they are needed."""
    if not embeddings:
        raise ConfigurationError("`embeddings` is empty; hgld embed-images writes them")
    return CompletionFiles(
        hierarchy=hierarchy,
        embeddings=embeddings,
        image_landmarks=image_landmarks,
        removed=(removed or hierarchy.with_name("removed.parquet"))
        if {*reasons} - {"excluded"}
        else None,
        clean=(clean or hierarchy.with_name("clean.parquet")) if "excluded" in reasons else None,
    )


@dataclass(frozen=True, eq=False)
class Vectors:
    """N vectors of photographs or texts, which are read from their files when they are used.

    Args:
        embeddings: Float, shape (M, d); those of all files, one after another.
        row: int64, shape (N,); row of each vector in ``embeddings``.
        item: int64, shape (N,); number of the landmark of each photograph, or of each text.
    """

    embeddings: torch.Tensor
    row: Integers
    item: Integers

    def __len__(self) -> int:
        return len(self.row)

    def of_items(self, chosen: Booleans) -> Vectors:
        """Return the vectors of the items with True in ``chosen``, bool, shape (n_items,)."""
        kept = chosen[self.item]
        return Vectors(self.embeddings, self.row[kept], self.item[kept])

    def unit(self, block: slice) -> torch.Tensor:
        """Return some vectors in float32, scaled to length 1, shape (n, d)."""
        vectors = self.embeddings[torch.from_numpy(self.row[block])].float()
        vectors /= torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        return vectors

    def unusable(self) -> Integers:
        """Return the numbers of the vectors with NaN or infinite values, or with nothing but zeros."""
        blocks = (self.unit(slice(start, start + _BLOCK)) for start in range(0, len(self), _BLOCK))
        return np.flatnonzero(
            np.concatenate([~block.isfinite().all(dim=1).numpy() for block in blocks])
        )


@dataclass(frozen=True, eq=False)
class CompletionInputs:
    """Landmarks with their photographs.

    Args:
        landmarks: Columns split, landmark_id, category and reason, null for labelled landmarks, which come first.
        groups: int64, shape (n_labelled,); group of each labelled landmark.
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
        labelled = self.landmarks.slice(0, self.n_labelled)
        keys = zip(labelled["split"].to_pylist(), labelled["landmark_id"].to_pylist(), strict=True)
        return [f"{split}/{landmark_id}" for split, landmark_id in keys]

    def count_photographs(self, landmarks: Integers) -> int:
        """Return the number of photographs of landmarks by their numbers."""
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


def read_completion_inputs(files: CompletionFiles, reasons: Sequence[str]) -> CompletionInputs:
    """Read the labelled landmarks, those without a group and the photographs of both."""
    hierarchy = tables.without_completed(tables.read_table(files.hierarchy, tables.HIERARCHY))
    labelled = hierarchy.select(["split", "landmark_id", "category"])
    candidates = []
    if files.removed is not None:
        removed = tables.read_table(files.removed, tables.REMOVED)
        candidates.append(removed.filter(pc.is_in(removed["reason"], pa.array(reasons))))
    if files.clean is not None:
        clean = tables.read_table(files.clean, tables.CLEAN)
        candidates.append(
            clean.append_column("reason", pa.array(["excluded"] * len(clean), pa.string()))
        )
    columns = [*labelled.column_names, "reason"]
    plain = [part.select(columns).replace_schema_metadata() for part in candidates]
    missing = pa.concat_tables([part.cast(plain[0].schema) for part in plain])
    # A landmark that clean removed may be in the hierarchy, if that was built with several labels.
    keys = ["split", "landmark_id"]
    missing = missing.join(labelled.select(keys), keys, join_type="left anti")
    missing = missing.select(columns).sort_by([(key, "ascending") for key in keys])
    labelled = labelled.append_column(
        "reason", pa.nulls(len(labelled), pa.string())
    ).replace_schema_metadata()
    landmarks = pa.concat_tables([labelled, missing.cast(labelled.schema)])
    group, *above = tables.level_columns(hierarchy.column_names)
    levels = (hierarchy[name].to_pylist() for name in (group, above[-1] if above else group))
    names, roots = zip(*sorted(set(zip(*levels, strict=True))), strict=True)
    return CompletionInputs(
        landmarks=landmarks,
        group_names=names,
        roots=roots,
        groups=pc.index_in(hierarchy[group], value_set=pa.array(names)).to_numpy().astype(np.int64),
        labels=hierarchy["supercategory"].to_pylist(),
        photographs=read_photographs(files.embeddings, files.image_landmarks, landmarks),
    )


def read_photographs(
    embeddings: Sequence[Path],
    image_landmarks: Sequence[Path | tuple[str, Path]],
    landmarks: pa.Table,
) -> Vectors:
    """Read the photographs of some landmarks; those of others are ignored.

    Args:
        image_landmarks: Files with the landmark of each image, such as ``train.csv``, each with its split unless its
            name begins with one; if there are none, the embeddings must have landmark ids.
        landmarks: Columns split and landmark_id; the number of a landmark is its row.

    Raises:
        InputError: A file cannot be read, embeddings have no ids or no landmark ids, their dimensions differ, no
            landmark has a photograph, or a vector has no direction.
    """
    splits = tables.in_order(pc.unique(landmarks["split"]).to_pylist())
    files = [read_embeddings(path) for path in embeddings]
    if len({file.dim for file in files}) > 1:
        dims = ", ".join(f"{file.path}: {file.dim}" for file in files)
        raise InputError(
            f"embeddings differ in dimension ({dims}); embed all images with the same model"
        )
    landmark_of_image = None
    if image_landmarks:
        landmark_of_image = images_of_landmarks(
            (split_and_path(item, splits) for item in image_landmarks), landmarks
        )
    numbers = [
        _numbers_by_image(file, *landmark_of_image)
        if landmark_of_image
        else _numbers_by_id(file, landmarks, splits)
        for file in files
    ]
    rows = [np.flatnonzero(part >= 0) for part in numbers]
    starts = np.cumsum([0, *map(len, files[:-1])])
    photographs = Vectors(
        PartedTensor([file.vectors for file in files]),
        np.concatenate([start + chosen for start, chosen in zip(starts, rows, strict=True)]),
        np.concatenate([part[chosen] for part, chosen in zip(numbers, rows, strict=True)]),
    )
    _check(files, rows, photographs)
    return photographs


def _numbers_by_image(file: Embeddings, image_ids: pa.Array, numbers: Integers) -> Integers:
    """Return the number of the landmark of each embedding by the id of its image, -1 for none of the landmarks."""
    if file.ids is None:
        raise InputError(
            f"{file.path}: has no ids, by which `image_landmarks` names the landmark of each image; write them to "
            f"{file.path.stem}.ids.txt beside it, one per line"
        )
    position = pc.fill_null(pc.index_in(file.ids.to_arrow(), value_set=image_ids), -1).to_numpy()
    return np.where(position >= 0, numbers[position] if len(numbers) else -1, -1)


def _numbers_by_id(file: Embeddings, landmarks: pa.Table, splits: Sequence[str]) -> Integers:
    """Return the number of the landmark of each embedding by its landmark id, -1 for none of the landmarks."""
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


def _check(files: Sequence[Embeddings], rows: Sequence[Integers], photographs: Vectors) -> None:
    """Raise unless there are photographs, each with a direction; ``rows`` are their rows in each file."""
    paths = ", ".join(str(file.path) for file in files)
    if not len(photographs):
        raise InputError(
            f"{paths}: none of these images is of a landmark of the tables; check `image_landmarks` and its split"
        )
    unusable = photographs.unusable()
    if len(unusable):
        names = []
        for file, part in zip(files, rows, strict=True):
            names += [f"row {row}" for row in part] if file.ids is None else file.ids[part].tolist()
        raise InputError(
            f"{paths}: {len(unusable):,} embeddings have NaN or infinite values or only zeros: "
            f"{preview([names[number] for number in unusable])}; embed these images again or leave them out"
        )
