"""Rows of the sheet with the labels, written as XML.

openpyxl takes 50 microseconds for a cell and 150 for a link, 4 s for a workbook of 5,700 labels. It writes everything
else of the sheet, and registers the styles; the rows are then inserted into what it wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from openpyxl.cell.cell import Cell
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from hgld.review.sheets.entries import Entries
from hgld.review.sheets.rows import COLUMNS, ENTRY_COLUMNS, LabelRow, example_link, fit_for_cell
from hgld.review.sheets.worksheet_styles import CENTRED, ENTRY_STYLE, LINK, band_style, is_like_formula

_LETTERS = {name: get_column_letter(number) for number, name in enumerate(COLUMNS, 1)}
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_HYPERLINK = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/hyperlink"


class LabelCells:
    """Cells of the labels, one row per label below the header.

    Args:
        sheet: Sheet with the header, in whose workbook the styles of the cells are registered.
        rows: Labels, ordered by cluster and sub-cluster.
        entries: Earlier entries to fill in.
    """

    def __init__(self, sheet: Worksheet, rows: Sequence[LabelRow], entries: Entries) -> None:
        self.sheet = sheet
        self._style_numbers: dict[tuple[str, str], int] = {}
        self._links: list[tuple[str, str]] = []
        self._rows: list[str] = []
        for band, (_, in_cluster) in enumerate(groupby(rows, key=lambda row: row.cluster)):
            for tint, (_, in_subcluster) in enumerate(groupby(in_cluster, key=lambda row: row.subcluster)):
                style = band_style(band, tint)
                for row in in_subcluster:
                    self._rows.append(self._row(len(self._rows) + 2, row, entries, style))

    def _row(self, number: int, row: LabelRow, entries: Entries, style: str) -> str:
        entry = entries.get(row.label_id)
        values: dict[str, str | int] = {
            "label_id": row.label_id,
            "label": row.label,
            "landmarks": row.landmarks,
            "parents": row.parents,
            "cluster": row.cluster,
            "sub-cluster": row.subcluster,
            "suggested group": row.suggested_group,
            **(entry.texts if entry else {}),
        }
        links = [example_link(title) for title in row.examples]
        for column, (name, url) in enumerate(links, 1):
            values[f"example {column}"] = name
            self._links.append((f"{_LETTERS[f'example {column}']}{number}", url))
        with_link = {f"example {column}" for column in range(1, len(links) + 1)}
        cells = [
            self._cell(
                f"{_LETTERS[name]}{number}",
                values.get(name, ""),
                ENTRY_STYLE if name in ENTRY_COLUMNS else style,
                is_link=name in with_link,
            )
            for name in COLUMNS
        ]
        return f'<row r="{number}">{"".join(cells)}</row>'

    def _cell(self, reference: str, value: str | int, style: str, *, is_link: bool) -> str:
        if isinstance(value, int):
            return f'<c r="{reference}" s="{self._style_number(style, "number")}"><v>{value}</v></c>'
        kind = ("link " if is_link else "") + ("quoted" if is_like_formula(value) else "")
        start = f'<c r="{reference}" s="{self._style_number(style, kind)}"'
        if not value:
            return f"{start}/>"
        space = ' xml:space="preserve"' if value != value.strip() or "\n" in value else ""
        # Parsers turn a carriage return that is not escaped into a line feed.
        text = escape(fit_for_cell(value), {"\r": "&#13;"})
        return f'{start} t="inlineStr"><is><t{space}>{text}</t></is></c>'

    def _style_number(self, style: str, kind: str) -> int:
        """Return the number of a named style with changes of a kind: "number", "link", "quoted" or "link quoted"."""
        if (style, kind) not in self._style_numbers:
            cell = Cell(self.sheet, row=1, column=1)
            cell.style = style
            if kind == "number":
                cell.alignment = CENTRED
            if "link" in kind:
                cell.font = LINK
            if "quoted" in kind:
                cell.quotePrefix = True
            self._style_numbers[style, kind] = cell.style_id
        return self._style_numbers[style, kind]

    def insert(self, sheet: bytes) -> bytes:
        """Return the XML of the sheet with the rows and the links."""
        dimension = f'<dimension ref="A1:{_LETTERS[COLUMNS[-1]]}{len(self._rows) + 1}"'.encode()
        links = "".join(f'<hyperlink ref="{cell}" r:id="rId{n}"/>' for n, (cell, _) in enumerate(self._links, 1))
        namespace = _HYPERLINK.removesuffix("/hyperlink")
        head, tail = re.sub(rb'<dimension ref="[^"]*"', dimension, sheet).split(b"</sheetData>")
        before_links, margins, rest = tail.partition(b"<pageMargins")
        assert margins, "openpyxl always writes the margins, before which the schema has the links"
        rows = "".join(self._rows).encode()
        elements = f'<hyperlinks xmlns:r="{namespace}">{links}</hyperlinks>'.encode() if links else b""
        return b"".join((head, rows, b"</sheetData>", before_links, elements, margins, rest))

    def relations(self) -> bytes:
        """Return the XML of the addresses of the links."""
        relations = "".join(
            f'<Relationship Id="rId{number}" Type="{_HYPERLINK}" Target={quoteattr(url)} TargetMode="External"/>'
            for number, (_, url) in enumerate(self._links, 1)
        )
        return f'<Relationships xmlns="{_RELATIONS}">{relations}</Relationships>'.encode()
