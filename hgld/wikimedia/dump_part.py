"""Read the lines of a JSON dump of Wikidata, and one range of it into a part of the extract.

A dump is a JSON array with one entity per line: ``[``, lines that end in a comma, ``]``. It is divided into ranges of
bytes that are read independently, by several processes or machines. The published ``.gz`` is the concatenation of
hundreds of gzip members, one per batch of the servers that write it, with brackets and commas between them in members
of their own (``dumpwikibasejson.sh`` in Wikimedia's repository operations/puppet); a range of such a file has the
members that begin in it. A range of a ``.bz2`` has the blocks of 900 kB that begin in it. A line may begin in one
range and end in another: it belongs to the one where it begins.

A part is a Parquet file of the items that are linked (to a category, a superclass, or another item by a redirect),
one of all other items, and a JSON file that says what was read and is written last: without it there is no part.

Three kinds of lines matter. Items that have a category of Commons (a sitelink or P373), superclasses (P279), a main
category (P910) or are one (P301) are about a tenth of all; they are recognised by the bytes of these names, and
parsed whole. Any other item may be a value of "instance of" all the same. Of these only the beginning (label,
description), the values of P31 and the end (revision, date) are parsed, at a fraction of the cost. A line in which
these places are not found as Wikidata writes them is parsed whole as well, so that the result never depends on the
shortcut.
"""

from __future__ import annotations

import bz2
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from hgld.errors import InputError
from hgld.io.files import atomic_write
from hgld.tables.schemas import TEXTS, column
from hgld.wikimedia.api_facts import best_rank
from hgld.wikimedia.titles import CATEGORY_PREFIX, normalise_title

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
#: Names that lines of items contain which may be landmarks, categories, topics or classes. An expression that begins
#: with a letter and no quotation mark, of which lines are full, is searched as fast as a single name.
_PROPERTIES = re.compile(rb'P(?:279|301|373|910)"')
_SITELINK_MARK = b'"commonswiki"'
#: What is read of an item without any of these names, besides its id and the claims of P31.
_UNLINKED_KEYS = frozenset({"labels", "descriptions", "lastrevid", "modified"})
_ITEM = re.compile(r"Q([1-9][0-9]{0,9})")
_FIRST_STATEMENT = b':[{"mainsnak"'
#: Length up to which a line may be a redirect.
_LONGEST_REDIRECT = 1000
_NUMBERS = pa.list_(pa.field("element", pa.int64(), nullable=False))
#: The fields of :class:`DumpItem`.
ITEM_SCHEMA = pa.schema(
    [
        column("item", pa.int64(), "Number of the item, 42 for Q42."),
        column("redirect", pa.int64(), "Item that it redirects to.", nullable=True),
        column("revision", pa.int64(), "Last revision.", nullable=True),
        column("category", pa.string(), "Category of Commons that the sitelink names.", nullable=True),
        column("commons_categories", TEXTS, "Commons categories (P373)."),
        column("instance_of", _NUMBERS, "Classes of the item (P31), those of the best rank."),
        column("subclass_of", _NUMBERS, "Superclasses (P279), those of the best rank."),
        column("main_topic", pa.int64(), "What a category is about (P301).", nullable=True),
        column("label", pa.string(), "Label in the first language that has one.", nullable=True),
        column("language", pa.string(), "Language of the label.", nullable=True),
        column("description", pa.string(), "Description, likewise.", nullable=True),
    ]
)
#: Number of rows of a row group, which are in memory together.
ROWS_PER_GROUP = 20_000


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


class DumpItem(NamedTuple):
    """An item, with items as numbers (42 for Q42) and categories as titles with the prefix ``Category:``.

    The columns of :data:`hgld.wikimedia.dump_part.ITEM_SCHEMA` describe the fields; those of an item that redirects
    to another are empty.
    """

    item: int
    redirect: int | None = None
    revision: int | None = None
    category: str | None = None
    commons_categories: Sequence[str] = ()
    instance_of: Sequence[int] = ()
    subclass_of: Sequence[int] = ()
    main_topic: int | None = None
    label: str | None = None
    language: str | None = None
    description: str | None = None


class ReadLine(NamedTuple):
    """The item in a line (None for other entities), and when it was last edited (ISO 8601, or empty).

    A linked item has a category or superclasses, or is a redirect; others are named by statements at most.
    """

    item: DumpItem | None
    is_linked: bool
    modified: str


