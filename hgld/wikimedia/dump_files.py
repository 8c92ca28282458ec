"""Read the lines of a JSON dump of Wikidata: plain, gzip or bzip2, one file or a folder of parts.

A dump is a JSON array with one entity per line: ``[``, lines that end in a comma, ``]``. It is divided into ranges of
bytes that are read independently, by several processes or machines. The published ``.gz`` is the concatenation of
hundreds of gzip members, one per batch of the servers that write it, with brackets and commas between them in members
of their own (``dumpwikibasejson.sh`` in Wikimedia's repository operations/puppet); a range of such a file has the
members that begin in it. A range of a ``.bz2`` has the blocks of 900 kB that begin in it. A line may begin in one
range and end in another: it belongs to the one where it begins.
"""

from __future__ import annotations

import bz2
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hgld.errors import InputError

#: Endings of files in a folder that are parts of a dump.
SUFFIXES = (".json", ".json.gz", ".json.bz2")
#: What to do about a file that cannot be read to its end.
DAMAGED = "download it again, or compare it with the checksums of its server; what was read before is kept"
_READ_SIZE = 2**18
#: Beginning of a gzip member, up to its flags.
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
_BZIP2_MAGIC = b"BZh"
_BZIP2_HEADER = b"BZh9"
_BLOCK, _END = 0x314159265359, 0x177245385090
_MAGIC_BITS, _CHECKSUM_BITS = 48, 32
#: Number of bytes within which a magic lies, at whatever bit it begins.
_SPAN = 7
#: Length in bytes that no compressed block reaches.
_LONGEST_BLOCK = 2**20


@dataclass(frozen=True)
class DumpRange:
    """The bytes of a file of ``size`` bytes from ``start`` on and before ``end``, compressed if the file is."""

    path: Path
    size: int
    start: int
    end: int

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self.end - self.start


def find_dump_files(dump: Path) -> list[Path]:
    """Return the files of a dump: the file itself, or the files of a folder sorted by name."""
    if dump.is_file():
        return [dump]
    if not dump.is_dir():
        raise InputError(f"{dump}: no such file; expected a JSON dump of Wikidata, or a folder of its parts")
    paths = sorted(path for path in dump.iterdir() if path.name.endswith(SUFFIXES) and path.is_file())
    if not paths:
        raise InputError(f"{dump}: no dump in this folder; expected files that end in {', '.join(SUFFIXES)}")
    return paths


def divide(files: Sequence[Path], n_bytes: int) -> list[DumpRange]:
    """Divide files into ranges of at most ``n_bytes`` bytes."""
    sizes = [(path, path.stat().st_size) for path in files]
    return [
        DumpRange(path, size, start, min(start + n_bytes, size))
        for path, size in sizes
        for start in range(0, size, n_bytes)
    ]


class RangeLines:
    """Lines of a range, without line ends: those that begin in it.

    A line that begins with the first byte of a range, or of its first member or block, counts as one of the range
    before.

    Attributes:
        began: Where the first plain text, member or block of the range begins; None if none begins in it.
        reached: Where the next one after the range begins; None at the end of the file.
    """

    def __init__(self, part: DumpRange) -> None:
        self._part = part
        self.began: int | None = None
        self.reached: int | None = None

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield lists of lines."""
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
        elif magic == _BZIP2_MAGIC:
            yield from _bzip2_blocks(stream, part)
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


def _bzip2_blocks(stream: BinaryIO, part: DumpRange) -> Iterator[tuple[int, bytes]]:
    """Yield the text of all blocks from a range on, with the byte in which each begins.

    Blocks are compressed independently: each begins with the digits of pi as 48 bits and a checksum, at any bit of
    the file, and has up to 900 kB of text. A stream of them ends with the digits of the square root of pi
    (https://en.wikipedia.org/wiki/Bzip2#File_format). The bits of a block between a header and such an end are a file
    that the standard library reads, and whose checksum it compares. Libraries for bzip2 in parallel cannot begin in
    the middle of a file: they decompress all that comes before to find blocks.
    """
    stream.seek(part.start)
    data, base, searched = b"", part.start, 0
    block: int | None = None  # bit of `data` at which the current block begins
    while chunk := stream.read(_READ_SIZE):
        data += chunk
        for bit, is_block in _magics(data, searched):
            if block is not None:
                text = _decompress(data, block, bit)
                if text is None:  # the digits are there by chance, and the block goes on; or it is damaged
                    continue
                yield base + block // 8, text
            block = bit if is_block else None
        searched = max(len(data) - _SPAN + 1, 0)
        dropped = searched if block is None else min(block // 8, searched)
        data, base, searched = data[dropped:], base + dropped, searched - dropped
        if block is not None:
            block -= 8 * dropped
            if len(data) > _LONGEST_BLOCK + _READ_SIZE:
                raise InputError(f"{part.path}: damaged after byte {base:,}; {DAMAGED}")
    if block is not None:
        raise InputError(f"{part.path}: cut short or damaged after byte {base:,}; {DAMAGED}")


def _magics(data: bytes, start: int) -> list[tuple[int, bool]]:
    """Return the bits at which blocks (True) and ends of streams (False) begin, in bytes from ``start`` on."""
    found = []
    for magic, is_block in ((_BLOCK, True), (_END, False)):
        for shift in range(8):
            pattern = (magic << (8 - shift)).to_bytes(_SPAN, "big")
            first_mask, last_mask = 0xFF >> shift, 0xFF << (8 - shift) & 0xFF
            at = data.find(pattern[1:-1], start + 1)
            while 0 <= at < len(data) - _SPAN + 2:
                if data[at - 1] & first_mask == pattern[0] and data[at + _SPAN - 2] & last_mask == pattern[-1]:
                    found.append((8 * (at - 1) + shift, is_block))
                at = data.find(pattern[1:-1], at + 1)
    return sorted(found)


def _decompress(data: bytes, begin: int, end: int) -> bytes | None:
    """Return the text of the block in a range of bits; None if it is not one."""
    length = end - begin
    if length < _MAGIC_BITS + _CHECKSUM_BITS:
        return None
    last = -(-end // 8)
    block = int.from_bytes(data[begin // 8 : last], "big") >> (8 * last - end) & ((1 << length) - 1)
    # The checksum of a stream of one block is that of the block.
    checksum = block >> (length - _MAGIC_BITS - _CHECKSUM_BITS) & ((1 << _CHECKSUM_BITS) - 1)
    stream = ((block << _MAGIC_BITS) | _END) << _CHECKSUM_BITS | checksum
    n_bytes = -(-(length + _MAGIC_BITS + _CHECKSUM_BITS) // 8)
    padding = 8 * n_bytes - (length + _MAGIC_BITS + _CHECKSUM_BITS)
    try:
        return bz2.decompress(_BZIP2_HEADER + (stream << padding).to_bytes(n_bytes, "big"))
    except (OSError, ValueError):
        return None
