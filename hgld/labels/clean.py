"""From all "instance of" values to one relevant label per landmark; what leaves, leaves with a reason."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.io.csv_files import read_rows
from hgld.resources import annotation_file
from hgld.taxonomy.label_identity import ITEM_ID, label_id, normalise_label, unify

log = logging.getLogger(__name__)

KeepMultiple = Literal["first", "most-specific"]
Reason = Literal["multiple", "irrelevant", "unlabelled"]

_MOST_FREQUENT = 20


class Value(NamedTuple):
    """One "instance of" value: the class's item, where the source shows it, and its label."""

    item: str | None
    label: str


@dataclass(frozen=True)
class CleanConfig:
    """What is kept.

    Args:
        keep_multiple: what becomes of a landmark with several relevant labels: None removes it, as the paper
            did; ``first`` keeps the first; ``most-specific`` drops every label that is an ancestor (P279) of
            another, and removes the landmark if several are left.
        allow_errors: take landmarks that the scraper may try again for unlabelled, instead of refusing.
    """

    keep_multiple: KeepMultiple | None = None
    allow_errors: bool = False

    def __post_init__(self) -> None:
        if self.keep_multiple is not None and self.keep_multiple not in get_args(KeepMultiple):
            raise ConfigurationError(
                f'keep-multiple is "{self.keep_multiple}"; expected {" or ".join(get_args(KeepMultiple))}'
            )


@dataclass(frozen=True)
class Irrelevant:
    """Labels that say nothing of a landmark, by class item and by normalised label."""

    items: frozenset[str]
    labels: frozenset[str]

    def __contains__(self, value: Value) -> bool:
        return value.item in self.items or normalise_label(value.label) in self.labels


@dataclass(frozen=True)
class SplitSummary:
    """What became of one split; percentages are of all its landmarks."""

    split: str
    landmarks: int
    kept: int
    removed: Mapping[Reason, int]
    unique_labels: int
    most_frequent: Sequence[tuple[str, int]]

    @property
    def labelled(self) -> int:
        """Landmarks with at least one label, relevant or not."""
        return self.landmarks - self.removed["unlabelled"]


@dataclass(frozen=True)
class CleanSummary:
    """What became of every split, and how many unique labels they have together."""

    splits: Sequence[SplitSummary]
    unique_labels: int


def clean_file(
    scraped: Sequence[Path],
    out: Path,
    config: CleanConfig | None = None,
    *,
    removed: Path | None = None,
    irrelevant: Path | None = None,
    classes: Sequence[Path] | None = None,
    force: bool = False,
) -> CleanSummary | None:
    """Write one relevant label per landmark, and what was removed.

    Args:
        scraped: scraped tables, e.g. one per split; their landmarks keep this order.
        out: the clean table to write.
        config: what is kept.
        removed: the table of what was removed; by default ``removed.parquet`` beside ``out``.
        irrelevant: a CSV file item,label,reason; by default ``annotations/irrelevant_labels.csv``.
        classes: tables of classes for ``most-specific``; by default ``X.classes.parquet`` beside each
            ``X.parquet`` in ``scraped``.
        force: do the work although ``out`` is up to date.

    Returns:
        What became of the landmarks, or None if ``out`` was up to date.

    Raises:
        InputError: a file is not what it should be, a landmark stands in two tables, or landmarks have the
            status ``error``.
        ConfigurationError: ``most-specific`` without a table of classes, or classes without it.
    """
    config = config or CleanConfig()
    removed = removed or out.with_name("removed.parquet")
    irrelevant = irrelevant or annotation_file("irrelevant_labels.csv")
    if removed.absolute() == out.absolute():
        raise ConfigurationError(f"{out}: what is kept and what is removed cannot go to the same file")
    class_tables = _class_tables(scraped, config, classes)
    for path in (*scraped, irrelevant, *class_tables):
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    provenance = tables.Provenance(
        "clean",
        {"keep_multiple": config.keep_multiple, "allow_errors": config.allow_errors},
        tables.digests(scraped=scraped, irrelevant=irrelevant, classes=class_tables),
    )
    if not force and all(tables.is_up_to_date(path, provenance) for path in (out, removed)):
        return None

    table = read_scraped(scraped)
    _refuse_errors(table, scraped, config)
    kept, dropped, summary = clean_table(
        table, read_irrelevant(irrelevant), config.keep_multiple, read_parents(class_tables)
    )
    tables.write_table(removed, tables.REMOVED, dropped, provenance)
    tables.write_table(out, tables.CLEAN, kept, provenance)
    return summary


