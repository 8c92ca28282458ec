"""``hgld embed-images``: embed many images, in shards that are joined in the end.

Shards of about a thousand images are written to ``.{name}.parts`` beside the output, each completely or not at all.
A part of the work writes some shards (:func:`embed_part`). A run of all images (:func:`embed_images`) writes the
missing shards, joins all shards into the output, and removes them. The output has the same bytes, whichever runs
wrote the shards; see :mod:`hgld.parted_output`.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.arrays import Integers
from hgld.compute.parts import Part
from hgld.datasets.image_dataset import ImageDataset, open_images
from hgld.datasets.loading import BatchReader
from hgld.datasets.manifest import Manifest
from hgld.datasets.transforms import evaluation_transform
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.files import path_beside, write_csv
from hgld.models.embedding_files import (
    EmbeddingSources,
    images_digest,
    is_folder_of_parts,
    output_is_up_to_date,
    part_file,
    remove_record,
    require_own_embeddings,
    skipped_path,
    weights_digest,
    write_record,
)
from hgld.models.embedding_model import MEMORY_FORMAT
from hgld.models.embedding_shards import EmbeddingShards
from hgld.models.image_embedder import EmbeddingShard, ImageEmbedder, embed_batches
from hgld.models.settings import EmbedImagesConfig
from hgld.parted_output import PartedOutput, Shards
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance
from hgld.tables.embeddings import check_suffix, remove_deviations, write_embeddings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmbedImagesSummary:
    """Counts of a finished run.

    Args:
        zeros: Ids of the images whose embedding is zero, such as blank ones whose features all are.
        embedded: Number of images processed by this run, as opposed to an interrupted one before it.
        waiting_share: Share of the time of embedding that the first process has waited for images to be read; None
            if nothing was left to embed.
    """

    images: int
    dim: int
    skipped: tuple[str, ...]
    zeros: tuple[str, ...]
    embedded: int
    seconds: float
    waiting_share: float | None
    skipped_file: Path


@dataclass(frozen=True)
class EmbedPartSummary:
    """Counts of a finished part."""

    part: Part
    images: int
    skipped: int
    embedded: int
    seconds: float
    waiting_share: float | None


def embed_images(
    images: Path,
    out: Path,
    model: ImageEmbedder,
    config: EmbedImagesConfig | None = None,
    *,
    root: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> EmbedImagesSummary | None:
    """Write the embeddings of images with their ids, and their landmark ids if the manifest and the format have them.

    On the same kind of device and with the same number of threads, an interrupted and resumed run, or one whose parts
    were written by several runs, writes the same bytes as an undisturbed one. Where all parts are written, no image
    is read and nothing is computed on the device of the settings, which need not be there.

    Args:
        images: A manifest, the table of ``hgld index-images``, or a folder of pictures or tar files.
        out: File to write: ``.parquet``, ``.npy`` or ``.safetensors``.
        model: The model; it is moved to the device of the settings.
        root: Folder that the paths of the table are relative to. Default: the folder of the table.
        force: Whether to redo the work although the output is up to date, and discard existing shards.

    Returns:
        Counts of the run, or None if ``out`` was up to date.

    Raises:
        ConfigurationError: Existing shards have other settings, the split does not exist, or the device is not
            available.
    """
    start, config = time.monotonic(), config or EmbedImagesConfig()
    check_suffix(out)
    source = _ImageSource.open(images, model, config, root)
    return _embed_all(source, out, model, config, start, force=force, progress=progress)


def embed_part(
    images: Path,
    out: Path,
    model: ImageEmbedder,
    config: EmbedImagesConfig | None = None,
    *,
    part: Part,
    root: Path | None = None,
    progress: Progress | None = None,
) -> EmbedPartSummary | EmbedImagesSummary | None:
    """Embed a part of the images; other parts may run at the same time, also on other computers.

    A part that was interrupted, or is run again, embeds the missing images. Arguments and errors are the same as for
    :func:`embed_images`. All parts of a work have the same arguments, except ``part``.

    Args:
        out: File that :func:`embed_images` writes when all parts are done; or a folder, in which each part is a file
            of its own, see :func:`part_file`.
        part: The part. One without images does nothing.

    Returns:
        Counts of the part, or of its file in a folder; None if the output was up to date.
    """
    start, config = time.monotonic(), config or EmbedImagesConfig()
    source = _ImageSource.open(images, model, config, root)
    if is_folder_of_parts(out):
        source = source.of_part(part, model, config)
        return _embed_all(source, part_file(out, part), model, config, start, progress=progress)
    check_suffix(out)
    if out.suffix != ".npy":
        source.dataset.manifest.landmark_ids()  # invalid ids are refused before the work
    output, shards = _parted_output(out, source, config)
    if output.is_up_to_date():
        return None
    numbers = part.of(shards.numbers)
    if output.discards_pieces() or shards.missing(numbers):
        source.require_usable(model, config)
    with output.opened(part) as is_open:
        if not is_open:
            return None
        embedded, waiting_share = _embed_missing(source, shards, numbers, model, config, progress)
        n_skipped = shards.n_skipped(numbers)
    seconds = time.monotonic() - start
    return EmbedPartSummary(
        part, shards.n_images(numbers), n_skipped, embedded, seconds, waiting_share
    )


@dataclass(frozen=True, eq=False)
class _ImageSource:
    """Images to embed: all images of a table or a folder, or a part.

    Args:
        dataset: The images.
        provenance: Provenance of their embeddings.
        sources: Places of the images and the model.
    """

    dataset: ImageDataset
    provenance: Provenance
    sources: EmbeddingSources

    @classmethod
    def open(
        cls, images: Path, model: ImageEmbedder, config: EmbedImagesConfig, root: Path | None
    ) -> _ImageSource:
        """Open the images; for the arguments see :func:`embed_images`."""
        parameters = _parameters(model, config)
        dataset = open_images(
            images, evaluation_transform(model.image_settings), root=root, split=config.split
        )
        inputs = {
            "images": images_digest(images, dataset.manifest.paths, dataset.root),
            "weights": weights_digest(model.network),
        }
        sources = EmbeddingSources(images.absolute(), dataset.root.absolute(), model.source)
        return cls(dataset, Provenance("embed-images", parameters, inputs), sources)

    def of_part(self, part: Part, model: ImageEmbedder, config: EmbedImagesConfig) -> _ImageSource:
        """Return the images of a part that has its own output: whole shards, for the same bits in any division.

        Raises:
            ConfigurationError: The settings need all images, or not every part has some.
        """
        if config.center:
            raise ConfigurationError(
                "`center` subtracts the mean of all parts; name a file instead of a folder"
            )
        manifest, root = self.dataset.manifest, self.dataset.root
        shards = Shards(len(manifest), config.shard_size)
        if part.count > len(shards.numbers):
            raise ConfigurationError(
                f"{part.count:,} parts of {len(manifest):,} images, which are {len(shards.numbers):,} shards of "
                f"{config.shard_size:,}; choose as many parts as there are shards, or fewer"
            )
        manifest = manifest.take(np.array(shards.rows(part.of(shards.numbers))))
        dataset = ImageDataset(manifest, root, evaluation_transform(model.image_settings))
        parameters = {**self.provenance.parameters, "part": str(part)}
        return replace(
            self, dataset=dataset, provenance=replace(self.provenance, parameters=parameters)
        )

    def require_usable(self, model: ImageEmbedder, config: EmbedImagesConfig) -> None:
        """Check, before any work, that the device is available and that some image can be read."""
        model.to(config.device)
        self.dataset.require_readable()


def _embed_all(
    source: _ImageSource,
    out: Path,
    model: ImageEmbedder,
    config: EmbedImagesConfig,
    start: float,
    *,
    force: bool = False,
    progress: Progress | None,
) -> EmbedImagesSummary | None:
    """Embed all images of a source, and write the output; the run began at a time ``start``."""
    landmark_ids = None if out.suffix == ".npy" else source.dataset.manifest.landmark_ids()
    output, shards = _parted_output(out, source, config)
    if output.is_up_to_date() and not force:
        return None
    if output.discards_pieces(force=force) or shards.missing(shards.numbers):
        source.require_usable(model, config)
    with output.opened(force=force) as is_open:
        if not is_open:
            return None
        embedded, waiting_share = _embed_missing(
            source, shards, shards.numbers, model, config, progress
        )
        joined, manifest = shards.joined(), source.dataset.manifest
        mean = tuple(_center(joined.vectors).tolist()) if config.center else None
        _write_output(out, joined, manifest, landmark_ids, source.provenance, source.sources, mean)
        zeros = joined.rows[torch.linalg.vector_norm(joined.vectors, dim=1) == 0]
        shutil.rmtree(output.folder, ignore_errors=True)
    return EmbedImagesSummary(
        images=len(joined.rows),
        dim=model.dim,
        skipped=tuple(manifest.ids[[image.row for image in joined.skipped]]),
        zeros=tuple(manifest.ids[zeros.numpy()]),
        embedded=embedded,
        seconds=time.monotonic() - start,
        waiting_share=waiting_share,
        skipped_file=skipped_path(out),
    )


def _write_output(
    out: Path,
    embeddings: EmbeddingShard,
    manifest: Manifest,
    landmark_ids: Integers | None,
    provenance: Provenance,
    sources: EmbeddingSources,
    mean: tuple[float, ...] | None,
) -> None:
    """Write embeddings with their ids, deviations if there are any, the list of skipped images, and their record.

    There is an embedding for each readable image of the manifest. Without deviations, the deviations of an earlier
    run are removed.
    """
    ids = manifest.ids
    if not len(embeddings.rows):
        reasons = [image.reason for image in embeddings.skipped]
        raise InputError(
            f"none of the {len(ids):,} images can be read:\n{indented_list(reasons, limit=5)}"
        )
    rows = embeddings.rows.numpy()
    remove_record(out)
    skipped = (
        (ids[image.row], image.reason.removeprefix(f"{ids[image.row]}: "))
        for image in embeddings.skipped
    )
    write_csv(skipped_path(out), ["id", "reason"], skipped, lineterminator="\r\n")
    landmarks = None if landmark_ids is None else landmark_ids[rows]
    write_embeddings(out, embeddings.vectors, ids[rows].tolist(), landmarks)
    remove_deviations(out)
    if embeddings.deviations is not None:
        write_embeddings(path_beside(out, "deviations"), embeddings.deviations, ids[rows].tolist())
    write_record(out, provenance, sources, mean)


def _parted_output(
    out: Path, source: _ImageSource, config: EmbedImagesConfig
) -> tuple[PartedOutput, EmbeddingShards]:
    """Return an output and its shards; raise if the output is a file that hgld did not write."""
    require_own_embeddings(out)
    folder = out.with_name(f".{out.name}.parts")
    output = PartedOutput(
        out,
        folder,
        source.provenance,
        files=["*"],
        noun="shards of an unfinished run",
        is_up_to_date=lambda: output_is_up_to_date(out, source.provenance),
    )
    return output, EmbeddingShards(folder, len(source.dataset), config.shard_size)


def _embed_missing(
    source: _ImageSource,
    shards: EmbeddingShards,
    numbers: Sequence[int],
    model: ImageEmbedder,
    config: EmbedImagesConfig,
    progress: Progress | None,
) -> tuple[int, float | None]:
    """Write the missing shards among some shards.

    Returns:
        Number of images in the missing shards, and the share of the time that was spent waiting for images; None if
        no shard is missing.
    """
    missing, progress = shards.missing(numbers), progress or NoProgress()
    n_images = shards.n_images(missing)
    progress.start(n_images)
    if not missing:
        return 0, None
    log.info("images of %s: %s", model.network.settings.backbone, model.image_settings.describe())
    network = model.network.to(memory_format=MEMORY_FORMAT).eval()
    started = time.perf_counter()
    with closing(BatchReader(source.dataset, config.workers)) as reader:
        # In one go, so that images of a shard are read while the model embeds those before.
        rows = (np.array(shards.rows([number])) for number in missing)
        batches = reader.evaluation(rows, batch_size=config.batch_size)
        for number in missing:
            n_batches = math.ceil(shards.n_images([number]) / config.batch_size)
            shard = embed_batches(
                network,
                islice(batches, n_batches),
                scales=config.scales,
                half=config.half,
                with_deviations=config.with_std,
                progress=progress,
            )
            shards.write(number, shard)
    return n_images, reader.waited_s / (time.perf_counter() - started)


def _parameters(model: ImageEmbedder, config: EmbedImagesConfig) -> dict[str, Any]:
    """Return what decides the embeddings besides the images and the weights; raise if it does not fit together."""
    if config.center and model.settings.distance != "cosine":
        raise ConfigurationError(
            f"`center` scales embeddings to length 1, but those of this model are for the distance "
            f"{model.settings.distance}; leave it out"
        )
    return {
        "model": model.settings.model_dump(mode="json"),
        "image": model.image_settings.evaluation_values,
        "split": config.split,
        "scales": list(config.scales),
        "half": config.half,
        "center": config.center,
        "with_std": config.with_std,
        # The last bits depend on these.
        "device": config.device_type,
        "batch_size": config.batch_size,
        "part_size": config.shard_size,
    }


def _center(vectors: Tensor) -> Tensor:
    """Subtract the mean of unit vectors, shape (N, d), and normalise them again, in place; return the mean."""
    mean = vectors.mean(0, dtype=torch.float64).float()
    vectors -= mean
    torch.nn.functional.normalize(vectors, dim=1, out=vectors)
    return mean
