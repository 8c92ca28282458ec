"""``hgld repack``: write the images of a manifest once, at a chosen size, into tar files that are read in order.

What passes: the rows of a manifest, in order, in chunks; the bytes of each image, read and reduced by a worker
process (:mod:`hgld.datasets.repacked_images`); a tar file and its record for each ten thousand of them
(:mod:`hgld.datasets.repacked_shards`); and in the end a manifest with the same ids, splits and labels.

The tar files depend on the images and settings alone, with any number of workers, after any interruption. So a
manifest with other labels of the same images is written without touching the images again.
"""

from __future__ import annotations

import csv
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.datasets.batch import SkippedImage
from hgld.datasets.encoded_images import EncodedImages
from hgld.datasets.manifest import Manifest, read_manifest, write_manifest
from hgld.datasets.repack_config import RepackConfig, RepackPlan, RepackSummary
from hgld.datasets.repacked_images import RepackedImage, RepackedImages
from hgld.datasets.repacked_shards import RepackedShards, ShardRecord
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.files import atomic_write, sha256_of
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress, byte_size
from hgld.tables import Provenance, is_up_to_date

#: Files beside the tar files.
MANIFEST_NAME, SKIPPED_NAME = "manifest.parquet", "skipped.csv"
#: Number of images that a plan is estimated from.
_SAMPLE = 64


def plan_repack(path: Path, out: Path, config: RepackConfig, *, root: Path | None = None) -> RepackPlan:
    """Return what :func:`repack_images` is going to do; nothing is written.

    Args:
        path: See :func:`repack_images`.
        out: See :func:`repack_images`.
        config: Settings.
        root: See :func:`repack_images`.

    Raises:
        InputError: See :func:`repack_images`.
        ConfigurationError: See :func:`repack_images`.
    """
    job = _Job(path, out, config, root)
    job.shards.check(discard=False)
    return job.plan(job.shards.records(verify=False))


def repack_images(
    path: Path,
    out: Path,
    config: RepackConfig,
    *,
    root: Path | None = None,
    verify: bool = False,
    force: bool = False,
    announce: Callable[[RepackPlan], None] | None = None,
    progress: Progress | None = None,
) -> RepackSummary | None:
    """Write the images of a manifest into tar files, with a manifest of them; the same call resumes.

    Images that cannot be read are listed in ``skipped.csv`` with the reason, and are not in the new manifest. Memory:
    the manifest, and a few images per worker.

    Args:
        path: Manifest, or a CSV or Parquet file with its columns.
        out: Folder to write: ``manifest.parquet``, and the tar files that its paths name.
        config: Settings.
        root: Folder that the paths of the manifest are relative to. Default: its own folder.
        verify: Whether to compare the SHA-256 of existing tar files, and write damaged ones again.
        force: Whether to write everything again, whatever the settings of the tar files in the folder.
        announce: Called with the plan before the first tar file is written.
        progress: Receives the number of images.

    Returns:
        Contents of the folder; None if it is up to date and ``verify`` is False.

    Raises:
        InputError: The manifest is malformed, its files are missing, or no image can be read.
        ConfigurationError: There is no such split, the folder holds something else or has other settings, or the
            disk is too small.
        BusyError: Another run is writing to ``out``.
    """
    start = time.monotonic()
    job = _Job(path, out, config, root)
    with exclusive_lock(out):
        job.shards.check(discard=force)
        if force:
            (out / MANIFEST_NAME).unlink(missing_ok=True)
        job.shards.open(discard=force)
        before = job.shards.records(verify=verify)
        if len(before) == job.n_shards and not verify and is_up_to_date(out / MANIFEST_NAME, job.provenance):
            return None
        if len(before) < job.n_shards:
            plan = job.plan(before)
            _check_space(out, plan)
            if announce is not None:
                announce(plan)
            (out / MANIFEST_NAME).unlink(missing_ok=True)  # it names places in files that are now replaced
        records = job.write_missing(before, progress or NoProgress())
        skipped = job.write_tables(records)
    return RepackSummary(
        images=sum(len(record.rows) for record in records),
        copies=sum(record.copies for record in records),
        skipped=skipped,
        n_bytes=sum(record.n_bytes for record in records),
        shards=job.n_shards,
        written=job.n_shards - len(before),
        verified=len(before) if verify else None,
        seconds=time.monotonic() - start,
    )