def clean_table(
    scraped: pa.Table,
    irrelevant: Irrelevant,
    keep_multiple: KeepMultiple | None = None,
    parents: Mapping[str, Sequence[str]] | None = None,
) -> tuple[pa.Table, pa.Table, CleanSummary]:
    """Divide a scraped table into a clean table and what was removed; both keep its order.

    Labels and items of the clean table are unified (:func:`hgld.taxonomy.label_identity.unify`), so that one class
    has one spelling and a later stage may group by :func:`hgld.taxonomy.label_identity.label_id`.
    """
    labels: list[str] = []
    items: list[str | None] = []
    reasons: list[str] = []
    kept_rows, removed_rows = [], []
    for row, values in enumerate(values_by_row(scraped)):
        outcome = choose(values, irrelevant, keep_multiple, parents or {})
        if isinstance(outcome, Value):
            kept_rows.append(row)
            items.append(outcome.item)
            labels.append(outcome.label)
        else:
            removed_rows.append(row)
            reasons.append(outcome)
    labels, items = unify(labels, items)

    # Typed, for an empty list has no type of its own.
    key = scraped.select(["split", "landmark_id", "category"])
    kept = key.take(pa.array(kept_rows, pa.int64()))
    kept = kept.append_column("supercategory", pa.array(labels, pa.string()))
    kept = kept.append_column("class_item", pa.array(items, pa.string()))
    rows = pa.array(removed_rows, pa.int64())
    removed = key.take(rows).append_column("reason", pa.array(reasons, pa.string()))
    removed = removed.append_column("instance_of", scraped.select(["instance_of"]).take(rows).column(0))
    return kept, removed, _summarise(kept, removed)


def choose(
    values: Sequence[Value],
    irrelevant: Irrelevant,
    keep_multiple: KeepMultiple | None = None,
    parents: Mapping[str, Sequence[str]] | None = None,
) -> Value | Reason:
    """The one value that says what a landmark is, or why there is none.

    Args:
        values: in the source's order; :func:`relevant_values` says which of them count.
        irrelevant: what says nothing of a landmark.
        keep_multiple: see :class:`CleanConfig`.
        parents: P279 by class item, for ``most-specific``.
    """
    relevant = relevant_values(values, irrelevant)
    if not relevant:
        return "irrelevant" if any(value in irrelevant for value in values) else "unlabelled"
    if keep_multiple == "first":
        return relevant[0]
    if keep_multiple == "most-specific" and len(relevant) > 1:
        relevant = most_specific(relevant, parents or {})
    return relevant[0] if len(relevant) == 1 else "multiple"


def relevant_values(values: Sequence[Value], irrelevant: Irrelevant) -> list[Value]:
    """The values that say what a landmark is, in their order.

    Irrelevant values and values without a label (the label is the bare item id) are taken away. Two values with
    the same item or the same normalised label count as one, the first.
    """
    relevant: list[Value] = []
    for value in values:
        known = value in irrelevant or any(_same(value, earlier) for earlier in relevant)
        if not known and _has_label(value):
            relevant.append(value)
    return relevant


def most_specific(values: Sequence[Value], parents: Mapping[str, Sequence[str]]) -> list[Value]:
    """The values that are not an ancestor of another one.

    Of classes that are each other's ancestors (P279 has cycles) neither is the more specific: both stay. A
    value without an item has no ancestors that are known.
    """
    above = [ancestors(value.item, parents) if value.item else set[str]() for value in values]

    def is_above(upper: int, lower: int) -> bool:
        return values[upper].item in above[lower] and values[lower].item not in above[upper]

    return [
        value for row, value in enumerate(values) if not any(is_above(row, other) for other in range(len(values)))
    ]


def ancestors(item: str, parents: Mapping[str, Sequence[str]]) -> set[str]:
    """All classes above ``item``; with a cycle, ``item`` itself is one of them."""
    found: set[str] = set()
    waiting = list(parents.get(item, ()))
    while waiting:
        parent = waiting.pop()
        if parent not in found:
            found.add(parent)
            waiting.extend(parents.get(parent, ()))
    return found


def read_irrelevant(path: Path) -> Irrelevant:
    """Read ``irrelevant_labels.csv``: columns item, label, reason, of which the item may be empty.

    Raises:
        InputError: the columns are others, or rows have no label, no reason or an item that is not one.
    """

    def parse(_: int, row: Mapping[str, str]) -> Value:
        item = row["item"].strip()
        if item and not ITEM_ID.fullmatch(item):
            raise ValueError(f'the item is "{item}"; expected one such as Q4167836')
        if not row["label"].strip() or not row["reason"].strip():
            raise ValueError("expected a label and a reason")
        return Value(item or None, row["label"])

    values = read_rows(path, ("item", "label", "reason"), parse)
    return Irrelevant(
        frozenset(value.item for value in values if value.item),
        frozenset(normalise_label(value.label) for value in values),
    )


