"""``hgld embed-images``: embed many images, in shards that processes and jobs share.

Shards of about a thousand images are written to ``.{name}.parts`` beside the output, each completely or not at all; a
killed run resumes with the missing ones. In the end they are joined into the output and removed.

One run does all of it (:func:`embed_images`), or the jobs of an array do a part of the shards each
(:func:`embed_part`), and a last one joins them (:func:`merge_parts`). The output has the same bytes. Shards know
nothing of parts: what one division into parts has left, a run with another one, or with none, completes.

Locks settle who may write when, see :class:`hgld.io.part_locks.PartLocks`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from pathlib import Path

from hgld.compute.part import Part
from hgld.compute.processes import Processes
from hgld.io.locks import exclusive_lock
from hgld.io.part_locks import OPENING_WAIT_S
from hgld.models.embed_images_config import EmbedImagesConfig, EmbedImagesSummary, EmbedPartSummary
from hgld.models.embedding_job import EmbeddingJob
from hgld.models.embedding_output import skipped_path
from hgld.models.image_embedder import ImageEmbedder
from hgld.progress import Progress


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
        ConfigurationError: Existing shards have other settings, the split does not exist, or the device is not
            available.
        BusyError: Another run is writing ``out``, or a part of it.
    """
    start = time.monotonic()
    config, processes = config or EmbedImagesConfig(), processes or Processes()
    config.require_device()
    job = EmbeddingJob(images, out, model, config, root)
    if processes.gather(not force and job.is_up_to_date())[0]:
        return None
    job.require_readable()
    is_first = processes.rank == 0
    with exclusive_lock(out) if is_first else nullcontext():
        if is_first:
            job.shards.locks.require_idle()
            job.shards.open(discard=force)
        embedded, waiting_share = job.embed(job.shards.numbers, processes, progress)
        joined = job.join() if is_first else None
        n_images, skipped, zeros = processes.gather(joined)[0] or (0, (), ())
    seconds = time.monotonic() - start
    return EmbedImagesSummary(
        n_images, model.dim, skipped, zeros, embedded, seconds, waiting_share, skipped_path(out)
    )


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
    writes the output.

    Args:
        images: See :func:`embed_images`, as for the other arguments.
        out: File that all parts are going to be merged into.
        model: The model.
        part: Part of the shards to embed. A part without any does nothing.
        config: Settings, the same for all parts.
        root: Folder that the paths of the table are relative to.
        processes: Processes that share the shards of this part.
        progress: Reporter of the number of images done by this process.

    Returns:
        Counts of the part, or None if ``out`` was up to date.

    Raises:
        InputError: See :func:`embed_images`.
        ConfigurationError: See :func:`embed_images`.
        BusyError: Another run is embedding this part, or is writing ``out``.
    """
    start = time.monotonic()
    config, processes = config or EmbedImagesConfig(), processes or Processes()
    config.require_device()
    job = EmbeddingJob(images, out, model, config, root)
    if processes.gather(job.is_up_to_date())[0]:
        return None
    job.require_readable()
    numbers = part.of(job.shards.numbers)
    with ExitStack() as lock:
        is_needed = _claim(job, part, lock) if processes.rank == 0 else None
        if not processes.gather(is_needed)[0]:
            return None
        embedded, waiting_share = job.embed(numbers, processes, progress)
        skipped = processes.gather(job.shards.n_skipped(numbers) if processes.rank == 0 else 0)[0]
    seconds = time.monotonic() - start
    return EmbedPartSummary(part, job.n_images(numbers), skipped, embedded, seconds, waiting_share)


def merge_parts(
    images: Path,
    out: Path,
    model: ImageEmbedder,
    config: EmbedImagesConfig | None = None,
    *,
    root: Path | None = None,
) -> EmbedImagesSummary | None:
    """Join the embeddings of all parts into the output, with the bytes that :func:`embed_images` would write.

    No image is read and nothing is computed on the device of the settings, which need not be there.

    Args:
        images: See :func:`embed_images`, as for the other arguments.
        out: File to write.
        model: The model that the parts were embedded by.
        config: Settings of the parts.
        root: Folder that the paths of the table are relative to.

    Returns:
        Counts of the output, or None if ``out`` was up to date.

    Raises:
        InputError: Shards are missing, whose parts the message names; or no image could be read.
        ConfigurationError: The parts have other settings.
        BusyError: Parts are still running, or another run is writing ``out``.
    """
    start = time.monotonic()
    config = config or EmbedImagesConfig()
    job = EmbeddingJob(images, out, model, config, root)
    with exclusive_lock(out, wait_s=OPENING_WAIT_S):
        if job.is_up_to_date():
            return None
        job.shards.require_complete()
        n_images, skipped, zeros = job.join()
    seconds = time.monotonic() - start
    return EmbedImagesSummary(n_images, model.dim, skipped, zeros, 0, seconds, None, skipped_path(out))


def _claim(job: EmbeddingJob, part: Part, lock: ExitStack) -> bool:
    """Lock a part until ``lock`` is closed; returns False, without a lock, if the output is up to date."""
    with exclusive_lock(job.out, wait_s=OPENING_WAIT_S):
        if job.is_up_to_date():
            return False
        job.shards.open(discard=False, n_parts=part.count)
        lock.enter_context(job.shards.locks.held(str(part)))
    return True
