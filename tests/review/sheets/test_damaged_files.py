"""Files that are not review sheets, or would unpack to more memory than there is: refused at once, in one line."""

import struct
import tracemalloc
import zipfile
from collections.abc import Callable
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
        ("a.xls", b"\r\n<html><table>", "a web page or XML, not a workbook; open it in a spreadsheet program"),
        ("a.xlsx", b"<?xml version='1.0'?><Workbook/>", "a web page or XML, not a workbook"),
        ("a.xlsx", b"label_id,label\r\n", "not a readable workbook, nor another format"),
        ("a.csv", b"PK\x03\x04\0\0", "not CSV; if it is a workbook, call it .xlsx"),
        ("a.xlsx", b"PK\x03\x04" + bytes(99), "not a readable workbook, probably cut off; copy it again"),
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
    assert refusal(write_zip(tmp_path / "a.xlsx", {"word/document.xml": "<x/>"})).startswith(
        "not a workbook that can"
    )
    with zipfile.ZipFile(tmp_path / "b.xlsx", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    assert refusal(tmp_path / "b.xlsx").startswith("not packed as workbooks are")


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (300 * 2**20, "unpacks to 300 MB, more than the 256 MB that a review sheet may have"),
        (1000, "damaged, perhaps cut off"),
    ],
)
def test_bombs_are_not_unpacked(tmp_path: Path, stated: int, message: str) -> None:
    """Neither if the directory states their size nor if it states less."""
    path = write_zip(tmp_path / "bomb.xlsx", {"xl/workbook.xml": bytes(20 * 2**20)})
    data = bytearray(path.read_bytes())
    size = data.rindex(b"PK\x01\x02") + 24
    data[size : size + 4] = struct.pack("<I", stated)
    path.write_bytes(data)
    refused, peak = with_peak_memory(lambda: refusal(path))
    assert refused.startswith(message)
    assert peak < 10 * 2**20


def with_peak_memory(call: Callable[[], str]) -> tuple[str, int]:
    """Return the result of a call, and the most bytes of Python objects that it held."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "rows",
    [
        '<row r="1048577"/>',
        '<row><c r="XFE1"><v>1</v></c></row>',
        '<row><c r="XFD1" t="str"><v>x</v></c></row>' * 130,
        '<row><c t="s"><v>0</v></c></row>' * 1100,
    ],
    ids=["row number", "column number", "wide rows", "long texts"],
)
def test_more_cells_than_a_sheet_has_are_refused_in_xlsx(tmp_path: Path, rows: str) -> None:
    path = write_xlsx(tmp_path / "a.xlsx", rows, strings=f"<si><t>{'x' * 100_000}</t></si>")
    assert refusal(path).startswith("not a readable workbook (")


def test_more_parts_or_tags_than_a_sheet_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgld.review.sheets.workbook.MAX_TAGS", 1000)
    path = write_xlsx(tmp_path / "a.xlsx", "<row/>" * 1001)
    assert "sheet1.xml has more than 1,000 tags; are many empty cells formatted?" in refusal(path)
    monkeypatch.setattr("hgld.review.sheets.workbook.MAX_MEMBERS", 3)
    assert refusal(path).startswith("an archive of more than 3 files")


def test_more_merged_cells_than_a_sheet_has_are_refused_at_once(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "a.xlsx", "<row/><mergeCell ref='A2:B2'/>" * 100_000)
    refused, peak = with_peak_memory(lambda: refusal(path))
    assert refused.startswith("not a readable workbook (more than 20,000 formulas and merged cells")
    assert peak < 40 * 2**20


@pytest.mark.parametrize("formula", ['"not closed', "A1+#FOO!", "A1)", "A1+" * 50_000 + "A1"])
def test_formulas_are_not_interpreted(tmp_path: Path, formula: str) -> None:
    """The formula of a cell above, which a program filled down, is named as that cell has it."""
    first = f'<row r="2"><c r="L2"><f t="shared" ref="L2:L99" si="0">{formula}</f><v>1</v></c></row>'
    others = (f'<row r="{n}"><c r="L{n}"><f t="shared" si="0"/><v>1</v></c></row>' for n in range(3, 100))
    rows = read_workbook(write_xlsx(tmp_path / "a.xlsx", HEADER + first + "".join(others))).rows
    assert [row.formulas for row in rows] == [{COLUMNS[11]: f"={formula}"}] * 98


def test_entities_are_refused(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY x{n + 1} "{f"&x{n};" * 10}">' for n in range(9))
    doctype = f'<!DOCTYPE bomb [<!ENTITY x0 "ha">{entities}]>'
    path = write_xlsx(tmp_path / "a.xlsx", "", strings="<si><t>&x9;</t></si>", doctype=doctype)
    assert "has a document type" in refusal(path)


def test_formats_of_empty_rows_are_read(tmp_path: Path) -> None:
    """Programs write formats of rows to the end of the sheet; blank cells do not count."""
    path = write_xlsx(tmp_path / "a.xlsx", HEADER + '<row customFormat="1" s="1"><c s="1"/></row>' * 20_000)
    assert read_workbook(path).rows == []
