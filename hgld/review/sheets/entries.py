"""Read the entries of an annotator in a review sheet; read and write sheets as CSV.

Spreadsheet programs change texts that look like numbers, dates or formulas, so ``label_id`` identifies a label.

CSV is UTF-8 with a byte order mark, by which Excel knows the encoding, and every value is quoted. Spreadsheet
programs take a value that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end for a formula, quoted or not.
Such values are written after an apostrophe, which is removed on reading (:func:`hgld.io.table_rows.escape_formula`).
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from hgld.errors import InputError, counted, indented_list
from hgld.io.columns import locate_invalid_byte
from hgld.io.files import atomic_write
from hgld.io.table_rows import escape_formula, unescape_formula
from hgld.names import stored_name
from hgld.review.labels import N_EXAMPLES, ReviewLabel, example_link, fit_for_cell
from hgld.tables import nouns

ENTRY_COLUMNS = ("group", "decision", "comment")
#: Words for one and for several things of GLDv2's lists.
LANDMARKS = nouns(neutral=False)
_EXAMPLE_COLUMNS = tuple(f"example {n}" for n in range(1, N_EXAMPLES + 1))
COLUMNS = (
    "label_id",
    "label",
    "landmarks",
    "parents",
    "cluster",
    "sub-cluster",
    *_EXAMPLE_COLUMNS,
    "suggested group",
    *ENTRY_COLUMNS,
)
#: Columns that a sheet must have to be read. The title of the column of counts depends on the list.
REQUIRED_COLUMNS = tuple(name for name in COLUMNS if name != "landmarks")


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of an annotator for a label; columns without an entry are empty."""

    label_id: str
    label: str
    group: str = ""
    decision: str = ""
    comment: str = ""

    @property
    def texts(self) -> dict[str, str]:
        """Texts that are not empty, by column."""
        texts = {"group": self.group, "decision": self.decision, "comment": self.comment}
        return {column: text for column, text in texts.items() if text}

    def __bool__(self) -> bool:
        return bool(self.texts)

    def __str__(self) -> str:
        return ", ".join(f'the {column} "{text}"' for column, text in self.texts.items())


#: Entries of a sheet by label_id; labels without an entry are missing.
Entries = Mapping[str, Entry]

#: Number of a row in the file, counted from 1, and a problem with it, for people.
RowProblem = tuple[int, str]


