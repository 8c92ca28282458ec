"""Journal of a scrape: every batch of facts is on disk before the next one is requested.

The first line identifies the scrape; each further line is a JSON object with one batch. The file is only appended to.
A last line that was cut short by a kill is dropped when the journal is opened again.
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
    """Journal at a path, opened as a context manager and created if it does not exist.

    Args:
        path: File of the journal.
        scrape: Identity of the scrape: its input and settings, JSON values only.

    Raises:
        InputError: The file belongs to another scrape.
    """

    def __init__(self, path: Path, scrape: Mapping[str, Any]) -> None:
        self._path = path
        self._header = {"format": _FORMAT, "scrape": dict(scrape)}
        self._stream = path.open("a+b")
        try:
            self._recover()
        except BaseException:
            self._stream.close()
            raise

    def batches(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Yield kind, time (seconds since 1970) and facts of every batch, in the order of arrival.

        Raises:
            InputError: A line is damaged.
        """
        self._stream.seek(0)
        for number, line in enumerate(self._stream, 1):
            try:
                record = json.loads(line)
                if number > 1:
                    yield record["kind"], record["at"], record["facts"]
            except (ValueError, KeyError) as error:
                raise InputError(
                    f"{self._path}: line {number} is damaged ({error}); delete the file to start the scrape again"
                ) from error

    def append(self, kind: str, at: int, facts: Mapping[str, Any]) -> None:
        """Write a batch to disk."""
        self._write({"kind": kind, "at": at, "facts": facts})

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def _recover(self) -> None:
        """Drop a truncated last line, then check or write the first line."""
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
            header = json.loads(first)
        except ValueError:
            header = None
        if header != self._header:
            raise InputError(
                f"{self._path}: this journal belongs to another scrape (other input, split, source, servers or "
                "hgld): finish that one, choose another output, or use `force` to discard it and start again"
            )

    def _ends_line(self, end: int) -> bool:
        self._stream.seek(end - 1)
        return self._stream.read(1) == b"\n"

    def _write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        self._stream.write(line.encode() + b"\n")
        self._stream.flush()
