"""The items of a dump of Wikidata that can matter, whatever the list of categories: made once, read by every scrape.

The pass over the dump takes hours, and what it keeps does not depend on the list: all items with a category of
Commons, with superclasses or with a main category, and redirects. Everything else is only needed where one of these
names it as a value of "instance of", which is known when all of the dump has been read. To save a second pass, the
few columns that such an item needs are kept of *all* items until the end (about 40 bytes an item with zstd).

1. The dump is divided into ranges of bytes (:mod:`hgld.wikimedia.dump_part`), each of which becomes a part
   (:mod:`hgld.wikimedia.dump_part`), by any process in any order: a part that is there is not made again.
2. The unlinked items that other items name are picked from the parts.
3. The items are sorted by their number and written to one table, in slices that fit into memory, and the parts are
   removed. The table depends on the dump alone, not on how it was divided.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hgld.compute.executors import Part
from hgld.compute.machine import usable_cores
from hgld.errors import ConfigurationError, InputError, SourceError, require_at_least
from hgld.io.files import OPENING_WAIT_S, PartLocks, atomic_write, exclusive_lock
from hgld.progress import NoProgress, Progress
from hgld.tables.parquet import Provenance, read_provenance, with_provenance
from hgld.wikimedia.dump_part import (
    DAMAGED,
    ITEM_SCHEMA,
    ROWS_PER_GROUP,
    DumpPart,
    PartRecord,
    divide,
    find_dump_files,
)

_COMMAND = "extract-dump"
_SCHEMA_ID = "wikidata_items/1"
_PARTS = "parts"
#: Number of rows that are sorted in memory together.
_ROWS_PER_SLICE = 100_000


@dataclass(frozen=True)
class ExtractConfig:
    """Settings of the pass over a dump.

    Args:
        workers: Number of processes; None for one per core.
        languages: Languages of labels and descriptions, in order of preference: English, and where the API falls back
            to from it.
        bytes_per_part: Size in bytes of the ranges into which files are divided; compressed bytes of those that are.
    """

    workers: int | None = None
    languages: tuple[str, ...] = ("en", "mul")
    bytes_per_part: int = 2**28

    def __post_init__(self) -> None:
        require_at_least(1, workers=self.workers, bytes_per_part=self.bytes_per_part)


@dataclass(frozen=True)
class ExtractProgress:
    """How much of an extract there is: number of parts, of those that are made, and whether it is complete."""

    parts: int
    parts_done: int
    complete: bool


def items_path(folder: Path) -> Path:
    """Return the path of the table of an extract."""
    return folder / "items.parquet"


def extract_dump(
    dump: Path,
    folder: Path,
    config: ExtractConfig | None = None,
    *,
    part: Part | None = None,
    progress: Progress | None = None,
) -> ExtractProgress:
    """Make the extract of a dump, or a share of its parts; the same call resumes after an interruption.

    Args:
        dump: JSON dump of Wikidata: a file, plain or compressed by gzip or bzip2, or a folder of such files.
        folder: Folder of the extract; nothing is done if it is complete.
        part: Share of the parts to make; without it, those that are missing are made and the extract is completed.

    Raises:
        InputError: The dump is none of Wikidata, or damaged; parts that were made are kept.
        ConfigurationError: ``folder`` is the extract of another dump.
    """
    config, progress = config or ExtractConfig(), progress or NoProgress()
    sizes = [[path.name, path.stat().st_size] for path in find_dump_files(dump)]
    source: dict[str, object] = {"files": sizes, "languages": list(config.languages)}
    if items_path(folder).exists():
        made = read_provenance(items_path(folder))
        if made.command != _COMMAND or {key: made.parameters.get(key) for key in source} != source:
            raise ConfigurationError(
                f"{items_path(folder)} is not an extract of this dump; choose another `extract`, or remove it to "
                "make it again"
            )
        shutil.rmtree(folder / _PARTS, ignore_errors=True)  # left if a run was killed after it wrote the table
        return ExtractProgress(0, 0, True)
    parts = _dump_parts(dump, folder, config)
    share = list(parts if part is None else part.of(parts))
    with _locked(folder, part):
        if not items_path(folder).exists():
            missing = [one for one in share if one.read_record() is None]
            n_bytes, todo = (sum(len(one.range) for one in some) for some in (share, missing))
            progress.start(n_bytes, done=n_bytes - todo)
            _make_parts(missing, config.workers or usable_cores(), progress)
            if part is None:
                _complete(parts, dump, folder, source)
    done = sum(one.read_record() is not None for one in parts)
    return ExtractProgress(len(parts), done, items_path(folder).exists())


def ranges_are_written(dump: Path, folder: Path, config: ExtractConfig) -> Callable[[Part], bool]:
    """Return a function that says whether a share of the parts of an extract is made; see :func:`extract_dump`."""
    parts = _dump_parts(dump, folder, config)
    is_complete = items_path(folder).exists()
    return lambda part: is_complete or all(one.read_record() is not None for one in part.of(parts))


def _dump_parts(dump: Path, folder: Path, config: ExtractConfig) -> list[DumpPart]:
    ranges = enumerate(divide(find_dump_files(dump), config.bytes_per_part))
    return [DumpPart(number, one, config.languages, folder / _PARTS) for number, one in ranges]


def read_extract(folder: Path) -> Provenance:
    """Return the provenance of a complete extract; its parameter ``modified`` is the date of the dump."""
    path = items_path(folder)
    if not path.exists():
        begun = (folder / _PARTS).is_dir()
        raise InputError(
            f"{folder}: this extract of a dump is {'not complete' if begun else 'not there'}; name the dump, too "
            "(`dump`), without `part`"
        )
    provenance = read_provenance(path)
    if provenance.command != _COMMAND:
        raise InputError(f"{path}: not an extract of a dump")
    return provenance


@contextmanager
def _locked(folder: Path, part: Part | None) -> Iterator[None]:
    """Lock an extract, or a share of its parts, which are removed when it is completed: both exclude each other."""
    locks = PartLocks(folder, folder)
    with ExitStack() as held:
        if part is None:
            held.enter_context(exclusive_lock(folder))
            locks.require_idle()
        else:
            with exclusive_lock(folder, wait_s=OPENING_WAIT_S):
                held.enter_context(locks.held(str(part)))
        yield


def _make_parts(parts: Sequence[DumpPart], workers: int, progress: Progress) -> None:
    """Make parts in parallel processes, or in the calling process if there is only one worker or part."""
    if min(workers, len(parts)) <= 1:
        for part in parts:
            part.make()
            progress.advance(len(part.range))
        return
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(min(workers, len(parts)), context, _end_with_parent)
    try:
        futures = {executor.submit(part.make): part for part in parts}
        for future in as_completed(futures):
            future.result()
            progress.advance(len(futures[future].range))
    except BrokenProcessPool:
        raise SourceError(
            "a worker process was killed, perhaps because memory ran out; the parts that were made are kept: run the "
            "same command again, with fewer `workers`"
        ) from None
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Leave Ctrl-C to the parent process, and end when it does, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _complete(parts: Sequence[DumpPart], dump: Path, folder: Path, source: dict[str, object]) -> None:
    """Write the table from the parts, and remove these."""
    records = [record for part in parts if (record := part.read_record()) is not None]
    modified = _check_records(records, dump)
    _check_boundaries(records)
    provenance = Provenance(_COMMAND, {**source, "modified": modified})
    linked = [part.linked for part in parts]
    numbers, named = _numbers_in(linked)
    picked = _pick_named([part.unlinked for part in parts], numbers, named)
    _write_sorted(linked, picked, numbers, items_path(folder), folder / _PARTS, provenance)
    shutil.rmtree(folder / _PARTS)


def _check_records(records: Sequence[PartRecord], dump: Path) -> str:
    """Return the date of a dump, which must be complete and have items."""
    opened, closed, items = (sum(getattr(record, key) for record in records) for key in ("opened", "closed", "items"))
    if opened != closed:
        raise InputError(f"{dump}: {opened} lines are [ and {closed} are ], so a part is missing; {DAMAGED}")
    if not items:
        raise InputError(f"{dump}: no item in it; expected a JSON dump of all entities of Wikidata")
    modified = max(record.modified for record in records)
    if not modified:
        raise InputError(f"{dump}: no entity says when it was modified, so the date of the dump is unknown")
    return modified


def _check_boundaries(records: Sequence[PartRecord]) -> None:
    """Check that each range was entered where the one before it was left, so that no line is lost or read twice.

    It may be entered elsewhere because something in the middle of a member looks like a member.
    """
    reached: int | None = None
    for record in records:
        if record.start and record.began is None:
            continue
        if record.start and record.began != reached:
            raise InputError(
                f"{record.file}: a part ends at byte {reached}, but the next one begins at byte {record.began}; "
                "decompress the file, and use the result instead"
            )
        reached = record.reached


def _batches(paths: Sequence[Path], columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(ROWS_PER_GROUP, columns=columns, use_threads=False)


def _numbers_in(paths: Sequence[Path]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the items in files, and of those that they name; both sorted, without repetitions."""
    items: list[NDArray[np.int64]] = []
    named: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    for batch in _batches(paths, ["item", *_NAMING]):
        items.append(batch["item"].to_numpy().copy())
        named.append(_named_by(batch))
        if sum(map(len, named[1:])) > _ROWS_PER_SLICE + len(named[0]):
            named = [np.unique(np.concatenate(named))]
    numbers = np.concatenate([np.zeros(0, np.int64), *items])
    items.clear()
    numbers.sort()  # in place, as there are ten million
    is_first = np.diff(numbers, prepend=-1) > 0
    return numbers if is_first.all() else numbers[is_first], np.unique(np.concatenate(named))


