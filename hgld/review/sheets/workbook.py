"""A review sheet as a workbook: one file for one annotator, to be worked on in Calc or Excel.

Everything but the three entry columns is locked, without a password: against slips, not against anyone. What
hgld has to know of the file again (what made it, what stood in it) is on a hidden sheet, because every
spreadsheet program keeps its sheets, but not its document properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from math import ceil
from pathlib import Path
from typing import Any

from openpyxl import Workbook
from openpyxl.cell.cell import Cell
from openpyxl.formatting.rule import DataBar, FormatObject, Rule
from openpyxl.styles import Alignment, Border, Font, NamedStyle, PatternFill, Protection, Side
from openpyxl.styles.differential import DifferentialStyle
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.hyperlink import Hyperlink
from openpyxl.worksheet.properties import PageSetupProperties
from openpyxl.worksheet.worksheet import Worksheet

from hgld.errors import InputError
from hgld.io.files import atomic_write
from hgld.review.sheets.cells import SheetCells, read_cells
from hgld.review.sheets.rows import (
    COLUMNS,
    ENTRY_COLUMNS,
    Entries,
    Entry,
    LabelRow,
    SheetLine,
    digest_of,
    entries_of,
    example_link,
)
from hgld.tables import Provenance
from hgld.taxonomy.decisions import DECISIONS
from hgld.taxonomy.groups import Group

READ_ME, LABELS, CLUSTERS, GROUPS, SET_ASIDE = "Read me", "Labels", "Clusters", "Groups", "Set aside"
_LISTS, _ABOUT = "lists", "about"
_SET_ASIDE_COLUMNS = ("label_id", "label", *ENTRY_COLUMNS)

_WIDTHS = dict(
    zip(COLUMNS, (13, 32, 12, 24, 9, 13, 19, 19, 19, 19, 22, 11, 30), strict=True),
)
_LETTER = {name: get_column_letter(number) for number, name in enumerate(COLUMNS, 1)}

#: Two tints a cluster, taken in turn by its sub-clusters; neighbouring clusters differ in hue.
_BANDS = (
    ("DCE9F7", "C6DBF0"),
    ("FCE8D5", "F8D8B8"),
    ("E0F0DC", "CBE5C4"),
    ("F1E2F2", "E4CDE6"),
    ("FBF3CF", "F4E8AE"),
    ("DDF1F0", "C3E4E3"),
)
_HEADER = PatternFill("solid", fgColor="2F3E4E")
_ENTRY_HEADER = PatternFill("solid", fgColor="B45309")
_DONE = PatternFill("solid", bgColor="D1F0D1")
_WRONG = PatternFill("solid", bgColor="F8C4C0")
_LINE = Border(*(Side("thin", color="D5D9DE"),) * 4)
_PLAIN = Font(name="Calibri", size=11)
_BOLD = Font(name="Calibri", size=11, bold=True)
_LINK = Font(name="Calibri", size=11, color="1F4E9E", underline="single")
_TITLE = Font(name="Calibri", size=18, bold=True, color="2F3E4E")
_WHITE = Font(name="Calibri", size=11, bold=True, color="FFFFFF")
_WRAPPED = Alignment(wrap_text=True, vertical="top")
_CENTRED = Alignment(horizontal="center", vertical="center")

#: Left column and right column of the first sheet; a line without a left column goes over both.
_INSTRUCTIONS = (
    ("What to do", ""),
    (
        "",
        "Thousands of landmarks carry a label such as “arch bridge” or “lake”. Put every label into one of "
        "the groups. You decide on the label, and with it on all of its landmarks; the photographs of the "
        "three examples show what the label is used for.",
    ),
    ("1", f"Open the sheet “{LABELS}” and go from top to bottom. Labels that are alike stand together."),
    (
        "2",
        "Choose a group from the list in the column “group”. That is a whole decision.",
    ),
    (
        "3",
        "If the label fits no group or says nothing of what is seen (“building”), decide “drop”.",
    ),
    (
        "4",
        "If you cannot tell, choose “unsure” and say why in “comment”. A group beside it counts as a guess. "
        "Someone will look at it with you.",
    ),
    ("5", "Save now and then, as .xlsx. You can stop at any time and go on later."),
    ("Good to know", ""),
    ("Groups", f"What belongs to each group, and what does not, is on the sheet “{GROUPS}”."),
    (
        "Clusters",
        f"How far you are, cluster by cluster, is on the sheet “{CLUSTERS}”; its names lead to the labels.",
    ),
    ("Suggestion", "The column “suggested group” may be empty or wrong. It is a hint, never a decision."),
    (
        "Colours",
        "Green: decided. Red: half of it is missing, or a dropped label has a group. Bands: clusters.",
    ),
    ("Locked", "Only group, decision and comment can be changed. Filters and column widths are free."),
    ("Alone", "Do not compare with the other annotator before both are done: agreement is measured."),
)


@dataclass(frozen=True, slots=True)
class SavedWorkbook:
    """A workbook read back.

    Args:
        lines: the rows of the sheet ``LABELS``.
        set_aside: entries kept for labels that the sheet no longer has.
        provenance: what made the file, where it still says so.
        exported: digest of the entries that the file was written with.
    """

    lines: list[SheetLine]
    set_aside: dict[str, Entry]
    provenance: Provenance | None
    exported: str | None


def write_workbook(
    path: Path,
    rows: Sequence[LabelRow],
    entries: Entries,
    *,
    set_aside: Entries,
    groups: Sequence[Group],
    annotator: str,
    provenance: Provenance,
) -> None:
    """Write a workbook, atomically.

    Args:
        path: where to.
        rows: the labels, clusters together.
        entries: what was entered before.
        set_aside: what was entered for labels that are not among ``rows``; on a sheet of its own, if any.
        groups: the taxonomy, for the drop-down list.
        annotator: whose sheet it is.
        provenance: what made it.
    """
    book = Workbook()
    book.properties.creator = "hgld"
    book.properties.title = f"Labels to review, {annotator}"
    first = book.active
    assert isinstance(first, Worksheet)
    for number, tints in enumerate(_BANDS):
        for tint, colour in enumerate(tints):
            book.add_named_style(_style(f"band {number}.{tint}", fill=PatternFill("solid", fgColor=colour)))
    book.add_named_style(_style("entry", protection=Protection(locked=False)))
    _fill_read_me(first, annotator)
    _fill_labels(book.create_sheet(LABELS), rows, entries, len(groups))
    _fill_clusters(book.create_sheet(CLUSTERS), rows)
    _fill_groups(book.create_sheet(GROUPS), groups)
    if set_aside:
        _fill_set_aside(book.create_sheet(SET_ASIDE), set_aside)
    _fill_hidden(book.create_sheet(_LISTS), [(group.name,) for group in groups])
    about = (
        ("annotator", annotator),
        ("provenance", provenance.to_json()),
        ("exported entries", digest_of(entries)),
    )
    _fill_hidden(book.create_sheet(_ABOUT), about)
    with atomic_write(path) as draft:
        book.save(draft)


def read_workbook(path: Path) -> SavedWorkbook:
    """Read a workbook back, as hgld wrote it or as a spreadsheet program saved it: .xlsx or .ods.

    Raises:
        InputError: the file is no workbook, or has no sheet with the columns of a review sheet.
    """
    sheets = read_cells(path)
    if LABELS not in sheets:
        raise InputError(f'{path}: not a review sheet: it has no sheet "{LABELS}"')
    lines = _lines(LABELS, sheets[LABELS])
    missing = [name for name in COLUMNS if not lines or name not in lines[0].columns]
    if missing:
        raise InputError(f'{path}: not a review sheet: "{LABELS}" has no column {", ".join(missing)}')
    about = {row[0]: row[1] for row in sheets[_ABOUT].rows.values() if len(row) > 1} if _ABOUT in sheets else {}
    provenance = about.get("provenance")
    return SavedWorkbook(
        lines=lines,
        set_aside=entries_of(path, _lines(SET_ASIDE, sheets[SET_ASIDE])) if SET_ASIDE in sheets else {},
        provenance=Provenance.from_json(provenance) if provenance else None,
        exported=about.get("exported entries"),
    )


def _lines(sheet: str, cells: SheetCells) -> list[SheetLine]:
    names = cells.rows.get(1, [])
    columns = {name: f"{sheet}!{get_column_letter(number)}" for number, name in enumerate(names, 1)}
    in_table = [one for one in cells.merged if one.min_col <= len(names)]
    return [
        SheetLine(
            number,
            dict(zip(names, chain(texts, repeat("")), strict=False)),
            columns,
            tuple(f"{sheet}!{one.coord}" for one in in_table if one.min_row <= number <= one.max_row),
        )
        for number, texts in cells.rows.items()
        if number > 1
    ]


def _cell(sheet: Worksheet, row: int, column: int) -> Cell:
    cell = sheet.cell(row, column)
    assert isinstance(cell, Cell)  # and not part of a merged one
    return cell


def _put(sheet: Worksheet, row: int, column: int, text: str) -> Cell:
    """Text as text: neither a formula nor an error value, whatever it begins with."""
    cell = _cell(sheet, row, column)
    cell.value = text
    cell.data_type = "s"
    if text.startswith(("=", "+", "-", "@", "\t", "\r")):
        cell.quotePrefix = True
    return cell


def _fill_labels(sheet: Worksheet, rows: Sequence[LabelRow], entries: Entries, n_groups: int) -> None:
    number = 1
    for band, (_, of_cluster) in enumerate(groupby(rows, key=lambda row: row.cluster)):
        for tint, (_, of_subcluster) in enumerate(groupby(of_cluster, key=lambda row: row.subcluster)):
            for row in of_subcluster:
                number += 1
                style = f"band {band % len(_BANDS)}.{tint % 2}"
                _fill_row(sheet, number, row, entries.get(row.label_id), style)
    _dress_header(sheet, COLUMNS)
    for name in ENTRY_COLUMNS:
        sheet[f"{_LETTER[name]}1"].fill = _ENTRY_HEADER
    for name, width in _WIDTHS.items():
        sheet.column_dimensions[_LETTER[name]].width = width
    sheet.freeze_panes = "C2"
    sheet.auto_filter.ref = f"A1:{_LETTER['comment']}{number}"
    _add_checks(sheet, number, n_groups)
    _finish(sheet)


def _fill_row(sheet: Worksheet, number: int, row: LabelRow, entry: Entry | None, style: str) -> None:
    values: dict[str, str | int] = {
        "label_id": row.label_id,
        "label": row.label,
        "landmarks": row.landmarks,
        "parents": row.parents,
        "cluster": row.cluster,
        "sub-cluster": row.subcluster,
        "suggested group": row.suggested_group,
    }
    if entry:
        values |= {name: getattr(entry, name) for name in ENTRY_COLUMNS}
    for column, name in enumerate(COLUMNS, 1):
        cell = _cell(sheet, number, column)
        cell.style = "entry" if name in ENTRY_COLUMNS else style
        value = values.get(name, "")
        if isinstance(value, int):
            cell.value, cell.alignment = value, _CENTRED
        elif value:
            _put(sheet, number, column, value)
    for column, title in enumerate(row.examples, COLUMNS.index("example 1") + 1):
        name, address = example_link(title)
        cell = _put(sheet, number, column, name)
        cell.hyperlink = address
        cell.font = _LINK


def _add_checks(sheet: Worksheet, last: int, n_groups: int) -> None:
    """Drop-down lists for group and decision, and colours that tell what is done and what is wrong."""
    group, decision, comment = (_LETTER[name] for name in ENTRY_COLUMNS)
    lists = {
        # An inline list ends at 255 characters.
        group: (f"{_LISTS}!$A$1:$A${n_groups}", f"Choose a group from the list; “{GROUPS}” explains them."),
        decision: (f'"{",".join(DECISIONS)}"', f"Choose {', '.join(DECISIONS[:-1])} or {DECISIONS[-1]}."),
    }
    for letter, (formula, advice) in lists.items():
        validation = DataValidation("list", formula1=formula, allow_blank=True, showErrorMessage=True)
        validation.errorTitle, validation.error = "Not in the list", advice
        validation.add(f"{letter}2:{letter}{last}")
        sheet.add_data_validation(validation)
    wrong = f'OR(AND(${decision}2="drop",${group}2<>""),AND(${decision}2="group",${group}2=""))'
    done = f'OR(${group}2<>"",${decision}2="drop",${decision}2="unsure")'
    entries = f"{group}2:{comment}{last}"
    for formula, fill in ((wrong, _WRONG), (done, _DONE)):
        rule = Rule("expression", formula=[formula], dxf=DifferentialStyle(fill=fill), stopIfTrue=True)
        sheet.conditional_formatting.add(entries, rule)


def _fill_clusters(sheet: Worksheet, rows: Sequence[LabelRow]) -> None:
    _dress_header(sheet, ("cluster", "name", "labels", "landmarks", "decided", "left", "progress"))
    last = len(rows) + 1

    def column(name: str) -> str:
        return f"{LABELS}!${_LETTER[name]}$2:${_LETTER[name]}${last}"

    decided = f'(({column("group")}<>"")+({column("decision")}="drop")+({column("decision")}="unsure")>0)'
    first, number = 2, 1
    for number, (cluster, grouped) in enumerate(groupby(rows, key=lambda row: row.cluster), 2):
        members = list(grouped)
        sheet.cell(number, 1, cluster).alignment = _CENTRED
        name = _put(sheet, number, 2, members[0].cluster_name)
        name.hyperlink = Hyperlink(ref=name.coordinate, location=f"{LABELS}!A{first}")
        name.font = _LINK
        sheet.cell(number, 3, len(members))
        sheet.cell(number, 4, sum(row.landmarks for row in members))
        sheet.cell(number, 5, f"=SUMPRODUCT(({column('cluster')}=A{number})*{decided})")
        first += len(members)
    total = number + 1
    sheet.cell(total, 2, "all")
    for letter in "CDE":
        sheet[f"{letter}{total}"] = f"=SUM({letter}2:{letter}{number})"
    for row in range(2, total + 1):
        sheet[f"F{row}"] = f"=C{row}-E{row}"
        sheet[f"G{row}"] = f"=E{row}/C{row}"
        sheet[f"G{row}"].number_format = "0%"
        sheet[f"D{row}"].number_format = "#,##0"
        for cell in sheet[row]:
            cell.border = _LINE
    for cell in sheet[total]:
        cell.font = _BOLD
    bar = DataBar(cfvo=[FormatObject("num", 0), FormatObject("num", 1)], color="8CC68C", minLength=0, maxLength=100)
    sheet.conditional_formatting.add(f"G2:G{total}", Rule("dataBar", dataBar=bar))
    for letter, width in zip("ABCDEFG", (9, 60, 9, 11, 10, 9, 22), strict=True):
        sheet.column_dimensions[letter].width = width
    sheet.freeze_panes = "A2"
    _finish(sheet)


def _fill_groups(sheet: Worksheet, groups: Sequence[Group]) -> None:
    _dress_header(sheet, ("group", "root", "what belongs here"))
    for number, group in enumerate(groups, 2):
        for column, text in enumerate((group.name, group.root, group.guideline), 1):
            cell = _put(sheet, number, column, text)
            cell.alignment, cell.border = _WRAPPED, _LINE
        sheet.cell(number, 1).font = _BOLD
        _fit_height(sheet, number, group.guideline, 110)
    for letter, width in zip("ABC", (26, 13, 110), strict=True):
        sheet.column_dimensions[letter].width = width
    sheet.freeze_panes = "B2"
    sheet.auto_filter.ref = f"A1:C{len(groups) + 1}"
    _finish(sheet)


def _fill_set_aside(sheet: Worksheet, set_aside: Entries) -> None:
    _dress_header(sheet, _SET_ASIDE_COLUMNS)
    for number, entry in enumerate(sorted(set_aside.values(), key=lambda entry: entry.label_id), 2):
        for column, name in enumerate(_SET_ASIDE_COLUMNS, 1):
            _put(sheet, number, column, getattr(entry, name))
    for letter, width in zip("ABCDE", (14, 34, 23, 11, 34), strict=True):
        sheet.column_dimensions[letter].width = width
    _finish(sheet)


def _fill_read_me(sheet: Worksheet, annotator: str) -> None:
    sheet.title = READ_ME
    sheet["A1"], sheet["A1"].font = f"Labels to review: {annotator}", _TITLE
    sheet.row_dimensions[1].height = 30
    for number, (left, right) in enumerate(_INSTRUCTIONS, 3):
        sheet.cell(number, 1, left).font = _BOLD
        sheet.cell(number, 1).alignment = Alignment(horizontal="left", vertical="top")
        sheet.cell(number, 2, right).alignment = _WRAPPED
        _fit_height(sheet, number, right, 96)
    sheet.column_dimensions["A"].width = 14
    sheet.column_dimensions["B"].width = 96
    sheet.sheet_view.showGridLines = False
    _finish(sheet)


def _fill_hidden(sheet: Worksheet, rows: Sequence[tuple[str, ...]]) -> None:
    for number, row in enumerate(rows, 1):
        for column, text in enumerate(row, 1):
            _put(sheet, number, column, text)
    sheet.sheet_state = "hidden"
    _finish(sheet)


def _style(name: str, **details: Any) -> NamedStyle:
    return NamedStyle(name, font=_PLAIN, border=_LINE, alignment=Alignment(vertical="center"), **details)


def _dress_header(sheet: Worksheet, names: Sequence[str]) -> None:
    for column, name in enumerate(names, 1):
        cell = sheet.cell(1, column, name)
        cell.font, cell.fill = _WHITE, _HEADER
        cell.alignment = Alignment(vertical="center")
    sheet.row_dimensions[1].height = 22
    sheet.print_title_rows = "1:1"


def _fit_height(sheet: Worksheet, row: int, text: str, width: int) -> None:
    """Room for a text that wraps in a column of this width: Calc does not make it by itself."""
    sheet.row_dimensions[row].height = 16 * max(1, ceil(0.9 * len(text) / width))


def _finish(sheet: Worksheet) -> None:
    """Fit the sheet to the width of a page; lock it, but for filters and the sizes of rows and columns."""
    sheet.page_setup.orientation = "landscape"
    sheet.page_setup.paperSize = sheet.PAPERSIZE_A4
    sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)
    sheet.page_setup.fitToHeight = 0
    protection = sheet.protection
    protection.sheet = True
    # True means locked.
    protection.autoFilter = protection.formatColumns = protection.formatRows = False