def read_line(line: bytes, languages: Sequence[str]) -> ReadLine:
    """Read the line of an entity, without the comma at its end, or raise ValueError if it is not one.

    Languages of labels and descriptions are in order of preference.
    """
    if len(line) > _LONGEST_REDIRECT and not _may_be_linked(line):
        # Not found as Wikidata writes them, the places to cut at raise ValueError, or leave no JSON or not all keys.
        with suppress(ValueError):
            entity = orjson.loads(_without_other_claims(line))
            if isinstance(entity, dict) and entity.keys() >= _UNLINKED_KEYS:
                return _read_entity(entity, languages)
    try:
        entity = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    return _read_entity(entity, languages)


def _may_be_linked(line: bytes) -> bool:
    """Return whether a line contains one of the names above; each is searched where it can be.

    A key with its colon never occurs within a text of JSON, where its quotation marks are escaped. Where a key is
    written otherwise, all of the line is searched.
    """
    sitelinks = line.rfind(b'"sitelinks":')
    if line.find(_SITELINK_MARK, max(sitelinks, 0)) >= 0:
        return True
    claims = max(line.find(b'"claims":'), 0)
    end = sitelinks if sitelinks > claims else len(line)
    return _PROPERTIES.search(line, claims, end) is not None


def _without_other_claims(line: bytes) -> bytes:
    """Return a line with its claims of P31 alone, and nothing between these and the last revision."""
    claims = line.index(b',"claims":')
    kept = b""
    if line.find(b'"P31"', claims) >= 0:
        begin = line.index(b'"P31"' + _FIRST_STATEMENT, claims)
        following = line.find(b'"' + _FIRST_STATEMENT, begin + len(b'"P31"'))
        end = line.rindex(b',"', begin, following) if following >= 0 else line.index(b'},"sitelinks":', begin)
        kept = line[begin:end]
    return b'%b,"claims":{%b},%b' % (line[:claims], kept, line[line.rindex(b'"lastrevid":') :])


def _read_entity(entity: Any, languages: Sequence[str]) -> ReadLine:
    try:
        if not isinstance(entity, dict):
            raise ValueError("not a JSON object")
        target = _item_number(entity.get("redirect"))
        if target is not None:
            source = _item_number(entity.get("id") or entity.get("entity"))
            return ReadLine(None if source is None else DumpItem(source, redirect=target), True, "")
        identifier = entity["id"]
        if not isinstance(identifier, str):
            raise ValueError("the id is no text")
        modified = str(entity.get("modified") or "")
        number = _item_number(identifier)
        if number is None:
            return ReadLine(None, False, modified)
        return _read_item(number, entity, languages, modified)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an entity of Wikidata: {type(error).__name__} {error}") from None


def _read_item(number: int, entity: Mapping[str, Any], languages: Sequence[str], modified: str) -> ReadLine:
    claims = entity.get("claims") or {}
    sitelinks = entity.get("sitelinks") or {}
    title = sitelinks["commonswiki"]["title"] if "commonswiki" in sitelinks else ""
    topics = list(_items(claims.get("P301", ())))
    label, language = _term(entity.get("labels"), languages)
    description, _ = _term(entity.get("descriptions"), languages)
    item = DumpItem(
        number,
        revision=entity.get("lastrevid"),
        category=title if title.startswith(CATEGORY_PREFIX) else None,
        commons_categories=[
            normalise_title(CATEGORY_PREFIX + value.strip())
            for value in _best_values(claims.get("P373", ()))
            if isinstance(value, str)
        ],
        instance_of=list(_items(claims.get("P31", ()))),
        subclass_of=list(_items(claims.get("P279", ()))),
        main_topic=topics[0] if topics else None,
        label=label,
        language=language,
        description=description,
    )
    is_linked = bool(
        item.category or item.commons_categories or item.main_topic or "P279" in claims or "P910" in claims
    )
    return ReadLine(item, is_linked, modified)


def _best_values(statements: Sequence[Mapping[str, Any]]) -> Iterable[Any]:
    """Yield the values of the best-rank statements."""
    for statement in best_rank(statements, itemgetter("rank")):
        if (value := statement["mainsnak"].get("datavalue")) is not None:
            yield value["value"]


def _items(statements: Sequence[Mapping[str, Any]]) -> Iterable[int]:
    for value in _best_values(statements):
        # Dumps before 2017 have the number alone.
        number = _item_number(value.get("id") or f"Q{value['numeric-id']}")
        if number is not None:
            yield number


