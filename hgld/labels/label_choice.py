"""Choose the one label that says what a landmark is, among its "instance of" values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from hgld.io.csv_files import read_rows
from hgld.labels.class_graph import ancestors
from hgld.tables.column_values import RemovalReason
from hgld.taxonomy.label_identity import ITEM_ID, normalise_label

KeepMultiple = Literal["first", "most-specific"]


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


def read_irrelevant_labels(path: Path) -> IrrelevantLabels:
    """Read ``irrelevant_labels.csv``, with the columns item, label and reason; the item may be empty.

    Raises:
        InputError: The columns are others, or a row has no label, no reason or an invalid item.
    """

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
    """Return the value that says what a landmark is, or the reason why there is none.

    Args:
        values: "Instance of" values in the order of the source.
        irrelevant: Labels to ignore.
        keep_multiple: Choice among several relevant values, see :class:`hgld.labels.clean.CleanConfig`.
        superclasses: Direct superclasses by class item, for ``most-specific``.
    """
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
    for value in values:
        excluded = value in irrelevant or any(_is_duplicate(value, earlier) for earlier in relevant)
        if not excluded and _has_label(value):
            relevant.append(value)
    return relevant


def most_specific(values: Sequence[InstanceOf], superclasses: Mapping[str, Sequence[str]]) -> list[InstanceOf]:
    """Return the values that are not an ancestor of another value.

    P279 has cycles: of two classes that are each other's ancestors, neither is more specific, and both are kept. A
    value without an item has no known ancestors.
    """
    above = [ancestors(value.item, superclasses) if value.item else set[str]() for value in values]

    def is_above(upper: int, lower: int) -> bool:
        return values[upper].item in above[lower] and values[lower].item not in above[upper]

    return [
        value for row, value in enumerate(values) if not any(is_above(row, other) for other in range(len(values)))
    ]


def _has_label(value: InstanceOf) -> bool:
    return bool(normalise_label(value.label)) and not ITEM_ID.fullmatch(value.label)


def _is_duplicate(value: InstanceOf, other: InstanceOf) -> bool:
    same_item = value.item is not None and value.item == other.item
    return same_item or normalise_label(value.label) == normalise_label(other.label)
