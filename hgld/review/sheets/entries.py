"""Entries of an annotator in a review sheet, read back and joined on ``label_id`` alone; sheets as CSV.

Spreadsheet programs change texts that look like numbers, dates or formulas, so a label is not identified by its text.

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
COLUMNS = (
    *("label_id", "label", "landmarks", "parents", "cluster", "sub-cluster"),
    *(f"example {n}" for n in range(1, N_EXAMPLES + 1)),
    *("suggested group", *ENTRY_COLUMNS),
)
#: Columns that a sheet must have to be read. That of the counts has the name of the things of the list.
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
        return {column: text for column in ENTRY_COLUMNS if (text := getattr(self, column))}

    def __bool__(self) -> bool:
        return bool(self.texts)

    def __str__(self) -> str:
        return ", ".join(f'the {column} "{text}"' for column, text in self.texts.items())


#: Entries of a sheet by label_id, without labels that have none.
Entries = Mapping[str, Entry]


#: Number of a row in the file, counted from 1, and a problem with it, for people.
RowProblem = tuple[int, str]


@dataclass(frozen=True, slots=True)
class SheetRow:
    """A row that was read back from a sheet.

    Args:
        number: Number of the row in the file, counted from 1.
        columns: Address of each column in a workbook, e.g. ``Labels!K``; empty for CSV, which has no cells.
        problems: What makes it unknown what was entered in the row, such as merged cells.
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
        return (
            f"{self.columns[column]}{self.number}"
            if self.columns
            else f"row {self.number}, {column}"
        )

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
    known = set(columns)
    header = [
        name if name in known else "" for name in (stored_name(name).casefold() for name in names)
    ]
    if missing := [name for name in columns if name not in header]:
        raise InputError(f"{path}: not a review sheet: {place} has no column {', '.join(missing)}")
    if repeated := [name for name in columns if header.count(name) > 1]:
        raise InputError(f"{path}: {place} has two columns {repeated[0]}; remove one of them")
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
    """Return the rows with an entry and the entry, by label_id, and problems with entries.

    A row is bad if it has problems, such as merged cells, too many cells or a formula where a text should be, or an
    entry but no label_id. If rows with
    different entries have the same label_id, none of them is returned; of equal ones the first is.
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
    r"""Return an entry as a cell can hold it, without surrounding white space, and with ``\n`` for every line end."""
    return fit_for_cell(
        text.replace("_x000D_", "\r").replace("\r\n", "\n").replace("\r", "\n").strip()
    )


def entries_digest(entries: Entries) -> str:
    """Return the SHA-256 (hex) of entries, whatever the order of the rows and the texts of the labels."""
    values = sorted(
        (entry.label_id, *(getattr(entry, column) for column in ENTRY_COLUMNS))
        for entry in entries.values()
    )
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def merge_entries(first: Entries, second: Entries) -> dict[str, Entry]:
    """Return the entries of both; raise an InputError if they differ in the same column of the same label."""
    merged = dict(first)
    problems = []
    for label_id, entry in second.items():
        other = merged.setdefault(label_id, entry)
        for column in ENTRY_COLUMNS:
            ours, theirs = getattr(other, column), getattr(entry, column)
            if ours and theirs and ours != theirs:
                problems.append(
                    f'{label_id} ("{other.label}"): {column} is "{ours}" and "{theirs}"'
                )
            merged[label_id] = replace(merged[label_id], **{column: ours or theirs})
    if problems:
        raise InputError(
            f"{counted(len(problems), 'contradiction')} between entries:\n{indented_list(problems)}"
        )
    return merged


def read_bytes(path: Path) -> bytes:
    """Return the content of a sheet; raise an InputError if there is none."""
    if path.is_dir():
        raise InputError(f"{path}: a folder; give one of the sheets in it")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    content = path.read_bytes()
    if not content:
        raise InputError(f"{path}: the file is empty")
    return content


_DELIMITERS = (",", ";", "\t")
#: Columns whose texts never begin with "="; comments may.
_NEVER_FORMULAS = ("label_id", "group", "decision")
#: First line that names the separator, which Excel reads and some programs write.
_SEPARATOR_LINE = re.compile(r'"?sep=(?P<separator>[^"\r\n])"?(?:\r\n|\r|\n|$)', re.IGNORECASE)


def sheet_cells(row: ReviewLabel, entries: Entries) -> list[tuple[str | int, str | None]]:
    """Return the values of the row of a label, in the order of the columns, each with its URL if it is a link."""
    entry = entries.get(row.label_id) or Entry(row.label_id, row.label)
    about = (row.label_id, row.label, row.landmarks, row.parents, row.cluster, row.subcluster)
    links = [example_link(title) for title in row.examples]
    entered = ("",) * (N_EXAMPLES - len(links)) + (
        row.suggested_group,
        entry.group,
        entry.decision,
        entry.comment,
    )
    return [*((value, None) for value in about), *links, *((value, None) for value in entered)]


def named_columns(counts_title: str) -> list[str]:
    """Return the columns of a sheet, given the title of that with the number of each label.

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
            writer.writerow(
                [escape_formula(url or str(value)) for value, url in sheet_cells(row, entries)]
            )


def is_text(path: Path) -> bool:
    """Return whether a sheet is a text file, not a workbook, by its name; Excel calls "Unicode text" .txt."""
    return path.suffix.lower() in (".csv", ".tsv", ".txt")


def read_csv_sheet(path: Path) -> list[SheetRow]:
    """Read a sheet as hgld wrote it or as a spreadsheet program saved it.

    The file may be in UTF-8 or UTF-16 ("Unicode text" of Excel). Cells are separated by commas, semicolons or tabs,
    or as a first line such as ``sep=;`` says, which does not count as a row.

    Raises:
        InputError: The file cannot be decoded, is not CSV, ends within quotes, or lacks a column of a review sheet.
    """
    text = _decode(path)
    lines_before = 0
    if named := _SEPARATOR_LINE.match(text):
        delimiter = named["separator"]
        text = text[named.end() :]
        lines_before = 1
    else:
        delimiter = max(_DELIMITERS, key=re.split(r"[\r\n]", text, maxsplit=1)[0].count)
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
                row.problems.append(
                    f"row {number}: line {line} has {len(record)} cells, not {len(header)}; is a value with a comma "
                    "not in quotes?"
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
