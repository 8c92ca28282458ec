"""What a review sheet holds: a row per label, and what an annotator entered in it.

A sheet exists twice, as a workbook (:mod:`hgld.review.sheets.workbook`) and as CSV (:mod:`hgld.review.sheets.csv_sheet`),
with the same rows and columns. What comes back from an annotator is joined on ``label_id`` alone:
spreadsheets mangle texts that look like numbers, dates or formulas.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from hgld.errors import InputError, indented_list
from hgld.taxonomy.label_identity import label_id
from hgld.wikimedia.titles import CATEGORY_PREFIX, title_of_url, title_path

N_EXAMPLES = 3
COLUMNS = (
    *("label_id", "label", "landmarks", "parents", "cluster", "sub-cluster"),
    *(f"example {n}" for n in range(1, N_EXAMPLES + 1)),
    *("suggested group", "group", "decision", "comment"),
)
ENTRY_COLUMNS = ("group", "decision", "comment")

#: Excel's limit for the text of a cell, in UTF-16 units.
MAX_UNITS = 32_767
#: What XML 1.0 cannot hold, and so no workbook.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class LabelRow:
    """What an annotator is shown of a label.

    Args:
        label_id: the class's item where known, else an id made from the label.
        label: the label, fit for a cell.
        landmarks: how many landmarks of both splits have the label.
        parents: the labels of the classes it is a subclass of.
        cluster: the number of its cluster.
        cluster_name: the name of its cluster.
        subcluster: the number of its sub-cluster.
        examples: titles of Commons categories of landmarks with the label, at most ``N_EXAMPLES``.
        suggested_group: the most likely group, or empty.
    """

    label_id: str
    label: str
    landmarks: int
    parents: str
    cluster: int
    cluster_name: str
    subcluster: int
    examples: tuple[str, ...]
    suggested_group: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What an annotator entered for a label; empty text where nothing was entered."""

    label_id: str
    label: str
    group: str = ""
    decision: str = ""
    comment: str = ""

    def __bool__(self) -> bool:
        return bool(self.group or self.decision or self.comment)


#: What was entered in a sheet, by label_id; labels without any entry are left out.
Entries = Mapping[str, Entry]


@dataclass(frozen=True, slots=True)
class LineProblem:
    """What is wrong with the row of this number, and where."""

    number: int
    address: str
    text: str

    def __str__(self) -> str:
        return f"{self.address}: {self.text}"


@dataclass(frozen=True, slots=True)
class SheetLine:
    """A row as it was read back.

    Args:
        number: of the row in the file, counted from 1.
        values: the text of each column.
        columns: where the columns stand in a workbook, e.g. ``Labels!K``; empty for CSV, which has no cells.
        merged: the ranges of merged cells that reach into the row, e.g. ``Labels!K17:K19``.
    """

    number: int
    values: Mapping[str, str]
    columns: Mapping[str, str] = field(default_factory=dict)
    merged: tuple[str, ...] = ()

    def address(self, column: str) -> str:
        """Where a value stands.

        >>> SheetLine(17, {}, {"group": "Labels!K"}).address("group"), SheetLine(17, {}).address("group")
        ('Labels!K17', 'row 17, group')
        """
        return f"{self.columns[column]}{self.number}" if self.columns else f"row {self.number}, {column}"

    def problem(self, column: str, text: str) -> LineProblem:
        """Something that is wrong with the value of a column."""
        return LineProblem(self.number, self.address(column), text)


def label_rows(clusters: pa.Table, clean: pa.Table, classes: Sequence[pa.Table] = ()) -> list[LabelRow]:
    """The rows of a sheet: by cluster and sub-cluster, in each the labels with most landmarks first.

    Args:
        clusters: a ``clusters`` table.
        clean: a ``clean`` table, from which the examples are taken: of train before index, and of the lowest
            landmark ids, which GLDv2 gave out at random.
        classes: ``classes`` tables, for the parents; the first that knows a class counts.

    Raises:
        InputError: an example's category is not the URL of a Commons category.
    """
    examples = _examples(clean)
    parents = _parents(classes)
    rows = [
        LabelRow(
            label_id=row["label_id"],
            label=fit_for_cell(row["label"]),
            landmarks=row["landmarks_train"] + row["landmarks_index"],
            parents=fit_for_cell(", ".join(parents.get(row["label_id"], ()))),
            cluster=row["cluster"],
            cluster_name=fit_for_cell(row["cluster_name"]),
            subcluster=row["subcluster"],
            examples=tuple(examples.get(row["label_id"], ())),
            suggested_group=row["suggested_group"] or "",
        )
        for row in clusters.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row.cluster, row.subcluster, -row.landmarks, row.label_id))


