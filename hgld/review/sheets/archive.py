"""Open the ZIP archive of a workbook, unless it is damaged, encrypted or unreasonably large.

A small archive can unpack to any size. Its directory states the sizes of its members; an archive whose directory
understates them fails as damaged, because no more than the stated size is unpacked (:func:`read_member`).
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from xml.parsers import expat
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from hgld.errors import InputError

#: A workbook of 5,700 labels has 0.7 MB and unpacks to 10 MB; formats on a million empty rows unpack to 120 MB.
MAX_FILE_BYTES = 64 * 2**20
MAX_UNPACKED_BYTES = 256 * 2**20
MAX_MEMBERS = 10_000
#: Beginnings and ends of elements in an XML file; a sheet of 5,700 labels has 500,000.
MAX_TAGS = 5_000_000

_ENCRYPTED = "protected by a password; save it without one"
SAVE_AS = "save it as .xlsx, .ods or .csv"
_HEADER_OF_MEMBER = b"PK\x01\x02"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def read_bytes(path: Path) -> bytes:
    """Return the content of a sheet, of any format.

    Raises:
        InputError: The file is missing, empty, a folder, or larger than any sheet.
    """
    if path.is_dir():
        raise InputError(f"{path}: a folder; give one of the sheets in it")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    size = path.stat().st_size
    if not size:
        raise InputError(f"{path}: the file is empty")
    if size > MAX_FILE_BYTES:
        raise InputError(f"{path}: {size >> 20:,} MB; a review sheet has at most {MAX_FILE_BYTES >> 20} MB")
    return path.read_bytes()


def open_archive(path: Path) -> ZipFile:
    """Return the archive of a workbook, read into memory.

    Raises:
        InputError: The file is missing, empty, cut off, encrypted or too large, or has another format.
    """
    data = read_bytes(path)
    if not data.startswith(b"PK"):
        raise InputError(f"{path}: {_describe_other_format(data)}")
    if data.count(_HEADER_OF_MEMBER) > MAX_MEMBERS:
        raise InputError(f"{path}: an archive of more than {MAX_MEMBERS:,} files; no review sheet is")
    try:
        archive = ZipFile(BytesIO(data))
    except (BadZipFile, ValueError) as error:
        raise InputError(f"{path}: not a readable workbook, probably cut off; copy it again ({error})") from error
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    if unpacked > MAX_UNPACKED_BYTES:
        raise InputError(
            f"{path}: unpacks to {unpacked >> 20:,} MB, more than the {MAX_UNPACKED_BYTES >> 20} MB that a review "
            f"sheet may have; copy its sheets into a new workbook"
        )
    if any(member.flag_bits & 1 for member in members) or _is_encrypted_ods(archive):
        raise InputError(f"{path}: {_ENCRYPTED}")
    if any(member.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for member in members):
        raise InputError(f"{path}: not packed as workbooks are; {SAVE_AS}")
    return archive


def _describe_other_format(data: bytes) -> str:
    if data.startswith(_OLE):
        # The directory of the container holds the names of its streams.
        return _ENCRYPTED if "EncryptedPackage".encode("utf-16-le") in data else f"an old Excel workbook; {SAVE_AS}"
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return f"a web page or XML, not a workbook; open it in a spreadsheet program and {SAVE_AS}"
    return f"not a readable workbook, nor another format of review sheets; {SAVE_AS}"


def _is_encrypted_ods(archive: ZipFile) -> bool:
    manifest = "META-INF/manifest.xml"
    return manifest in archive.NameToInfo and b"encryption-data" in read_member(archive, manifest)


def read_member(archive: ZipFile, name: str) -> bytes:
    """Return the content of a member.

    Raises:
        BadZipFile: The checksum is wrong, as it is if the member is larger than the directory states.
        KeyError: There is no such member.
    """
    size = archive.getinfo(name).file_size
    with archive.open(name) as stream:
        # Without a size, and in ZipFile.read, everything is unpacked before it is cut to the stated size.
        return stream.read(max(size, 1))


class XmlHandler:
    """Receives the elements of an XML file; names consist of the namespace, a space and the local name."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Receive the start of an element."""

    def end(self, name: str) -> None:
        """Receive the end of an element."""

    def text(self, text: str) -> None:
        """Receive text, possibly in pieces."""


def parse_xml(archive: ZipFile, member: str, handler: XmlHandler) -> None:
    """Parse a file in an archive without building a tree, which would take up to 50 times the size of the file.

    Args:
        archive: The archive.
        member: Name of an XML file in it.
        handler: Receives the elements.

    Raises:
        ValueError: The file has too many elements, or a document type. Workbooks have none, and its entities could
            grow without limit.
        KeyError: There is no such file.
        expat.ExpatError: The file is not XML.
    """

    def refuse(*_: object) -> None:
        raise ValueError(f"{member} has a document type")

    content = read_member(archive, member)
    if content.count(b"<") > MAX_TAGS:
        raise ValueError(f"{member} has more than {MAX_TAGS:,} tags; are many empty cells formatted?")
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = handler.start, handler.end
    parser.CharacterDataHandler = handler.text
    parser.Parse(content, True)
