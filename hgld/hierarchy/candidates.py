"""The landmarks that may enter a hierarchy, each with its labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hgld.errors import InputError
from hgld.labels.clean import instance_of_values
from hgld.labels.label_choice import InstanceOf, IrrelevantLabels, relevant_values
from hgld.taxonomy.label_identity import label_id

if TYPE_CHECKING:
    import pyarrow as pa


class Candidate(NamedTuple):
    """A landmark with its labels, the one chosen by ``clean`` first; ``cleaned`` is False if ``clean`` removed it."""

    split: str
    landmark_id: int
    category: str
    labels: Sequence[InstanceOf]
    cleaned: bool


def cleaned_candidates(clean: pa.Table) -> Iterator[Candidate]:
    """Iterate over the landmarks of a ``clean`` table, with one label each."""
    columns = (column.to_pylist() for column in clean.columns)
    for split, landmark_id, category, label, item in zip(*columns, strict=True):
        yield Candidate(split, landmark_id, category, [InstanceOf(item, label)], cleaned=True)


def with_all_labels(
    cleaned: Iterable[Candidate], scraped: pa.Table, irrelevant: IrrelevantLabels
) -> Iterator[Candidate]:
    """Add all relevant labels of each landmark, and the landmarks that were removed for having several labels.

    Args:
        cleaned: Landmarks of the ``clean`` table; their label stays the first.
        scraped: ``scraped`` table with all labels.
        irrelevant: Labels to ignore.

    Raises:
        InputError: Landmarks of the clean table are not in the scraped table.
    """
    pending = {(candidate.split, candidate.landmark_id): candidate for candidate in cleaned}
    # The spelling that clean has chosen for each label.
    unified = {identity_of(label): label for candidate in pending.values() for label in candidate.labels}
    keys = (scraped[name].to_pylist() for name in ("split", "landmark_id", "category"))
    for split, landmark_id, category, values in zip(*keys, instance_of_values(scraped), strict=True):
        labels = [unified.get(identity_of(value), value) for value in relevant_values(values, irrelevant)]
        candidate = pending.pop((split, landmark_id), None)
        if candidate is not None:
            yield candidate._replace(labels=list(dict.fromkeys([*candidate.labels, *labels])))
        elif len(labels) > 1:
            yield Candidate(split, landmark_id, category, labels, cleaned=False)
    if pending:
        first = ", ".join(f"{split} {landmark_id}" for split, landmark_id in list(pending)[:5])
        raise InputError(
            f"{len(pending):,} landmarks of the clean table are in no scraped table (first {first}); give the "
            "tables that it was made from in `scraped`"
        )


def identity_of(label: InstanceOf) -> str:
    """Return the label id, see :func:`hgld.taxonomy.label_identity.label_id`."""
    return label_id(label.label, label.item)
