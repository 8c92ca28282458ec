"""The stage ``clean``: one relevant label per landmark, and a table of the landmarks removed with the reason."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import NamedTuple, get_args

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import read_rows
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
    """Landmarks of one split that were kept and removed, and the most frequent labels with their counts."""

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
    """An "instance of" value of a landmark: the class item (None where the source does not show it) and its label."""

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
        config: Which landmarks are kept.
        removed: Table of removed landmarks to write. Default: removed.parquet beside the output.
        irrelevant: CSV file (item,label,reason) of labels to exclude. Default: that of the project
            (:mod:`hgld.taxonomy.project`), for GLDv2 annotations/irrelevant_labels.csv.
        classes: Tables of classes, for ``keep_multiple`` most-specific. Default: X.classes.parquet beside X.parquet.
        force: Run although the output is up to date.

    Returns:
        The numbers of landmarks kept and removed, or None if ``out`` was up to date.

    Raises:
        InputError: A file is missing or invalid, a landmark occurs in two tables, or landmarks have the status
            ``error``.
        ConfigurationError: ``most-specific`` without a table of classes, or classes without ``most-specific``.
    """
    config = config or CleanConfig()
    removed = removed or out.with_name("removed.parquet")
    irrelevant = irrelevant or (project_file_of("irrelevant", scraped[0]) if scraped else None)
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

    Labels and items of the clean table are unified (:func:`hgld.taxonomy.label_identity.unify_labels`): a class has
    one spelling, and later stages may group by :func:`hgld.taxonomy.label_identity.label_id`.
    """
    choices = [
        choose_label(values, irrelevant, keep_multiple, superclasses or {})
        for values in instance_of_values(scraped)
    ]
    chosen = [choice for choice in choices if isinstance(choice, InstanceOf)]
    labels, items = unify_labels(
        [choice.label for choice in chosen], [choice.item for choice in chosen]
    )
    reasons = [choice for choice in choices if isinstance(choice, str)]

    # Explicit types: Arrow infers the type null for an empty list.
    is_kept = pa.array([isinstance(choice, InstanceOf) for choice in choices], pa.bool_())
    key = scraped.select(["split", "landmark_id", "category"])
    kept = key.filter(is_kept)
    kept = kept.append_column("supercategory", pa.array(labels, pa.string()))
    kept = kept.append_column("class_item", pa.array(items, pa.string()))
    removed = key.filter(pc.invert(is_kept)).append_column("reason", pa.array(reasons, pa.string()))
    removed = removed.append_column(
        "instance_of", scraped["instance_of"].filter(pc.invert(is_kept))
    )
    return kept, removed, _summarise(kept, removed)


def instance_of_values(scraped: pa.Table) -> Iterator[list[InstanceOf]]:
    """Iterate over the "instance of" values of each row of a ``scraped`` table; none where scraping failed."""
    # In batches: the lists of 300,000 landmarks take much memory as Python objects.
    for batch in scraped.select(["instance_of", "status"]).to_batches(max_chunksize=10_000):
        columns = (batch.column(name).to_pylist() for name in ("instance_of", "status"))
        for values, status in zip(*columns, strict=True):
            # The values of a failed row may be incomplete: with allow_errors it counts as unlabelled.
            yield (
                []
                if status == "error"
                else [InstanceOf(value["item"], value["label"]) for value in values]
            )


def read_scraped(paths: Sequence[Path]) -> pa.Table:
    """Read and concatenate ``scraped`` tables."""
    parts = [tables.read_table(path, tables.SCRAPED) for path in paths]
    table = pa.concat_tables([part.replace_schema_metadata() for part in parts])
    repeated = tables.repeated_keys(table, tables.SCRAPED)
    if len(repeated):
        first = repeated.slice(0, 1).to_pylist()[0]
        raise InputError(
            f"{len(repeated):,} {nouns_of(paths[0])[1]} occur in more than one of "
            f"{', '.join(map(str, paths))}, first {first['split']} {first['landmark_id']}; give one table per split"
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
    """Return the tables of classes that are needed: those given, else those beside the scraped tables."""
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
    """Return the label of each label id in a ``clean`` table, and by split the number of landmarks by label id.

    A row of plain labels may stand for several.
    """
    names: dict[str, str] = {}
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    columns = (clean[name].to_pylist() for name in ("split", "supercategory", "class_item"))
    weights = clean["count"].to_pylist() if "count" in clean.column_names else repeat(1, len(clean))
    for split, label, item, weight in zip(*columns, weights, strict=True):
        identity = label_id(label, item)
        names[identity] = label
        counts[split][identity] += weight
    return names, counts


def _summarise(kept: pa.Table, removed: pa.Table) -> CleanSummary:
    reasons = Counter(zip(removed["split"].to_pylist(), removed["reason"].to_pylist(), strict=True))
    names, per_split = count_labels(kept)
    summaries = []
    for split in dict.fromkeys([*per_split, *(split for split, _ in reasons)]):
        counts = per_split[split]
        by_reason = {reason: reasons[split, reason] for reason in get_args(RemovalReason)}
        summaries.append(
            SplitSummary(
                split=split,
                landmarks=counts.total() + sum(by_reason.values()),
                kept=counts.total(),
                removed=by_reason,
                unique_labels=len(counts),
                most_frequent=[
                    (names[identity], count)
                    for identity, count in counts.most_common(_MOST_FREQUENT)
                ],
            )
        )
    return CleanSummary(summaries, len(names))


def read_irrelevant_labels(path: Path | None) -> IrrelevantLabels:
    """Read ``irrelevant_labels.csv``, with the columns item, label and reason; the item may be empty.

    Without a file, no label is irrelevant.
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
    """Return the value that says what a landmark is, or the reason why there is none."""
    relevant = relevant_values(values, irrelevant)
    if not relevant:
        return "irrelevant" if any(value in irrelevant for value in values) else "unlabelled"
    if keep_multiple == "first":
        return relevant[0]
    if keep_multiple == "most-specific" and len(relevant) > 1:
        relevant = most_specific(relevant, superclasses or {})
    return relevant[0] if len(relevant) == 1 else "multiple"


def relevant_values(values: Sequence[InstanceOf], irrelevant: IrrelevantLabels) -> list[InstanceOf]:
    """Return the values that are neither irrelevant, nor without a label, nor duplicates, in their order.

    A value whose label is only its item id has no label. Values with the same item or the same normalised label are
    duplicates; the first one is kept.
    """
    relevant: list[InstanceOf] = []
    items, labels = set[str | None](), {""}
    for value in values:
        label = normalise_label(value.label)
        duplicate = value.item in items or label in labels
        if value not in irrelevant and not duplicate and not ITEM_ID.fullmatch(value.label):
            relevant.append(value)
            items |= {value.item} - {None}
            labels.add(label)
    return relevant


def most_specific(
    values: Sequence[InstanceOf], superclasses: Mapping[str, Sequence[str]]
) -> list[InstanceOf]:
    """Return the values that are not an ancestor of another value.

    P279 has cycles: of two classes that are each other's ancestors, neither is more specific, and both are kept. A
    value without an item has no known ancestors.
    """
    above = {value.item: ancestors(value.item, superclasses) for value in values if value.item}
    nearest = nearest_classes(above.keys(), above)
    return [value for value in values if not value.item or value.item in nearest]
