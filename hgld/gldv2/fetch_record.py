"""Record of the finished files of a folder: half a terabyte need not be read again to know that it is complete."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from hgld.errors import InputError
from hgld.gldv2.files import DatasetFile
from hgld.io.files import atomic_write

_FORMAT = "hgld.fetched/1"


class FetchRecord:
    """Size, time of modification and MD5 of every finished file, kept in ``.hgld-fetched.json``; thread-safe.

    Args:
        folder: Folder of the files.

    Raises:
        InputError: The record is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / ".hgld-fetched.json"
        self._lock = threading.Lock()
        self._files = self._read()

    def is_finished(self, file: DatasetFile) -> bool:
        """Return whether the file exists with the size and time of modification that it had when it was finished."""
        path, entry = self._folder / file.path, self._files.get(file.path)
        if entry is None or not path.is_file():
            return False
        stat = path.stat()
        return (stat.st_size, stat.st_mtime_ns) == (entry["size"], entry["mtime_ns"])

    def md5(self, file: DatasetFile) -> str:
        """Return the MD5 of a finished file."""
        return str(self._files[file.path]["md5"])

    def add(self, file: DatasetFile, md5: str) -> None:
        """Record a file as finished."""
        stat = (self._folder / file.path).stat()
        with self._lock:
            self._files[file.path] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "md5": md5}
            document = {"format": _FORMAT, "files": self._files}
            with atomic_write(self._path) as draft:
                draft.write_text(json.dumps(document, indent=1), encoding="utf-8")

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            if document["format"] != _FORMAT:
                raise ValueError(f"its format is {document['format']}, expected {_FORMAT}")
            return dict(document["files"])
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self._path} is damaged ({error}); delete it, and the files in the folder are verified once more"
            ) from error
