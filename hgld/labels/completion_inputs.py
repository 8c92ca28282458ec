"""What proposals of groups are made from: labelled landmarks, those without a group, and photographs of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.labels.photographs import Photographs, read_photographs
from hgld.tables.embeddings import find_ids_file

#: Fewest labelled landmarks that proposals are evaluated and calibrated on.
MIN_LABELLED = 20


@dataclass(frozen=True)
class CompletionFiles:
    """Files that proposals are made from.

    Args:
        hierarchy: Table from ``hgld build``; landmarks labelled from photographs are not used.
        embeddings: Embeddings of photographs.
        images: Files with the landmark of each photograph; see :func:`~hgld.labels.photographs.read_photographs`.
        removed: Landmarks that ``hgld clean`` removed; None if not needed.
        clean: Table from ``hgld clean``; None if not needed.
    """

    hierarchy: Path
    embeddings: Sequence[Path]
    images: Sequence[Path | tuple[str, Path]]
    removed: Path | None
    clean: Path | None

    def digests(self, encoder_checkpoint: Path | None = None) -> dict[str, str]:
        """Return the SHA-256 of all files by their role."""
        return tables.input_digests(
            hierarchy=self.hierarchy,
            embeddings=list(self.embeddings),
            embedding_ids=[ids for path in self.embeddings if (ids := find_ids_file(path)) is not None],
            images=[item[1] if isinstance(item, tuple) else item for item in self.images],
            removed=self.removed,
            clean=self.clean,
            checkpoint=encoder_checkpoint,
        )

    def image_splits(self) -> list[str | None]:
        """Return the split of each file of images by what is given or by its name; None if neither tells."""
        names = (item[0] if isinstance(item, tuple) else item.name for item in self.images)
        return [next((split for split in tables.SPLITS if name.startswith(split)), None) for name in names]


def find_completion_files(
    hierarchy: Path,
    embeddings: Sequence[Path],
    images: Sequence[Path | tuple[str, Path]],
    reasons: Sequence[str],
    *,
    removed: Path | None = None,
    clean: Path | None = None,
) -> CompletionFiles:
    """Return the files, with ``removed.parquet`` and ``clean.parquet`` beside the hierarchy where they are needed.

    Raises:
        InputError: A file does not exist.
        ConfigurationError: There are no embeddings.
    """
    if not embeddings:
        raise ConfigurationError("`embeddings` is empty; hgld embed-images writes them")
    files = CompletionFiles(
        hierarchy=hierarchy,
        embeddings=embeddings,
        images=images,
        removed=(removed or hierarchy.with_name("removed.parquet")) if {*reasons} - {"excluded"} else None,
        clean=(clean or hierarchy.with_name("clean.parquet")) if "excluded" in reasons else None,
    )
    paths = [hierarchy, *embeddings, files.removed, files.clean]
    for path in (*paths, *(item[1] if isinstance(item, tuple) else item for item in images)):
        if path is not None and not path.is_file():
            raise InputError(f"{path}: no such file")
    return files


@dataclass(frozen=True, eq=False)
class CompletionInputs:
    """Landmarks with their photographs.

    Args:
        landmarks: Columns split, landmark_id, category and reason, null for labelled landmarks, which come first.
        group_names: Names of the groups.
        roots: Root of each group.
        groups: int64, shape (n_labelled,); group of each labelled landmark.
        labels: Label (super-category) of each labelled landmark.
        photographs: Photographs of all of them.
    """

    landmarks: pa.Table
    group_names: Sequence[str]
    roots: Sequence[str]
    groups: NDArray[np.int64]
    labels: Sequence[str]
    photographs: Photographs

    @property
    def n_labelled(self) -> int:
        """Number of labelled landmarks."""
        return len(self.groups)

    def names(self) -> list[str]:
        """Return the name of each labelled landmark, such as ``train/161``."""
        labelled = self.landmarks.slice(0, self.n_labelled)
        keys = zip(labelled["split"].to_pylist(), labelled["landmark_id"].to_pylist(), strict=True)
        return [f"{split}/{landmark_id}" for split, landmark_id in keys]

    def count_photographs(self, landmarks: NDArray[np.int64]) -> int:
        """Return the number of photographs of landmarks by their numbers."""
        return int(np.isin(self.photographs.landmark, landmarks).sum())

    def labelled_with_photographs(self) -> NDArray[np.int64]:
        """Return the numbers of the labelled landmarks with photographs, ascending.

        Raises:
            InputError: They are too few to calibrate scores.
        """
        numbers = np.unique(self.photographs.landmark[self.photographs.landmark < self.n_labelled])
        if len(numbers) < MIN_LABELLED:
            raise InputError(
                f"{len(numbers)} labelled landmarks have photographs; expected {MIN_LABELLED} or more, by which "
                "proposals are calibrated"
            )
        return numbers


def read_completion_inputs(files: CompletionFiles, reasons: Sequence[str]) -> CompletionInputs:
    """Read the labelled landmarks, those without a group and the photographs of both.

    Args:
        files: Files to read.
        reasons: Reasons why landmarks have no group; those of other reasons are not read.

    Raises:
        InputError: A file is invalid; see also :func:`~hgld.labels.photographs.read_photographs`.
        ConfigurationError: The split of images is unknown.
    """
    hierarchy = tables.read_table(files.hierarchy, tables.HIERARCHY)
    if "label_source" in hierarchy.column_names:
        hierarchy = hierarchy.filter(pc.equal(hierarchy["label_source"], "instance_of"))
    labelled = hierarchy.select(["split", "landmark_id", "category"])
    candidates = []
    if files.removed is not None:
        removed = tables.read_table(files.removed, tables.REMOVED)
        candidates.append(removed.filter(pc.is_in(removed["reason"], pa.array(reasons))))
    if files.clean is not None:
        clean = tables.read_table(files.clean, tables.CLEAN)
        candidates.append(clean.append_column("reason", pa.array(["excluded"] * len(clean), pa.string())))
    columns = [*labelled.column_names, "reason"]
    plain = [part.select(columns).replace_schema_metadata() for part in candidates]
    missing = pa.concat_tables([part.cast(plain[0].schema) for part in plain])
    # A landmark that clean removed may be in the hierarchy, if that was built with several labels.
    keys = ["split", "landmark_id"]
    missing = missing.join(labelled.select(keys), keys, join_type="left anti")
    missing = missing.select(columns).sort_by([(key, "ascending") for key in keys])
    labelled = labelled.append_column("reason", pa.nulls(len(labelled), pa.string())).replace_schema_metadata()
    landmarks = pa.concat_tables([labelled, missing.cast(labelled.schema)])
    levels = (hierarchy[name].to_pylist() for name in ("hierarchical_label", "natural_or_human_made"))
    names, roots = zip(*sorted(set(zip(*levels, strict=True))), strict=True)
    return CompletionInputs(
        landmarks=landmarks,
        group_names=names,
        roots=roots,
        groups=pc.index_in(hierarchy["hierarchical_label"], value_set=pa.array(names)).to_numpy().astype(np.int64),
        labels=hierarchy["supercategory"].to_pylist(),
        photographs=read_photographs(files.embeddings, files.images, landmarks),
    )
