"""The files of ``hgld embed-images``: embeddings, a list of skipped images, and a record of the inputs.

Beside the embeddings, ``{stem}.skipped.csv`` lists the images that could not be read. ``{stem}.made.json`` holds the
provenance and the places of images and model, with the size and modification time of the embeddings. ``hgld search``
finds the model and the photographs by it. Standard deviations of feature maps, if they were asked for, are in a file
of their own; see :mod:`hgld.tables.embeddings`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from hgld.compute.parts import Part
from hgld.errors import ConfigurationError
from hgld.io.file_listing import files_below
from hgld.io.files import atomic_write, path_beside, sha256_of
from hgld.models.model_files import model_files
from hgld.models.model_settings import OPEN_CLIP, ModelSource
from hgld.models.settings import EmbedImagesConfig
from hgld.tables import Provenance
from hgld.version import __version__

if TYPE_CHECKING:  # without torch, outputs that are up to date are found at once
    from hgld.compute.scoring import Distance
    from hgld.models.embedding_model import EmbeddingModel


@dataclass(frozen=True)
class EmbeddingSources:
    """Where the images and the model of embeddings were when they were embedded."""

    images: Path
    root: Path
    model: ModelSource | None = None


@dataclass(frozen=True)
class EmbeddingRecord:
    """Record of the inputs of embeddings.

    Args:
        mean: The mean that was subtracted from the embeddings, d numbers; None if no mean was subtracted.
        embeddings: Size in bytes and modification time in nanoseconds of the embeddings.
        deviations: Size and modification time of the standard deviations; None if there are no deviations.
        request: See :func:`embedding_request`; None if the command that made the embeddings is not recorded.
    """

    provenance: Provenance
    sources: EmbeddingSources
    mean: tuple[float, ...] | None
    embeddings: tuple[int, int]
    deviations: tuple[int, int] | None
    request: str | None = None

    @property
    def distance(self) -> Distance:
        """Distance that the embeddings are made for."""
        return self.provenance.parameters["model"].get("distance", "cosine")  # type: ignore[no-any-return]


_RECORD = TypeAdapter(EmbeddingRecord)


def read_embedding_record(path: Path) -> EmbeddingRecord | None:
    """Return the record of embeddings; None if hgld did not write them, or their record is not beside them."""
    try:
        record = _RECORD.validate_json(_record_path(path).read_bytes())
        size, _ = record.embeddings
        if size == path.stat().st_size:
            return record
    except (OSError, ValueError):
        pass
    return None


def recorded_distance(path: Path | None) -> Distance:
    """Return the distance that a file of embeddings is made for; ``cosine`` if it is not recorded."""
    if path is not None:
        record = read_embedding_record(path)
        if record is not None:
            return record.distance
    return "cosine"


def output_is_up_to_date(out: Path, provenance: Provenance) -> bool:
    """Return whether the output is complete and made from the same settings and inputs."""
    record = read_embedding_record(out)
    return (
        record is not None and record.provenance.same_work(provenance) and _is_complete(out, record)
    )


def _is_complete(out: Path, record: EmbeddingRecord) -> bool:
    """Return whether all files of an output exist, and the files that a record describes are unchanged."""
    recorded = {out: record.embeddings}
    if record.deviations is not None:
        recorded[path_beside(out, "deviations")] = record.deviations
    for path, size_and_time in recorded.items():
        if not path.is_file() or _size_and_time(path) != size_and_time:
            return False
        if out.suffix != ".parquet" and not path.with_suffix(".ids.txt").is_file():
            return False
    return skipped_path(out).is_file()


def is_unchanged(out: Path) -> bool:
    """Return whether an output is complete, and its files are as they were when they were written."""
    record = read_embedding_record(out)
    return record is not None and _is_complete(out, record)


def embedding_request(
    images: Path,
    model: str,
    pretrained: str | None,
    image_settings: Mapping[str, Any],
    config: EmbedImagesConfig,
    part: Part | None = None,
) -> str | None:
    """Return a SHA-256 that identifies a request for embeddings, without loading the model or torch.

    It covers the arguments, the images and the files of the model. Equal requests give equal embeddings. Different
    requests may give equal embeddings, too: the provenance, which has the weights of the model, then decides.

    Args:
        image_settings: Image settings that were given, by name.
        part: Part whose file in a folder is asked for. Default: all images.

    Returns:
        The SHA-256, or None if the images do not exist, or the files of the model are not known before it is loaded.
    """
    files = model_files(model, pretrained)
    if files is None or not images.exists():
        return None
    paths = files_below(images) if images.is_dir() else []
    library = "open_clip_torch" if model.startswith(OPEN_CLIP) else "timm"
    values = {
        "model": [model, pretrained, [sha256_of(file) for file in files]],
        "image": dict(image_settings),
        "images": images_digest(images, paths, images),
        "config": asdict(config),
        "part": str(part),
        "versions": [__version__, version(library)],
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def is_made_by(out: Path, request: str) -> bool:
    """Return whether an output is complete, and recorded as made by a request."""
    record = read_embedding_record(out)
    return record is not None and record.request == request and _is_complete(out, record)


def record_request(out: Path, request: str) -> None:
    """Record the request that an output was made by, or would be made by again."""
    record = read_embedding_record(out)
    if record is not None:
        _write_record(out, replace(record, request=request))


def write_record(
    out: Path, provenance: Provenance, sources: EmbeddingSources, mean: tuple[float, ...] | None
) -> None:
    """Write the record of an output, and of the deviations beside it if there are any."""
    file = path_beside(out, "deviations")
    deviations = _size_and_time(file) if file.is_file() else None
    _write_record(out, EmbeddingRecord(provenance, sources, mean, _size_and_time(out), deviations))


def remove_record(out: Path) -> None:
    """Remove the record of an output, which is going to be replaced."""
    _record_path(out).unlink(missing_ok=True)


def _write_record(out: Path, record: EmbeddingRecord) -> None:
    with atomic_write(_record_path(out)) as draft:
        draft.write_bytes(_RECORD.dump_json(record, indent=1) + b"\n")


def is_folder_of_parts(out: Path) -> bool:
    """Return whether an output is a folder, or the name of one that does not exist yet, and not a file."""
    return not out.suffix or out.is_dir()


def part_file(folder: Path, part: Part) -> Path:
    """Return the file of a part in a folder of embeddings, which are read in the order of their names."""
    return folder / f"{part.file_name}.safetensors"


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


def images_digest(images: Path, paths: Iterable[str], root: Path) -> str:
    """Return the SHA-256 of the table of images, or of the paths, sizes and modification times in a folder.

    Args:
        paths: Files in the folder.
        root: Folder that the paths are relative to.
    """
    if images.is_file():
        return sha256_of(images)
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path} {list(_size_and_time(root / path))}\n".encode())
    return digest.hexdigest()


def weights_digest(model: EmbeddingModel) -> str:
    """Return the SHA-256 of the names and values of a model's weights and buffers."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _record_path(out: Path) -> Path:
    return out.with_suffix(".made.json")


def _size_and_time(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
