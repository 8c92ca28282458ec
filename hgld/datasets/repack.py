"""``hgld repack``: write the images of a manifest once, at a chosen size, into tar files that are read in order.

What passes: the rows of a manifest, in order, in chunks; the bytes of each image, read and reduced by a worker
process; a tar file and its record for each ten thousand of them
(:mod:`hgld.datasets.repacked_shards`); and in the end a manifest with the same ids, splits and labels.

A part of the work writes some of the tar files; the same call without a part writes the missing ones and the
manifest, see :mod:`hgld.parted_output`.

The tar files depend on the images and settings alone, with any number of workers, after any interruption. So a
manifest with other labels of the same images is written without touching the images again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.compute.parts import Part
from hgld.datasets.encoded_images import EncodedImages, SkippedImage
from hgld.datasets.manifest import Manifest, read_manifest, write_manifest
from hgld.datasets.repacked_shards import RepackedImage, RepackedImages, RepackedShards, ShardRecord
from hgld.datasets.settings import RepackConfig
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.files import free_bytes, require_free_space, sha256_of, write_csv
from hgld.io.text_array import TextArray
from hgld.parted_output import RECORD, PartedOutput
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance, is_up_to_date

#: Files beside the tar files.
MANIFEST_NAME, SKIPPED_NAME = "manifest.parquet", "skipped.csv"
#: Number of images that a plan is estimated from.
_SAMPLE = 64
#: Texts that are digested at once.
_SHOWN = 2**16


@dataclass(frozen=True)
class RepackPlan:
    """What a run is going to do; sizes and time are estimates from a sample of the images.

    Args:
        done: Number of them that earlier runs have dealt with.
        shards: Number of tar files for all images.
        source_bytes: Size of the files of the images that are left.
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

    Args:
        copies: Number of them that are the original files.
        verified: Number of tar files of earlier runs whose SHA-256 is right; None if that was not asked for.
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
    """Return what :func:`repack_images` with the same arguments is going to do; nothing is written."""
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

    Images that cannot be read are listed in ``skipped.csv`` with the reason, and are not in the new manifest. Memory:
    the manifest, and a few images per worker.

    Args:
        path: Manifest, or a CSV or Parquet file with its columns.
        out: Folder to write: ``manifest.parquet``, and the tar files that its paths name.
        root: Folder that the paths of the manifest are relative to. Default: its own folder.
        part: Part of the tar files to write; other parts may be written at the same time, also on other computers. A
            call without it then writes the manifest, and what is missing. Default: all of them, and the manifest.
        verify: Whether to compare the SHA-256 of existing tar files, and write damaged ones again.
        force: Whether to write everything again, whatever the settings of the tar files in the folder.
        announce: Called with the plan before the first tar file is written.

    Returns:
        Contents of the folder, or of a part of it; None if it is up to date and ``verify`` is False.

    Raises:
        ConfigurationError: There is no such split, the folder holds something else or has other settings, or the
            disk is too small; or ``force`` is set for a part.
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
            (out / MANIFEST_NAME).unlink(
                missing_ok=True
            )  # it names places in files that are now replaced
            plan = job.plan(numbers, before)
            require_free_space(out, plan.n_bytes, "the images")
            if announce is not None:
                announce(plan)
        elif part is not None and not verify:
            return None
        records = job.write_missing(numbers, before, progress or NoProgress())
        skipped = job.skipped(records) if part is not None else job.write_tables(records)
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
    """The images of a manifest and the tar files that they go to; arguments as of :func:`repack_images`."""

    def __init__(self, path: Path, out: Path, config: RepackConfig, root: Path | None) -> None:
        self._root = path.parent if root is None else root
        self._manifest = read_manifest(path, self._root)
        if config.split is not None:
            self._manifest = self._manifest.select_split(config.split)
        self._out, self._config = out, config
        self.shards = RepackedShards(out, len(self._manifest), config.shard_size)
        #: Provenance of the manifest, to which the labels belong, unlike that of the tar files.
        self._provenance = Provenance(
            "repack", {**config.parameters(), "split": config.split}, {"manifest": sha256_of(path)}
        )

    def require_own_folder(self) -> None:
        """Raise a ConfigurationError if the folder holds files that are not of a repack."""
        if (self._out / RECORD).is_file() or not self._out.is_dir():
            return
        # Hidden files are drafts of killed runs, or of other programs.
        if any(not path.name.startswith(".") for path in self._out.iterdir()):
            raise ConfigurationError(
                f"{self._out} holds files that are not from hgld repack; choose another folder"
            )

    def output(self, *, verify: bool = False) -> PartedOutput:
        """Return the folder as an output in pieces; it is never up to date where tar files are to be verified."""
        images = {"images": _images_digest(self._manifest)}
        provenance = Provenance("repack", self._config.parameters(), images)
        files = [MANIFEST_NAME, "images_*.json", "images_*.tar"]
        return PartedOutput(
            self._out,
            self._out,
            provenance,
            files,
            "tar files",
            lambda: not verify and self._is_complete(),
        )

    def _is_complete(self) -> bool:
        """Return whether the manifest is up to date and has all of its tar files."""
        if not is_up_to_date(self._out / MANIFEST_NAME, self._provenance):
            return False
        return len(self.shards.records(self.shards.numbers, verify=False)) == len(
            self.shards.numbers
        )

    @cached_property
    def _images(self) -> RepackedImages:
        """The images, whose files may be gone where all of them are repacked."""
        return RepackedImages(
            EncodedImages(self._manifest, self._root), self._config.size, self._config.quality
        )

    def numbers(self, part: Part | None) -> Sequence[int]:
        """Return the numbers of the tar files of a part, by default of all."""
        return self.shards.numbers if part is None else part.of(self.shards.numbers)

    def plan(self, numbers: Sequence[int], records: Mapping[int, ShardRecord]) -> RepackPlan:
        """Estimate the remaining work from a sample of images without a tar file."""
        missing = _joined(
            [self.shards.rows([number]) for number in numbers if number not in records]
        )
        n_images = self.shards.n_images(numbers)
        sample = missing[
            np.linspace(0, len(missing) - 1, min(len(missing), _SAMPLE)).astype(int)
        ].tolist()
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
            images=n_images,
            done=n_images - len(missing),
            shards=len(numbers),
            source_bytes=scale * sum(self._images.n_bytes(row) for row in sample),
            n_bytes=scale * sum(len(image.data) for image in readable),
            cpu_seconds=scale * seconds,
            free_bytes=free_bytes(self._out),
        )

    def write_missing(
        self, numbers: Sequence[int], records: Mapping[int, ShardRecord], progress: Progress
    ) -> list[ShardRecord]:
        """Write those of some tar files that have no record yet; return the records of all of them."""
        missing = [number for number in numbers if number not in records]
        progress.start(self.shards.n_images(numbers), self.shards.n_images(records))
        if not missing:  # the files of images may be gone
            return [records[number] for number in numbers]
        written = dict(records)
        ranges = [self.shards.rows([number]) for number in missing]
        images = self._images.load(ranges, self._config.workers, progress)
        for number, rows in zip(missing, ranges, strict=True):
            ids = self._manifest.ids[rows.start : rows.stop].tolist()
            written[number] = self.shards.write(number, rows, ids, islice(images, len(rows)))
        return [written[number] for number in numbers]

    def write_tables(self, records: Sequence[ShardRecord]) -> tuple[str, ...]:
        """Write the manifest, the list of images that could not be read, and digests; returns the former's ids."""
        skipped = {row: reason for record in records for row, reason in record.skipped}
        if len(skipped) == len(self._manifest):
            raise InputError(
                f"none of the {len(skipped):,} images can be read:\n{indented_list([*skipped.values()], limit=5)}"
            )
        ids = self._manifest.ids
        reasons = (
            (ids[row], reason.removeprefix(f"{ids[row]}: ")) for row, reason in skipped.items()
        )
        write_csv(self._out / SKIPPED_NAME, ["id", "reason"], reasons)
        self.shards.write_sums(records)
        write_manifest(
            self._out / MANIFEST_NAME, self._repacked_manifest(records), self._provenance
        )
        return self.skipped(records)

    def skipped(self, records: Sequence[ShardRecord]) -> tuple[str, ...]:
        """Return the ids of images that could not be read."""
        return tuple(self._manifest.ids[row] for record in records for row, _ in record.skipped)

    def _repacked_manifest(self, records: Sequence[ShardRecord]) -> Manifest:
        taken = self._manifest.take(_joined([record.rows for record in records]))
        names = [self.shards.path(number).name for number in range(len(records))]
        boxes = [box or [np.nan] * 4 for record in records for box in record.boxes]
        return replace(
            taken,
            paths=TextArray(
                names, np.repeat(np.arange(len(names)), [len(record.rows) for record in records])
            ),
            offsets=_joined([record.offsets for record in records]),
            sizes=_joined([record.sizes for record in records]),
            boxes=None if taken.boxes is None else np.array(boxes, np.float64),
        )


def _images_digest(manifest: Manifest) -> str:
    """Return the SHA-256 of which images these are, in order, with their boxes; labels do not count."""
    digest = hashlib.sha256()
    for strings in (
        manifest.ids,
        manifest.paths,
    ):  # as a list of str objects is written, but not all at once
        digest.update(b"[")
        for start in range(0, len(strings), _SHOWN):
            shown = repr(strings[start : start + _SHOWN].tolist())[1:-1]
            digest.update(f"{', ' if start else ''}{shown}".encode())
        digest.update(b"]")
    for numbers in (manifest.offsets, manifest.sizes, manifest.boxes):
        digest.update(b"" if numbers is None else numbers.tobytes())
    return digest.hexdigest()


def _joined(values: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(np.array(part, np.int64) for part in values)])
