"""``hgld embed-images``: the embeddings of many images, in parts that several processes share.

Parts of some thousand images are written beside the output, in ``.{name}.parts``, each whole or not at all;
a run that was killed goes on with those that are missing. In the end they become the output and are removed. Beside
the output, ``{stem}.skipped.csv`` lists the images that could not be read, and ``{stem}.made.json`` says what the
embeddings were made of.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.compute.processes import Processes
from hgld.datasets.image_dataset import Batch, Examples, ImageDataset, Skipped
from hgld.datasets.image_sources import read_images
from hgld.datasets.loading import test_batches
from hgld.datasets.manifest import Manifest, Texts
from hgld.datasets.readers.gldv2 import LANDMARK
from hgld.datasets.transforms import ImageSettings, test_transform
from hgld.errors import ConfigurationError, InputError, listing
from hgld.io.files import atomic_write, sha256_of
from hgld.io.locks import exclusive_lock
from hgld.models.embedding_model import LAYOUT, EmbeddingModel
from hgld.models.embedding_shards import Part, Parts
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance
from hgld.tables.embeddings import check_suffix, write_embeddings


@dataclass(frozen=True)
class EmbedImagesConfig:
    """How images are embedded.

    Args:
        split: of a manifest, where not all images are wanted.
        scales: factors of height and width; with several, see :meth:`EmbeddingModel.multi_scale`.
        half: whether the backbone computes in 16 bits: float16 on CUDA, bfloat16 elsewhere.
        center: whether the mean of all embeddings is subtracted, which are then normalised again: features of a
            backbone that was not trained for retrieval have much in common, which says nothing. Queries and gallery
            in files of their own would lose different means.
        device: a torch device.
        batch_size: images at a time.
        part_size: images in a part.
        workers: processes that read images.
    """

    split: str | None = None
    scales: Sequence[float] = (1.0,)
    half: bool = False
    center: bool = False
    device: str = "cpu"
    batch_size: int = 32
    part_size: int = 1024
    workers: int = 2

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) <= 0:
            raise ConfigurationError(f"the scales are {list(self.scales)}; expected at least one, all above 0")
        if min(self.batch_size, self.part_size) < 1 or self.workers < 0:
            raise ConfigurationError(
                f"batch size {self.batch_size}, part size {self.part_size}, {self.workers} workers; expected at "
                "least 1, 1 and 0"
            )
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
            raise ConfigurationError(f'the device "{self.device}" cannot be used: {error}') from error


@dataclass(frozen=True)
class EmbedImagesSummary:
    """What was done.

    Args:
        images: how many have an embedding now.
        dim: of the embeddings.
        skipped: the ids of the images that could not be read.
        embedded: how many images were seen to now, and not by an earlier run.
        seconds: how long it took.
        listed: where the images that could not be read are listed.
    """

    images: int
    dim: int
    skipped: tuple[str, ...]
    embedded: int
    seconds: float
    listed: Path

    def __str__(self) -> str:
        text = (
            f"{self.images:,} images as vectors of {self.dim:,} numbers; {self.embedded:,} of them now "
            f"in {self.seconds:.1f} s, {self.embedded / self.seconds:.1f} images/s"
        )
        if self.skipped:
            text += f"\n{len(self.skipped):,} images could not be read and have none, see {self.listed}:\n"
            text += listing(self.skipped, most=5)
        return text


def parse_scales(text: str) -> tuple[float, ...]:
    """Scales from a text such as ``1,0.7071,1.4142``.

    Raises:
        ConfigurationError: they are no numbers.
    """
    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        raise ConfigurationError(f'the scales are "{text}"; expected numbers such as 1,0.7071,1.4142') from error


def embed_images(
    images: Path,
    out: Path,
    model: EmbeddingModel,
    image_settings: ImageSettings,
    config: EmbedImagesConfig | None = None,
    *,
    root: Path | None = None,
    force: bool = False,
    processes: Processes | None = None,
    progress: Progress | None = None,
) -> EmbedImagesSummary | None:
    """Write the embeddings of images, with their ids.

    Landmark ids go with them where a manifest says them and the format has a place for them.

    A run that was killed goes on, and writes the bytes that it would have written undisturbed, on the same kind of
    device and with the same number of threads. So do several processes.

    Args:
        images: a manifest, the table of ``hgld index-images``, or a folder of pictures.
        out: the file to write: ``.parquet``, ``.npy`` or ``.safetensors``.
        model: that embeds.
        image_settings: of the images that it wants.
        config: how.
        root: the folder that a table's paths are relative to; by default that of the table.
        force: do all the work, although the output is up to date or parts of it are there.
        processes: that share the parts.
        progress: told of this process's images.

    Returns:
        What was done, or None if ``out`` was up to date.

    Raises:
        InputError: there are no such images, none of them can be read, or a tar file cannot be.
        ConfigurationError: there are parts of other settings, or there is no such split.
        BusyError: another run is writing ``out``.
    """
    began = time.monotonic()
    check_suffix(out)
    config, processes = config or EmbedImagesConfig(), processes or Processes()
    manifest = read_images(images)
    if config.split is not None:
        manifest = manifest.part(config.split)
    root = root or (images if images.is_dir() else images.parent)
    dataset = ImageDataset(manifest, root, test_transform(image_settings))
    provenance = _provenance(images, manifest, root, model, image_settings, config)
    if not force and _is_up_to_date(out, provenance):
        return None
    landmarks = None if out.suffix == ".npy" else _landmark_ids(manifest)
    model = model.to(config.device).to(memory_format=LAYOUT).eval()
    with exclusive_lock(out) if processes.rank == 0 else nullcontext():
        parts = Parts(out.with_name(f".{out.name}.parts"), provenance, -(-len(manifest) // config.part_size))
        if processes.rank == 0:
            parts.begin(anew=force)
        embedded = _embed_missing(parts, model, dataset, config, processes, progress or NoProgress())
        found = 0, list[str]()
        if processes.rank == 0:
            joined = parts.join()
            if config.center:
                _center(joined.vectors)
            _write(out, joined, manifest.ids, landmarks, provenance)
            parts.remove()
            found = len(joined.rows), [manifest.ids[one.row] for one in joined.skipped]
        n, skipped = processes.gather(found)[0]
    seconds = time.monotonic() - began
    return EmbedImagesSummary(n, model.dim, tuple(skipped), embedded, seconds, _beside(out, "skipped.csv"))


def _embed_missing(
    parts: Parts,
    model: EmbeddingModel,
    dataset: Examples,
    config: EmbedImagesConfig,
    processes: Processes,
    progress: Progress,
) -> int:
    """Write the parts that are not there, with the others; returns how many images those have."""
    # What the first one sees: a slow one would miss parts that another has written since.
    missing = processes.gather(parts.missing())[0]
    every, size = np.arange(len(dataset)), config.part_size
    rows = {number: every[number * size : (number + 1) * size] for number in missing}
    own = missing[processes.rank :: processes.count]
    progress.start(sum(len(rows[number]) for number in own))
    for number in own:
        parts.write(number, embed_rows(model, dataset, rows[number], config, progress))
    processes.gather(None)  # all are there now
    return sum(map(len, rows.values()))


def embed_rows(
    model: EmbeddingModel,
    dataset: Examples,
    rows: NDArray[np.int64],
    config: EmbedImagesConfig,
    progress: Progress | None = None,
) -> Part:
    """The embeddings of some images, in the order given, as far as they can be read.

    Args:
        model: in evaluation, on its device.
        dataset: the images.
        rows: of its manifest, int64, shape (n,).
        config: how.
        progress: told of images.

    Raises:
        InputError: a tar file cannot be read, or embeddings are not finite.
        ConfigurationError: a batch does not fit into the memory of the device.
    """
    progress = progress or NoProgress()
    vectors, kept, skipped = [torch.empty(0, model.dim)], [torch.empty(0, dtype=torch.int64)], list[Skipped]()
    for batch in test_batches(dataset, rows, batch_size=config.batch_size, workers=config.workers):
        if len(batch):
            vectors.append(_embedded(model, batch, config))
            kept.append(batch.rows)
        skipped += batch.skipped
        progress.advance(len(batch) + len(batch.skipped), skipped=len(skipped))
    return Part(torch.cat(vectors), torch.cat(kept), skipped)


def _embedded(model: EmbeddingModel, batch: Batch, config: EmbedImagesConfig) -> torch.Tensor:
    device = model.device
    half = torch.float16 if device.type == "cuda" else torch.bfloat16
    images = model.to_device(batch.images)
    try:
        with torch.inference_mode(), torch.autocast(device.type, half, enabled=config.half):
            found = model(images) if tuple(config.scales) == (1,) else model.multi_scale(images, config.scales)
    except torch.cuda.OutOfMemoryError as error:
        raise ConfigurationError(
            f"{len(batch)} images of {images.shape[3]} x {images.shape[2]} do not fit into the memory of {device}; "
            "choose a smaller --batch-size"
        ) from error
    if not found.isfinite().all():
        raise InputError(
            "the model gives numbers that are not finite; look at its weights"
            + (", or embed without --half" if config.half else "")
        )
    return found.cpu()


# The output


def _center(vectors: torch.Tensor) -> None:
    """Subtract the mean of unit vectors, shape (N, d), and normalise them again, in place."""
    vectors -= vectors.mean(0, dtype=torch.float64).float()
    torch.nn.functional.normalize(vectors, dim=1, out=vectors)


def _write(out: Path, joined: Part, ids: Texts, landmarks: NDArray[np.int64] | None, provenance: Provenance) -> None:
    if not len(joined.rows):
        raise InputError(
            f"none of the {len(ids):,} images can be read:\n{listing([one.reason for one in joined.skipped], most=5)}"
        )
    rows = joined.rows.numpy()
    made = _beside(out, "made.json")
    made.unlink(missing_ok=True)  # it speaks of what is replaced now
    with atomic_write(_beside(out, "skipped.csv")) as draft, draft.open("w", newline="", encoding="utf-8") as stream:
        lines = csv.writer(stream)
        lines.writerow(["id", "reason"])
        lines.writerows((ids[one.row], one.reason.removeprefix(f"{ids[one.row]}: ")) for one in joined.skipped)
    write_embeddings(out, joined.vectors, ids[rows].tolist(), None if landmarks is None else landmarks[rows])
    with atomic_write(made) as draft:
        draft.write_text(json.dumps({"provenance": asdict(provenance), "embeddings": _stamp(out)}, indent=1) + "\n")


def _landmark_ids(manifest: Manifest) -> NDArray[np.int64] | None:
    """The landmark of each image, where the manifest has such a level and its names are numbers, as GLDv2's are."""
    if LANDMARK not in manifest.level_names:
        return None
    level = manifest.level_names.index(LANDMARK)
    names = manifest.class_names[level]
    if not all(name.isdecimal() for name in names):
        return None
    return np.array([int(name) for name in names])[manifest.labels[:, level]]