def _has_label(value: Value) -> bool:
    return bool(normalise_label(value.label)) and not ITEM_ID.fullmatch(value.label)


def _same(one: Value, other: Value) -> bool:
    return (one.item is not None and one.item == other.item) or (
        normalise_label(one.label) == normalise_label(other.label)
    )


def values_by_row(scraped: pa.Table) -> Iterator[list[Value]]:
    """The "instance of" values of each row of a scraped table; none where scraping failed."""
    # Batch by batch: the lists of 300,000 landmarks are large as Python objects.
    for batch in scraped.select(["instance_of", "status"]).to_batches(max_chunksize=10_000):
        columns = (batch.column(name).to_pylist() for name in ("instance_of", "status"))
        for values, status in zip(*columns, strict=True):
            # What an error left is not known to be all: with allow_errors it counts as no label.
            yield [] if status == "error" else [Value(value["item"], value["label"]) for value in values]


def read_scraped(paths: Sequence[Path]) -> pa.Table:
    """Read scraped tables as one; a landmark that stands in two of them is an InputError."""
    read = [tables.read_table(path, tables.SCRAPED) for path in paths]
    table = pa.concat_tables([part.replace_schema_metadata() for part in read])
    repeated = tables.repeated_keys(table, tables.SCRAPED)
    if len(repeated):
        first = repeated.slice(0, 1).to_pylist()[0]
        raise InputError(
            f"{len(repeated):,} landmarks stand in more than one of {', '.join(map(str, paths))}, first "
            f"{first['split']} {first['landmark_id']}; give one table per split"
        )
    return table


def _refuse_errors(table: pa.Table, paths: Sequence[Path], config: CleanConfig) -> None:
    errors = pc.sum(pc.equal(table["status"], "error")).as_py() or 0
    if not errors:
        return
    if not config.allow_errors:
        raise InputError(
            f'{", ".join(map(str, paths))}: {errors:,} of {len(table):,} landmarks have the status "error": '
            "their labels could not be asked for. Run the same hgld scrape again, which tries just those, or "
            "give --allow-errors to take them for unlabelled"
        )
    log.warning('%d landmarks with the status "error" are taken for unlabelled', errors)


def _class_tables(scraped: Sequence[Path], config: CleanConfig, classes: Sequence[Path] | None) -> Sequence[Path]:
    """The tables of classes that the work needs: those given, or those beside the scraped tables."""
    if config.keep_multiple != "most-specific":
        if classes:
            raise ConfigurationError("tables of classes serve --keep-multiple most-specific only")
        return ()
    beside = [tables.classes_beside(path) for path in scraped]
    found = classes or [path for path in beside if path.is_file()]
    if not found:
        raise ConfigurationError(
            "--keep-multiple most-specific needs to know which class is above which, but there is no "
            f"{' and no '.join(map(str, beside))}; hgld scrape --source api writes it, or name one with "
            "--classes"
        )
    return found


def read_parents(paths: Sequence[Path]) -> dict[str, list[str]]:
    """P279 by class item, from tables of classes."""
    parents: dict[str, list[str]] = {}
    for path in paths:
        table = tables.read_table(path, tables.CLASSES)
        for item, above in zip(table["item"].to_pylist(), table["subclass_of"].to_pylist(), strict=True):
            parents.setdefault(item, []).extend(above)
    return parents


def _summarise(kept: pa.Table, removed: pa.Table) -> CleanSummary:
    reasons = Counter(zip(removed["split"].to_pylist(), removed["reason"].to_pylist(), strict=True))
    names: dict[str, str] = {}
    per_split: dict[str, Counter[str]] = {}
    for split, label, item in zip(
        *(kept[name].to_pylist() for name in ("split", "supercategory", "class_item")), strict=True
    ):
        identity = label_id(label, item)
        names[identity] = label
        per_split.setdefault(split, Counter())[identity] += 1
    splits = dict.fromkeys([*per_split, *(split for split, _ in reasons)])
    summaries = []
    for split in splits:
        counts = per_split.get(split, Counter())
        by_reason = {reason: reasons[split, reason] for reason in get_args(Reason)}
        summaries.append(
            SplitSummary(
                split=split,
                landmarks=counts.total() + sum(by_reason.values()),
                kept=counts.total(),
                removed=by_reason,
                unique_labels=len(counts),
                most_frequent=[(names[identity], count) for identity, count in counts.most_common(_MOST_FREQUENT)],
            )
        )
    return CleanSummary(summaries, len(names))
