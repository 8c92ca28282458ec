"""The files of ``hgld embed-images``: embeddings, the skipped images, and a record of what they are made from.

Beside the embeddings, ``{stem}.skipped.csv`` lists the images that could not be read, and ``{stem}.made.json`` holds
the provenance and where images and model were, with the size and modification time of the embeddings that it
describes. ``hgld search`` finds the model and the photographs by it. Standard deviations of feature maps, if they
were asked for, are in a file of their own; see :mod:`hgld.tables.embeddings`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgld.compute.scoring import Distance
from hgld.datasets.manifest import Manifest
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.files import atomic_write, sha256_of, write_csv
from hgld.models.model_settings import ModelSource
from hgld.tables import Provenance
from hgld.tables.embeddings import path_beside, remove_deviations, write_embeddings

if TYPE_CHECKING:  # an evaluation reads what is recorded beside embeddings, and needs no models
    from hgld.models.embedding_model import EmbeddingModel
    from hgld.models.image_embedder import EmbeddingShard


@dataclass(frozen=True)
class EmbeddingSources:
    """Where the images and the model of embeddings were when they were embedded."""

    images: Path
    root: Path
    model: ModelSource | None = None


@dataclass(frozen=True)
class EmbeddingRecord:
    """What embeddings are made from.

    Args:
        mean: The mean that was subtracted from the embeddings, d numbers; None if none was.
        embeddings: Size in bytes and modification time in nanoseconds of the embeddings.
        deviations: The same of the standard deviations; None if there are none.
    """

    provenance: Provenance
    sources: EmbeddingSources
    mean: tuple[float, ...] | None
    embeddings: tuple[int, int]
    deviations: tuple[int, int] | None

    @property
    def distance(self) -> Distance:
        """Distance that the embeddings are made for."""
        return self.provenance.parameters["model"].get("distance", "cosine")  # type: ignore[no-any-return]


def read_embedding_record(path: Path) -> EmbeddingRecord | None:
    """Return what embeddings are made from; None if hgld did not write them, or their record is not beside them."""
    try:
        values = json.loads(_record_path(path).read_text())
        images, root, model = (values["sources"][name] for name in ("images", "root", "model"))
        mean, deviations = values["mean"], values["deviations"]
        record = EmbeddingRecord(
            Provenance(**values["provenance"]),
            EmbeddingSources(Path(images), Path(root), None if model is None else ModelSource(**model)),
            None if mean is None else tuple(mean),
            tuple(values["embeddings"]),
            None if deviations is None else tuple(deviations),
        )
        return record if record.embeddings[0] == path.stat().st_size else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def recorded_distance(path: Path | None) -> Distance:
    """Return the distance that a file of embeddings is made for; ``cosine`` if it is not recorded."""
    record = None if path is None else read_embedding_record(path)
    return "cosine" if record is None else record.distance


def output_is_up_to_date(out: Path, provenance: Provenance) -> bool:
    """Return whether the output is complete and made from the same settings and inputs."""
    record = read_embedding_record(out)
    if record is None or not record.provenance.same_work(provenance):
        return False
    recorded = {out: record.embeddings}
    if record.deviations is not None:
        recorded[path_beside(out, "deviations")] = record.deviations
    has_ids = out.suffix == ".parquet" or all(path.with_suffix(".ids.txt").is_file() for path in recorded)
    is_unchanged = all(path.is_file() and _size_and_time(path) == recorded[path] for path in recorded)
    return is_unchanged and has_ids and skipped_path(out).is_file()


def write_output(
    out: Path,
    embeddings: EmbeddingShard,
    manifest: Manifest,
    landmark_ids: NDArray[np.int64] | None,
    provenance: Provenance,
    sources: EmbeddingSources,
    mean: tuple[float, ...] | None,
) -> None:
    """Write embeddings with their ids, deviations if there are any, the list of skipped images, and their record.

    The embeddings are those of all readable images of the manifest. Without deviations, those of an earlier run are
    removed.
    """
    ids = manifest.ids
    if not len(embeddings.rows):
        reasons = [image.reason for image in embeddings.skipped]
        raise InputError(f"none of the {len(ids):,} images can be read:\n{indented_list(reasons, limit=5)}")
    rows = embeddings.rows.numpy()
    _record_path(out).unlink(missing_ok=True)  # it describes the file that is now replaced
    skipped = ((ids[image.row], image.reason.removeprefix(f"{ids[image.row]}: ")) for image in embeddings.skipped)
    write_csv(skipped_path(out), ["id", "reason"], skipped, lineterminator="\r\n")
    landmarks = None if landmark_ids is None else landmark_ids[rows]
    write_embeddings(out, embeddings.vectors, ids[rows].tolist(), landmarks)
    remove_deviations(out)
    deviations = None
    if embeddings.deviations is not None:
        write_embeddings(path_beside(out, "deviations"), embeddings.deviations, ids[rows].tolist())
        deviations = _size_and_time(path_beside(out, "deviations"))
    record = EmbeddingRecord(provenance, sources, mean, _size_and_time(out), deviations)
    with atomic_write(_record_path(out)) as draft:
        draft.write_text(json.dumps(asdict(record), indent=1, default=str) + "\n")


def require_own_embeddings(out: Path) -> None:
    """Raise unless a file of embeddings may be replaced: it does not exist, or a file of hgld is beside it.

    Raises:
        ConfigurationError: Another program wrote the file.
    """
    if out.is_file() and not (_record_path(out).exists() or skipped_path(out).exists()):
        raise ConfigurationError(
            f"{out}: exists, and hgld did not write it ({_record_path(out).name} is not beside it); remove it, or "
            "name another file"
        )


def skipped_path(out: Path) -> Path:
    """Return the path of the list of skipped images beside an output."""
    return out.with_suffix(".skipped.csv")


def images_digest(images: Path, manifest: Manifest, root: Path) -> str:
    """Return the SHA-256 of the table of images; of a folder, that of its paths, sizes and modification times."""
    if images.is_file():
        return sha256_of(images)
    return _digest(f"{path} {list(_size_and_time(root / path))}\n".encode() for path in manifest.paths)


def weights_digest(model: EmbeddingModel) -> str:
    """Return the SHA-256 of the names and values of a model's weights and buffers."""
    weights = ((name, value.cpu().contiguous().numpy()) for name, value in model.state_dict().items())
    return _digest(part for name, values in weights for part in (name.encode(), values.tobytes()))


def _record_path(out: Path) -> Path:
    return out.with_suffix(".made.json")


def _size_and_time(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _digest(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
