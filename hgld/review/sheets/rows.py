"""Rows of a review sheet: what an annotator is shown of each label.

A sheet is written as a workbook (:mod:`hgld.review.sheets.workbook`) and as CSV
(:mod:`hgld.review.sheets.csv_sheet`), with the same rows and columns.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from hgld.errors import InputError
from hgld.taxonomy.label_identity import label_id
from hgld.wikimedia.titles import CATEGORY_PREFIX, title_of_url, title_path

N_EXAMPLES = 3
ENTRY_COLUMNS = ("group", "decision", "comment")
COLUMNS = (
    *("label_id", "label", "landmarks", "parents", "cluster", "sub-cluster"),
    *(f"example {n}" for n in range(1, N_EXAMPLES + 1)),
    *("suggested group", *ENTRY_COLUMNS),
)

#: Excel's limit for the text of a cell, in UTF-16 units.
MAX_UNITS = 32_767
#: Characters that XML 1.0, and so a workbook, cannot hold.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A label as an annotator sees it.

    Args:
        label_id: Wikidata item of the class if known, else an id made from the label.
        label: Text of the label, cut to fit into a cell.
        landmarks: Number of landmarks with the label, both splits together.
        parents: Labels of the superclasses, separated by commas.
        cluster: Number of the cluster.
        cluster_name: Name of the cluster.
        subcluster: Number of the sub-cluster.
        examples: Titles of Commons categories of landmarks with the label, at most ``N_EXAMPLES``.
        suggested_group: Key of the most likely group, in a sheet its name; or empty.
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


def label_rows(clusters: pa.Table, clean: pa.Table, classes: Sequence[pa.Table] = ()) -> list[LabelRow]:
    """Return the rows of a sheet by cluster and sub-cluster, within these the labels with most landmarks first.

    Args:
        clusters: ``clusters`` table.
        clean: ``clean`` table with the example landmarks: those of the train split first, by landmark id, which
            GLDv2 assigned at random.
        classes: ``classes`` tables with the superclasses; a class is looked up in the first table that has it.

    Raises:
        InputError: The category of an example is not the URL of a Commons category.
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
    """Return titles of the first categories of each label, by label_id."""
    examples: defaultdict[str, list[str]] = defaultdict(list)
    in_order = clean.sort_by([("split", "descending"), ("landmark_id", "ascending")])
    columns = (in_order.column(name).to_pylist() for name in ("supercategory", "class_item", "category"))
    for label, item, url in zip(*columns, strict=True):
        titles = examples[label_id(label, item)]
        if len(titles) < N_EXAMPLES:
            try:
                title = title_of_url(url)
            except ValueError as error:
                raise InputError(f"cannot link to an example: {error}") from error
            if title not in titles:
                titles.append(title)
    return examples


def _parents(classes: Sequence[pa.Table]) -> dict[str, list[str]]:
    """Return labels of the superclasses of each class, by item; the item itself where its label is unknown."""
    known = {row["item"]: row for table in reversed(classes) for row in table.to_pylist()}
    return {
        item: [known[parent]["label"] if parent in known else parent for parent in row["subclass_of"]]
        for item, row in known.items()
    }


def example_link(title: str) -> tuple[str, str]:
    """Return the name and the URL of a Commons category.

    >>> example_link("Category:Comet Falls")
    ('Comet Falls', 'https://commons.wikimedia.org/wiki/Category:Comet_Falls')
    """
    return title.removeprefix(CATEGORY_PREFIX), f"https://commons.wikimedia.org/wiki/{title_path(title)}"


def fit_for_cell(text: str) -> str:
    """Return a text as a cell of a workbook can hold it.

    Characters that XML cannot hold become U+FFFD; text beyond Excel's limit is cut, with "…" at the end.
    """
    text = _ILLEGAL.sub("\ufffd", text)
    if len(text.encode("utf-16-le")) <= 2 * MAX_UNITS:
        return text
    # "ignore" drops half a surrogate pair at the cut.
    return text.encode("utf-16-le")[: 2 * (MAX_UNITS - 1)].decode("utf-16-le", "ignore") + "…"
