"""Decisions of annotators on labels: files with one row per label, and the look-up of a label's decision.

Decisions are CSV files (``annotations/decisions/*.csv``), because people read them, compare them and keep them under
version control. They refer to groups by key (:mod:`hgld.taxonomy.groups`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from difflib import get_close_matches
from pathlib import Path

from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import preview
from hgld.io.files import atomic_write, require_own_csv
from hgld.io.table_rows import escape_formula, read_rows, unescape_formula, unify_line_breaks
from hgld.names import stored_id, stored_name
from hgld.taxonomy.groups import Group, survivors
from hgld.taxonomy.label_identity import normalise_label

#: Choices: assign to a group; drop from the dataset; unsure, possibly with a group as a guess.
DECISIONS = ("group", "drop", "unsure")
_REQUIRED_COLUMNS = ("label_id", "label", "decision", "group", "annotator", "decided_at")
COLUMNS = (*_REQUIRED_COLUMNS, "blind", "comment")
#: Largest number of unknown groups that count as mistakes in single rows.
_FEW_UNKNOWN = 2
#: Texts of the categories of decisions without a group.
_DECISION_TEXTS = ("(drop)", "(unsure)")
#: Values of the column ``blind``.
_BLIND = {"yes": True, "no": False, "": None}

#: Annotators who are not people: ``seed`` for drafts that come with hgld, ``machine`` for decisions of a program.
NOT_PEOPLE = ("seed", "machine")
#: Prefix of the name of a model whose answers no person has seen, as in ``machine:some-model``.
MACHINE = "machine:"

#: First bytes of an SQLite file.
_SQLITE = b"SQLite format 3\0"
_ANNOTATOR = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision on one label.

    Args:
        label_id: Wikidata item of the class, or an id made from the label if the item is unknown.
        decision: One of :data:`DECISIONS`.
        group: Key of the label's group; None if the label is dropped, and possibly None if the annotator is
            unsure.
        annotator: Name of the annotator; ``ada+ben`` for two annotators who agree. See :data:`NOT_PEOPLE`.
        decided_at: Time of the decision in UTC, to the second.
        blind: Whether the annotator decided without suggestions; None if unknown.
    """

    label_id: str
    label: str
    decision: str
    group: str | None
    annotator: str
    decided_at: datetime
    comment: str = ""
    blind: bool | None = None

    @property
    def people(self) -> list[str]:
        """Names of the people who took the decision, sorted."""
        names = set(self.annotator.split("+")).difference(NOT_PEOPLE)
        return sorted(name for name in names if not name.startswith(MACHINE))

    @property
    def unseen(self) -> bool:
        """Whether the decision is the answer of a model, which no person has accepted."""
        return MACHINE in self.annotator

    @property
    def of_landmark(self) -> bool:
        """Whether the decision is on a single landmark instead of a label, see :func:`landmark_key`."""
        return "/" in self.label_id


@dataclass(frozen=True, slots=True)
class Category:
    """Category of a decision in a comparison of annotators: decisions agree if their categories are equal.

    A group with the name "(drop)" differs from the category of dropped labels, also as text.

    Args:
        decision: One of :data:`DECISIONS`.
        group: Key or name of the group that a label is assigned to; None for other decisions, as guesses do
            not count.

    >>> str(Category("group", "lake")), str(Category("drop")), str(Category("group", "(drop)"))
    ('lake', '(drop)', 'group "(drop)"')
    """

    decision: str
    group: str | None = None

    def __str__(self) -> str:
        if self.group is None:
            return f"({self.decision})"
        if self.group in _DECISION_TEXTS:
            return f'group "{self.group}"'
        return self.group


def check_annotator(name: str) -> None:
    """Raise a :class:`ConfigurationError` unless a name can be part of a file name on every system."""
    if not _ANNOTATOR.fullmatch(name):
        raise ConfigurationError(
            f'the annotator "{name}" cannot name a file; use 1 to 64 letters a-z, digits, "-" and "_"'
        )


def decision_problem(
    decision: str, group: str | None, groups: Collection[str] | None
) -> str | None:
    """Return the problem of an invalid decision with its remedy; None for a valid decision.

    >>> decision_problem("drop", "lake", {"lake"})
    'dropped, but it has the group "lake"; remove one of the two'
    """
    if decision not in DECISIONS:
        return f'the decision is "{decision}"; expected one of {", ".join(DECISIONS)}'
    if decision == "group" and group is None:
        return "decided as group, but no group is given"
    if decision == "drop" and group is not None:
        return f'dropped, but it has the group "{group}"; remove one of the two'
    if group is not None and groups is not None and group not in groups:
        return f'the taxonomy has no group "{group}"{_similar_groups(group, groups)}'
    return None


