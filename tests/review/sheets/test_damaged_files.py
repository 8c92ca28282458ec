"""Files that are not review sheets are refused in one line."""

import zipfile
from pathlib import Path

import pytest

from hgld.errors import InputError
from hgld.review.settings import ImportConfig
from hgld.review.sheets.entries import COLUMNS
from hgld.review.sheets.import_sheet import import_sheet
from hgld.review.sheets.workbook import read_workbook
from tests.review.sheets.test_workbook import write
from tests.sheet_files import write_xlsx, write_zip

#: Beginning of the container format of old and of encrypted Excel workbooks.
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500)


def refusal(path: Path) -> str:
    """Return the message with which a file is refused."""
    with pytest.raises(InputError) as error:
        import_sheet(path, path.with_name("out.csv"), ImportConfig("ada"))
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


HEADER = "<row>" + "".join(f'<c t="inlineStr"><is><t>{name}</t></is></c>' for name in COLUMNS) + "</row>"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"", "the file is empty"),
        ("a.csv", b"", "the file is empty"),
        ("a.xlsx", _OLE, "an old Excel workbook; save it as .xlsx or .csv"),
        ("a.xls", _OLE, "an old Excel workbook; save it as .xlsx or .csv"),
        ("a.xlsx", _OLE + "EncryptedPackage".encode("utf-16-le"), "protected by a password; save it without one"),
        ("a.xls", b"\r\n<html><table>", "not a readable workbook, nor another format"),
        ("a.xlsx", b"label_id,label\r\n", "not a readable workbook, nor another format"),
        ("a.csv", b"PK\x03\x04\0\0", "not CSV; if it is a workbook, call it .xlsx"),
        ("a.xlsx", b"PK\x03\x04" + bytes(99), "not a readable workbook, probably damaged or cut off; copy it again"),
    ],
)
def test_other_formats_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert refusal(tmp_path / name).startswith(message)


def test_strict_open_xml_is_named(tmp_path: Path) -> None:
    """What Excel calls "Strict Open XML Spreadsheet" has other names of all elements, and the same suffix."""
    path = write_xlsx(tmp_path / "a.xlsx", HEADER)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    strict = {
        name: content.replace(
            "http://schemas.openxmlformats.org/spreadsheetml/2006", "http://purl.oclc.org/ooxml/spreadsheetml"
        ).replace(
            "http://schemas.openxmlformats.org/officeDocument/2006", "http://purl.oclc.org/ooxml/officeDocument"
        )
        for name, content in parts.items()
    }
    assert refusal(write_zip(tmp_path / "b.xlsx", strict)) == (
        'in the format "Strict Open XML Spreadsheet"; save it as "Excel Workbook" (.xlsx) or as .csv'
    )


def test_folders_and_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").mkdir()
    assert refusal(tmp_path / "a.xlsx").startswith("a folder; give one of the sheets in it")
    assert refusal(tmp_path / "b.csv").startswith("no such file")


def test_workbooks_that_were_cut_off_are_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.xlsx").read_bytes()
    path = tmp_path / "cut.xlsx"
    for length in (10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:length])
        assert "cut off" in refusal(path)
    # A part that is damaged within.
    damaged = bytearray(whole)
    start = whole.index(b"xl/worksheets/sheet2.xml") + 200
    damaged[start : start + 100] = bytes(100)
    path.write_bytes(damaged)
    assert "damaged" in refusal(path)
    for length in range(0, len(whole), 997):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            read_workbook(path)


def test_other_archives_are_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.xlsx", {"word/document.xml": "<x/>"})
    assert refusal(path).startswith("not a readable workbook (")


def test_archives_that_unpack_to_more_than_a_sheet_are_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "large.xlsx", {"xl/workbook.xml": bytes(300 * 2**20)})
    assert refusal(path).startswith("unpacks to 300 MB, more than the 256 MB that a review sheet may have")


def test_formats_of_empty_rows_are_read(tmp_path: Path) -> None:
    """Programs write formats of rows to the end of the sheet; blank cells do not count."""
    path = write_xlsx(tmp_path / "a.xlsx", HEADER + '<row customFormat="1" s="0"><c s="0"/></row>' * 20_000)
    assert read_workbook(path).rows == []
