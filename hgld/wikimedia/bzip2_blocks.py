"""Read a bzip2 file from the middle, block by block, so that several processes can share one stream.

Blocks are compressed independently: each begins with the digits of pi as 48 bits and a checksum, at any bit of the
file, and has up to 900 kB of text. A stream ends with the digits of the square root of pi
(https://en.wikipedia.org/wiki/Bzip2#File_format). The bits of a block between a header and such an end are a file
that the standard library reads, and whose checksum it compares.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from typing import BinaryIO

BZIP2_MAGIC = b"BZh"
_READ_SIZE = 2**18
_HEADER = b"BZh9"
_BLOCK, _END = 0x314159265359, 0x177245385090
_MAGIC_BITS, _CHECKSUM_BITS = 48, 32
#: Number of bytes within which a magic lies, at whatever bit it begins.
_SPAN = 7
#: Length in bytes that no compressed block reaches.
_LONGEST_BLOCK = 2**20


def read_bzip2_blocks(stream: BinaryIO, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the text of all blocks from a byte on, with the byte in which each begins.

    Args:
        stream: File of one or several streams of bzip2.
        start: Byte in which, or after which, the first block begins.

    Raises:
        ValueError: The file is truncated or damaged.
    """
    stream.seek(start)
    data, base, searched = b"", start, 0
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
                raise ValueError(f"damaged after byte {base:,}")
    if block is not None:
        raise ValueError(f"cut short or damaged after byte {base:,}")


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
        return bz2.decompress(_HEADER + (stream << padding).to_bytes(n_bytes, "big"))
    except (OSError, ValueError):
        return None
