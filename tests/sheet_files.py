"""Read and fill in review sheets as an annotator would, without the code under test."""

import csv
import zipfile
from collections.abc import Mapping
from pathlib import Path

from openpyxl import load_workbook

_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a sheet as dictionaries."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


def fill(path: Path, **labels: str | Mapping[str, str | None]) -> None:
    """Fill in cells of labels, by their ids, in a workbook or a CSV sheet; a text alone is the group."""
    entered = {key: {"group": cells} if isinstance(cells, str) else cells for key, cells in labels.items()}
    if path.suffix == ".csv":
        rows = csv_rows(path)
        for label_id, cells in entered.items():
            (row,) = (row for row in rows if row["label_id"] == label_id)
            row.update({name: value or "" for name, value in cells.items()})
        with path.open("w", encoding="utf-8-sig", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(rows)
        return
    book = load_workbook(path)
    sheet = book["Labels"]
    columns = {cell.value: column for column, cell in enumerate(sheet[1], 1)}
    for label_id, cells in entered.items():
        (number,) = (cell.row for (cell,) in sheet.iter_rows(2, max_col=1) if cell.value == label_id)
        for name, value in cells.items():
            sheet.cell(number, columns[name]).value = value
    book.save(path)


def write_xlsx(path: Path, rows: str, *, strings: str = "", doctype: str = "") -> Path:
    """Write a workbook of one sheet "Labels" from the XML of its rows."""
    kinds = {"workbook": "sheet.main", "sharedStrings": "sharedStrings"}
    overrides = "".join(
        f'<Override PartName="/xl/{name}.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        f'spreadsheetml.{kind}+xml"/>'
        for name, kind in kinds.items()
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        f"{overrides}</Types>",
        "xl/workbook.xml": f'<workbook {_MAIN} xmlns:r="{_RELATIONS}">'
        '<sheets><sheet name="Labels" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="rId1" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="rId2" Type="{_RELATIONS}/sharedStrings" Target="/xl/sharedStrings.xml"/></Relationships>',
        "xl/sharedStrings.xml": f"{doctype}<sst {_MAIN}>{strings}</sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet {_MAIN}><sheetData>{rows}</sheetData></worksheet>",
    }
    return write_zip(path, parts)


def write_zip(path: Path, parts: Mapping[str, str | bytes]) -> Path:
    """Write an archive, packed as tightly as can be."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path