@dataclass(frozen=True, slots=True)
class SheetRow:
    """A row that was read back from a sheet.

    Args:
        number: Number of the row in the file, counted from 1.
        values: Texts of the cells, by column.
        columns: Address of each column in a workbook, e.g. ``Labels!K``; empty for CSV.
        problems: Problems that make the entry unreadable, such as merged cells.
    """

    number: int
    values: Mapping[str, str]
    columns: Mapping[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def label_id(self) -> str:
        """Id of the label, without surrounding white space."""
        return self.values.get("label_id", "").strip()

    @property
    def label(self) -> str:
        """Text of the label."""
        return self.values.get("label", "")

    def address(self, column: str) -> str:
        """Return the address of a value.

        >>> SheetRow(17, {}, {"group": "Labels!K"}).address("group"), SheetRow(17, {}).address("group")
        ('Labels!K17', 'row 17, group')
        """
        if self.columns:
            return f"{self.columns[column]}{self.number}"
        return f"row {self.number}, {column}"

    def problem(self, column: str, text: str) -> RowProblem:
        """Return a problem with the value of a column."""
        return self.number, f"{self.address(column)}: {text}"

    def refuse_formula(self, column: str, formula: str) -> None:
        """Add the problem that an entry or the label_id is a formula, e.g. ``=K16``."""
        if column in ("label_id", *ENTRY_COLUMNS):
            shown = formula if len(formula) <= 60 else f"{formula[:60]}…"
            self.problems.append(
                f"{self.address(column)}: a formula, not a text: {shown}; replace it with its value"
            )


def check_header(path: Path, place: str, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Find the columns of a sheet, whatever their order, case and surrounding white space.

    Returns:
        Names as in ``columns``, in the order of the sheet; empty for columns that annotators added.

    Raises:
        InputError: A column is missing, or there are two of the same name.
    """
    header = []
    for name in names:
        column = stored_name(name).casefold()
        header.append(column if column in columns else "")
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(f"{path}: not a review sheet: {place} has no column {', '.join(missing)}")
    for name in columns:
        if header.count(name) > 1:
            raise InputError(f"{path}: {place} has two columns {name}; remove one of them")
    return header


def read_entries(path: Path, rows: Iterable[SheetRow]) -> dict[str, Entry]:
    """Return the entries in rows of the file ``path``, by label_id."""
    entries, problems = collect_entries(rows)
    if problems:
        lines = indented_list([text for _, text in problems])
        raise InputError(
            f"{path}: {counted(len(problems), 'problem')} to fix before it can be read:\n{lines}"
        )
    return {label_id: entry for label_id, (_, entry) in entries.items()}


def collect_entries(
    rows: Iterable[SheetRow],
) -> tuple[dict[str, tuple[SheetRow, Entry]], list[RowProblem]]:
    """Return the rows with their entries by label_id, and the problems of rows.

    A row is invalid if it has problems, such as merged cells, too many cells or a formula in place of a text, or if
    it has an entry without a label_id. Rows with the same label_id and different entries are all skipped. The first
    of equal rows counts.
    """
    entries: dict[str, tuple[SheetRow, Entry]] = {}
    first_rows: dict[str, tuple[SheetRow, Entry]] = {}
    problems: list[RowProblem] = []
    for row in rows:
        if row.problems:
            problems += [(row.number, problem) for problem in row.problems]
            continue
        entry = Entry(
            row.label_id,
            row.label,
            group=stored_name(normalise_entry(row.values.get("group", ""))),
            decision=stored_name(normalise_entry(row.values.get("decision", ""))),
            comment=normalise_entry(row.values.get("comment", "")),
        )
        if not entry:
            continue
        if not entry.label_id:
            problems.append(row.problem("label_id", "the row has an entry, but no label_id"))
            continue
        first_row, first = first_rows.setdefault(entry.label_id, (row, entry))
        if first_row is row:
            entries[entry.label_id] = row, entry
        elif entry.texts != first.texts:
            text = f'{entry.label_id} ("{entry.label}") has {entry} here, but {first} in row {first_row.number}'
            problems.append(row.problem("label_id", f"{text}; remove one of the rows"))
            entries.pop(entry.label_id, None)
    return entries, problems


def normalise_entry(text: str) -> str:
    r"""Return an entry that fits into a cell, without surrounding white space, and with ``\n`` for every line end."""
    text = text.replace("_x000D_", "\r").replace("\r\n", "\n").replace("\r", "\n")
    return fit_for_cell(text.strip())


def entries_digest(entries: Entries) -> str:
    """Return the SHA-256 (hex) of entries, independent of the order of rows and the texts of labels."""
    values = []
    for entry in entries.values():
        values.append((entry.label_id, entry.group, entry.decision, entry.comment))
    values.sort()
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def merge_entries(first: Entries, second: Entries) -> dict[str, Entry]:
    """Return the entries of both; raise an InputError for different texts in a column of a label."""
    merged = dict(first)
    problems = []
    for label_id, entry in second.items():
        other = merged.setdefault(label_id, entry)
        for column in ENTRY_COLUMNS:
            text = getattr(other, column)
            new_text = getattr(entry, column)
            if text and new_text and text != new_text:
                problems.append(
                    f'{label_id} ("{other.label}"): {column} is "{text}" and "{new_text}"'
                )
            merged[label_id] = replace(merged[label_id], **{column: text or new_text})
    if problems:
        raise InputError(
            f"{counted(len(problems), 'contradiction')} between entries:\n{indented_list(problems)}"
        )
    return merged


def read_bytes(path: Path) -> bytes:
    """Return the content of a sheet; raise an InputError if it is missing or empty."""
    if path.is_dir():
        raise InputError(f"{path}: a folder; give one of the sheets in it")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    content = path.read_bytes()
    if not content:
        raise InputError(f"{path}: the file is empty")
    return content


#: Separators of cells that need no line to name them, and their names in messages.
_DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab"}
#: Columns whose texts never begin with "=", unlike comments.
_NEVER_FORMULAS = ("label_id", "group", "decision")
#: First line that names the separator, which Excel reads and some programs write.
_SEPARATOR_LINE = re.compile(r'"?sep=(?P<separator>[^"\r\n])"?(?:\r\n|\r|\n|$)', re.IGNORECASE)


def sheet_cells(row: ReviewLabel, entries: Entries) -> list[tuple[str | int, str | None]]:
    """Return the values and URLs of the cells of a label; the URL is None for a cell without a link."""
    entry = entries.get(row.label_id) or Entry(row.label_id, row.label)
    cells: list[tuple[str | int, str | None]] = []
    for value in (
        row.label_id,
        row.label,
        row.landmarks,
        row.parents,
        row.cluster,
        row.subcluster,
    ):
        cells.append((value, None))
    cells += [example_link(title) for title in row.examples]
    cells += [("", None)] * (N_EXAMPLES - len(row.examples))
    for text in (row.suggested_group, entry.group, entry.decision, entry.comment):
        cells.append((text, None))
    return cells


def named_columns(counts_title: str) -> list[str]:
    """Return the columns of a sheet, with this title of the column of counts.

    >>> named_columns("ships")[:4]
    ['label_id', 'label', 'ships', 'parents']
    """
    return [counts_title if name == "landmarks" else name for name in COLUMNS]


def write_csv_sheet(
    path: Path,
    rows: Sequence[ReviewLabel],
    entries: Entries,
    *,
    counts_title: str = LANDMARKS[1],
) -> None:
    """Write a sheet as CSV, atomically; see :func:`named_columns`."""
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerow(named_columns(counts_title))
        for row in rows:
            cells = sheet_cells(row, entries)
            writer.writerow([escape_formula(url or str(value)) for value, url in cells])


def is_text(path: Path) -> bool:
    """Return whether a sheet is a text file, not a workbook, by its name; Excel calls "Unicode text" .txt."""
    return path.suffix.lower() in (".csv", ".tsv", ".txt")


def read_csv_sheet(path: Path) -> list[SheetRow]:
    """Read a sheet that hgld wrote or a spreadsheet program saved.

    The file may be in UTF-8 or UTF-16 ("Unicode text" of Excel). Cells are separated by commas, semicolons or tabs,
    or by the separator in a first line such as ``sep=;``, which does not count as a row.

    Raises:
        InputError: The file cannot be decoded, is not CSV, ends within quotes, or lacks a column of a review sheet.
    """
    text = _decode(path)
    lines_before = 0
    separator_line = _SEPARATOR_LINE.match(text)
    if separator_line is not None:
        delimiter = separator_line["separator"]
        text = text[separator_line.end() :]
        lines_before = 1
    else:
        first_line = re.split(r"[\r\n]", text, maxsplit=1)[0]
        delimiter = max(_DELIMITERS, key=first_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows = []
    try:
        header = check_header(path, "line 1", next(reader, []), REQUIRED_COLUMNS)
        for number, record in enumerate(reader, 2):
            # Spreadsheet programs may omit blank cells at the end of a row.
            cells = list(zip_longest(header, record[: len(header)], fillvalue=""))
            values = {name: unescape_formula(value) for name, value in cells if name}
            row = SheetRow(number, values)
            if any(record[len(header) :]):
                line = lines_before + reader.line_num
                separator = _DELIMITERS.get(delimiter, f'"{delimiter}"')
                row.problems.append(
                    f"row {number}: line {line} has {len(record)} cells, not {len(header)}; "
                    f"is a value with {separator} not in quotes?"
                )
            for name, value in cells:
                if name in _NEVER_FORMULAS and value.startswith("="):
                    row.refuse_formula(name, value)
            rows.append(row)
    except csv.Error as error:
        line = lines_before + reader.line_num
        raise InputError(
            f"{path}: line {line}: not readable as CSV, perhaps cut off ({error})"
        ) from error
    return rows


def _decode(path: Path) -> str:
    data = read_bytes(path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}: UTF-16 that is damaged, perhaps cut off; save the sheet again"
            ) from error
    if b"\0" in data:
        raise InputError(f"{path}: not CSV; if it is a workbook, call it .xlsx")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f'{path}: {locate_invalid_byte(path)}; save it as "CSV UTF-8", or use the workbook'
        ) from error