class _Job:
    """The images of a manifest and the tar files that they go to; arguments as of :func:`repack_images`."""

    def __init__(self, path: Path, out: Path, config: RepackConfig, root: Path | None) -> None:
        root = path.parent if root is None else root
        manifest = read_manifest(path, root)
        if config.split is not None:
            manifest = manifest.select_split(config.split)
        self._manifest, self._root, self._out, self._config = manifest, root, out, config
        self.n_shards = -(-len(manifest) // config.shard_size)
        parameters = config.parameters()
        self.shards = RepackedShards(
            out, Provenance("repack", parameters, {"images": _images_digest(manifest)}), self.n_shards
        )
        #: That of the manifest, to which the labels belong.
        self.provenance = Provenance("repack", {**parameters, "split": config.split}, {"manifest": sha256_of(path)})

    @cached_property
    def _images(self) -> RepackedImages:
        """The images, whose files may be gone where all of them are repacked."""
        return RepackedImages(EncodedImages(self._manifest, self._root), self._config.size, self._config.quality)

    def plan(self, records: dict[int, ShardRecord]) -> RepackPlan:
        """Return what is left to do beside tar files that are there, estimated from some images of the others."""
        missing = [row for number in range(self.n_shards) if number not in records for row in self._rows(number)]
        sample = [missing[i] for i in np.linspace(0, len(missing) - 1, min(len(missing), _SAMPLE)).astype(int)]
        start = time.process_time()
        images = [self._images[row] for row in sample]
        seconds = time.process_time() - start
        readable = [image for image in images if isinstance(image, RepackedImage)]
        if sample and not readable:
            reasons = [image.reason for image in images if isinstance(image, SkippedImage)]
            raise InputError(
                f"{self._root}: of {len(missing):,} images, {len(sample):,} were tried, and none can be read; "
                "is this the folder that the paths of the manifest are relative to?\n"
                f"{indented_list(reasons, limit=5)}"
            )
        scale = len(missing) / max(len(sample), 1)
        return RepackPlan(
            images=len(self._manifest),
            done=len(self._manifest) - len(missing),
            shards=self.n_shards,
            source_bytes=scale * sum(self._images.n_bytes(row) for row in sample),
            n_bytes=scale * sum(len(image.data) for image in readable),
            cpu_seconds=scale * seconds,
            free_bytes=shutil.disk_usage(_existing(self._out)).free,
        )

    def write_missing(self, records: dict[int, ShardRecord], progress: Progress) -> list[ShardRecord]:
        """Write the tar files that are not there yet; returns the records of all."""
        missing = [number for number in range(self.n_shards) if number not in records]
        progress.start(len(self._manifest), sum(len(self._rows(number)) for number in records))
        written = dict(records)
        if not missing:
            return [records[number] for number in range(self.n_shards)]
        images = self._images.load([self._rows(number) for number in missing], self._config.workers)
        for number in missing:
            rows = self._rows(number)
            ids = self._manifest.ids[rows.start : rows.stop].tolist()
            written[number] = self.shards.write(number, rows, ids, _counted(islice(images, len(rows)), progress))
        return [written[number] for number in range(self.n_shards)]

    def write_tables(self, records: Sequence[ShardRecord]) -> tuple[str, ...]:
        """Write the manifest, the list of images that could not be read, and digests; returns the ids of the former.

        Raises:
            InputError: No image could be read.
        """
        skipped = {row: reason for record in records for row, reason in record.skipped}
        if len(skipped) == len(self._manifest):
            raise InputError(
                f"none of the {len(skipped):,} images can be read:\n{indented_list([*skipped.values()], limit=5)}"
            )
        ids = self._manifest.ids
        with (
            atomic_write(self._out / SKIPPED_NAME) as draft,
            draft.open("w", newline="", encoding="utf-8") as stream,
        ):
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(["id", "reason"])
            writer.writerows((ids[row], reason.removeprefix(f"{ids[row]}: ")) for row, reason in skipped.items())
        self.shards.write_sums(records)
        write_manifest(self._out / MANIFEST_NAME, self._repacked_manifest(records), self.provenance)
        return tuple(ids[row] for row in skipped)

    def _repacked_manifest(self, records: Sequence[ShardRecord]) -> Manifest:
        taken = self._manifest.take(_joined([record.rows for record in records]))
        names = [self.shards.path(number).name for number in range(len(records))]
        boxes = [box or [np.nan] * 4 for record in records for box in record.boxes]
        return replace(
            taken,
            paths=np.repeat(np.array(names, object), [len(record.rows) for record in records]),
            offsets=_joined([record.offsets for record in records]),
            sizes=_joined([record.sizes for record in records]),
            boxes=None if taken.boxes is None else np.array(boxes, np.float64),
        )

    def _rows(self, number: int) -> range:
        size = self._config.shard_size
        return range(number * size, min((number + 1) * size, len(self._manifest)))


def _counted(
    images: Iterator[RepackedImage | SkippedImage], progress: Progress
) -> Iterator[RepackedImage | SkippedImage]:
    for image in images:
        yield image
        progress.advance()


def _images_digest(manifest: Manifest) -> str:
    """Return the SHA-256 of which images these are, in order, with their boxes; labels do not count."""
    digest = hashlib.sha256()
    for strings in (manifest.ids, manifest.paths):
        digest.update(repr(strings.tolist()).encode())
    for numbers in (manifest.offsets, manifest.sizes, manifest.boxes):
        digest.update(b"" if numbers is None else numbers.tobytes())
    return digest.hexdigest()


def _joined(values: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.concatenate([np.array(part, np.int64) for part in values])


def _existing(path: Path) -> Path:
    """Return the folder, or the closest one above it that exists."""
    path = path.absolute()
    return path if path.exists() else _existing(path.parent)


def _check_space(out: Path, plan: RepackPlan) -> None:
    if plan.n_bytes > plan.free_bytes:
        raise ConfigurationError(
            f"{out}: the images need about {byte_size(plan.n_bytes)}, but the disk has only "
            f"{byte_size(plan.free_bytes)} left; free some space, or choose another folder (`out`)"
        )