def _similar_groups(name: str, groups: Collection[str]) -> str:
    """Return a question with the most similar names of groups; empty without similar names.

    >>> _similar_groups(" “PARKS”", ("parks", "car parks", "lakes"))
    '; did you mean "parks"?'
    """
    group_by_text = {}
    for group in groups:
        for part in group.split("/"):
            group_by_text[_comparable(part)] = group
        group_by_text[_comparable(group)] = group
    wanted = _comparable(name)
    matches = [wanted]
    if wanted not in group_by_text:
        matches = get_close_matches(wanted, group_by_text, n=2, cutoff=0.7)
    if not matches:
        return ""
    similar = dict.fromkeys(group_by_text[match] for match in matches)
    question = " or ".join(f'"{group}"' for group in similar)
    return f"; did you mean {question}?"


def _comparable(name: str) -> str:
    """Return the normalised name without quotation marks and other punctuation around it."""
    return normalise_label(name).strip("\"'`“”„‘’«»()[]<>.,;: ")


def read_decisions(
    path: Path, groups: Collection[str] | None, *, may_be_unseen: bool = False
) -> list[Decision]:
    """Read and validate decisions; the columns ``blind`` and ``comment`` may be absent.

    Args:
        path: CSV file in UTF-8.
        groups: Keys of the valid groups; None accepts every group.
        may_be_unseen: Accept answers of models, which are not decisions.

    Returns:
        Decisions in the order of the file; empty for a file without rows.

    Raises:
        InputError: See :func:`hgld.io.table_rows.read_rows`. A row is invalid if it lacks a value, if its decision
            and group do not fit together (:func:`decision_problem`), if its time or ``blind`` is invalid, or if its
            label_id is in an earlier row. Answers of models are refused, and so are decisions more than half of
            whose groups, and more than two, are not in the taxonomy.
    """
    first_lines: dict[str, int] = {}
    decided_groups: set[str] = set()

    def parse(line: int, row: Mapping[str, str]) -> Decision:
        values = {name: unescape_formula(row.get(name, "")).strip() for name in COLUMNS}
        values["label_id"] = stored_id(values["label_id"])
        for name in ("label", "group", "annotator"):
            values[name] = stored_name(values[name])
        for name in ("label_id", "label", "annotator"):
            if not values[name]:
                raise ValueError(f"the {name} is empty")
        first_line = first_lines.setdefault(values["label_id"], line)
        if first_line != line:
            raise ValueError(
                f'{values["label_id"]} ("{values["label"]}") is decided in line {first_line} already'
            )
        group = values["group"] or None
        if group is not None:
            decided_groups.add(group)
        problem = decision_problem(values["decision"], group, groups)
        if problem:
            raise ValueError(f'{values["label_id"]} ("{values["label"]}"): {problem}')
        if values["blind"] not in _BLIND:
            raise ValueError(
                f'blind is "{values["blind"]}"; expected yes, no, or nothing if it was not recorded'
            )
        return Decision(
            values["label_id"],
            values["label"],
            values["decision"],
            group,
            values["annotator"],
            parse_time(values["decided_at"]),
            values["comment"],
            _BLIND[values["blind"]],
        )

    _refuse_store(path)
    try:
        rows = read_rows(path, _REQUIRED_COLUMNS, parse, may_be_empty=True)
    except InputError:
        if groups is not None:
            require_same_taxonomy(path, decided_groups, groups)
        raise
    models = sorted({row.annotator for row in rows if row.unseen})
    if models and not may_be_unseen:
        raise InputError(
            f"{path}: holds answers of {', '.join(models)}, which are not decisions, as nobody has seen them; "
            "hgld suggest shows them as suggestions, and hgld agreement compares them with decisions"
        )
    return rows


def require_same_taxonomy(path: Path, decided: Collection[str], groups: Collection[str]) -> None:
    """Raise an InputError if more than two groups of a file, and more than half, are not in the taxonomy."""
    unknown = sorted(set(decided).difference(groups))
    if len(unknown) > _FEW_UNKNOWN and 2 * len(unknown) > len(decided):
        raise InputError(
            f"{path}: {len(unknown):,} of its {len(decided):,} groups are not in the taxonomy, such as "
            f"{preview(unknown, 3)}; give the taxonomy that these decisions were made with as `taxonomy`"
        )


def _refuse_store(path: Path) -> None:
    """Raise an InputError for the event store of a review in place of a file of decisions."""
    if path.is_file():
        with path.open("rb") as stream:
            if stream.read(len(_SQLITE)) == _SQLITE:
                raise InputError(
                    f"{path}: an SQLite file, such as that of hgld review; hgld decisions {path} -o NAME.csv writes "
                    "its decisions as CSV"
                )


