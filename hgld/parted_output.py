"""Outputs that are made in pieces, by one run, or by several runs at the same time that make some pieces each.

Pieces are numbered files of a folder; a piece is complete or absent. Pieces do not depend on parts: after a run was
killed, another division into parts or a run of all pieces continues with the existing pieces. The folder has a record
of the inputs of its pieces, and pieces of other inputs are refused.

A run of all pieces holds the lock of the output (:func:`~hgld.io.locks.exclusive_lock`) to its end. A part holds it
only until it has a lock of its own. So whoever holds the lock of the output knows which parts are running.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hgld.compute.parts import Part
from hgld.errors import BusyError, ConfigurationError, indented_list
from hgld.io.files import write_text
from hgld.io.locks import exclusive_lock, is_locked
from hgld.tables import Provenance

#: Seconds that a part waits for the lock of the output, which parts that start at the same time hold in turn.
OPENING_WAIT_S = 60
#: Record of the inputs of the pieces of a folder.
RECORD = "made_of.json"


class Shards:
    """A division of consecutive images into pieces of the same number of images; the last one may have fewer.

    Args:
        n_images: Number of all images.
        shard_size: Number of images of a piece.
    """

    def __init__(self, n_images: int, shard_size: int) -> None:
        self._n_images, self._shard_size = n_images, shard_size
        #: Numbers of all pieces, from 0.
        self.numbers: Sequence[int] = range(math.ceil(n_images / shard_size))

    def rows(self, numbers: Sequence[int]) -> range:
        """Return the rows of the images of consecutive pieces."""
        if not numbers:
            return range(0)
        start, stop = numbers[0] * self._shard_size, (numbers[-1] + 1) * self._shard_size
        return range(start, min(stop, self._n_images))

    def n_images(self, numbers: Iterable[int]) -> int:
        """Return the number of images of some pieces."""
        return sum(len(self.rows([number])) for number in numbers)


@contextmanager
def locked_output(
    out: Path, folder: Path, part: Part | None, open_folder: Callable[[], bool] = lambda: True
) -> Iterator[bool]:
    """Lock an output for a run of all pieces or of a part, until the block ends.

    Args:
        out: The output.
        folder: Folder of the lock files of parts.
        part: The part; None for the whole output.
        open_folder: Called while the output is locked; returns whether there is anything to do.

    Yields:
        The result of ``open_folder``.

    Raises:
        BusyError: Another run is writing the output, or the part; or parts are running, and this is a run of all.
    """
    with ExitStack() as locks:
        if part is None:
            locks.enter_context(exclusive_lock(out))
            _require_idle(out, folder)
            yield open_folder()
            return
        with exclusive_lock(out, wait_s=OPENING_WAIT_S):
            is_open = open_folder()
            if is_open:
                lock = exclusive_lock(folder / part.file_name, name=f"part {part} of {out}")
                locks.enter_context(lock)
        yield is_open


def _require_idle(out: Path, folder: Path) -> None:
    """Raise a BusyError if parts are running."""
    running = []
    for path in sorted(folder.glob(".*-of-*.lock")):
        name = path.name.removeprefix(".").removesuffix(".lock")
        if is_locked(folder / name):
            number, count = name.split("-of-")
            running.append(f"{int(number)}/{count}")
    if running:
        parts = f"part {running[0]} is" if len(running) == 1 else f"parts {', '.join(running)} are"
        raise BusyError(f"{out}: {parts} still running; wait for the end")


@dataclass(frozen=True)
class PartedOutput:
    """An output and the folder of its pieces.

    Args:
        out: The output, which may be the folder itself.
        folder: Folder of the pieces.
        provenance: Provenance of the pieces.
        files: Patterns of the names of files that are discarded with the pieces, in this order.
        noun: What messages call the pieces, such as ``tar files``.
        is_up_to_date: Returns whether the output is complete, and made from the same settings and inputs.
    """

    out: Path
    folder: Path
    provenance: Provenance
    files: Sequence[str]
    noun: str
    is_up_to_date: Callable[[], bool]

    def opened(
        self, part: Part | None = None, *, force: bool = False
    ) -> AbstractContextManager[bool]:
        """Create the folder, or reuse it with its pieces, and lock the output or a part until the block ends.

        Args:
            part: Part that is to be made. Default: all pieces.
            force: Whether to discard the pieces, also of the same inputs, and to write an output that is up to date.

        Yields:
            Whether there is anything to do; False if the output is up to date.

        Raises:
            BusyError: See :func:`locked_output`.
            ConfigurationError: See :meth:`check`.
        """
        return locked_output(self.out, self.folder, part, partial(self._open, force=force))

    def _open(self, *, force: bool) -> bool:
        if self.is_up_to_date() and not force:
            return False
        if self.discards_pieces(force=force):
            for pattern in self.files:
                for path in sorted(self.folder.glob(pattern)):
                    path.unlink()
        else:
            self.check()
        write_text(self.folder / RECORD, self.provenance.to_json())
        return True

    def discards_pieces(self, *, force: bool = False) -> bool:
        """Return whether pieces in the folder are discarded: by ``force``, or because they have no record."""
        return force or not (self.folder / RECORD).is_file()

    def check(self) -> None:
        """Raise a ConfigurationError if there are pieces of other inputs."""
        record = self.folder / RECORD
        if not record.is_file():
            return
        try:
            recorded = Provenance.from_json(record.read_text(encoding="utf-8"))
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{record}: damaged, so it is not known what the {self.noun} are made from; discard these with "
                f"`force`, or remove the folder {self.folder}"
            ) from error
        if not recorded.same_work(self.provenance):
            changes = indented_list(recorded.changes(self.provenance))
            raise ConfigurationError(
                f"{self.folder}: {self.noun} of other settings or images; run with those to resume, choose another "
                f"output, discard these with `force`, or remove the folder:\n{changes}"
            )