def _beside(out: Path, suffix: str) -> Path:
    return out.with_suffix(f".{suffix}")


def _stamp(out: Path) -> list[int]:
    stat = out.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _is_up_to_date(out: Path, provenance: Provenance) -> bool:
    try:
        made = json.loads(_beside(out, "made.json").read_text())
        same = Provenance(**made["provenance"]).same_work(provenance) and made["embeddings"] == _stamp(out)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    ids = out.suffix == ".parquet" or _beside(out, "ids.txt").is_file()
    return same and ids and _beside(out, "skipped.csv").is_file()


def _provenance(
    images: Path,
    manifest: Manifest,
    root: Path,
    model: EmbeddingModel,
    image_settings: ImageSettings,
    config: EmbedImagesConfig,
) -> Provenance:
    """What the embeddings are made of, in values of JSON."""
    parameters: dict[str, Any] = {
        "model": model.settings.model_dump(mode="json"),
        "image": image_settings.model_dump(mode="json", exclude={"crop_scale", "flip"}),
        "split": config.split,
        "scales": list(config.scales),
        "half": config.half,
        "center": config.center,
        # The last bits depend on these.
        "device": torch.device(config.device).type,
        "batch_size": config.batch_size,
        "part_size": config.part_size,
    }
    digest = sha256_of(images) if images.is_file() else _digest(_stamps(manifest, root))
    weights = (part for name, value in model.state_dict().items() for part in (name.encode(), _bytes(value)))
    return Provenance("embed-images", parameters, {"images": digest, "weights": _digest(weights)})


def _stamps(manifest: Manifest, root: Path) -> Iterator[bytes]:
    for path in manifest.paths:
        yield f"{path} {_stamp(root / path)}\n".encode()


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().contiguous().numpy().tobytes()


def _digest(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