def read_surviving_decisions(path: Path, groups: Sequence[Group]) -> list[Decision]:
    """Read decisions as :func:`read_decisions` does, with merged groups replaced by their survivors."""
    merged = survivors(groups)
    keys = {group.key for group in groups} | merged.keys()
    return with_groups(read_decisions(path, keys), merged)


def read_named_decisions(path: Path, groups: Sequence[Group]) -> list[Decision]:
    """Read decisions with the present names of their groups in place of the keys."""
    names = {group.key: group.name for group in groups}
    return with_groups(read_surviving_decisions(path, groups), names)


def with_groups(decisions: Iterable[Decision], groups: Mapping[str, str]) -> list[Decision]:
    """Return decisions with other keys or names of groups, given by the present keys in ``groups``."""
    replaced = []
    for row in decisions:
        group = row.group
        if group is not None:
            group = groups.get(group, group)
        replaced.append(replace(row, group=group))
    return replaced


def read_corrections(path: Path, groups: Sequence[Group]) -> dict[str, Decision]:
    """Read decisions that replace other decisions, with the present names of groups; skip unsure decisions.

    Returns:
        Decisions by label_id, the id of a label or of a single landmark (:func:`landmark_key`).
    """
    rows = read_named_decisions(path, groups)
    return {row.label_id: row for row in rows if row.decision != "unsure"}


def landmark_key(split: str, landmark_id: int | str) -> str:
    """Return the id of a single landmark for the column ``label_id`` of corrections.

    >>> landmark_key("train", 161)
    'train/161'
    """
    return f"{split}/{landmark_id}"


def corrected_decisions(
    decisions: Iterable[Decision], corrections: Mapping[str, Decision]
) -> list[Decision]:
    """Return decisions, with corrections in place of decisions on the same labels."""
    corrected = {row.label_id: row for row in decisions}
    corrected.update(corrections)
    return list(corrected.values())


def decisions_as_csv(decisions: Iterable[Decision]) -> str:
    """Return decisions as CSV, sorted by label so that two versions can be compared line by line.

    Values that a spreadsheet would run as formulas are escaped (:func:`hgld.io.table_rows.escape_formula`), and line
    breaks in comments become line feeds.
    """
    blind_text = {value: text for text, value in _BLIND.items()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in sorted(decisions, key=lambda row: (normalise_label(row.label), row.label_id)):
        choice = (row.label_id, row.label, row.decision, row.group or "")
        record = (row.annotator, format_time(row.decided_at), blind_text[row.blind], row.comment)
        writer.writerow([escape_formula(unify_line_breaks(value)) for value in choice + record])
    return text.getvalue()


def write_decisions(path: Path, decisions: Iterable[Decision]) -> None:
    """Write decisions atomically, in the form of :func:`decisions_as_csv`.

    Raises:
        ConfigurationError: The file exists and has other columns.
    """
    require_own_csv(path, COLUMNS)
    with atomic_write(path) as draft:
        draft.write_bytes(decisions_as_csv(decisions).encode())


def parse_time(text: str) -> datetime:
    """Parse a time in the format of :func:`format_time`, or in another ISO 8601 format with an offset from UTC."""
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        time = datetime.min
    problem = f'the time is "{text}"; expected e.g. 2026-03-01T12:30:00Z'
    if time.tzinfo is None:
        raise ValueError(problem)
    try:
        return time.astimezone(timezone.utc)
    except OverflowError:  # before the year 1 or after the year 9999 in UTC
        raise ValueError(problem) from None


def format_time(time: datetime) -> str:
    """Format a time in UTC, to the second.

    >>> format_time(datetime(2026, 3, 1, 12, 30, tzinfo=timezone.utc))
    '2026-03-01T12:30:00Z'
    """
    return time.astimezone(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


class DecisionIndex:
    """Looks up the decision on a label by its id, then by its text.

    A class has an item if it was read through the API, and no item if it was read from a page. Therefore a label
    without a decision on its id takes the decision on the same normalised label, if all decisions on that label
    agree.
    """

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self._by_id: dict[str, Decision] = {}
        self._by_label: dict[str, Decision | None] = {}
        for row in decisions:
            self._by_id[row.label_id] = row
            name = normalise_label(row.label)
            other = self._by_label.setdefault(name, row)
            if other is None or (other.decision, other.group) != (row.decision, row.group):
                self._by_label[name] = None

    def find(self, label_id: str, label: str) -> Decision | None:
        """Return the decision on a label; None if it is missing or decisions on the same text differ."""
        return self._by_id.get(label_id) or self._by_label.get(normalise_label(label))
