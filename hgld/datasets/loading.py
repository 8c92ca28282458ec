"""Batches of images, and how worker processes read them; their number changes neither the batches nor the pixels."""

from __future__ import annotations

import atexit
import multiprocessing
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hgld.arrays import Integers
from hgld.compute.machine import ignore_stop_signals, usable_cores
from hgld.compute.processes import Processes
from hgld.datasets.encoded_images import SkippedImage
from hgld.datasets.manifest import Manifest
from hgld.datasets.samplers import BatchSampler, epoch_generator
from hgld.datasets.transforms import Normalisation
from hgld.errors import ConfigurationError, HgldError, InputError, indented_list, require_at_least

#: Images as one tensor, or as a list where their heights or widths differ.
Images: TypeAlias = Tensor | list[Tensor]
A = TypeVar("A")
T = TypeVar("T")
#: Rows of a manifest, or pairs of a row and the seed of its augmentation.
_Indices = list[int] | list[tuple[int, int]]


class Example(NamedTuple):
    """An image, or the features of one, with its labels.

    Args:
        image: uint8, shape (3, h, w), pixels before normalisation; or float32, shape (C,), the features of a frozen
            backbone.
        labels: int64, shape (L,), finest first, or (K, L) for images with several labels; see
            :meth:`~hgld.datasets.manifest.Manifest.labels_of`.
    """

    image: Tensor
    labels: Tensor
    row: int


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of images; smaller than the requested batch size if images could not be read.

    Args:
        pixels: uint8, shape (b, 3, h, w); or float32, shape (b, C) for features; or, where heights or widths differ,
            a list of b tensors of shape (3, h, w).
        normalisation: Function from pixels to the input of the model; None for features, which are input as they are.
    """

    pixels: Images
    labels: Tensor
    rows: Tensor
    skipped: list[SkippedImage]
    normalisation: Normalisation | None

    def __len__(self) -> int:
        return len(self.pixels)

    @cached_property
    def images(self) -> Images:
        """The input of a model, on the CPU: float32, in the shape of the pixels, normalised; or the features."""
        return self.images_on("cpu")

    def images_on(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Images:
        """Return the input of a model, normalised on its device.

        Args:
            dtype: Type of normalised images; features remain float32.
        """

        def load(pixels: Tensor) -> Tensor:
            pixels = pixels.to(device, non_blocking=True)
            return pixels if self.normalisation is None else self.normalisation(pixels, dtype)

        return map_images(load, self.pixels)

    def pin_memory(self) -> Batch:
        """Copy the batch to pinned memory; called by torch's DataLoader."""
        pinned = map_images(Tensor.pin_memory, self.pixels)
        return replace(self, pixels=pinned, labels=self.labels.pin_memory())


class ExampleDataset(Protocol):
    """A dataset over the rows of a manifest.

    An index is a row, or a pair of a row and the seed of its random augmentation.

    Attributes:
        normalisation: Function from the pixels of an example to the input of a model; None if examples are features.
    """

    manifest: Manifest
    normalisation: Normalisation | None

    def __len__(self) -> int: ...

    def __getitem__(self, index: int | tuple[int, int]) -> Example | SkippedImage: ...


def collate(
    examples: Sequence[Example | SkippedImage], normalisation: Normalisation | None
) -> Batch:
    """Stack examples of a dataset into a batch, which is empty if every image was skipped."""
    readable = [example for example in examples if isinstance(example, Example)]
    placeholder = Example(
        torch.empty(3, 0, 0, dtype=torch.uint8), torch.empty(0, dtype=torch.int64), 0
    )
    images, labels, rows = zip(*(readable or [placeholder]), strict=True)
    n = len(readable)
    return Batch(
        pixels=_stack(images)[:n],
        labels=torch.stack(labels)[:n],
        rows=torch.tensor(rows)[:n],
        skipped=[example for example in examples if isinstance(example, SkippedImage)],
        normalisation=normalisation,
    )


def map_images(function: Callable[[Tensor], Tensor], images: Images) -> Images:
    """Apply a function, such as a copy to a device, to a batch of images or to each of a list."""
    return function(images) if isinstance(images, Tensor) else [function(image) for image in images]


def _stack(images: Sequence[Tensor]) -> Images:
    if len({image.shape for image in images}) > 1:
        return list(images)
    # Not torch.stack: its threads wait for each other, which takes twenty times as long on a busy machine.
    if images[0].ndim == 1:
        return torch.from_numpy(np.stack([image.numpy() for image in images]))
    # The colours of a pixel are side by side in memory, and stay so.
    return torch.from_numpy(np.stack([image.permute(1, 2, 0).numpy() for image in images])).permute(
        0, 3, 1, 2
    )


_open_readers: weakref.WeakSet[BatchReader] = weakref.WeakSet()


class _Workers:
    """The worker processes of a reader: a loader, and its current iteration."""

    loader: DataLoader[Batch | HgldError] | None = None
    results: Iterator[Batch | HgldError] | None = None

    def close(self) -> None:
        self.loader = self.results = None


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
        self._dataset, self._n_workers = dataset, workers
        self._indices = _Replaceable()
        self._workers = _Workers()
        _open_readers.add(self)
        # A reader may be lost in a reference cycle, such as that of the traceback of an error. Python would then end
        # the queues of workers before these, which torch would wait for in vain.
        weakref.finalize(self, self._workers.close)

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

        def share(values: Integers) -> list[int]:
            piece: list[int] = np.array_split(values, processes.count)[processes.rank].tolist()
            return piece

        def indices() -> Iterator[_Indices]:
            for number, rows in enumerate(sampler.batches(epoch)[start:], start):
                seeds = epoch_generator(seed, epoch, number).integers(2**63, size=len(rows))
                yield list(zip(share(rows), share(seeds), strict=True))

        return _require_images(self._read(indices()))

    def evaluation(self, row_ranges: Iterable[Integers], *, batch_size: int) -> Iterator[Batch]:
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
        self._workers.close()

    def _read(self, indices: Iterator[_Indices]) -> Iterator[Batch]:
        self._indices.replace(indices)
        workers = self._workers
        workers.results = None
        while True:
            started = time.perf_counter()
            if workers.results is None:  # here, as this is where workers start
                if workers.loader is None:
                    workers.loader = worker_loader(
                        partial(_read_batch, self._dataset),
                        self._indices,
                        self._n_workers,
                        stays_open=True,
                    )
                workers.results = iter(workers.loader)
            result = next(workers.results, None)
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
    dataset: ExampleDataset, rows: Integers, *, batch_size: int, workers: int
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
