"""The files of ``hgld embed-images``: embeddings, the skipped images, and a record of what they are made from.

Beside the embeddings, ``{stem}.skipped.csv`` lists the images that could not be read, and ``{stem}.made.json`` holds
the provenance and where images and model were, with the size and modification time of the embeddings that it
describes. ``hgld search`` finds the model and the photographs by it. Standard deviations of feature maps, if they
were asked for, are in a file of their own; see :mod:`hgld.tables.embeddings`.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.datasets.manifest import Manifest, StringArray
from hgld.errors import InputError, indented_list
from hgld.io.files import atomic_write, sha256_of
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.embedding_shards import EmbeddingShard
from hgld.models.image_embedder import ModelSource
from hgld.tables import Provenance
from hgld.tables.embeddings import deviations_path, remove_deviations, write_embeddings


@dataclass(frozen=True)
class EmbeddingSources:
    """Where the images and the model of embeddings were when they were embedded.

    Args:
        images: Absolute path of the manifest, table or folder of the images.
        root: Absolute path of the folder that paths in it are relative to.
        model: Where the model was loaded from; None if it was built in memory.
    """

    images: Path
    root: Path
    model: ModelSource | None = None


@dataclass(frozen=True)
class EmbeddingRecord:
    """What embeddings are made from.

    Args:
        provenance: Settings, and digests of inputs.
        sources: Where images and model were.
        mean: The mean that was subtracted from the embeddings, d numbers; None if none was.
    """

    provenance: Provenance
    sources: EmbeddingSources
    mean: tuple[float, ...] | None = None


def read_embedding_record(path: Path) -> EmbeddingRecord | None:
    """Return what embeddings are made from; None if hgld did not write them, or their record is not beside them.

    Args:
        path: File of the embeddings.
    """
    try:
        record = json.loads(_record_path(path).read_text())
        if record["embeddings"][0] != path.stat().st_size:
            return None
        sources, mean = record["sources"], record["mean"]
        return EmbeddingRecord(
            Provenance(**record["provenance"]),
            EmbeddingSources(
                Path(sources["images"]),
                Path(sources["root"]),
                None if sources["model"] is None else ModelSource(**sources["model"]),
            ),
            None if mean is None else tuple(mean),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def skipped_path(out: Path) -> Path:
    """Return the path of the list of skipped images beside an output."""
    return out.with_suffix(".skipped.csv")


def write_output(
    out: Path,
    embeddings: EmbeddingShard,
    ids: StringArray,
    landmark_ids: NDArray[np.int64] | None,
    record: EmbeddingRecord,
) -> None:
    """Write embeddings with their ids, deviations if there are any, the list of skipped images, and their record.

    Args:
        out: File of the embeddings.
        embeddings: Embeddings of all readable images. Without deviations, those of an earlier run are removed.
        ids: The id of each image of the manifest.
        landmark_ids: int64, shape (N,): the landmark of each image of the manifest, if known.
        record: What the embeddings are made from.

    Raises:
        InputError: No image could be read.
    """
    if not len(embeddings.rows):
        reasons = [image.reason for image in embeddings.skipped]
        raise InputError(f"none of the {len(ids):,} images can be read:\n{indented_list(reasons, limit=5)}")
    rows = embeddings.rows.numpy()
    _record_path(out).unlink(missing_ok=True)  # it describes the file that is now replaced
    with atomic_write(skipped_path(out)) as draft, draft.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "reason"])
        for image in embeddings.skipped:
            writer.writerow([ids[image.row], image.reason.removeprefix(f"{ids[image.row]}: ")])
    write_embeddings(
        out, embeddings.vectors, ids[rows].tolist(), None if landmark_ids is None else landmark_ids[rows]
    )
    deviations = deviations_path(out)
    remove_deviations(out)
    if embeddings.deviations is not None:
        write_embeddings(deviations, embeddings.deviations, ids[rows].tolist())
    content = {
        **asdict(record),
        "embeddings": _size_and_time(out),
        "deviations": None if embeddings.deviations is None else _size_and_time(deviations),
    }
    with atomic_write(_record_path(out)) as draft:
        draft.write_text(json.dumps(content, indent=1, default=str) + "\n")


def output_is_up_to_date(out: Path, provenance: Provenance) -> bool:
    """Return whether the output is complete and made from the same settings and inputs."""
    try:
        record = json.loads(_record_path(out).read_text())
        recorded = Provenance(**record["provenance"])
        recorded_files = {out: record["embeddings"]}
        if record["deviations"] is not None:
            recorded_files[deviations_path(out)] = record["deviations"]
        unchanged = recorded.same_work(provenance) and all(
            _size_and_time(path) == size_and_time for path, size_and_time in recorded_files.items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
    has_ids = out.suffix == ".parquet" or all(path.with_suffix(".ids.txt").is_file() for path in recorded_files)
    return unchanged and has_ids and skipped_path(out).is_file()


def images_digest(images: Path, manifest: Manifest, root: Path) -> str:
    """Return the SHA-256 of the table of images; of a folder, that of its paths, sizes and modification times."""
    if images.is_file():
        return sha256_of(images)
    return _digest(f"{path} {_size_and_time(root / path)}\n".encode() for path in manifest.paths)


def weights_digest(model: EmbeddingModel) -> str:
    """Return the SHA-256 of the names and values of a model's weights and buffers."""
    return _digest(part for name, value in model.state_dict().items() for part in (name.encode(), _bytes(value)))


def _record_path(out: Path) -> Path:
    return out.with_suffix(".made.json")


def _size_and_time(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().contiguous().numpy().tobytes()


def _digest(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
