"""Run a model on images."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.datasets.batch import Batch, ExampleDataset, Images, SkippedImage
from hgld.datasets.loading import evaluation_batches
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.embedding_shards import EmbeddingShard
from hgld.progress import NoProgress, Progress

log = logging.getLogger(__name__)


def embed_rows(
    model: EmbeddingModel,
    dataset: ExampleDataset,
    rows: NDArray[np.int64],
    *,
    batch_size: int,
    workers: int,
    scales: Sequence[float] = (1.0,),
    half: bool = False,
    with_deviations: bool = False,
    progress: Progress | None = None,
) -> EmbeddingShard:
    """Embed some images of a dataset, in the given order, skipping those that cannot be read.

    Args:
        model: Model in evaluation mode, on its device.
        dataset: The images.
        rows: int64, shape (n,): rows of the dataset's manifest.
        batch_size: Number of images embedded at once.
        workers: Number of processes that read images; 0 reads them in this one.
        scales: Factors of height and width; for several, see :meth:`EmbeddingModel.multi_scale`.
        half: Whether the backbone computes in 16 bits: float16 on CUDA, bfloat16 elsewhere.
        with_deviations: Whether to compute standard deviations of the feature maps too; at one scale only. See
            :meth:`EmbeddingModel.embed_with_deviations`.
        progress: Reporter of the number of images done.

    Raises:
        InputError, ConfigurationError: See :func:`embed_batches`.
    """
    batches = evaluation_batches(dataset, rows, batch_size=batch_size, workers=workers)
    return embed_batches(model, batches, scales=scales, half=half, with_deviations=with_deviations, progress=progress)


def embed_batches(
    model: EmbeddingModel,
    batches: Iterable[Batch],
    *,
    scales: Sequence[float] = (1.0,),
    half: bool = False,
    with_deviations: bool = False,
    progress: Progress | None = None,
) -> EmbeddingShard:
    """Embed batches of images; see :func:`embed_rows` for the other arguments.

    Args:
        model: Model in evaluation mode, on its device.
        batches: Batches, possibly empty, of :mod:`hgld.datasets.loading`.
        scales: See :func:`embed_rows`.
        half: See :func:`embed_rows`.
        with_deviations: See :func:`embed_rows`.
        progress: See :func:`embed_rows`.

    Raises:
        InputError: A tar file cannot be read, or embeddings are not finite.
        ConfigurationError: A batch does not fit into the memory of the device, or the model has no feature maps.
    """
    progress = progress or NoProgress()
    kept, skipped = [torch.empty(0, dtype=torch.int64)], list[SkippedImage]()
    vectors, deviations = [torch.empty(0, model.dim)], list[torch.Tensor]()
    is_scaled = tuple(scales) != (1,)
    for batch in batches:
        if len(batch):
            if with_deviations:
                embeddings, batch_deviations = _run(model, model.embed_with_deviations, batch, half)
                deviations.append(batch_deviations)
            else:
                (embeddings,) = _run(model, partial(_embed, model, scales), batch, half, is_scaled=is_scaled)
            vectors.append(embeddings)
            kept.append(batch.rows)
        skipped += batch.skipped
        progress.advance(len(batch) + len(batch.skipped), skipped=len(skipped))
    return EmbeddingShard(torch.cat(vectors), torch.cat(kept), skipped, torch.cat(deviations) if deviations else None)


def report_unreadable(embedded: EmbeddingShard, source: str | Path) -> None:
    """Log images that could not be read as a warning.

    Args:
        embedded: Embeddings of all images of a source, see :func:`embed_rows`.
        source: Where the images are, for messages.

    Raises:
        InputError: No image could be read.
    """
    reasons = [image.reason for image in embedded.skipped]
    if not len(embedded.rows):
        raise InputError(f"{source}: none of the {len(reasons):,} images can be read:\n{indented_list(reasons)}")
    if reasons:
        log.warning("%s: %d images cannot be read:\n%s", source, len(reasons), indented_list(reasons))


def _embed(model: EmbeddingModel, scales: Sequence[float], images: Images) -> tuple[torch.Tensor]:
    return (model(images) if tuple(scales) == (1,) else model.multi_scale(images, scales),)


def _run(
    model: EmbeddingModel,
    embed: Callable[[Images], Sequence[torch.Tensor]],
    batch: Batch,
    half: bool,
    *,
    is_scaled: bool = False,
) -> Sequence[torch.Tensor]:
    """Compute outputs of a model for a batch of images, checked, in main memory."""
    device = model.device
    half_dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    # Images that are scaled first are scaled in float32.
    images = batch.images_on(device, half_dtype if half and not is_scaled else torch.float32)
    try:
        with torch.inference_mode(), torch.autocast(device.type, half_dtype, enabled=half):
            outputs = embed(images)
    except torch.cuda.OutOfMemoryError as error:
        size = " x ".join(map(str, reversed(max(images, key=torch.numel).shape[1:])))
        raise ConfigurationError(
            f"{len(images)} images of {size} do not fit into the memory of {device}; choose a smaller `batch_size`"
        ) from error
    if not all(output.isfinite().all() for output in outputs):
        raise InputError(
            "the model outputs numbers that are not finite; check its weights"
            + (", or embed without `half`" if half else "")
        )
    return [output.cpu() for output in outputs]
