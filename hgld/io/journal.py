"""Journal of long work with a server: each batch of facts is on disk before the next request.

Each line holds one batch: a checksum, and a JSON object that also names the origin of the facts.
The key of a fact is its subject, such as a title, so that facts can be used for another list. The
file is only appended to; a later line names facts that were wrong. A damaged line loses only its
own facts, and a last line that a kill cut short is dropped.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import BaseModel

from hgld.errors import InputError

log = logging.getLogger(__name__)

_FORMAT = "hgld.journal/3"
#: Largest number of damaged lines that a warning lists.
_MAX_LISTED = 10


class _Record(BaseModel, strict=True):
    """Content of a line: a batch of facts, or keys of facts that were wrong."""

    origin: dict[str, Any]
    kind: str
    at: int
    facts: dict[str, Any]
    forgotten: list[str] = []


class Journal:
    """Journal in a file, which is created if it does not exist; a context manager.

    Args:
        path: The file.
        origin: Source and servers of the facts; JSON values.
    """

    def __init__(self, path: Path, origin: Mapping[str, Any]) -> None:
        self._path = path
        self._origin = {"format": _FORMAT, **origin}
        self._stream = path.open("a+b")
        try:
            self._drop_cut_line()
        except BaseException:
            self._stream.close()
            raise

    def batches(
        self, read: Callable[[str, Any], Any] = lambda kind, fact: fact
    ) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Iterate over kind, time (seconds since 1970) and facts of every batch, in order of arrival.

        Facts that were forgotten later are left out. Damaged lines are omitted; a warning lists
        them.

        Args:
            read: Restores a fact from its kind and its JSON value. If it raises ValueError,
                TypeError or KeyError, since the value has another shape, the line counts as
                damaged.

        Raises:
            InputError: A line has facts from another source or other servers.
        """
        forgotten = self._forgotten()
        self._stream.seek(0)
        damaged = []
        for number, line in enumerate(self._stream, 1):
            try:
                record = _parse(line)
                if record.origin != self._origin:
                    raise InputError(
                        f"{self._path}: line {number} of this journal is from another source, other servers or "
                        "another hgld: finish that run, choose another output, or use `force` to discard it and "
                        "start again"
                    )
                facts = {}
                for key, fact in record.facts.items():
                    if forgotten.get((record.kind, key), 0) < number:
                        facts[key] = read(record.kind, fact)
            except (ValueError, TypeError, KeyError):
                damaged.append(number)
                continue
            yield record.kind, record.at, facts
        if damaged:
            numbers = ", ".join(map(str, damaged[:_MAX_LISTED]))
            if len(damaged) > _MAX_LISTED:
                numbers += ", …"
            log.warning(
                "%s: %d damaged lines are ignored, and their facts requested again: %s",
                self._path,
                len(damaged),
                numbers,
            )

    def append(self, kind: str, at: int, facts: Mapping[str, Any]) -> None:
        """Write a batch to disk."""
        self._write({"kind": kind, "at": at, "facts": facts})

    def forget(self, kind: str, keys: Sequence[str]) -> None:
        """Write to disk that the facts with these keys are wrong."""
        self._write({"kind": kind, "at": 0, "facts": {}, "forgotten": keys})

    def _forgotten(self) -> dict[tuple[str, str], int]:
        """Return the number of the last line that names a fact as forgotten, by kind and key."""
        self._stream.seek(0)
        lines: dict[tuple[str, str], int] = {}
        for number, line in enumerate(self._stream, 1):
            if b"forgotten" in line:
                with suppress(ValueError):
                    record = _parse(line)
                    for key in record.forgotten:
                        lines[record.kind, key] = number
        return lines

    def _write(self, record: Mapping[str, Any]) -> None:
        record = {"origin": self._origin, **record}
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        self._stream.write(b"%08x %s\n" % (zlib.crc32(text), text))
        self._stream.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()

    def _drop_cut_line(self) -> None:
        """Truncate the file after its last line end."""
        end = self._stream.seek(0, os.SEEK_END)
        while end and not self._ends_line(end):
            end -= 1
        self._stream.truncate(end)

    def _ends_line(self, end: int) -> bool:
        self._stream.seek(end - 1)
        return self._stream.read(1) == b"\n"


def _parse(line: bytes) -> _Record:
    """Return the record of a line; raise ValueError if the line is not as it was written."""
    checksum, _, text = line.removesuffix(b"\n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        raise ValueError("wrong checksum")
    return _Record.model_validate_json(text)
