"""The journal of a scrape: every answered batch, on disk before the next one is asked for.

One JSON line a batch, below a first line that says which scrape it belongs to. The file is only ever appended to;
a line cut short by a kill is the last one, and is dropped when the journal is opened again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from hgld.errors import InputError

_FORMAT = "hgld.scrape-journal/1"


class Journal:
    """The open journal at ``path``, created if it is not there; a context manager.

    Args:
        path: the file.
        scrape: what identifies the scrape, JSON values only.

    Raises:
        InputError: the file belongs to another scrape, or is damaged before its last line.
    """

    def __init__(self, path: Path, scrape: Mapping[str, Any]) -> None:
        self._path = path
        self._header = {"format": _FORMAT, "scrape": dict(scrape)}
        self._stream = path.open("a+b")
        try:
            self._begin()
        except BaseException:
            self._stream.close()
            raise

    def batches(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Kind, time and facts of every batch, in the order they came."""
        self._stream.seek(0)
        for number, line in enumerate(self._stream, 1):
            try:
                record = json.loads(line)
                if number > 1:
                    yield record["kind"], record["at"], record["facts"]
            except (ValueError, KeyError) as error:
                raise InputError(
                    f"{self._path}: line {number} is damaged ({error}); delete the file to begin the scrape anew"
                ) from error

    def append(self, kind: str, at: int, facts: Mapping[str, Any]) -> None:
        """Put a batch on disk."""
        self._write({"kind": kind, "at": at, "facts": facts})

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def _begin(self) -> None:
        """Drop a last line that was cut short, then read or write the first one."""
        end = self._stream.seek(0, os.SEEK_END)
        while end and not self._ends_line(end):
            end -= 1
        self._stream.truncate(end)
        self._stream.seek(0)
        first = self._stream.readline()
        if not first:
            self._write(self._header)
            return
        try:
            found = json.loads(first)
        except ValueError:
            found = first.decode(errors="replace")
        if found != self._header:
            raise InputError(
                f"{self._path}: this journal was begun by another scrape (other input, split, source, servers or "
                "hgld): finish that one, choose another output, or use --force to drop it and begin anew"
            )

    def _ends_line(self, end: int) -> bool:
        self._stream.seek(end - 1)
        return self._stream.read(1) == b"\n"

    def _write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        self._stream.write(line.encode() + b"\n")
        self._stream.flush()
