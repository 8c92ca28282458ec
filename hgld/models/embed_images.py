"""``hgld embed-images``: embed many images, in shards that several processes share.

Shards of about a thousand images are written to ``.{name}.parts`` beside the output, each completely or not at all; a
killed run resumes with the missing ones. In the end they are joined into the output and removed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.compute.processes import Processes
from hgld.datasets.batch import ExampleDataset
from hgld.datasets.image_sources import open_images
from hgld.datasets.loading import BatchReader
from hgld.datasets.manifest import Manifest
from hgld.datasets.transforms import evaluation_transform
from hgld.errors import ConfigurationError
from hgld.io.locks import exclusive_lock
from hgld.models.embedding_model import MEMORY_FORMAT, EmbeddingModel
from hgld.models.embedding_output import (
    EmbeddingRecord,
    EmbeddingSources,
    images_digest,
    output_is_up_to_date,
    skipped_path,
    weights_digest,
    write_output,
)
from hgld.models.embedding_shards import EmbeddingShards
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.inference import embed_batches
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance
from hgld.tables.embeddings import check_suffix


@dataclass(frozen=True)
class EmbedImagesConfig:
    """Settings of embedding images.

    Args:
        split: Split of the manifest to embed. Default: all images.
        scales: Factors of height and width; for several, see :meth:`EmbeddingModel.multi_scale`.
        half: Whether the backbone computes in 16 bits: float16 on CUDA, bfloat16 elsewhere.
        center: Whether to subtract the mean of all embeddings and normalise them again. Features of a backbone that
            was not trained for retrieval share a large, uninformative component. Not for queries and a gallery in
            separate files, which would lose different means.
        with_std: Whether to write standard deviations of the feature maps too, which
            :func:`hgld.tables.deviations.read_deviations` reads; at one scale only.
        device: A torch device.
        batch_size: Number of images embedded at once.
        shard_size: Number of images per shard.
        workers: Number of processes that read images; 0 reads them in this one.

    Raises:
        ConfigurationError: A value is out of range, or the device is not available.
    """

    split: str | None = None
    scales: Sequence[float] = (1.0,)
    half: bool = False
    center: bool = False
    with_std: bool = False
    device: str = "cpu"
    batch_size: int = 32
    shard_size: int = 1024
    workers: int = 2

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) <= 0:
            raise ConfigurationError(f"`scales` is {list(self.scales)}; expected at least one number, all above 0")
        if self.with_std and tuple(self.scales) != (1,):
            raise ConfigurationError(
                f"`with_std` is set and `scales` is {list(self.scales)}; standard deviations of feature maps are "
                "those of one scale, 1"
            )
        if min(self.batch_size, self.shard_size) < 1 or self.workers < 0:
            raise ConfigurationError(
                f"`batch_size` is {self.batch_size}, `shard_size` {self.shard_size}, `workers` {self.workers}; "
                "expected at least 1, 1 and 0"
            )
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
            raise ConfigurationError(f'the device "{self.device}" cannot be used: {error}') from error


@dataclass(frozen=True)
class EmbedImagesSummary:
    """Counts of a finished run.

    Args:
        images: Number of images in the output.
        dim: Number of dimensions of the embeddings.
        skipped: Ids of the images that could not be read.
        embedded: Number of images processed by this run, as opposed to an interrupted one before it.
        seconds: Duration of this run.
        waiting_share: Share of the time of embedding that this process has waited for images to be read; None if
            nothing was left to embed.
        skipped_file: File that lists the images that could not be read.
    """

    images: int
    dim: int
    skipped: tuple[str, ...]
    embedded: int
    seconds: float
    waiting_share: float | None
    skipped_file: Path


def embed_images(
    images: Path,
    out: Path,
    model: ImageEmbedder,
    config: EmbedImagesConfig | None = None,
    *,
    root: Path | None = None,
    force: bool = False,
    processes: Processes | None = None,
    progress: Progress | None = None,
) -> EmbedImagesSummary | None:
    """Write the embeddings of images with their ids, and their landmark ids if the manifest and the format have them.

    On the same kind of device and with the same number of threads, an interrupted and resumed run, or one of several
    processes, writes the same bytes as an undisturbed one.

    Args:
        images: A manifest, the table of ``hgld index-images``, or a folder of pictures or tar files.
        out: File to write: ``.parquet``, ``.npy`` or ``.safetensors``.
        model: The model; it is moved to the device of the settings.
        config: Settings.
        root: Folder that the paths of the table are relative to. Default: the folder of the table.
        force: Whether to redo the work although the output is up to date, and discard existing shards.
        processes: Processes that share the shards. Default: this one alone.
        progress: Reporter of the number of images done by this process.

    Returns:
        Counts of the run, or None if ``out`` was up to date.

    Raises:
        InputError: The images do not exist, none of them is readable, or a tar file is unreadable.
        ConfigurationError: Existing shards have other settings, or the split does not exist.
        BusyError: Another run is writing ``out``.
    """
    start = time.monotonic()
    check_suffix(out)
    config, processes = config or EmbedImagesConfig(), processes or Processes()
    dataset = open_images(images, evaluation_transform(model.image_settings), root=root, split=config.split)
    manifest, network = dataset.manifest, model.network
    inputs = {"images": images_digest(images, manifest, dataset.root), "weights": weights_digest(network)}
    provenance = Provenance("embed-images", _parameters(model, config), inputs)
    if not force and output_is_up_to_date(out, provenance):
        return None
    dataset.require_readable()
    landmark_ids = None if out.suffix == ".npy" else manifest.landmark_ids()
    network = network.to(config.device).to(memory_format=MEMORY_FORMAT).eval()
    is_first = processes.rank == 0
    with exclusive_lock(out) if is_first else nullcontext():
        n_shards = -(-len(manifest) // config.shard_size)
        shards = EmbeddingShards(out.with_name(f".{out.name}.parts"), provenance, n_shards)
        if is_first:
            shards.open(discard=force)
        embedded, waiting_share = _embed_missing(
            shards, network, dataset, config, processes, progress or NoProgress()
        )
        n_images, skipped = 0, list[str]()
        if is_first:
            sources = EmbeddingSources(images.absolute(), dataset.root.absolute(), model.source)
            record = EmbeddingRecord(provenance, sources)
            n_images, skipped = _join(shards, out, manifest, landmark_ids, record, center=config.center)
        n_images, skipped = processes.gather((n_images, skipped))[0]
    seconds = time.monotonic() - start
    return EmbedImagesSummary(
        n_images, model.dim, tuple(skipped), embedded, seconds, waiting_share, skipped_path(out)
    )


def _parameters(model: ImageEmbedder, config: EmbedImagesConfig) -> dict[str, Any]:
    """Return everything but the input files that affects the output, as JSON values."""
    return {
        "model": model.settings.model_dump(mode="json"),
        "image": model.image_settings.evaluation_values,
        "split": config.split,
        "scales": list(config.scales),
        "half": config.half,
        "center": config.center,
        "with_std": config.with_std,
        # The last bits depend on these.
        "device": torch.device(config.device).type,
        "batch_size": config.batch_size,
        "part_size": config.shard_size,
    }


def _embed_missing(
    shards: EmbeddingShards,
    model: EmbeddingModel,
    dataset: ExampleDataset,
    config: EmbedImagesConfig,
    processes: Processes,
    progress: Progress,
) -> tuple[int, float | None]:
    """Write the missing shards, shared between the processes.

    Returns:
        Number of images in all of them, and this process's share of time spent waiting for images.
    """
    # All use the first process's list: a slow process would not list shards that another has written since.
    missing = processes.gather(shards.missing())[0]
    all_rows, size = np.arange(len(dataset)), config.shard_size
    rows = {number: all_rows[number * size : (number + 1) * size] for number in missing}
    share = missing[processes.rank :: processes.count]
    progress.start(sum(len(rows[number]) for number in share))
    started = time.perf_counter()
    with closing(BatchReader(dataset, config.workers)) as reader:
        # In one go, so that images of a shard are read while the model embeds those before.
        batches = reader.evaluation((rows[number] for number in share), batch_size=config.batch_size)
        for number in share:
            shard = embed_batches(
                model,
                islice(batches, -(-len(rows[number]) // config.batch_size)),
                scales=config.scales,
                half=config.half,
                with_deviations=config.with_std,
                progress=progress,
            )
            shards.write(number, shard)
    waiting_share = reader.waited_s / (time.perf_counter() - started) if share else None
    processes.gather(None)  # wait until every process has written its shards
    return sum(map(len, rows.values())), waiting_share


def _join(
    shards: EmbeddingShards,
    out: Path,
    manifest: Manifest,
    landmark_ids: NDArray[np.int64] | None,
    record: EmbeddingRecord,
    *,
    center: bool,
) -> tuple[int, list[str]]:
    """Turn the shards into the output; returns the number of embedded images and the ids of the skipped ones."""
    joined = shards.join()
    if center:
        record = replace(record, mean=tuple(_center(joined.vectors).tolist()))
    write_output(out, joined, manifest.ids, landmark_ids, record)
    shards.remove()
    return len(joined.rows), [manifest.ids[image.row] for image in joined.skipped]


def _center(vectors: torch.Tensor) -> torch.Tensor:
    """Subtract the mean of unit vectors, shape (N, d), and normalise them again, in place; returns the mean."""
    mean = vectors.mean(0, dtype=torch.float64).float()
    vectors -= mean
    torch.nn.functional.normalize(vectors, dim=1, out=vectors)
    return mean