def _examples(clean: pa.Table) -> dict[str, list[str]]:
    """Titles of the first categories of each label, by label_id."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    in_order = clean.sort_by([("split", "descending"), ("landmark_id", "ascending")])
    columns = (in_order.column(name).to_pylist() for name in ("supercategory", "class_item", "category"))
    for label, item, url in zip(*columns, strict=True):
        titles = found[label_id(label, item)]
        if len(titles) < N_EXAMPLES:
            try:
                title = title_of_url(url)
            except ValueError as error:
                raise InputError(f"no example can be linked: {error}") from error
            if title not in titles:
                titles.append(title)
    return found


def _parents(classes: Sequence[pa.Table]) -> dict[str, list[str]]:
    """Labels of the parents of each class, by item; the bare item where its label is not known."""
    known = {row["item"]: row for table in reversed(classes) for row in table.to_pylist()}
    return {
        item: [known[parent]["label"] if parent in known else parent for parent in row["subclass_of"]]
        for item, row in known.items()
    }


def example_link(title: str) -> tuple[str, str]:
    """Name and address of a category of Commons.

    >>> example_link("Category:Comet Falls")
    ('Comet Falls', 'https://commons.wikimedia.org/wiki/Category:Comet_Falls')
    """
    return title.removeprefix(CATEGORY_PREFIX), f"https://commons.wikimedia.org/wiki/{title_path(title)}"


def fit_for_cell(text: str) -> str:
    """The text as a cell of a workbook can hold it.

    Characters that XML cannot hold become U+FFFD; what goes over Excel's limit is cut, with "…" at the end.
    """
    text = _ILLEGAL.sub("\ufffd", text)
    if len(text.encode("utf-16-le")) <= 2 * MAX_UNITS:
        return text
    # Half a pair of units at the cut is left out.
    return text.encode("utf-16-le")[: 2 * (MAX_UNITS - 1)].decode("utf-16-le", "ignore") + "…"


def entries_of(path: Path, lines: Iterable[SheetLine]) -> dict[str, Entry]:
    """What was entered in the file ``path``, by label_id; labels without any entry are left out.

    Raises:
        InputError: :func:`entered_lines` finds a problem.
    """
    found, problems = entered_lines(lines)
    if problems:
        shown = indented_list([str(problem) for problem in problems])
        raise InputError(f"{path}: {len(problems):,} problems keep it from being read; mend them:\n{shown}")
    return {key: entry for key, (_, entry) in found.items()}


def entered_lines(
    lines: Iterable[SheetLine],
) -> tuple[dict[str, tuple[SheetLine, Entry]], list[LineProblem]]:
    """The rows in which something was entered, with it, by label_id; and what keeps rows from being taken.

    A row is bad that has no label_id, or an entry that does not fit into a cell. Of rows with the same label_id
    none is among those found.
    """
    found: dict[str, tuple[SheetLine, Entry]] = {}
    first: dict[str, SheetLine] = {}
    problems = []
    for line in lines:
        entry = Entry(
            line.values.get("label_id", "").strip(),
            line.values.get("label", ""),
            **{column: entered(line.values.get(column, "")) for column in ENTRY_COLUMNS},
        )
        if not entry:
            continue
        for column in ENTRY_COLUMNS:
            if fit_for_cell(getattr(entry, column)) != getattr(entry, column):
                text = f"control characters or more than {MAX_UNITS:,} characters, which no workbook can hold"
                problems.append(line.problem(column, text))
        if not entry.label_id:
            problems.append(line.problem("label_id", "something was entered, but there is no label_id"))
        elif entry.label_id in first:
            text = f'{entry.label_id} ("{entry.label}") has entries in row {first[entry.label_id].number} already'
            problems.append(line.problem("label_id", text))
            found.pop(entry.label_id, None)
        else:
            first[entry.label_id] = line
            found[entry.label_id] = line, entry
    return found, problems


def entered(text: str) -> str:
    """An entry without what spreadsheets do to it: white space around it, their spellings of a line end."""
    return text.replace("_x000D_", "\r").replace("\r\n", "\n").replace("\r", "\n").strip()


def digest_of(entries: Entries) -> str:
    """SHA-256 (hex) of what was entered, whatever the order of the rows and the spelling of the labels."""
    stable = sorted(
        (entry.label_id, *(getattr(entry, column) for column in ENTRY_COLUMNS)) for entry in entries.values()
    )
    return hashlib.sha256(json.dumps(stable).encode()).hexdigest()


def combine(first: Entries, second: Entries) -> dict[str, Entry]:
    """Everything that was entered in either.

    Raises:
        InputError: both say something, but not the same, in one column of one label.
    """
    combined = dict(first)
    problems = []
    for key, entry in second.items():
        other = combined.setdefault(key, entry)
        for column in ENTRY_COLUMNS:
            here, there = getattr(other, column), getattr(entry, column)
            if here and there and here != there:
                problems.append(f'{key} ("{other.label}"): {column} is "{here}" and "{there}"')
            combined[key] = replace(combined[key], **{column: here or there})
    if problems:
        raise InputError(f"{len(problems):,} entries contradict each other:\n{indented_list(problems)}")
    return combined
