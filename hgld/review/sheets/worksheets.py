"""The sheets of a review workbook: instructions, labels, groups, and hidden lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil
from typing import Any

from openpyxl import Workbook
from openpyxl.cell.cell import Cell
from openpyxl.formatting.rule import Rule
from openpyxl.styles import Alignment, Border, Font, NamedStyle, PatternFill, Protection, Side
from openpyxl.styles.differential import DifferentialStyle
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.properties import PageSetupProperties
from openpyxl.worksheet.worksheet import Worksheet

from hgld.review.labels import ReviewLabel, fit_for_cell
from hgld.review.sheets.entries import (
    COLUMNS,
    ENTRY_COLUMNS,
    LANDMARKS,
    Entries,
    named_columns,
    sheet_cells,
)
from hgld.taxonomy.decisions import DECISIONS
from hgld.taxonomy.groups import Group

#: Two tints per cluster, alternating between its sub-clusters; neighbouring clusters differ in hue.
_BANDS = (
    ("DCE9F7", "C6DBF0"),
    ("FCE8D5", "F8D8B8"),
    ("E0F0DC", "CBE5C4"),
    ("F1E2F2", "E4CDE6"),
    ("FBF3CF", "F4E8AE"),
    ("DDF1F0", "C3E4E3"),
)
ENTRY_STYLE = "entry"
#: Style of the rows of groups. Named styles are much faster than styles of single cells.
GROUP_STYLE = "group"
#: Style of the first cells of groups.
GROUP_NAME_STYLE = "group name"

ENTRY_HEADER_FILL = PatternFill("solid", fgColor="B45309")
DECIDED_FILL = PatternFill("solid", bgColor="D1F0D1")
INVALID_FILL = PatternFill("solid", bgColor="F8C4C0")
_HEADER_FILL = PatternFill("solid", fgColor="2F3E4E")
BORDER = Border(*(Side("thin", color="D5D9DE"),) * 4)
BOLD = Font(name="Calibri", size=11, bold=True)
LINK = Font(name="Calibri", size=11, color="1F4E9E", underline="single")
TITLE = Font(name="Calibri", size=18, bold=True, color="2F3E4E")
_PLAIN = Font(name="Calibri", size=11)
_HEADER_FONT = Font(name="Calibri", size=11, bold=True, color="FFFFFF")
WRAPPED = Alignment(wrap_text=True, vertical="top")
CENTRED = Alignment(horizontal="center", vertical="center")


def add_styles(book: Workbook) -> None:
    """Register the named styles of label rows, entry cells and groups."""
    for band, tints in enumerate(_BANDS):
        for tint, colour in enumerate(tints):
            fill = PatternFill("solid", fgColor=colour)
            book.add_named_style(_style(band_style(band, tint), fill=fill))
    book.add_named_style(_style(ENTRY_STYLE, protection=Protection(locked=False)))
    for name, font in ((GROUP_STYLE, _PLAIN), (GROUP_NAME_STYLE, BOLD)):
        book.add_named_style(NamedStyle(name, font=font, border=BORDER, alignment=WRAPPED))


def band_style(cluster: int, subcluster: int) -> str:
    """Return the style for rows of the n-th cluster and its m-th sub-cluster, both counted from 0.

    >>> band_style(7, 3)
    'band 1.1'
    """
    return f"band {cluster % len(_BANDS)}.{subcluster % 2}"


def put_text(sheet: Worksheet, row: int, column: int, text: str) -> Cell:
    """Write a text as text, even if it looks like a formula or an error value."""
    cell = sheet.cell(row, column)
    assert isinstance(cell, Cell)  # not covered by merged cells
    cell.value = text
    cell.data_type = "s"
    if is_like_formula(text):
        cell.quotePrefix = True
    return cell


def is_like_formula(text: str) -> bool:
    """Return whether a spreadsheet program interprets a typed text as a formula."""
    return text.startswith(("=", "+", "-", "@", "\t", "\r"))


def write_header(sheet: Worksheet, names: Sequence[str]) -> None:
    """Write the names of the columns into row 1 and repeat them on every printed page."""
    for column, name in enumerate(names, 1):
        cell = sheet.cell(1, column, name)
        cell.font = _HEADER_FONT
        cell.fill = _HEADER_FILL
        cell.alignment = Alignment(vertical="center")
    sheet.row_dimensions[1].height = 22
    sheet.print_title_rows = "1:1"


def set_widths(sheet: Worksheet, widths: Sequence[int]) -> None:
    """Set the widths of the first columns, in characters."""
    for letter, width in zip("ABCDEFGHIJKLM", widths, strict=False):
        sheet.column_dimensions[letter].width = width


def fit_height(sheet: Worksheet, row: int, text: str, width: int) -> None:
    """Set the height of a row for a text that wraps in a column of this width; Calc does not adjust it."""
    sheet.row_dimensions[row].height = 16 * max(1, ceil(0.9 * len(text) / width))


def finish_sheet(sheet: Worksheet) -> None:
    """Fit the sheet to the width of a page, and lock it except for filters and sizes of rows and columns."""
    sheet.page_setup.orientation = "landscape"
    sheet.page_setup.paperSize = sheet.PAPERSIZE_A4
    sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)
    sheet.page_setup.fitToHeight = 0
    protection = sheet.protection
    protection.sheet = True
    # True means locked.
    protection.autoFilter = protection.formatColumns = protection.formatRows = False


def _style(name: str, **details: Any) -> NamedStyle:
    return NamedStyle(
        name, font=_PLAIN, border=BORDER, alignment=Alignment(vertical="center"), **details
    )


READ_ME, LABELS, GROUPS, SET_ASIDE = "Read me", "Labels", "Groups", "Set aside"
#: Hidden sheet with the names of the groups, for the drop-down list.
LISTS = "lists"

_LETTER = {name: get_column_letter(number) for number, name in enumerate(COLUMNS, 1)}
_LABEL_WIDTHS = (13, 32, 12, 24, 9, 13, 19, 19, 19, 19, 22, 11, 30)
#: Columns of the sheet ``SET_ASIDE``.
SET_ASIDE_COLUMNS = ("label_id", "label", *ENTRY_COLUMNS)

#: Left and right column of the sheet "Read me"; ``{says_nothing}`` is replaced, see :func:`fill_read_me`.
_INSTRUCTIONS = (
    (
        "1",
        f"Open the sheet “{LABELS}” and go from top to bottom. Similar labels are next to each other.",
    ),
    ("2", "Choose a group from the list in the column “group”. That alone is a complete decision."),
    (
        "3",
        "If the label fits no group or {says_nothing}, decide “drop”.",
    ),
    (
        "4",
        "If you cannot tell, choose “unsure” and say why in “comment”. A group beside it counts as a guess. "
        "Someone will look at the label with you.",
    ),
    ("5", "Save now and then, as .xlsx. You can stop at any time and continue later."),
    ("Good to know", ""),
    ("Groups", f"The sheet “{GROUPS}” explains what belongs to each group and what does not."),
    (
        "Suggestion",
        "The column “suggested group” may be empty or wrong. It is a hint, not a decision.",
    ),
    (
        "Colours",
        "Green: decided. Red: incomplete, or a dropped label with a group. The bands show clusters and sub-clusters.",
    ),
    (
        "Locked",
        "Only group, decision and comment can be changed. Filters and column widths are free.",
    ),
    (
        "On your own",
        "Do not compare with the other annotator before both are done: your agreement is measured.",
    ),
)


def _task(nouns: tuple[str, str], examples: Sequence[str]) -> str:
    """Return the first instruction, in the words for one and for several things of the list.

    Args:
        examples: Labels of the list in descending order of frequency.
    """
    if nouns == LANDMARKS:
        labels = "Thousands of landmarks have a label such as “arch bridge” or “lake”."
        shown = "the photographs of the three examples show"
    else:
        named = " or ".join(f"“{label}”" for label in examples[:2])
        labels = f"Many {nouns[1]} have a label such as {named}."
        shown = "the examples, where there are any, show"
    return (
        f"{labels} Put every label into one of the groups. Your decision on a label holds for all of its {nouns[1]}; "
        f"{shown} what the label is used for."
    )


def fill_read_me(
    sheet: Worksheet, annotator: str, nouns: tuple[str, str], examples: Sequence[str]
) -> None:
    """Fill the sheet with the instructions; see :func:`_task`."""
    sheet.title = READ_ME
    sheet["A1"] = f"Labels to review: {annotator}"
    sheet["A1"].font = TITLE
    sheet.row_dimensions[1].height = 30
    if nouns == LANDMARKS:
        says_nothing = "does not say what can be seen (“building”)"
    else:
        says_nothing = f"says nothing about the {nouns[0]}"
    instructions = [("What to do", ""), ("", _task(nouns, examples)), *_INSTRUCTIONS]
    for number, (left, right) in enumerate(instructions, 3):
        right = right.replace("{says_nothing}", says_nothing)
        sheet.cell(number, 1, left).font = BOLD
        sheet.cell(number, 1).alignment = Alignment(horizontal="left", vertical="top")
        sheet.cell(number, 2, right).alignment = WRAPPED
        fit_height(sheet, number, right, 96)
    set_widths(sheet, (14, 96))
    sheet.sheet_view.showGridLines = False
    finish_sheet(sheet)


def fill_labels(
    sheet: Worksheet,
    rows: Sequence[ReviewLabel],
    entries: Entries,
    n_groups: int,
    counts_title: str,
) -> None:
    """Fill the sheet with a row per label, whose entries can be changed."""
    last_row = len(rows) + 1
    write_header(sheet, named_columns(counts_title))
    for name in ENTRY_COLUMNS:
        sheet[f"{_LETTER[name]}1"].fill = ENTRY_HEADER_FILL
    set_widths(sheet, _LABEL_WIDTHS)
    sheet.freeze_panes = "C2"
    sheet.auto_filter.ref = f"A1:{_LETTER['comment']}{last_row}"
    _add_drop_down_lists(sheet, last_row, n_groups)
    _add_entry_colours(sheet, last_row)
    _add_label_rows(sheet, rows, entries)
    finish_sheet(sheet)


def _add_label_rows(sheet: Worksheet, rows: Sequence[ReviewLabel], entries: Entries) -> None:
    for number, (row, style) in enumerate(_with_styles(rows), 2):
        for column, (value, url) in enumerate(sheet_cells(row, entries), 1):
            cell = sheet.cell(number, column)
            assert isinstance(cell, Cell)  # not covered by merged cells
            is_entry = COLUMNS[column - 1] in ENTRY_COLUMNS
            cell.style = ENTRY_STYLE if is_entry else style
            if isinstance(value, int):
                cell.value = value
                cell.alignment = CENTRED
            elif value:
                put_text(sheet, number, column, fit_for_cell(value))
            if url is not None:
                cell.hyperlink = url
                cell.font = LINK


def _with_styles(rows: Iterable[ReviewLabel]) -> Iterator[tuple[ReviewLabel, str]]:
    """Yield each label with the style of its row."""
    by_cluster = groupby(rows, key=lambda row: row.cluster)
    for band, (_, in_cluster) in enumerate(by_cluster):
        by_subcluster = groupby(in_cluster, key=lambda row: row.subcluster)
        for tint, (_, in_subcluster) in enumerate(by_subcluster):
            style = band_style(band, tint)
            for row in in_subcluster:
                yield row, style


def _add_drop_down_lists(sheet: Worksheet, last_row: int, n_groups: int) -> None:
    lists = {
        # A list within the formula is limited to 255 characters, hence the hidden sheet.
        "group": (
            f"{LISTS}!$A$1:$A${n_groups}",
            f"Choose a group from the list; “{GROUPS}” explains them.",
        ),
        "decision": (
            f'"{",".join(DECISIONS)}"',
            f"Choose {', '.join(DECISIONS[:-1])} or {DECISIONS[-1]}.",
        ),
    }
    for name, (formula, advice) in lists.items():
        validation = DataValidation(
            "list", formula1=formula, allow_blank=True, showErrorMessage=True
        )
        validation.errorTitle = "Not in the list"
        validation.error = advice
        validation.add(f"{_LETTER[name]}2:{_LETTER[name]}{last_row}")
        sheet.add_data_validation(validation)


def _add_entry_colours(sheet: Worksheet, last_row: int) -> None:
    """Colour the entries of decided rows green and the entries of invalid rows red."""
    group = _LETTER["group"]
    decision = _LETTER["decision"]
    comment = _LETTER["comment"]
    invalid = f'OR(AND(${decision}2="drop",${group}2<>""),AND(${decision}2="group",${group}2=""))'
    decided = f'OR(${group}2<>"",${decision}2="drop",${decision}2="unsure")'
    for formula, fill in ((invalid, INVALID_FILL), (decided, DECIDED_FILL)):
        rule = Rule(
            "expression", formula=[formula], dxf=DifferentialStyle(fill=fill), stopIfTrue=True
        )
        sheet.conditional_formatting.add(f"{group}2:{comment}{last_row}", rule)


def fill_groups(sheet: Worksheet, groups: Sequence[Group]) -> None:
    """Fill the sheet with the groups and their guidelines."""
    write_header(sheet, ("group", "root", "what belongs here"))
    for number, group in enumerate(groups, 2):
        for column, text in enumerate((group.name, group.root, group.guideline), 1):
            sheet.cell(number, column).style = GROUP_NAME_STYLE if column == 1 else GROUP_STYLE
            put_text(sheet, number, column, text)  # after the style, as it may add a prefix
        fit_height(sheet, number, group.guideline, 110)
    set_widths(sheet, (26, 13, 110))
    sheet.freeze_panes = "B2"
    sheet.auto_filter.ref = f"A1:C{len(groups) + 1}"
    finish_sheet(sheet)


def fill_set_aside(sheet: Worksheet, entries: Entries) -> None:
    """Fill the sheet with entries for labels that are no longer in the clusters."""
    write_header(sheet, SET_ASIDE_COLUMNS)
    in_order = sorted(entries.values(), key=lambda entry: entry.label_id)
    for number, entry in enumerate(in_order, 2):
        for column, name in enumerate(SET_ASIDE_COLUMNS, 1):
            put_text(sheet, number, column, getattr(entry, name))
    set_widths(sheet, (14, 34, 23, 11, 34))
    finish_sheet(sheet)


def fill_hidden(sheet: Worksheet, rows: Sequence[tuple[str, ...]]) -> None:
    """Fill a hidden sheet with texts."""
    for number, row in enumerate(rows, 1):
        for column, text in enumerate(row, 1):
            put_text(sheet, number, column, text)
    sheet.sheet_state = "hidden"
    finish_sheet(sheet)