#: Columns that name other items.
_NAMING = ("redirect", "instance_of", "subclass_of", "main_topic")


def _named_by(batch: pa.RecordBatch | pa.Table) -> NDArray[np.int64]:
    columns = [batch[name] for name in _NAMING]
    flat = [pc.list_flatten(column) if pa.types.is_list(column.type) else column.drop_null() for column in columns]
    return np.unique(np.concatenate([column.to_numpy() for column in flat]))


def _pick_named(paths: Sequence[Path], known: NDArray[np.int64], named: NDArray[np.int64]) -> pa.Table:
    """Return the items that others name and that are not known, with those that they name in turn."""
    picked = [ITEM_SCHEMA.empty_table()]
    wanted, looked_up = _without(named, known), np.zeros(0, np.int64)
    while wanted.size:
        found = ITEM_SCHEMA.empty_table()
        for path in paths:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    items = file.read_row_group(group, columns=["item"])["item"].to_numpy()
                    mask = np.isin(items, wanted)
                    if mask.any():
                        rows = file.read_row_group(group).filter(pa.array(mask))
                        found = pa.concat_tables([found, rows])
        picked.append(found)
        looked_up = np.union1d(looked_up, wanted)
        wanted = _without(_without(_named_by(found), known), looked_up)
    return pa.concat_tables(picked)


