"""Batches of images, read by worker processes.

The number of workers changes neither the batches nor the pixels.
"""

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

#: Images as one tensor, or as a list if their heights or widths differ.
Images: TypeAlias = Tensor | list[Tensor]
A = TypeVar("A")
T = TypeVar("T")
#: Rows of a manifest, or pairs of a row and the seed of its augmentation.
_Indices = list[int] | list[tuple[int, int]]


class Example(NamedTuple):
    """An image, or its features, with its labels.

    Args:
        image: uint8, shape (3, h, w), pixels before normalisation; or float32, shape (C,), the
            features of a frozen backbone.
        labels: int64, shape (L,), finest first, or (K, L) for images with several labels; see
            :meth:`~hgld.datasets.manifest.Manifest.labels_of`.
        row: Row of the image in the manifest.
    """

    image: Tensor
    labels: Tensor
    row: int


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of images; smaller than the requested batch size if images could not be read.

    Args:
        pixels: uint8, shape (b, 3, h, w); or float32, shape (b, C) for features; or, if heights or
            widths differ, a list of b tensors of shape (3, h, w).
        labels: int64, shape (b, L) or (b, K, L); see :class:`Example`.
        rows: int64, shape (b,); rows of the images in the manifest.
        skipped: Images that could not be read.
        normalisation: Function from pixels to the input of the model; None for features, which are
            not normalised.
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
        """The input of a model, on the CPU: normalised pixels, float32, or features."""
        return self.images_on("cpu")

    def images_on(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Images:
        """Return the input of a model, normalised on its device.

        Args:
            device: Device of the result.
            dtype: Type of normalised images; features remain float32.
        """

        def load(pixels: Tensor) -> Tensor:
            pixels = pixels.to(device, non_blocking=True)
            if self.normalisation is None:
                return pixels
            return self.normalisation(pixels, dtype)

        return map_images(load, self.pixels)

    def pin_memory(self) -> Batch:
        """Copy the batch to pinned memory; called by torch's DataLoader."""
        pinned = map_images(Tensor.pin_memory, self.pixels)
        return replace(self, pixels=pinned, labels=self.labels.pin_memory())


class ExampleDataset(Protocol):
    """A dataset over the rows of a manifest.

    An index is a row, or a pair of a row and the seed of its random augmentation.

    Attributes:
        manifest: The images.
        normalisation: Function from the pixels of an example to the input of a model; None if
            examples are features.
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
    skipped = [example for example in examples if isinstance(example, SkippedImage)]
    # A placeholder gives an empty batch its shape.
    stacked = readable or [
        Example(torch.empty(3, 0, 0, dtype=torch.uint8), torch.empty(0, dtype=torch.int64), 0)
    ]
    n_images = len(readable)
    return Batch(
        pixels=_stack([example.image for example in stacked])[:n_images],
        labels=torch.stack([example.labels for example in stacked])[:n_images],
        rows=torch.tensor([example.row for example in stacked])[:n_images],
        skipped=skipped,
        normalisation=normalisation,
    )


def map_images(function: Callable[[Tensor], Tensor], images: Images) -> Images:
    """Apply a function, such as a copy to a device, to a batch of images or to each image of a list."""
    if isinstance(images, Tensor):
        return function(images)
    return [function(image) for image in images]


def _stack(images: Sequence[Tensor]) -> Images:
    """Stack images of the same shape; return a list if their shapes differ."""
    if len({image.shape for image in images}) > 1:
        return list(images)
    # Not torch.stack: its threads wait for each other, which takes 20 times as long on a busy machine.
    if images[0].ndim == 1:
        return torch.from_numpy(np.stack([image.numpy() for image in images]))
    # The colours of a pixel are adjacent in memory, and stay so.
    colours_last = np.stack([image.permute(1, 2, 0).numpy() for image in images])
    return torch.from_numpy(colours_last).permute(0, 3, 1, 2)


_open_readers: weakref.WeakSet[BatchReader] = weakref.WeakSet()


class _Workers:
    """The worker processes of a reader: a loader, and its current iteration."""

    loader: DataLoader[Batch | HgldError] | None = None
    results: Iterator[Batch | HgldError] | None = None

    def close(self) -> None:
        self.loader = None
        self.results = None


class BatchReader:
    """Reader of batches of a dataset, in worker processes that stay until the reader is closed.

    A reader has one iteration at a time: a new iteration ends the previous one.

    Args:
        dataset: The images.
        workers: Number of processes that read images, at most the number of cores; 0 to read in the
            calling process.

    Attributes:
        waited_s: Seconds that all iterations together have waited for batches; without workers, the
            time of reading.
    """

    def __init__(self, dataset: ExampleDataset, workers: int) -> None:
        require_at_least(0, workers=workers)
        self.waited_s = 0.0
        self._dataset = dataset
        self._n_workers = workers
        self._indices = _Replaceable()
        self._workers = _Workers()
        _open_readers.add(self)
        # A reader may be lost in a reference cycle, such as the traceback of an error. Python would then
        # end the queues of workers before the workers, and torch would wait for them in vain.
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
        """Iterate over the batches of an epoch; arguments as in :func:`training_batches`."""
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
            row_ranges: int64, shape (n,) each: rows of the manifest. A batch has rows of one range.
            batch_size: Largest number of images of a batch.
        """
        require_at_least(1, batch_size=batch_size)

        def indices() -> Iterator[_Indices]:
            for rows in row_ranges:
                for start in range(0, len(rows), batch_size):
                    yield rows[start : start + batch_size].tolist()

        return self._read(indices())

    def close(self) -> None:
        """End the worker processes; a later iteration starts new ones."""
        self._workers.close()

    def _read(self, indices: Iterator[_Indices]) -> Iterator[Batch]:
        """Yield the batches of some indices."""
        self._indices.replace(indices)
        workers = self._workers
        workers.results = None
        while True:
            started = time.perf_counter()
            if workers.results is None:  # workers start here, so their start counts as waiting
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
    """Iterate over the batches of an epoch, or over this process's share of each batch.

    The augmentation of an image depends only on the seed, the epoch, the number of the batch and the
    position in it, so an epoch that is resumed in the middle continues as if uninterrupted.

    Args:
        dataset: The images.
        sampler: Sampler of the batches.
        epoch: Number of the epoch.
        start: Number of the first batch to return, from 0.
        processes: Processes that share each batch in contiguous pieces, of equal size unless the
            sampler made a smaller batch. Default: this process alone.
        seed: Seed of the augmentation.
        workers: Number of processes that read images, at most the number of cores; 0 to read in the
            calling process.

    Raises:
        ConfigurationError: The batch size is not a multiple of the number of processes, or
            ``workers`` is negative.
        InputError: A tar file cannot be read, or all images of a batch are unreadable.
    """
    reader = BatchReader(dataset, workers)
    return reader.training(sampler, epoch, start=start, processes=processes, seed=seed)


def evaluation_batches(
    dataset: ExampleDataset, rows: Integers, *, batch_size: int, workers: int
) -> Iterator[Batch]:
    """Iterate over images in the given order; a batch without readable images is empty.

    Args:
        dataset: The images.
        rows: int64, shape (n,): rows of the manifest.
        batch_size: Largest number of images of a batch.
        workers: Number of processes that read images, at most the number of cores; 0 to read in the
            calling process.
    """
    return BatchReader(dataset, workers).evaluation([rows], batch_size=batch_size)


def _require_images(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield batches; raise an InputError if a batch has no images."""
    for batch in batches:
        if not len(batch):
            reasons = [image.reason for image in batch.skipped]
            raise InputError(
                f"none of the {len(reasons):,} images of a batch can be read; is the folder of the images "
                f"right?\n{indented_list(reasons, limit=5)}"
            )
        yield batch


class _Results(Dataset[T | HgldError]):
    """Results of a function by its argument.

    Errors are returned as values: if a worker raised them, torch would replace the message by a
    traceback.
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
        workers: Number of processes, at most the number of cores; 0 to compute in the calling
            process.
        stays_open: Whether the processes stay for further iterations and ignore stop signals, and
            batches are copied to pinned memory.
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
        generator=torch.Generator(),  # or each iteration would draw from the generator of dropout
        pin_memory=stays_open and torch.cuda.is_available(),
    )


def _read_batch(dataset: ExampleDataset, indices: _Indices) -> Batch:
    """Return a batch of the images of some indices."""
    return collate([dataset[index] for index in indices], dataset.normalisation)


class _Replaceable:
    """Iterable whose indices are replaced for each iteration of a DataLoader, which keeps its sampler."""

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
    """Close readers at exit that the traceback of an uncaught error still references.

    Otherwise multiprocessing would wait for their workers. A worker that has missed the end of its
    loader, as may happen on a busy machine, ignores the signal by which multiprocessing ends daemons,
    so it is killed.
    """
    for reader in list(_open_readers):
        reader.close()
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()


def _identity(batch: T) -> T:
    return batch
