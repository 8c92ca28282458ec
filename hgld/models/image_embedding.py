"""``hgld embed-images``: embed many images, in shards that processes and jobs share.

Shards of about a thousand images, ``part_000000.safetensors`` and so on, are written to ``.{name}.parts`` beside the
output, each completely or not at all; a killed run resumes with the missing ones. In the end they are joined into the
output and removed.

One run does all of it (:func:`embed_images`), or the jobs of an array do a part of the shards each
(:func:`embed_part`), and a last one joins them (:func:`merge_parts`). The output has the same bytes. Shards do not
depend on parts: a run with another number of parts, or without parts, completes what an earlier one has left.

Locks settle who may write when, see :class:`hgld.io.files.PartLocks`.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

from hgld.compute.executors import Part, format_numbers
from hgld.compute.processes import Processes
from hgld.datasets.image_dataset import ImageDataset, images_per_row_group, open_images
from hgld.datasets.loading import BatchReader, SkippedImage
from hgld.datasets.transforms import evaluation_transform
from hgld.errors import ConfigurationError, InputError, indented_list, require, require_at_least
from hgld.io.files import OPENING_WAIT_S, PartLocks, are_running, atomic_write, exclusive_lock
from hgld.models.embedding_files import (
    EmbeddingSources,
    images_digest,
    output_is_up_to_date,
    skipped_path,
    weights_digest,
    write_output,
)
from hgld.models.embedding_model import MEMORY_FORMAT
from hgld.models.image_embedder import EmbeddingShard, ImageEmbedder, embed_batches
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance
from hgld.tables.embeddings import check_suffix

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmbedImagesConfig:
    """Settings of embedding images.

    Args:
        split: Split of the manifest to embed. Default: all images.
        scales: Factors of height and width, to embed each image at several: 1,0.7071,1.4142; see
            :meth:`EmbeddingModel.multi_scale`.
        half: Run the backbone in half precision: float16 on CUDA, bfloat16 elsewhere.
        center: Subtract the mean of all embeddings, which those of an untrained backbone share, and normalise them
            again; not for queries and a gallery in separate files.
        with_std: Also write the standard deviations of the feature maps before pooling, for the score heat:
            x.deviations.npy beside x.npy; at one scale only.
        device: Device: cpu, cuda or cuda:N.
        batch_size: Number of images embedded at once.
        shard_size: Number of images per shard.
        workers: Number of processes that load images; 0 loads them in this one.
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
        is_valid = len(self.scales) > 0 and min(self.scales) > 0
        require(is_valid, "at least one number, all above 0", scales=list(self.scales))
        if self.with_std and tuple(self.scales) != (1,):
            raise ConfigurationError(
                f"`with_std` is set and `scales` is {list(self.scales)}; standard deviations of feature maps are "
                "those of one scale, 1"
            )
        require_at_least(1, batch_size=self.batch_size, shard_size=self.shard_size)
        require_at_least(0, workers=self.workers)
        try:
            torch.device(self.device)
        except RuntimeError as error:
            raise ConfigurationError(f'the device "{self.device}" cannot be used: {error}') from error


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
    part: Part | None = None,
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
        root: Folder that the paths of the table are relative to. Default: the folder of the table.
        force: Whether to redo the work although the output is up to date, and discard existing shards.
        part: Part of the images to embed, for a file of a folder, see :func:`part_file`. Default: all images.

    Returns:
        Counts of the run, or None if ``out`` was up to date.

    Raises:
        ConfigurationError: Existing shards have other settings, the split does not exist, or the device is not
            available.
    """
    job = _Job(images, out, model, config, root, processes, part)
    if job.first_answer(not force and job.is_up_to_date()):
        return None
    job.require_usable()
    with exclusive_lock(out) if job.is_first else nullcontext():
        if job.is_first:
            job.locks.require_idle()
            job.open_shards(discard=force)
        embedded, waiting_share = job.embed(job.shards, progress)
        return job.first_answer(job.join(embedded, waiting_share) if job.is_first else None)


def embed_part(
    images: Path,
    out: Path,
    model: ImageEmbedder,
    part: Part,
    config: EmbedImagesConfig | None = None,
    *,
    root: Path | None = None,
    processes: Processes | None = None,
    progress: Progress | None = None,
) -> EmbedPartSummary | None:
    """Embed a part of the images; other parts may run at the same time, also on other computers.

    A part that was interrupted, or is run again, embeds what is missing. When all parts are done, :func:`merge_parts`
    writes the output. Arguments and errors are those of :func:`embed_images`, and the same for all parts but for
    ``part``, the part of the shards to embed. A part without any does nothing.
    """
    job = _Job(images, out, model, config, root, processes, reads=part)
    if job.first_answer(job.is_up_to_date()):
        return None
    job.require_usable()
    shards = part.of(job.shards)
    with ExitStack() as lock:
        if not job.first_answer(job.is_first and job.claim(part, lock)):
            return None
        embedded, waiting_share = job.embed(shards, progress)
        skipped = job.first_answer(job.n_skipped(shards) if job.is_first else 0)
    return EmbedPartSummary(part, job.n_images(shards), skipped, embedded, job.seconds(), waiting_share)


def merge_parts(
    images: Path,
    out: Path,
    model: ImageEmbedder,
    config: EmbedImagesConfig | None = None,
    *,
    root: Path | None = None,
) -> EmbedImagesSummary | None:
    """Join the embeddings of all parts into the output, with the bytes that :func:`embed_images` would write.

    Arguments are those of the parts. No image is read and nothing is computed on the device of the settings, which
    need not be there.
    """
    job = _Job(images, out, model, config, root)
    with exclusive_lock(out, wait_s=OPENING_WAIT_S):
        if job.is_up_to_date():
            return None
        job.require_complete()
        return job.join()


def part_file(folder: Path, part: Part) -> Path:
    """Return the file of a part in a folder of embeddings, which are read in the order of their names."""
    return folder / f"{part.file_name}.safetensors"


def parts_are_written(
    images: Path,
    out: Path,
    model: ImageEmbedder,
    config: EmbedImagesConfig | None = None,
    *,
    root: Path | None = None,
) -> Callable[[Part], bool]:
    """Return a function that says whether a part is written: its shards, or its file if ``out`` is a folder.

    Arguments are those of the parts.
    """
    if out.suffix and not out.is_dir():
        return _Job(images, out, model, config, root, reads=_NO_IMAGES).has_shards_of
    job = _Job(images, part_file(out, Part()), model, config, root, reads=_NO_IMAGES)
    return lambda part: output_is_up_to_date(part_file(out, part), job.provenance_of(part))


#: A part that has no shard: no image needs to be read.
_NO_IMAGES = Part(1, 2**62)


class _Job:
    """The images, the model, and the folder of shards beside the output, with a record of what they are made from."""

    def __init__(
        self,
        images: Path,
        out: Path,
        model: ImageEmbedder,
        config: EmbedImagesConfig | None,
        root: Path | None,
        processes: Processes | None = None,
        part: Part | None = None,
        reads: Part | None = None,
    ) -> None:
        """Read the images and find out what their embeddings are made from.

        Args:
            part: Part of the images that the output consists of. Default: all images.
            reads: Part of the images to read, where the table of images can be read in parts. Default: all images.
        """
        self._start, config = time.monotonic(), config or EmbedImagesConfig()
        check_suffix(out)
        self._out, self._model, self._config, self._processes = out, model, config, processes or Processes()
        #: Whether this is the first process, which alone writes anything but shards.
        self.is_first = self._processes.rank == 0
        transform = evaluation_transform(model.image_settings)
        self._open = partial(open_images, images, transform, root=root, split=config.split)
        counts, reads, rows = images_per_row_group(images, config.split), part or reads, None
        if counts is not None and reads is not None:
            rows = _rows_of(reads, int(counts.sum()), config.shard_size) or range(1)
        dataset = self._dataset = self._open(rows=rows)
        self._n_images = len(dataset) if counts is None else int(counts.sum())
        #: Image that is the first one of the dataset.
        self._first = 0 if rows is None else rows.start
        inputs = {
            "images": images_digest(images, dataset.manifest, dataset.root),
            "weights": weights_digest(model.network),
        }
        self._provenance = Provenance("embed-images", _parameters(model, config), inputs)
        self._sources = EmbeddingSources(images.absolute(), dataset.root.absolute(), model.source)
        self._folder = out.with_name(f".{out.name}.parts")
        self._record, self._n_parts = self._folder / "made_of.json", self._folder / "parts.txt"
        self.shards = range(-(-self._n_images // config.shard_size))
        if part is not None:
            self._provenance, shards = self.provenance_of(part), part.of(self.shards)
            if rows is None:
                own = np.array(_rows_of(part, self._n_images, config.shard_size))
                self._dataset = ImageDataset(dataset.manifest.take(own), dataset.root, transform)
            self._n_images, self._first, self.shards = len(self._dataset), 0, range(len(shards))
        # Read early: what is wrong with them should not show itself after the work.
        self._landmark_ids = None if out.suffix == ".npy" else self._dataset.manifest.landmark_ids()
        self.locks = PartLocks(self._folder, out)

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def first_answer(self, value: T) -> T:
        """Return the value of the first process to all of them, which wait for each other."""
        return self._processes.gather(value)[0]

    def is_up_to_date(self) -> bool:
        """Return whether the output is complete and made from the same settings and inputs."""
        return output_is_up_to_date(self._out, self._provenance)

    def provenance_of(self, part: Part) -> Provenance:
        """Return the provenance of the file of a part; raise unless every part can have one."""
        if self._config.center:
            raise ConfigurationError("`center` subtracts the mean of all parts; name a file instead of a folder")
        if part.count > len(self.shards):
            raise ConfigurationError(
                f"{part.count:,} parts of {self._n_images:,} images, which are {len(self.shards):,} shards of "
                f"{self._config.shard_size:,}; choose as many parts as there are shards, or fewer"
            )
        return replace(self._provenance, parameters={**self._provenance.parameters, "part": str(part)})

    def has_shards_of(self, part: Part) -> bool:
        """Return whether all shards of a part are there, if it has any, or the output is up to date."""
        shards = part.of(self.shards)
        if not shards or self.is_up_to_date():
            return True
        if not self._record.is_file():
            return False
        self._check_provenance()
        return not self._missing(shards)

    def require_usable(self) -> None:
        """Check, before any work, that the device is available and that some image can be read."""
        self._model.to(self._config.device)
        try:
            self._dataset.require_readable()
        except InputError:
            if len(self._dataset) == self._n_images:
                raise
            self._open().require_readable()  # those of other parts may be readable

    def claim(self, part: Part, lock: ExitStack) -> bool:
        """Lock a part until ``lock`` is closed; return False, without a lock, if the output is up to date."""
        with exclusive_lock(self._out, wait_s=OPENING_WAIT_S):
            if self.is_up_to_date():
                return False
            self.open_shards(n_parts=part.count)
            lock.enter_context(self.locks.held(str(part)))
        return True

    def open_shards(self, *, discard: bool = False, n_parts: int = 1) -> None:
        """Create the folder of shards, or reuse the shards in it; ``n_parts`` is for messages about missing ones."""
        # Shards without a record are what is left of a folder whose removal was interrupted.
        if discard or not self._record.is_file():
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            self._check_provenance()
        for path, text in ((self._n_parts, f"{n_parts}\n"), (self._record, self._provenance.to_json())):
            with atomic_write(path) as draft:
                draft.write_text(text)

    def require_complete(self) -> None:
        """Raise if shards are missing or parts are running."""
        if not self._record.is_file():
            raise InputError(f"{self._out}: no part of it has been run; run all of them (`part`), then merge")
        self._check_provenance()
        missing, running = set(self._missing(self.shards)), self.locks.running()
        count = int(self._n_parts.read_text())
        parts = [part for part in (Part(n, count) for n in range(1, count + 1)) if str(part) not in running]
        to_run = [part.number for part in parts if not missing.isdisjoint(part.of(self.shards))]
        if not to_run:
            return self.locks.require_idle()
        also = f" ({are_running(running)})" if running else ""
        raise InputError(
            f"{self._out}: {len(missing):,} of {len(self.shards):,} shards are missing; run `part` N/{count} again "
            f"for N = {format_numbers(to_run)}, then merge{also}"
        )

    def embed(self, shards: Sequence[int], progress: Progress | None) -> tuple[int, float | None]:
        """Write those of some shards that are missing, shared between processes.

        Returns:
            Number of images in the missing shards; and share of this process's time that it waited for images.
        """
        config, progress = self._config, progress or NoProgress()
        # All use the first process's list: a slow process would not list shards that another has written since.
        missing = self.first_answer(self._missing(shards) if self.is_first else [])
        share = missing[self._processes.rank :: self._processes.count]
        progress.start(self.n_images(share))
        waiting_share = None
        if share:
            if self.is_first:
                name, images = self._model.network.settings.backbone, self._model.image_settings
                log.info("images of %s: %s", name, images.describe())
            network = self._model.network.to(memory_format=MEMORY_FORMAT).eval()
            started = time.perf_counter()
            with closing(BatchReader(self._dataset, config.workers)) as reader:
                # In one go, so that images of a shard are read while the model embeds those before.
                rows = (self._rows(number) - self._first for number in share)
                batches = reader.evaluation(rows, batch_size=config.batch_size)
                for number in share:
                    shard = embed_batches(
                        network,
                        islice(batches, -(-len(self._rows(number)) // config.batch_size)),
                        scales=config.scales,
                        half=config.half,
                        with_deviations=config.with_std,
                        progress=progress,
                    )
                    self._write(number, shard)
            waiting_share = reader.waited_s / (time.perf_counter() - started)
        self.first_answer(None)  # wait until every process has written its shards
        return self.n_images(missing), waiting_share

    def join(self, embedded: int = 0, waiting_share: float | None = None) -> EmbedImagesSummary:
        """Turn the shards, which are all there, into the output, and remove them."""
        joined, manifest = self._joined(), self._dataset.manifest
        mean = tuple(_center(joined.vectors).tolist()) if self._config.center else None
        write_output(self._out, joined, manifest, self._landmark_ids, self._provenance, self._sources, mean)
        zeros = joined.rows[torch.linalg.vector_norm(joined.vectors, dim=1) == 0]
        skipped = [image.row for image in joined.skipped]
        shutil.rmtree(self._folder, ignore_errors=True)
        return EmbedImagesSummary(
            len(joined.rows),
            self._model.dim,
            tuple(manifest.ids[skipped]),
            tuple(manifest.ids[zeros.numpy()]),
            embedded,
            self.seconds(),
            waiting_share,
            skipped_path(self._out),
        )

    def n_images(self, shards: Sequence[int]) -> int:
        """Return the number of images of some shards."""
        return sum(len(self._rows(number)) for number in shards)

    def n_skipped(self, shards: Sequence[int]) -> int:
        """Return the number of images that could not be read, of some shards that exist."""
        n_skipped = 0
        for path in map(self._path, shards):
            with safe_open(path, framework="pt") as file:
                n_skipped += len(json.loads(file.metadata()["skipped"]))
        return n_skipped

    def _missing(self, shards: Sequence[int]) -> list[int]:
        """Return those of some shards that do not exist yet."""
        # A listing is fresh where other computers write: a network file system may remember that a file was absent.
        existing = {path.name for path in self._folder.iterdir()}
        return [number for number in shards if self._path(number).name not in existing]

    def _write(self, number: int, shard: EmbeddingShard) -> None:
        """Write a shard atomically."""
        skipped = json.dumps([[self._first + image.row, image.reason] for image in shard.skipped])
        rows = shard.rows + self._first
        tensors = {"vectors": shard.vectors, "rows": rows, "deviations": shard.deviations}
        with atomic_write(self._path(number)) as draft:
            save_file({key: t for key, t in tensors.items() if t is not None}, draft, metadata={"skipped": skipped})

    def _joined(self) -> EmbeddingShard:
        """Join all shards in order; vectors and deviations are in memory-mapped files in the folder."""
        rows, skipped, shapes = [], [], dict[str, tuple[int, ...]]()
        for path in map(self._path, self.shards):
            with safe_open(path, framework="pt") as file:
                rows.append(file.get_tensor("rows"))
                skipped += [SkippedImage(*image) for image in json.loads(file.metadata()["skipped"])]
                # A shard without readable images has no deviations, whose number of channels it cannot know.
                shapes |= {name: file.get_slice(name).get_shape() for name in {*file.keys()} - {"rows"}}
        ends = np.cumsum([len(shard_rows) for shard_rows in rows])
        joined = {name: self._join_tensor(name, ends, shape[1]) for name, shape in shapes.items()}
        return EmbeddingShard(joined["vectors"], torch.cat(rows), skipped, joined.get("deviations"))

    def _join_tensor(self, name: str, ends: NDArray[np.int64], dim: int) -> torch.Tensor:
        """Join a tensor of all shards; ``ends`` are the numbers of rows up to the end of each."""
        shape = (int(ends[-1]), dim)
        if not shape[0]:  # an empty file cannot be memory-mapped
            return torch.empty(shape)
        joined = torch.from_numpy(np.lib.format.open_memmap(self._folder / f"{name}.npy", "w+", np.float32, shape))
        for start, end, path in zip([0, *ends], ends, map(self._path, self.shards), strict=False):
            if start < end:
                with safe_open(path, framework="pt") as file:
                    joined[start:end] = file.get_tensor(name)
        return joined

    def _path(self, number: int) -> Path:
        return self._folder / f"part_{number:06}.safetensors"

    def _rows(self, number: int) -> NDArray[np.int64]:
        start = number * self._config.shard_size
        return np.arange(start, min(start + self._config.shard_size, self._n_images))

    def _check_provenance(self) -> None:
        """Raise if existing shards are made from something else."""
        recorded = Provenance.from_json(self._record.read_text())
        if not recorded.same_work(self._provenance):
            changes = indented_list(recorded.changes(self._provenance))
            raise ConfigurationError(
                f"{self._folder}: shards of an unfinished run with other settings; run with those settings to resume "
                f"it, or discard it with `force`, or remove the folder:\n{changes}"
            )


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
        "device": torch.device(config.device).type,
        "batch_size": config.batch_size,
        "part_size": config.shard_size,
    }


def _rows_of(part: Part, n_images: int, shard_size: int) -> range:
    """Return the images of a part: whole shards, so that the last bits are those of a run without parts."""
    shards = part.of(range(-(-n_images // shard_size)))
    return range(shards[0] * shard_size, min((shards[-1] + 1) * shard_size, n_images)) if shards else range(0)


def _center(vectors: torch.Tensor) -> torch.Tensor:
    """Subtract the mean of unit vectors, shape (N, d), and normalise them again, in place; return the mean."""
    mean = vectors.mean(0, dtype=torch.float64).float()
    vectors -= mean
    torch.nn.functional.normalize(vectors, dim=1, out=vectors)
    return mean