def _without(numbers: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers that are not among the known ones, which are sorted."""
    if not known.size:
        return numbers
    positions = np.minimum(np.searchsorted(known, numbers), known.size - 1)
    unknown: NDArray[np.int64] = numbers[known[positions] != numbers]
    return unknown


def _write_sorted(
    paths: Sequence[Path],
    picked: pa.Table,
    numbers: NDArray[np.int64],
    out: Path,
    scratch: Path,
    provenance: Provenance,
) -> None:
    """Write the items of files and of a table to one file, sorted by number; the last revision of each."""
    bounds = numbers[_ROWS_PER_SLICE::_ROWS_PER_SLICE]
    slices = [scratch / f"slice-{number}.arrow" for number in range(len(bounds) + 1)]
    with ExitStack() as stack:
        writers = [stack.enter_context(pa.ipc.new_stream(path, ITEM_SCHEMA, options=_ZSTD)) for path in slices]
        for batch in chain(_batches(paths), picked.to_batches()):
            target = np.searchsorted(bounds, batch["item"].to_numpy(), side="right")
            for number in np.unique(target):
                writers[number].write_batch(batch.filter(pa.array(target == number)))
    with (
        atomic_write(out) as draft,
        pq.ParquetWriter(draft, with_provenance(ITEM_SCHEMA, _SCHEMA_ID, provenance), compression="zstd") as writer,
    ):
        for path in slices:
            with pa.ipc.open_stream(path) as stream:
                rows = stream.read_all().sort_by([("item", "ascending"), ("revision", "descending")])
            is_last = np.diff(rows["item"].to_numpy(), prepend=-1) > 0
            writer.write_table(rows.filter(pa.array(is_last)), row_group_size=ROWS_PER_GROUP)


_ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")
