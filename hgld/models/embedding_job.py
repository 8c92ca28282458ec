"""The images, the model, the shards and the output of one job of embedding images, for all or for parts of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgld.compute.processes import Processes
from hgld.datasets.image_sources import open_images
from hgld.datasets.loading import BatchReader
from hgld.datasets.transforms import evaluation_transform
from hgld.models.embed_images_config import EmbedImagesConfig
from hgld.models.embedding_model import MEMORY_FORMAT
from hgld.models.embedding_output import (
    EmbeddingRecord,
    EmbeddingSources,
    images_digest,
    output_is_up_to_date,
    weights_digest,
    write_output,
)
from hgld.models.embedding_shards import EmbeddingShards
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.inference import embed_batches
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance
from hgld.tables.embeddings import check_suffix


class EmbeddingJob:
    """The images of a manifest, a model, and the shards and the output that its embeddings go to.

    Args:
        images: A manifest, the table of ``hgld index-images``, or a folder of pictures or tar files.
        out: File of the embeddings.
        model: The model.
        config: Settings.
        root: Folder that the paths of the table are relative to. Default: the folder of the table.

    Raises:
        InputError: The images do not exist, or the suffix of ``out`` is not one of embeddings.
        ConfigurationError: The split does not exist.
    """

    def __init__(
        self, images: Path, out: Path, model: ImageEmbedder, config: EmbedImagesConfig, root: Path | None
    ) -> None:
        check_suffix(out)
        dataset = open_images(images, evaluation_transform(model.image_settings), root=root, split=config.split)
        self.out, self._model, self._config, self._dataset = out, model, config, dataset
        # Read early: what is wrong with them should not show itself after the work.
        self._landmark_ids = None if out.suffix == ".npy" else dataset.manifest.landmark_ids()
        inputs = {
            "images": images_digest(images, dataset.manifest, dataset.root),
            "weights": weights_digest(model.network),
        }
        self._provenance = Provenance("embed-images", _parameters(model, config), inputs)
        self._sources = EmbeddingSources(images.absolute(), dataset.root.absolute(), model.source)
        n_shards = -(-len(dataset) // config.shard_size)
        self.shards = EmbeddingShards(out, self._provenance, n_shards)

    def is_up_to_date(self) -> bool:
        """Return whether the output is complete and made from the same settings and inputs."""
        return output_is_up_to_date(self.out, self._provenance)

    def require_readable(self) -> None:
        """Check, before any work, that images can be read.

        Raises:
            InputError: None of them can.
        """
        self._dataset.require_readable()

    def n_images(self, numbers: Sequence[int]) -> int:
        """Return the number of images of some shards."""
        return sum(len(self._rows(number)) for number in numbers)

    def embed(
        self, numbers: Sequence[int], processes: Processes | None = None, progress: Progress | None = None
    ) -> tuple[int, float | None]:
        """Write those of some shards that are missing, shared between processes.

        Args:
            numbers: Numbers of shards.
            processes: Processes that share the shards; all of them call this. Default: this one alone.
            progress: Reporter of the number of images done by this process.

        Returns:
            Number of images in the shards that were missing, and this process's share of time spent waiting for
            images; None if it had none to embed.

        Raises:
            InputError: A tar file is unreadable.
        """
        processes, progress = processes or Processes(), progress or NoProgress()
        # All use the first process's list: a slow process would not list shards that another has written since.
        missing = processes.gather(self.shards.missing(numbers) if processes.rank == 0 else [])[0]
        share = missing[processes.rank :: processes.count]
        progress.start(self.n_images(share))
        waiting_share = self._embed_shards(share, progress) if share else None
        processes.gather(None)  # wait until every process has written its shards
        return self.n_images(missing), waiting_share

    def join(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        """Turn the shards, which are all there, into the output, and remove them.

        Returns:
            Number of embedded images, the ids of those that could not be read, and of those whose embedding is zero.

        Raises:
            InputError: No image could be read.
        """
        joined, ids = self.shards.join(), self._dataset.manifest.ids
        mean = tuple(_center(joined.vectors).tolist()) if self._config.center else None
        record = EmbeddingRecord(self._provenance, self._sources, mean)
        write_output(self.out, joined, ids, self._landmark_ids, record)
        zeros = joined.rows[torch.linalg.vector_norm(joined.vectors, dim=1) == 0]
        self.shards.remove()
        return len(joined.rows), tuple(ids[image.row] for image in joined.skipped), tuple(ids[zeros.numpy()])

    def _embed_shards(self, numbers: Sequence[int], progress: Progress) -> float:
        """Write shards; returns the share of time spent waiting for images."""
        config = self._config
        network = self._model.network.to(config.device).to(memory_format=MEMORY_FORMAT).eval()
        started = time.perf_counter()
        with closing(BatchReader(self._dataset, config.workers)) as reader:
            # In one go, so that images of a shard are read while the model embeds those before.
            batches = reader.evaluation(map(self._rows, numbers), batch_size=config.batch_size)
            for number in numbers:
                shard = embed_batches(
                    network,
                    islice(batches, -(-len(self._rows(number)) // config.batch_size)),
                    scales=config.scales,
                    half=config.half,
                    with_deviations=config.with_std,
                    progress=progress,
                )
                self.shards.write(number, shard)
        return reader.waited_s / (time.perf_counter() - started)

    def _rows(self, number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        start = number * self._config.shard_size
        return np.arange(start, min(start + self._config.shard_size, len(self._dataset)))


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


def _center(vectors: torch.Tensor) -> torch.Tensor:
    """Subtract the mean of unit vectors, shape (N, d), and normalise them again, in place; returns the mean."""
    mean = vectors.mean(0, dtype=torch.float64).float()
    vectors -= mean
    torch.nn.functional.normalize(vectors, dim=1, out=vectors)
    return mean
