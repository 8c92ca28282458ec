"""Read the lines of a JSON dump of Wikidata: plain, gzip or bzip2, one file or a folder of parts.

A dump is a JSON array with one entity per line: ``[``, lines that end in a comma, ``]``. It is divided into ranges of
bytes that are read independently, by several processes or machines. The published ``.gz`` is the concatenation of
hundreds of gzip members, one per batch of the servers that write it, with brackets and commas between them in members
of their own (``dumpwikibasejson.sh`` in Wikimedia's repository operations/puppet); a range of such a file has the
members that begin in it. A range of a ``.bz2`` has the blocks of 900 kB that begin in it. A line may begin in one
range and end in another: it belongs to the one where it begins.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hgld.errors import InputError
from hgld.wikimedia.bzip2_blocks import BZIP2_MAGIC, read_bzip2_blocks

#: Endings of files in a folder that are parts of a dump.
SUFFIXES = (".json", ".json.gz", ".json.bz2")
#: What to do about a file that cannot be read to its end.
DAMAGED = "download it again, or compare it with the checksums of its server; what was read before is kept"
_READ_SIZE = 2**18
#: Beginning of a gzip member, up to its flags.
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")


@dataclass(frozen=True)
class DumpFile:
    """A file of a dump.

    Args:
        path: Path of the file.
        size: Size in bytes.
    """

    path: Path
    size: int


@dataclass(frozen=True)
class DumpRange:
    """A range of bytes of a file; if it is compressed, of its compressed bytes.

    Args:
        path: Path of the file.
        start: First byte.
        end: Byte after the last one.
    """

    path: Path
    start: int
    end: int


def find_dump_files(dump: Path) -> list[DumpFile]:
    """Return the files of a dump: the file itself, or the files of a folder sorted by name.

    Raises:
        InputError: There is no such file, or no ``.json``, ``.json.gz`` or ``.json.bz2`` in the folder.
    """
    if dump.is_dir():
        paths = sorted(path for path in dump.iterdir() if path.name.endswith(SUFFIXES) and path.is_file())
        if not paths:
            raise InputError(f"{dump}: no dump in this folder; expected files that end in {', '.join(SUFFIXES)}")
    elif dump.is_file():
        paths = [dump]
    else:
        raise InputError(f"{dump}: no such file; expected a JSON dump of Wikidata, or a folder of its parts")
    return [DumpFile(path, path.stat().st_size) for path in paths]


def divide(files: list[DumpFile], n_bytes: int) -> list[DumpRange]:
    """Divide files into ranges.

    Args:
        files: Files of a dump.
        n_bytes: Size of a range in bytes, at most.
    """
    return [
        DumpRange(file.path, start, min(start + n_bytes, file.size))
        for file in files
        for start in range(0, file.size, n_bytes)
    ]


class RangeLines:
    """Lines of a range, without line ends: those that begin in it.

    A line that begins with the first byte of a range, or of its first member or block, counts as one of the range
    before.

    Attributes:
        began: Where the first plain text, member or block of the range begins; None if none begins in it.
        reached: Where the next one after the range begins; None at the end of the file.

    Args:
        part: The range.
    """

    def __init__(self, part: DumpRange) -> None:
        self._part = part
        self.began: int | None = None
        self.reached: int | None = None

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield lists of lines.

        Raises:
            InputError: The file is truncated or damaged.
        """
        rest, is_inside = b"", self._part.start == 0
        for position, block in _blocks(self._part):
            if position < self._part.end:
                self.began = position if self.began is None else self.began
            elif self.reached is None:
                self.reached = position
            if not is_inside:
                if self.reached is not None:
                    return
                _, newline, block = block.partition(b"\n")
                is_inside = bool(newline)
            if is_inside and self.reached is None:
                *lines, rest = (rest + block).split(b"\n")
                yield lines
            elif is_inside:
                rest, newline, _ = (rest + block).partition(b"\n")
                if newline:
                    break
        if rest:
            yield [rest]


def _blocks(part: DumpRange) -> Iterator[tuple[int, bytes]]:
    """Yield text from the beginning of a range to the end of the file, with where its member or block begins."""
    with part.path.open("rb") as stream:
        magic = stream.read(len(_GZIP_MAGIC))
        if magic == _GZIP_MAGIC:
            yield from _gzip_blocks(stream, part)
        elif magic == BZIP2_MAGIC:
            try:
                yield from read_bzip2_blocks(stream, part.start)
            except ValueError as error:
                raise InputError(f"{part.path}: {error}; {DAMAGED}") from None
        else:
            stream.seek(part.start)
            while block := stream.read(max(min(_READ_SIZE, part.end - stream.tell()), 0) or _READ_SIZE):
                yield part.start if stream.tell() <= part.end else part.end, block


def _gzip_blocks(stream: BinaryIO, part: DumpRange) -> Iterator[tuple[int, bytes]]:
    start = 0 if part.start == 0 else _find_member(stream, part)
    if start is None:
        return
    stream.seek(start)
    decompressor = None
    raw = b""
    while raw or (raw := stream.read(_READ_SIZE)):
        if decompressor is None:
            decompressor = _gzip_decompressor()
            start = stream.tell() - len(raw)
        try:
            block = decompressor.decompress(raw)
        except zlib.error as error:
            raise InputError(f"{part.path}: damaged before byte {stream.tell():,} ({error}); {DAMAGED}") from None
        if block:
            yield start, block
        raw = decompressor.unused_data
        if decompressor.eof:
            decompressor = None
    if decompressor is not None:
        raise InputError(f"{part.path}: ends in the middle of the compressed data; {DAMAGED}")


def _find_member(stream: BinaryIO, part: DumpRange) -> int | None:
    """Return where the first gzip member in a range begins that has any text; None if none does."""
    position = part.start
    while position < part.end:
        stream.seek(position)
        for match in _GZIP_MEMBER.finditer(stream.read(_READ_SIZE + len(_GZIP_MAGIC))):
            start = position + match.start()
            if match.start() >= _READ_SIZE or start >= part.end:
                break
            stream.seek(start)
            # The magic also occurs by chance, but what follows it then is hardly ever valid.
            try:
                if _gzip_decompressor().decompress(stream.read(_READ_SIZE)):
                    return start
            except zlib.error:
                continue
        position += _READ_SIZE
    return None


def _gzip_decompressor() -> zlib._Decompress:
    return zlib.decompressobj(zlib.MAX_WBITS + 16)
