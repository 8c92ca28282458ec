"""Batches of pictures, read by worker processes; the same batches and pixels with any number of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from hgld.compute.processes import Processes
from hgld.datasets.image_dataset import Batch, Examples, collate
from hgld.datasets.samplers import BatchSampler, epoch_generator
from hgld.errors import ConfigurationError, HgldError, InputError, listing

#: Rows of a manifest, or rows and the seeds of what is drawn for them.
_Indices = list[int] | list[tuple[int, int]]


def training_batches(
    dataset: Examples,
    sampler: BatchSampler,
    epoch: int,
    *,
    start: int = 0,
    processes: Processes | None = None,
    seed: int,
    workers: int,
) -> Iterator[Batch]:
    """The batches of an epoch, or this process's share of each.

    What a picture looks like depends on the seed, the epoch, the number of the batch and the place in it, and on
    nothing else: an epoch taken up in its middle goes on as it would have gone.

    Args:
        dataset: the pictures, with a training transform.
        sampler: of the same manifest's labels.
        epoch: from 0.
        start: the first batch wanted, from 0.
        processes: those that share each batch in contiguous pieces of equal size; by default, there is one.
        seed: of the transforms.
        workers: processes that read pictures; 0 reads them in this one.

    Raises:
        ConfigurationError: the batch size is not a multiple of the number of processes, or ``workers`` is negative.
        InputError: a tar file cannot be read, or none of the pictures of a batch.
    """
    processes = processes or Processes()
    if sampler.batch_size % processes.count:
        raise ConfigurationError(
            f"a batch of {sampler.batch_size} cannot be shared by {processes.count} processes; make batch_size a "
            "multiple of their number"
        )
    size = sampler.batch_size // processes.count
    share = slice(processes.rank * size, (processes.rank + 1) * size)

    def indices() -> Iterator[_Indices]:
        for number, rows in enumerate(sampler.batches(epoch)[start:], start):
            seeds = epoch_generator(seed, epoch, number).integers(2**63, size=len(rows))
            yield list(zip(rows[share].tolist(), seeds[share].tolist(), strict=True))

    return _with_pictures(_batches(dataset, indices(), workers))


def test_batches(dataset: Examples, rows: NDArray[np.int64], *, batch_size: int, workers: int) -> Iterator[Batch]:
    """Pictures in the order given, the last batch being what is left; a batch has none if none can be read.

    Args:
        dataset: the pictures, with a transform for tests.
        rows: of the manifest, int64, shape (n,).
        batch_size: pictures in a batch.
        workers: processes that read pictures; 0 reads them in this one.

    Raises:
        ConfigurationError: ``batch_size`` is below 1, or ``workers`` is negative.
        InputError: a tar file cannot be read.
    """
    if batch_size < 1:
        raise ConfigurationError(f"the batch size is {batch_size}; expected at least 1")
    parts = (rows[at : at + batch_size].tolist() for at in range(0, len(rows), batch_size))
    return _batches(dataset, parts, workers)


def _batches(dataset: Examples, indices: Iterable[_Indices], workers: int) -> Iterator[Batch]:
    if workers < 0:
        raise ConfigurationError(f"{workers} workers; expected 0 or more")
    loader = DataLoader(
        _WholeBatches(dataset),
        batch_size=None,
        sampler=indices,
        num_workers=workers,
        collate_fn=_as_it_is,
        generator=torch.Generator(),  # else each loader would draw a seed from the one that dropout draws from
        pin_memory=torch.cuda.is_available(),
    )
    return _raising(loader)


def _raising(loader: DataLoader[Batch | HgldError]) -> Iterator[Batch]:
    for found in loader:
        if isinstance(found, HgldError):
            raise found
        yield found


def _with_pictures(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        if not len(batch):
            raise InputError(
                f"none of the {len(batch.skipped):,} pictures of a batch can be read; is the folder of the pictures "
                f"right?\n{listing([one.reason for one in batch.skipped], most=5)}"
            )
        yield batch


class _WholeBatches(Dataset[Batch | HgldError]):
    """Batches by the indices in them.

    An error goes to the process that wants the batch as a value: raised in a worker, it would come with a traceback
    for a message.
    """

    def __init__(self, dataset: Examples) -> None:
        self._dataset = dataset

    def __getitem__(self, indices: _Indices) -> Batch | HgldError:
        try:
            return collate([self._dataset[index] for index in indices])
        except HgldError as error:
            return error


def _as_it_is(batch: Any) -> Any:
    return batch
