"""Batches of images read by worker processes; the number of workers changes neither the batches nor the pixels."""

from __future__ import annotations

import atexit
import multiprocessing
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from hgld.compute.machine import usable_cores
from hgld.compute.processes import Processes
from hgld.compute.stop_signals import ignore_stop_signals
from hgld.datasets.batch import Batch, ExampleDataset, collate
from hgld.datasets.resizing import prepare_resizing
from hgld.datasets.samplers import BatchSampler, epoch_generator
from hgld.errors import ConfigurationError, HgldError, InputError, indented_list, require_at_least

A = TypeVar("A")
T = TypeVar("T")

#: Rows of a manifest, or pairs of a row and the seed of its augmentation.
_Indices = list[int] | list[tuple[int, int]]

_open_readers: weakref.WeakSet[BatchReader] = weakref.WeakSet()


class BatchReader:
    """Reads batches of a dataset, any number of times, in worker processes that stay until it is closed.

    There is one iteration at a time: one that is begun ends the one before.

    Args:
        workers: Number of processes that read images, no more than there are cores; 0 reads them in this one.

    Attributes:
        waited_s: Seconds that all iterations together have waited for a batch; without workers, the time of reading.
    """

    def __init__(self, dataset: ExampleDataset, workers: int) -> None:
        require_at_least(0, workers=workers)
        self.waited_s = 0.0
        self._dataset, self._workers = dataset, workers
        self._indices = _Replaceable()
        self._loader: DataLoader[Batch | HgldError] | None = None
        self._results: Iterator[Batch | HgldError] | None = None
        _open_readers.add(self)

    def training(
        self,
        sampler: BatchSampler,
        epoch: int,
        *,
        start: int = 0,
        processes: Processes | None = None,
        seed: int,
    ) -> Iterator[Batch]:
        """Iterate over the batches of an epoch; arguments as of :func:`training_batches`."""
        processes = processes or Processes()
        if sampler.batch_size % processes.count:
            raise ConfigurationError(
                f"a batch of {sampler.batch_size} cannot be shared by {processes.count} processes; make `batch_size` "
                "a multiple of their number"
            )

        def share(values: NDArray[np.int64]) -> list[int]:
            piece: list[int] = np.array_split(values, processes.count)[processes.rank].tolist()
            return piece

        def indices() -> Iterator[_Indices]:
            for number, rows in enumerate(sampler.batches(epoch)[start:], start):
                seeds = epoch_generator(seed, epoch, number).integers(2**63, size=len(rows))
                yield list(zip(share(rows), share(seeds), strict=True))

        return _require_images(self._read(indices()))

    def evaluation(self, row_ranges: Iterable[NDArray[np.int64]], *, batch_size: int) -> Iterator[Batch]:
        """Iterate over images as :func:`evaluation_batches` does.

        Args:
            row_ranges: int64, shape (n,) each: rows of the manifest. No batch has rows of two of them.
        """
        require_at_least(1, batch_size=batch_size)
        indices = (
            rows[start : start + batch_size].tolist()
            for rows in row_ranges
            for start in range(0, len(rows), batch_size)
        )
        return self._read(indices)

    def close(self) -> None:
        """End the worker processes; a later iteration starts new ones."""
        self._loader = self._results = None

    def _read(self, indices: Iterator[_Indices]) -> Iterator[Batch]:
        self._indices.replace(indices)
        self._results = None
        while True:
            started = time.perf_counter()
            if self._results is None:  # here, as this is where workers start
                if self._loader is None:
                    self._loader = worker_loader(
                        partial(_read_batch, self._dataset), self._indices, self._workers, stays_open=True
                    )
                self._results = iter(self._loader)
            result = next(self._results, None)
            self.waited_s += time.perf_counter() - started
            if result is None:
                return
            if isinstance(result, HgldError):
                raise result
            yield result