def _item_number(identifier: Any) -> int | None:
    """Return 42 for Q42; None for what is not the id of an item."""
    match = _ITEM.fullmatch(identifier) if isinstance(identifier, str) else None
    return int(match[1]) if match else None


def _term(terms: Mapping[str, Any] | None, languages: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the text in the first of the languages that has one, and that language."""
    for language in languages:
        if terms and language in terms:
            return terms[language]["value"], language
    return None, None


@dataclass
class PartRecord:
    """What was read in a range of a file, and when the entity in it that changed last did so (ISO 8601, or empty)."""

    file: str
    size: int
    start: int
    end: int
    languages: tuple[str, ...]
    lines: int = 0
    items: int = 0
    opened: int = 0
    closed: int = 0
    began: int | None = None
    reached: int | None = None
    modified: str = ""


@dataclass(frozen=True)
class DumpPart:
    """A range of a dump by its number, and the folder where what is kept of it is written."""

    number: int
    range: DumpRange
    languages: tuple[str, ...]
    folder: Path

    @property
    def linked(self) -> Path:
        """Items with a category or superclasses, and redirects."""
        return self.folder / f"{self.number:06}.linked.parquet"

    @property
    def unlinked(self) -> Path:
        """All other items."""
        return self.folder / f"{self.number:06}.unlinked.parquet"

    @property
    def record(self) -> Path:
        """The :class:`PartRecord`."""
        return self.folder / f"{self.number:06}.json"

    def read_record(self) -> PartRecord | None:
        """Return what was read; None if this part is not there, or of another dump."""
        try:
            values = json.loads(self.record.read_text(encoding="utf-8"))
            record = PartRecord(**values | {"languages": tuple(values["languages"])})
            return record if asdict(record).items() >= self._identity.items() else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def make(self) -> None:
        """Read the range, and write the files; raise InputError if it is damaged or not of a dump of Wikidata."""
        record = PartRecord(**self._identity)
        with _item_writer(self.linked) as write_linked, _item_writer(self.unlinked) as write_unlinked:
            blocks = RangeLines(self.range)
            for block in blocks:
                for raw in block:
                    line = raw.strip(b", \t\r")
                    if not line.startswith(b"{"):
                        record.opened += line == b"["
                        record.closed += line == b"]"
                        if line not in (b"", b"[", b"]"):
                            raise self._invalid(record.lines, line, "it does not begin with {")
                        continue
                    record.lines += 1
                    if not line.endswith(b"}"):
                        raise self._invalid(record.lines, line, "it does not end with }")
                    try:
                        entity = read_line(line, self.languages)
                    except ValueError as error:
                        raise self._invalid(record.lines, line, str(error)) from None
                    record.modified = max(record.modified, entity.modified)
                    if entity.item is not None:
                        record.items += 1
                        (write_linked if entity.is_linked else write_unlinked)(entity.item)
        record.began, record.reached = blocks.began, blocks.reached
        with atomic_write(self.record) as draft:
            draft.write_text(json.dumps(asdict(record)), encoding="utf-8")

    @property
    def _identity(self) -> dict[str, Any]:
        """The fields of the record that are known before anything is read."""
        file = {"file": self.range.path.name, "size": self.range.size}
        return {**file, "start": self.range.start, "end": self.range.end, "languages": self.languages}

    def _invalid(self, lines: int, line: bytes, reason: str) -> InputError:
        text = line[:40].decode(errors="replace")
        return InputError(
            f'{self.range.path}: entity {lines:,} after byte {self.range.start:,} is "{text}…" ({reason}); expected '
            f"a JSON dump of Wikidata, with one entity per line; {DAMAGED}"
        )


@contextmanager
def _item_writer(path: Path) -> Iterator[Callable[[DumpItem], None]]:
    """Yield a function that writes an item to a Parquet file, a row group at a time."""
    rows: list[DumpItem] = []

    def flush() -> None:
        writer.write_table(items_table(rows))
        rows.clear()

    def write(item: DumpItem) -> None:
        rows.append(item)
        if len(rows) == ROWS_PER_GROUP:
            flush()

    with atomic_write(path) as draft, pq.ParquetWriter(draft, ITEM_SCHEMA, compression="zstd") as writer:
        yield write
        flush()


def items_table(items: Sequence[DumpItem]) -> pa.Table:
    """Return items as a table, in order of their numbers."""
    columns = zip(*sorted(items, key=lambda item: item.item), strict=True) if items else [()] * len(ITEM_SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ITEM_SCHEMA, strict=True)], schema=ITEM_SCHEMA
    )
