"""``hgld repack``: write the images of a manifest once, at a chosen size, into tar files.

Worker processes read and reduce the images in the order of the manifest. Ten thousand images make a
tar file with a record (:mod:`hgld.datasets.repacked_shards`). In the end a manifest with the same
ids, splits and labels is written.

A part of the work writes some of the tar files; the same call without a part writes the missing tar
files and the manifest, see :mod:`hgld.parted_output`.

The tar files depend only on the images and settings, with any number of workers, and after any
interruption. So a manifest with other labels of the same images is written without reading the
images again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import numpy as np

from hgld.arrays import Integers
from hgld.compute.parts import Part
from hgld.datasets.encoded_images import EncodedImages, SkippedImage
from hgld.datasets.manifest import Manifest, read_manifest, write_manifest
from hgld.datasets.repacked_shards import RepackedImages, RepackedShards, ShardRecord
from hgld.datasets.settings import RepackConfig
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.files import sha256_of, write_csv
from hgld.io.text_array import TextArray
from hgld.io.writable import free_bytes, require_free_space
from hgld.parted_output import RECORD, PartedOutput
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance, is_up_to_date

#: Files beside the tar files.
MANIFEST_NAME = "manifest.parquet"
SKIPPED_NAME = "skipped.csv"
#: Number of images from which a plan is estimated.
_SAMPLE = 64
#: Number of texts that are digested at once.
_TEXTS_AT_ONCE = 2**16


@dataclass(frozen=True)
class RepackPlan:
    """Work of a run; sizes and time are estimates from a sample of the images.

    Args:
        images: Number of images.
        done: Number of images that earlier runs have written or skipped.
        shards: Number of tar files for all images.
        source_bytes: Size of the files of the remaining images.
        n_bytes: Size of the remaining tar files.
        cpu_seconds: Processor time of the remaining work.
        free_bytes: Free space on the disk.
    """

    images: int
    done: int
    shards: int
    source_bytes: float
    n_bytes: float
    cpu_seconds: float
    free_bytes: int


@dataclass(frozen=True)
class RepackSummary:
    """Contents of the folder, and cost of the run.

    images: Number of images in the tar files.
    copies: Number of images that are the original files.
    skipped: Ids of images that cannot be read.
    n_bytes: Size of the tar files.
    shards: Number of tar files.
    written: Number of tar files that this run wrote.
    verified: Number of tar files of earlier runs whose SHA-256 is right; None without a check.
    seconds: Duration of the run.
    """

    images: int
    copies: int
    skipped: tuple[str, ...]
    n_bytes: int
    shards: int
    written: int
    verified: int | None
    seconds: float


def plan_repack(
    path: Path,
    out: Path,
    config: RepackConfig,
    *,
    root: Path | None = None,
    part: Part | None = None,
) -> RepackPlan:
    """Return the plan of :func:`repack_images` with the same arguments; nothing is written."""
    job = _RepackJob(path, out, config, root)
    job.require_own_folder()
    job.output().check()
    numbers = job.numbers(part)
    return job.plan(numbers, job.shards.records(numbers, verify=False))


def repack_images(
    path: Path,
    out: Path,
    config: RepackConfig,
    *,
    root: Path | None = None,
    part: Part | None = None,
    verify: bool = False,
    force: bool = False,
    announce: Callable[[RepackPlan], None] | None = None,
    progress: Progress | None = None,
) -> RepackSummary | None:
    """Write the images of a manifest into tar files, with a manifest of them; the same call resumes.

    Images that cannot be read are listed in ``skipped.csv`` with the reason, and are not in the new
    manifest. Memory: the manifest, and a few images per worker.

    Args:
        path: Manifest, or a CSV or Parquet file with its columns.
        out: Folder to write: ``manifest.parquet``, and the tar files that its paths name.
        config: Size of images and tar files, and workers.
        root: Folder to which the paths of the manifest are relative. Default: the manifest's folder.
        part: Part of the tar files to write. Other parts may be written at the same time, also on
            other computers; a later call without a part writes the manifest and missing tar files.
            Default: all tar files, and the manifest.
        verify: Whether to compare the SHA-256 of existing tar files, and write damaged ones again.
        force: Whether to write everything again, even with other settings than in the folder.
        announce: Called with the plan before the first tar file is written.
        progress: Progress bar over the images.

    Returns:
        Contents of the folder, or of a part of it; None if it is up to date and ``verify`` is False.

    Raises:
        ConfigurationError: The split does not exist, the folder holds other files or has other
            settings, or the disk is too small; or ``force`` is set for a part.
    """
    start = time.monotonic()
    if part is not None and force:
        raise ConfigurationError(
            "`force` would discard what other parts have written; remove the folder instead"
        )
    job = _RepackJob(path, out, config, root)
    job.require_own_folder()
    numbers = job.numbers(part)
    with job.output(verify=verify).opened(part, force=force) as is_open:
        if not is_open:
            return None
        before = job.shards.records(numbers, verify=verify)
        if len(before) < len(numbers):
            # The manifest names places in files that are now replaced.
            (out / MANIFEST_NAME).unlink(missing_ok=True)
            plan = job.plan(numbers, before)
            require_free_space(out, plan.n_bytes, "the images")
            if announce is not None:
                announce(plan)
        elif part is not None and not verify:
            return None
        records = job.write_missing(numbers, before, progress or NoProgress())
        if part is None:
            skipped = job.write_tables(records)
        else:
            skipped = job.skipped(records)
    return RepackSummary(
        images=sum(len(record.rows) for record in records),
        copies=sum(record.copies for record in records),
        skipped=skipped,
        n_bytes=sum(record.n_bytes for record in records),
        shards=len(numbers),
        written=len(numbers) - len(before),
        verified=len(before) if verify else None,
        seconds=time.monotonic() - start,
    )


class _RepackJob:
    """The images of a manifest and their tar files; arguments as in :func:`repack_images`."""

    def __init__(self, path: Path, out: Path, config: RepackConfig, root: Path | None) -> None:
        self._root = path.parent if root is None else root
        self._manifest = read_manifest(path, self._root)
        if config.split is not None:
            self._manifest = self._manifest.select_split(config.split)
        self._out = out
        self._config = config
        self.shards = RepackedShards(out, len(self._manifest), config.shard_size)
        # Provenance of the manifest, which depends on labels, unlike the tar files.
        parameters = {**config.parameters(), "split": config.split}
        self._provenance = Provenance("repack", parameters, {"manifest": sha256_of(path)})

    def require_own_folder(self) -> None:
        """Raise a ConfigurationError if the folder holds files of other programs."""
        if (self._out / RECORD).is_file() or not self._out.is_dir():
            return
        # Hidden files are drafts of interrupted runs, or belong to other programs.
        if any(not path.name.startswith(".") for path in self._out.iterdir()):
            raise ConfigurationError(
                f"{self._out} holds files that are not from hgld repack; choose another folder"
            )

    def output(self, *, verify: bool = False) -> PartedOutput:
        """Return the folder as an output in pieces; it is never up to date if ``verify`` is set."""
        images = {"images": _images_digest(self._manifest)}
        provenance = Provenance("repack", self._config.parameters(), images)
        files = [MANIFEST_NAME, "images_*.json", "images_*.tar"]

        def is_up_to_date_output() -> bool:
            return not verify and self._is_complete()

        return PartedOutput(
            self._out, self._out, provenance, files, "tar files", is_up_to_date_output
        )

    def _is_complete(self) -> bool:
        """Return whether the manifest is up to date and all its tar files exist."""
        if not is_up_to_date(self._out / MANIFEST_NAME, self._provenance):
            return False
        records = self.shards.records(self.shards.numbers, verify=False)
        return len(records) == len(self.shards.numbers)

    @cached_property
    def _images(self) -> RepackedImages:
        """The images, opened on first use, since files of repacked images may be gone."""
        encoded = EncodedImages(self._manifest, self._root)
        return RepackedImages(encoded, self._config.size, self._config.quality)

    def numbers(self, part: Part | None) -> Sequence[int]:
        """Return the numbers of the tar files of a part, by default of all tar files."""
        if part is None:
            return self.shards.numbers
        return part.of(self.shards.numbers)

    def plan(self, numbers: Sequence[int], records: Mapping[int, ShardRecord]) -> RepackPlan:
        """Estimate the remaining work from a sample of images without a tar file."""
        unwritten = [number for number in numbers if number not in records]
        missing = _joined([self.shards.rows([number]) for number in unwritten])
        n_sampled = min(len(missing), _SAMPLE)
        sample = missing[np.linspace(0, len(missing) - 1, n_sampled).astype(int)].tolist()
        start = time.process_time()
        images = [self._images[row] for row in sample]
        seconds = time.process_time() - start
        source_bytes = sum(self._images.n_bytes(row) for row in sample)
        n_bytes = 0
        reasons = []
        for image in images:
            if isinstance(image, SkippedImage):
                reasons.append(image.reason)
            else:
                n_bytes += len(image.data)
        if sample and len(reasons) == len(sample):
            raise InputError(
                f"{self._root}: of {len(missing):,} images, {len(sample):,} were tried, and none can be read; "
                "is this the folder that the paths of the manifest are relative to?\n"
                f"{indented_list(reasons, limit=5)}"
            )
        n_images = self.shards.n_images(numbers)
        scale = len(missing) / max(len(sample), 1)
        return RepackPlan(
            images=n_images,
            done=n_images - len(missing),
            shards=len(numbers),
            source_bytes=scale * source_bytes,
            n_bytes=scale * n_bytes,
            cpu_seconds=scale * seconds,
            free_bytes=free_bytes(self._out),
        )

    def write_missing(
        self, numbers: Sequence[int], records: Mapping[int, ShardRecord], progress: Progress
    ) -> list[ShardRecord]:
        """Write the tar files that have no record yet; return the records of all tar files."""
        missing = [number for number in numbers if number not in records]
        progress.start(self.shards.n_images(numbers), self.shards.n_images(records))
        records_by_number = dict(records)
        if missing:  # otherwise the files of images may be gone
            ranges = [self.shards.rows([number]) for number in missing]
            images = self._images.load(ranges, self._config.workers, progress)
            for number, rows in zip(missing, ranges, strict=True):
                ids = self._manifest.ids[rows.start : rows.stop].tolist()
                images_of_shard = islice(images, len(rows))
                records_by_number[number] = self.shards.write(number, rows, ids, images_of_shard)
        return [records_by_number[number] for number in numbers]

    def write_tables(self, records: Sequence[ShardRecord]) -> tuple[str, ...]:
        """Write the manifest, digests, and the list of unreadable images; return the list's ids."""
        ids = self._manifest.ids
        lines = []
        reasons = []
        for record in records:
            for row, reason in record.skipped:
                lines.append((ids[row], reason.removeprefix(f"{ids[row]}: ")))
                reasons.append(reason)
        if len(reasons) == len(self._manifest):
            raise InputError(
                f"none of the {len(reasons):,} images can be read:\n{indented_list(reasons, limit=5)}"
            )
        write_csv(self._out / SKIPPED_NAME, ["id", "reason"], lines)
        self.shards.write_sums(records)
        manifest = self._repacked_manifest(records)
        write_manifest(self._out / MANIFEST_NAME, manifest, self._provenance)
        return self.skipped(records)

    def skipped(self, records: Sequence[ShardRecord]) -> tuple[str, ...]:
        """Return the ids of images that could not be read."""
        ids = []
        for record in records:
            for row, _ in record.skipped:
                ids.append(self._manifest.ids[row])
        return tuple(ids)

    def _repacked_manifest(self, records: Sequence[ShardRecord]) -> Manifest:
        """Return the manifest of the images in the tar files."""
        manifest = self._manifest.take(_joined([record.rows for record in records]))
        names = [self.shards.path(number).name for number in range(len(records))]
        n_images = [len(record.rows) for record in records]
        boxes = None
        if manifest.boxes is not None:
            boxes = np.full((len(manifest), 4), np.nan)
            all_boxes = chain.from_iterable(record.boxes for record in records)
            for row, box in enumerate(all_boxes):
                if box is not None:
                    boxes[row] = box
        return replace(
            manifest,
            paths=TextArray(names, np.repeat(np.arange(len(names)), n_images)),
            offsets=_joined([record.offsets for record in records]),
            sizes=_joined([record.sizes for record in records]),
            boxes=boxes,
        )


def _images_digest(manifest: Manifest) -> str:
    """Return the SHA-256 of the ids, places and boxes of images, in order; labels do not count."""
    digest = hashlib.sha256()
    for texts in (manifest.ids, manifest.paths):
        # The digest of the texts as a list in Python's notation, without the whole list in memory.
        digest.update(b"[")
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            if start:
                digest.update(b", ")
            shown = repr(texts[start : start + _TEXTS_AT_ONCE].tolist())
            digest.update(shown[1:-1].encode())
        digest.update(b"]")
    for numbers in (manifest.offsets, manifest.sizes, manifest.boxes):
        digest.update(b"" if numbers is None else numbers.tobytes())
    return digest.hexdigest()


def _joined(parts: Sequence[Sequence[int]]) -> Integers:
    """Return the numbers of all parts as one array."""
    arrays = [np.array(part, np.int64) for part in parts]
    return np.concatenate([np.empty(0, np.int64), *arrays])
