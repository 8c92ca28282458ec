"""Entries of an annotator in a review sheet, read back and joined on ``label_id`` alone.

Spreadsheet programs change texts that look like numbers, dates or formulas, so a label is not identified by its text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hgld.errors import InputError, counted, indented_list
from hgld.review.labels import MAX_UNITS, N_EXAMPLES, fit_for_cell

#: A workbook of 5,700 labels has 0.7 MB and unpacks to 10 MB; formats on a million empty rows unpack to 120 MB.
MAX_FILE_BYTES = 64 * 2**20
ENTRY_COLUMNS = ("group", "decision", "comment")
COLUMNS = (
    *("label_id", "label", "landmarks", "parents", "cluster", "sub-cluster"),
    *(f"example {n}" for n in range(1, N_EXAMPLES + 1)),
    *("suggested group", *ENTRY_COLUMNS),
)


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
        merged: Ranges of merged cells that reach into the row, e.g. ``Labels!K17:K19``.
        formulas: Formulas by column, e.g. ``=K16``. The texts of these columns are what a program calculated last.
    """

    number: int
    values: Mapping[str, str]
    columns: Mapping[str, str] = field(default_factory=dict)
    merged: tuple[str, ...] = ()
    formulas: Mapping[str, str] = field(default_factory=dict)
    damage: str = ""

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
        return f"{self.columns[column]}{self.number}" if self.columns else f"row {self.number}, {column}"

    def problem(self, column: str, text: str) -> RowProblem:
        """Return a problem with the value of a column."""
        return self.number, f"{self.address(column)}: {text}"

    def problems(self) -> Iterator[RowProblem]:
        """Yield the problems that make it unknown what was entered in the row."""
        if self.damage:
            yield self.number, f"row {self.number}: {self.damage}"
        for area in self.merged:
            yield self.number, f"{area}: merged cells; separate them and fill in each"
        for column in ("label_id", *ENTRY_COLUMNS):
            if formula := self.formulas.get(column):
                shown = formula if len(formula) <= 60 else f"{formula[:60]}…"
                yield self.problem(column, f"a formula, not a text: {shown}; replace it with its value")


def check_header(path: Path, place: str, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Find the columns of a sheet, whatever their order, case and surrounding white space.

    Returns:
        Names as in ``columns``, in the order of the sheet; empty for columns that annotators added.

    Raises:
        InputError: A column is missing, or there are two of the same name.
    """
    known = set(columns)
    header = [name if name in known else "" for name in (name.strip().casefold() for name in names)]
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
        raise InputError(f"{path}: {counted(len(problems), 'problem')} to fix before it can be read:\n{lines}")
    return {label_id: entry for label_id, (_, entry) in entries.items()}


def collect_entries(rows: Iterable[SheetRow]) -> tuple[dict[str, tuple[SheetRow, Entry]], list[RowProblem]]:
    """Return the rows with an entry and the entry, by label_id, and problems with entries.

    A row is bad if it was cut short, has a formula where a text should be, has an entry but no label_id, or an entry
    that does not fit into a cell. If rows with different entries have the same label_id, none of them is returned; of
    equal ones the first is.
    """
    entries: dict[str, tuple[SheetRow, Entry]] = {}
    first_rows: dict[str, tuple[SheetRow, Entry]] = {}
    problems: list[RowProblem] = []
    for row in rows:
        if row_problems := list(row.problems()):
            problems += row_problems
            continue
        entry = Entry(
            row.label_id,
            row.label,
            **{column: normalise_entry(row.values.get(column, "")) for column in ENTRY_COLUMNS},
        )
        if not entry:
            continue
        problems += _size_problems(row, entry)
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


def _size_problems(row: SheetRow, entry: Entry) -> Iterator[RowProblem]:
    for column in ENTRY_COLUMNS:
        if fit_for_cell(getattr(entry, column)) != getattr(entry, column):
            text = f"control characters or more than {MAX_UNITS:,} characters, which no workbook can hold"
            yield row.problem(column, text)


def normalise_entry(text: str) -> str:
    r"""Return an entry without surrounding white space, and with ``\n`` for every spelling of a line end."""
    return text.replace("_x000D_", "\r").replace("\r\n", "\n").replace("\r", "\n").strip()


def entries_digest(entries: Entries) -> str:
    """Return the SHA-256 (hex) of entries, whatever the order of the rows and the texts of the labels."""
    values = sorted(
        (entry.label_id, *(getattr(entry, column) for column in ENTRY_COLUMNS)) for entry in entries.values()
    )
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def merge_entries(first: Entries, second: Entries) -> dict[str, Entry]:
    """Return the entries of both.

    Raises:
        InputError: Both have an entry in the same column of the same label, and the entries differ.
    """
    merged = dict(first)
    problems = []
    for label_id, entry in second.items():
        other = merged.setdefault(label_id, entry)
        for column in ENTRY_COLUMNS:
            ours, theirs = getattr(other, column), getattr(entry, column)
            if ours and theirs and ours != theirs:
                problems.append(f'{label_id} ("{other.label}"): {column} is "{ours}" and "{theirs}"')
            merged[label_id] = replace(merged[label_id], **{column: ours or theirs})
    if problems:
        raise InputError(f"{counted(len(problems), 'contradiction')} between entries:\n{indented_list(problems)}")
    return merged


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
