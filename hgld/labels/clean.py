"""The stage ``clean``: select one relevant label per landmark, and list the removed landmarks."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.io.table_rows import read_rows
from hgld.labels.class_tree import ancestors, nearest_classes, read_class_tree
from hgld.labels.settings import CleanConfig, KeepMultiple
from hgld.stage import Stage
from hgld.tables.column_values import RemovalReason
from hgld.taxonomy.label_identity import ITEM_ID, label_id, normalise_label, unify_labels
from hgld.taxonomy.project import nouns_of, project_file_of

log = logging.getLogger(__name__)

STAGE = Stage(
    "clean",
    (tables.REMOVED, tables.CLEAN),
    inputs={"scraped": tables.SCRAPED, "classes": tables.CLASSES},
)

_MOST_FREQUENT = 20


@dataclass(frozen=True)
class SplitSummary:
    """Numbers of kept and removed landmarks of one split, and its most frequent labels."""

    split: str
    landmarks: int
    kept: int
    removed: Mapping[RemovalReason, int]
    unique_labels: int
    most_frequent: Sequence[tuple[str, int]]

    @property
    def labelled(self) -> int:
        """Number of landmarks with at least one label, relevant or not."""
        return self.landmarks - self.removed["unlabelled"]


@dataclass(frozen=True)
class CleanSummary:
    """The summaries of the splits, and the number of unique labels over all of them."""

    splits: Sequence[SplitSummary]
    unique_labels: int


class InstanceOf(NamedTuple):
    """An "instance of" value of a landmark.

    Args:
        item: Item of the class; None if the source does not show it.
        label: Label of the class.
    """

    item: str | None
    label: str


@dataclass(frozen=True)
class IrrelevantLabels:
    """Labels that do not describe a landmark, by class item and by normalised label."""

    items: frozenset[str]
    labels: frozenset[str]

    def __contains__(self, value: InstanceOf) -> bool:
        return value.item in self.items or normalise_label(value.label) in self.labels


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
    """Write one relevant label per landmark, and the landmarks that were removed.

    Args:
        scraped: Scraped tables, such as one per split.
        out: Clean table to write.
        config: Rules for the landmarks that are kept.
        removed: Table of removed landmarks to write. Default: removed.parquet beside the output.
        irrelevant: CSV file (item,label,reason) of labels to exclude. Default: the file of the
            project (:mod:`hgld.taxonomy.project`), for GLDv2 annotations/irrelevant_labels.csv.
        classes: Tables of classes, for ``keep_multiple`` most-specific. Default: X.classes.parquet
            beside X.parquet.
        force: Run although the output is up to date.

    Returns:
        The numbers of landmarks kept and removed, or None if ``out`` was up to date.

    Raises:
        InputError: A file is missing or invalid, a landmark occurs in two tables, or landmarks have
            the status ``error``.
        ConfigurationError: ``most-specific`` without a table of classes, or classes without
            ``most-specific``.
    """
    config = config or CleanConfig()
    removed = removed or out.with_name("removed.parquet")
    if irrelevant is None and scraped:
        irrelevant = project_file_of("irrelevant", scraped[0])
    classes = _class_tables(scraped, config, classes)

    def compute() -> tuple[Sequence[pa.Table], CleanSummary]:
        table = read_scraped(scraped)
        _check_errors(table, scraped, config)
        kept_table, removed_table, summary = clean_table(
            table,
            read_irrelevant_labels(irrelevant),
            config.keep_multiple,
            read_class_tree(classes).superclasses,
        )
        return [removed_table, kept_table], summary

    return STAGE.run(
        {"removed": removed, "out": out},
        compute,
        inputs={"scraped": scraped, "irrelevant": irrelevant, "classes": classes},
        parameters=vars(config),
        force=force,
    )


def clean_table(
    scraped: pa.Table,
    irrelevant: IrrelevantLabels,
    keep_multiple: KeepMultiple | None = None,
    superclasses: Mapping[str, Sequence[str]] | None = None,
) -> tuple[pa.Table, pa.Table, CleanSummary]:
    """Split a ``scraped`` table into a ``clean`` and a ``removed`` table, both in its order.

    Labels and items of the clean table are unified
    (:func:`hgld.taxonomy.label_identity.unify_labels`): a class has one spelling, and later stages
    may group by :func:`hgld.taxonomy.label_identity.label_id`.
    """
    is_kept: list[bool] = []
    labels: list[str] = []
    items: list[str | None] = []
    reasons: list[RemovalReason] = []
    for values in instance_of_values(scraped):
        choice = choose_label(values, irrelevant, keep_multiple, superclasses)
        if isinstance(choice, InstanceOf):
            is_kept.append(True)
            labels.append(choice.label)
            items.append(choice.item)
        else:
            is_kept.append(False)
            reasons.append(choice)
    labels, items = unify_labels(labels, items)

    # Explicit types: Arrow infers the type null for an empty list.
    kept_mask = pa.array(is_kept, pa.bool_())
    removed_mask = pc.invert(kept_mask)
    key = scraped.select(["split", "landmark_id", "category"])
    kept = key.filter(kept_mask)
    kept = kept.append_column("supercategory", pa.array(labels, pa.string()))
    kept = kept.append_column("class_item", pa.array(items, pa.string()))
    removed = key.filter(removed_mask)
    removed = removed.append_column("reason", pa.array(reasons, pa.string()))
    removed = removed.append_column("instance_of", scraped["instance_of"].filter(removed_mask))
    return kept, removed, _summarise(kept, removed)


def instance_of_values(scraped: pa.Table) -> Iterator[list[InstanceOf]]:
    """Iterate over the "instance of" values of each row of a ``scraped`` table.

    A row that could not be scraped has no values: its values may be incomplete, and with
    ``allow_errors`` it counts as unlabelled.
    """
    # In batches: the lists of 300,000 landmarks take much memory as Python objects.
    for batch in scraped.select(["instance_of", "status"]).to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            if row["status"] == "error":
                yield []
            else:
                yield [InstanceOf(value["item"], value["label"]) for value in row["instance_of"]]


def read_scraped(paths: Sequence[Path]) -> pa.Table:
    """Read and concatenate ``scraped`` tables."""
    parts = [tables.read_table(path, tables.SCRAPED) for path in paths]
    table = pa.concat_tables([part.replace_schema_metadata() for part in parts])
    repeated = tables.repeated_keys(table, tables.SCRAPED)
    if len(repeated):
        first = repeated.slice(0, 1).to_pylist()[0]
        files = ", ".join(map(str, paths))
        raise InputError(
            f"{len(repeated):,} {nouns_of(paths[0])[1]} occur in more than one of {files}, first "
            f"{first['split']} {first['landmark_id']}; give one table per split"
        )
    return table


def _check_errors(table: pa.Table, paths: Sequence[Path], config: CleanConfig) -> None:
    errors = pc.sum(pc.equal(table["status"], "error")).as_py() or 0
    if not errors:
        return
    _, entities = nouns_of(paths[0])
    if not config.allow_errors:
        raise InputError(
            f'{", ".join(map(str, paths))}: {errors:,} of {len(table):,} {entities} have the status "error": '
            "their labels could not be fetched. Run the same hgld scrape again, which retries only those, or "
            "set `allow_errors` to treat them as unlabelled"
        )
    log.warning('%d %s with the status "error" are treated as unlabelled', errors, entities)


def _class_tables(
    scraped: Sequence[Path], config: CleanConfig, classes: Sequence[Path] | None
) -> Sequence[Path]:
    """Return the tables of classes that ``most-specific`` needs; by default beside ``scraped``."""
    if config.keep_multiple != "most-specific":
        if classes:
            raise ConfigurationError("`classes` is used only if `keep_multiple` is most-specific")
        return ()
    defaults = [tables.classes_path(path) for path in scraped]
    existing = classes or [path for path in defaults if path.is_file()]
    if not existing:
        raise ConfigurationError(
            "most-specific for `keep_multiple` needs the superclasses of each class, but there is no "
            f"{' and no '.join(map(str, defaults))}; scrape from the APIs to write it, or name one in `classes`"
        )
    return existing


def count_labels(clean: pa.Table) -> tuple[dict[str, str], dict[str, Counter[str]]]:
    """Count the landmarks of each label in a ``clean`` table.

    A row of plain labels may stand for several things; its column ``count`` is the number.

    Returns:
        The label of each label id, and for each split the number of landmarks by label id.
    """
    names: dict[str, str] = {}
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    splits = clean["split"].to_pylist()
    labels = clean["supercategory"].to_pylist()
    items = clean["class_item"].to_pylist()
    weights = [1] * len(clean)
    if "count" in clean.column_names:
        weights = clean["count"].to_pylist()
    for split, label, item, weight in zip(splits, labels, items, weights, strict=True):
        identity = label_id(label, item)
        names[identity] = label
        counts[split][identity] += weight
    return names, counts


def _summarise(kept: pa.Table, removed: pa.Table) -> CleanSummary:
    removed_splits = removed["split"].to_pylist()
    n_removed = Counter(zip(removed_splits, removed["reason"].to_pylist(), strict=True))
    names, per_split = count_labels(kept)
    summaries = []
    for split in dict.fromkeys([*per_split, *removed_splits]):
        counts = per_split[split]
        by_reason = {reason: n_removed[split, reason] for reason in get_args(RemovalReason)}
        most_frequent = []
        for identity, count in counts.most_common(_MOST_FREQUENT):
            most_frequent.append((names[identity], count))
        summaries.append(
            SplitSummary(
                split=split,
                landmarks=counts.total() + sum(by_reason.values()),
                kept=counts.total(),
                removed=by_reason,
                unique_labels=len(counts),
                most_frequent=most_frequent,
            )
        )
    return CleanSummary(summaries, len(names))


def read_irrelevant_labels(path: Path | None) -> IrrelevantLabels:
    """Read the CSV file of irrelevant labels, with the columns item, label and reason.

    The item may be empty. If ``path`` is None, no label is irrelevant.
    """
    if path is None:
        return IrrelevantLabels(frozenset(), frozenset())

    def parse(_: int, row: Mapping[str, str]) -> InstanceOf:
        item = row["item"].strip()
        if item and not ITEM_ID.fullmatch(item):
            raise ValueError(f'the item is "{item}"; expected one such as Q4167836')
        if not row["label"].strip() or not row["reason"].strip():
            raise ValueError("expected a label and a reason")
        return InstanceOf(item or None, row["label"])

    values = read_rows(path, ("item", "label", "reason"), parse)
    return IrrelevantLabels(
        frozenset(value.item for value in values if value.item),
        frozenset(normalise_label(value.label) for value in values),
    )


def choose_label(
    values: Sequence[InstanceOf],
    irrelevant: IrrelevantLabels,
    keep_multiple: KeepMultiple | None = None,
    superclasses: Mapping[str, Sequence[str]] | None = None,
) -> InstanceOf | RemovalReason:
    """Return the value that becomes a landmark's label, or the reason why the landmark is removed."""
    relevant = relevant_values(values, irrelevant)
    if not relevant:
        if any(value in irrelevant for value in values):
            return "irrelevant"
        return "unlabelled"
    if keep_multiple == "most-specific" and len(relevant) > 1:
        relevant = most_specific(relevant, superclasses or {})
    if len(relevant) > 1 and keep_multiple != "first":
        return "multiple"
    return relevant[0]


def relevant_values(values: Sequence[InstanceOf], irrelevant: IrrelevantLabels) -> list[InstanceOf]:
    """Return the values in their order, without irrelevant labels, missing labels and duplicates.

    A value whose label is only its item id has no label. Values with the same item or the same
    normalised label are duplicates; the first one is kept.
    """
    relevant: list[InstanceOf] = []
    items: set[str] = set()
    labels: set[str] = set()
    for value in values:
        label = normalise_label(value.label)
        has_label = label != "" and not ITEM_ID.fullmatch(value.label)
        is_duplicate = value.item in items or label in labels
        if has_label and not is_duplicate and value not in irrelevant:
            relevant.append(value)
            labels.add(label)
            if value.item is not None:
                items.add(value.item)
    return relevant


def most_specific(
    values: Sequence[InstanceOf], superclasses: Mapping[str, Sequence[str]]
) -> list[InstanceOf]:
    """Return the values that are not an ancestor of another value.

    P279 has cycles: if two classes are each other's ancestors, both are kept. A value without an
    item has no known ancestors.
    """
    above = {value.item: ancestors(value.item, superclasses) for value in values if value.item}
    nearest = nearest_classes(above.keys(), above)
    return [value for value in values if not value.item or value.item in nearest]
