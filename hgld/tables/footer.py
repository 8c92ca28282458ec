"""The key-value metadata of Parquet files, read from their last bytes without pyarrow.

Whether a stage is up to date is told by the metadata of its output, and importing pyarrow takes longer than all the
rest. A Parquet file ends in its ``FileMetaData`` in Thrift's compact protocol, the length of that in four bytes, and
``PAR1`` (https://parquet.apache.org/docs/file-format, ``parquet.thrift``). Everything but field 5, a list of keys and
values, is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_MAGIC = b"PAR1"
#: Longest footer that is read here; pyarrow is faster with files of thousands of row groups.
_MAX_BYTES = 500_000
#: Metadata that pyarrow keeps to itself: the schema in its own format.
_OWN_KEY = b"ARROW:schema"

# Types of Thrift's compact protocol.
_STOP, _TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_KEY_VALUE_METADATA = 5


def read_key_values(path: Path) -> dict[bytes, bytes] | None:
    """Return the key-value metadata of a Parquet file; None where this reader gives up, and pyarrow has to look.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - 8, 0))
        tail = stream.read()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length > min(_MAX_BYTES, size - 12):
            return None
        stream.seek(size - 8 - length)
        footer = stream.read(length)
    try:
        pairs = _Reader(footer).key_values()
    except (IndexError, ValueError, RecursionError):  # damaged
        return None
    pairs.pop(_OWN_KEY, None)
    return pairs


class _Reader:
    """Reads Thrift's compact protocol from bytes; raises an IndexError or ValueError where these make no sense."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def key_values(self) -> dict[bytes, bytes]:
        """Read ``FileMetaData``, and return its key-value metadata."""
        pairs: dict[bytes, bytes] = {}

        def read_pairs(kind: int) -> None:
            n_pairs, element = self._list_header()
            if (kind, element) != (_LIST, _STRUCT):
                raise ValueError("the metadata are no list of structures")
            for _ in range(n_pairs):
                texts: list[bytes] = []

                def read_text(_: int, texts: list[bytes] = texts) -> None:
                    texts.append(self._binary())

                self._structure({1: read_text, 2: read_text})
                key, *value = texts
                pairs[key] = value[0] if value else b""

        self._structure({_KEY_VALUE_METADATA: read_pairs})
        return pairs

    def _structure(self, readers: dict[int, Callable[[int], None]]) -> None:
        """Read the fields of a structure: by the reader of their number, which gets their type, or skip them."""
        number = 0
        while (header := self._byte()) != _STOP:
            step, kind = header >> 4, header & 15
            number = number + step if step else self._zigzag()
            readers.get(number, self._skip)(kind)

    def _skip(self, kind: int) -> None:
        if kind in (_TRUE, _FALSE):
            return
        if kind == _I8:
            self._advance(1)
        elif kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _DOUBLE:
            self._advance(8)
        elif kind == _BINARY:
            self._binary()
        elif kind in (_LIST, _SET):
            n_elements, element = self._list_header()
            for _ in range(n_elements):
                # A truth value is in the type of a field, but in a byte of its own in a list.
                self._skip(_I8 if element in (_TRUE, _FALSE) else element)
        elif kind == _STRUCT:
            self._structure({})
        else:
            raise ValueError("a type that Parquet does not use")

    def _list_header(self) -> tuple[int, int]:
        header = self._byte()
        return (header >> 4) if header >> 4 != 15 else self._varint(), header & 15

    def _binary(self) -> bytes:
        length = self._varint()
        start = self._at
        self._advance(length)
        return self._data[start : self._at]

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _advance(self, n_bytes: int) -> None:
        self._at += n_bytes
        if self._at > len(self._data):
            raise ValueError("the data end too early")
