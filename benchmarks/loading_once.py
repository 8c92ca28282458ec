"""Read the images of a folder once, for training or evaluation, and print the cost; run by loading.py.

Processor time is that of this process and its workers, for images that are normalised and on the CPU, in batches. The
digest of all inputs of the model shows whether two versions of hgld give the same.
"""

from __future__ import annotations

import gc
import hashlib
import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from hgld.compute.machine import disable_trimming
from hgld.datasets.image_dataset import open_images
from hgld.datasets.loading import Batch, evaluation_batches, training_batches
from hgld.datasets.transforms import ImageSettings, evaluation_transform, training_transform

BATCH_SIZE = 64


class InOrder:
    """A sampler of all images in order."""

    batch_size = BATCH_SIZE

    def __init__(self, n_images: int) -> None:
        self._n_images = n_images

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches."""
        return len(self.batches(epoch))

    def batches(self, epoch: int) -> list[np.ndarray]:
        """Return the batches of an epoch."""
        return [
            np.arange(start, start + BATCH_SIZE) for start in range(0, self._n_images - BATCH_SIZE + 1, BATCH_SIZE)
        ]


def batches(folder: Path, kind: str, settings: ImageSettings, n_images: int, workers: int) -> Iterator[Batch]:
    """Return batches of the first images of a folder."""
    if kind == "training":
        dataset = open_images(folder, training_transform(settings))
        return training_batches(dataset, InOrder(n_images), 0, seed=0, workers=workers)
    dataset = open_images(folder, evaluation_transform(settings))
    return evaluation_batches(dataset, np.arange(n_images), batch_size=BATCH_SIZE, workers=workers)


def processor_time() -> float:
    """Return the seconds that this process and its children that have ended spent on a processor."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Read the images once to start with, then measure."""
    folder, kind, changes, n_images, workers = sys.argv[1:6]
    torch.set_num_threads(1)
    disable_trimming()  # as hgld train and hgld embed-images do
    settings = ImageSettings.model_validate(json.loads(changes))
    digest = hashlib.sha256()
    # Imports, and loops that are compiled or loaded once, are not part of it.
    for batch in batches(Path(folder), kind, settings, BATCH_SIZE, 0):
        digest.update(np.ascontiguousarray(batch.images.numpy()))
    # Nor is finding the images; workers start with the first batch.
    measured = batches(Path(folder), kind, settings, int(n_images), int(workers))
    started, processor_started, n_read = time.perf_counter(), processor_time(), 0
    for batch in measured:
        batch.images.sum()
        n_read += len(batch)
    del measured  # with which workers end
    gc.collect()
    seconds, processor_s = time.perf_counter() - started, processor_time() - processor_started
    print(
        json.dumps({"seconds": seconds / n_read, "processor_s": processor_s / n_read, "digest": digest.hexdigest()})
    )


if __name__ == "__main__":
    main()
