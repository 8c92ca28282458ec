"""Read the lines of a JSON dump of Wikidata: plain, gzip or bzip2, one file or a folder of parts.

A dump is a JSON array with one entity per line: ``[``, lines that end in a comma, ``]``. It is divided into ranges of
bytes that are read independently, by several processes or machines. The published ``.gz`` is the concatenation of
hundreds of gzip members, one per batch of the servers that write it, with brackets and commas between them in members
of their own (``dumpwikibasejson.sh`` in Wikimedia's repository operations/puppet); a range of such a file has the
members that begin in it. A line may begin in one range and end in another: it belongs to the one where it begins.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from hgld.errors import InputError

#: Endings of files in a folder that are parts of a dump.
SUFFIXES = (".json", ".json.gz", ".json.bz2")
_READ_SIZE = 2**20
#: Number of compressed bytes from which a decompressor must get something, if a member begins there: bzip2 gives
#: nothing before a whole block, of up to 900 kB, has been read.
_PROBE_SIZE = 2**20
#: What to do about a file that cannot be read to its end.
DAMAGED = "download it again, or compare it with the checksums of its server; what was read before is kept"
_GZIP_MAGIC, _BZIP2_MAGIC = b"\x1f\x8b\x08", b"BZh"


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
    """Return the files of a dump: the file itself, or those of a folder by name.

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


def read_lines(part: DumpRange) -> Iterator[list[bytes]]:
    """Yield lists of the lines of a range, without line ends: those that begin in it.

    A line that begins with the first byte of a range, or of its first member, counts as one of the range before.

    Raises:
        InputError: The file is truncated or damaged.
    """
    rest, is_inside = b"", part.start == 0
    for block, is_beyond in _blocks(part):
        if not is_inside:
            if is_beyond:
                return
            _, newline, block = block.partition(b"\n")
            is_inside = bool(newline)
        if is_inside and not is_beyond:
            *lines, rest = (rest + block).split(b"\n")
            yield lines
        elif is_inside:
            rest, newline, _ = (rest + block).partition(b"\n")
            if newline:
                break
    if rest:
        yield [rest]


def _blocks(part: DumpRange) -> Iterator[tuple[bytes, bool]]:
    """Yield the text from the beginning of a range to the end of the file; True for what is beyond the range."""
    with part.path.open("rb") as stream:
        magic = stream.read(len(_GZIP_MAGIC))
        if magic == _GZIP_MAGIC:
            yield from _decompressed_blocks(stream, part, lambda: zlib.decompressobj(zlib.MAX_WBITS + 16), magic)
        elif magic == _BZIP2_MAGIC:
            yield from _decompressed_blocks(stream, part, bz2.BZ2Decompressor, magic)
        else:
            stream.seek(part.start)
            while block := stream.read(max(min(_READ_SIZE, part.end - stream.tell()), 0) or _READ_SIZE):
                yield block, stream.tell() > part.end


def _decompressed_blocks(
    stream: BinaryIO, part: DumpRange, new_decompressor: Callable[[], Any], magic: bytes
) -> Iterator[tuple[bytes, bool]]:
    start = 0 if part.start == 0 else _find_member(stream, part, new_decompressor, magic)
    if start is None:
        return
    stream.seek(start)
    decompressor, is_beyond = None, False
    raw = b""
    while raw or (raw := stream.read(_READ_SIZE)):
        if decompressor is None:
            decompressor = new_decompressor()
            is_beyond = stream.tell() - len(raw) >= part.end
        try:
            block = decompressor.decompress(raw)
        except (OSError, zlib.error) as error:
            raise InputError(f"{part.path}: damaged before byte {stream.tell():,} ({error}); {DAMAGED}") from None
        if block:
            yield block, is_beyond
        raw = decompressor.unused_data
        if decompressor.eof:
            decompressor = None
    if decompressor is not None:
        raise InputError(f"{part.path}: ends in the middle of the compressed data; {DAMAGED}")


def _find_member(stream: BinaryIO, part: DumpRange, new_decompressor: Callable[[], Any], magic: bytes) -> int | None:
    """Return where the first member (gzip) or stream (bzip2) in a range begins; None if none does."""
    position = part.start
    while position < part.end:
        stream.seek(position)
        block = stream.read(_READ_SIZE + len(magic) - 1)
        offset = block.find(magic)
        while 0 <= offset < min(_READ_SIZE, part.end - position):
            stream.seek(position + offset)
            # The magic also occurs by chance, but what follows it then is hardly ever valid.
            try:
                if new_decompressor().decompress(stream.read(_PROBE_SIZE)):
                    return position + offset
            except (OSError, zlib.error):
                pass
            offset = block.find(magic, offset + 1)
        position += _READ_SIZE
    return None