def training_batches(
    dataset: ExampleDataset,
    sampler: BatchSampler,
    epoch: int,
    *,
    start: int = 0,
    processes: Processes | None = None,
    seed: int,
    workers: int,
) -> Iterator[Batch]:
    """Iterate over the batches of an epoch, or over this process's share of each.

    The augmentation of an image depends only on the seed, the epoch, the number of the batch and the position in it,
    so an epoch that is resumed in the middle continues as if uninterrupted.

    Args:
        start: Number of the first batch to return, from 0.
        processes: Processes that share each batch in contiguous pieces, of equal size unless the sampler made a
            smaller batch. Default: this one alone.
        workers: Number of processes that read images, no more than there are cores; 0 reads them in this one.

    Raises:
        ConfigurationError: The batch size is not a multiple of the number of processes, or ``workers`` is negative.
        InputError: A tar file cannot be read, or no image of a batch can be.
    """
    reader = BatchReader(dataset, workers)
    return reader.training(sampler, epoch, start=start, processes=processes, seed=seed)


def evaluation_batches(
    dataset: ExampleDataset, rows: NDArray[np.int64], *, batch_size: int, workers: int
) -> Iterator[Batch]:
    """Iterate over images in the given order; a batch without readable images is empty.

    Args:
        rows: int64, shape (n,): rows of the manifest.
        workers: Number of processes that read images, no more than there are cores; 0 reads them in this one.
    """
    return BatchReader(dataset, workers).evaluation([rows], batch_size=batch_size)


def _require_images(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        if not len(batch):
            raise InputError(
                f"none of the {len(batch.skipped):,} images of a batch can be read; is the folder of the images "
                f"right?\n{indented_list([image.reason for image in batch.skipped], limit=5)}"
            )
        yield batch


class _Results(Dataset[T | HgldError]):
    """Results of a function by its argument.

    Errors are returned as values: if a worker raised them, torch would replace the message by a traceback.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function

    def __getitem__(self, argument: Any) -> T | HgldError:
        try:
            return self._function(argument)
        except HgldError as error:
            return error


def worker_loader(
    function: Callable[[A], T], arguments: Iterable[A], workers: int, *, stays_open: bool = False
) -> DataLoader[T | HgldError]:
    """Return a loader of the results of a function in order, computed by worker processes.

    Args:
        function: Function that workers can receive; a :class:`HgldError` that it raises is a result.
        arguments: An argument for each result; they are read again for each iteration.
        stays_open: Whether the processes stay for further iterations, whatever signals they get, and batches go to
            pinned memory.
    """
    # Decoding is bound by the processor; torch warns users of more workers than cores.
    workers = min(workers, usable_cores())
    if workers:
        prepare_resizing()  # before workers are forked
    return DataLoader(
        _Results(function),
        batch_size=None,
        sampler=arguments,
        num_workers=workers,
        persistent_workers=stays_open and workers > 0,
        collate_fn=_identity,
        worker_init_fn=_start_worker if stays_open else None,
        generator=torch.Generator(),  # otherwise each iteration draws a seed from the generator that dropout uses
        pin_memory=stays_open and torch.cuda.is_available(),
    )


def _read_batch(dataset: ExampleDataset, indices: _Indices) -> Batch:
    return collate([dataset[index] for index in indices], dataset.normalisation)


class _Replaceable:
    """Indices that are replaced for each iteration of a DataLoader, which keeps its sampler."""

    def __init__(self) -> None:
        self._indices: Iterator[_Indices] = iter(())

    def replace(self, indices: Iterator[_Indices]) -> None:
        self._indices = indices

    def __iter__(self) -> Iterator[_Indices]:
        return self._indices


def _start_worker(_number: int) -> None:
    ignore_stop_signals()


@atexit.register
def _close_readers() -> None:
    """Close readers that the traceback of an uncaught error keeps: multiprocessing would wait for their workers.

    A worker that has missed the end of its loader, as may happen on a busy machine, ignores the signal by which
    multiprocessing ends daemons, and would be waited for, too.
    """
    for reader in list(_open_readers):
        reader.close()
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()


def _identity(batch: T) -> T:
    return batch
