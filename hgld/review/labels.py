"""Labels to review: what an annotator is shown of each, suggested groups, and opinions of other annotators."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hgld.errors import InputError
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.label_identity import label_id
from hgld.wikimedia.titles import CATEGORY_PREFIX, title_of_url, title_path

N_EXAMPLES = 3
#: Excel's limit for the text of a cell, in UTF-16 units.
MAX_UNITS = 32_767
#: Characters that XML 1.0, and so a workbook, cannot hold.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested group.

    Args:
        group: Key of the group.
        score: Probability that the label belongs to the group, 0 to 1; None if unknown.
        reason: Evidence for the suggestion.
    """

    group: str
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Opinion:
    """Decision of another annotator on a label; None if that annotator did not decide it."""

    annotator: str
    decision: Decision | None


@dataclass(frozen=True, slots=True)
class ReviewLabel:
    """A label to decide on, as an annotator sees it.

    Args:
        label_id: Wikidata item of the class if known, else an id made from the label.
        label: Text of the label, cut to fit into a cell of a workbook, like all other texts.
        landmarks: Number of landmarks with the label, both splits together.
        parents: Labels of the superclasses, separated by commas.
        cluster: Number of the cluster in the ``clusters`` table.
        cluster_name: Name of the cluster.
        subcluster: Number of the sub-cluster.
        examples: Titles of Commons categories of landmarks with the label, at most ``N_EXAMPLES``.
        suggested_group: Key of the most likely group, in a sheet its name; or empty.
        suggestions: Suggested groups, the most likely first.
        opinions: Decisions of other annotators, if these are to be adjudicated.
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
    suggestions: tuple[Suggestion, ...] = ()
    opinions: tuple[Opinion, ...] = ()


def review_labels(clusters: pa.Table, clean: pa.Table, classes: Sequence[pa.Table] = ()) -> list[ReviewLabel]:
    """Return the labels by cluster and sub-cluster, within these the labels with most landmarks first.

    Args:
        clusters: ``clusters`` table.
        clean: ``clean`` table with the example landmarks: those of the train split first, by landmark id, which
            GLDv2 assigned at random.
        classes: ``classes`` tables with the superclasses; a class is looked up in the first table that has it.

    Raises:
        InputError: The category of an example is not the URL of a Commons category.
    """
    examples = _examples(clean)
    known = classes_by_item(classes)
    labels = [
        ReviewLabel(
            label_id=row["label_id"],
            label=fit_for_cell(row["label"]),
            landmarks=row["landmarks_train"] + row["landmarks_index"],
            parents=fit_for_cell(", ".join(label for _, label in superclasses(row["label_id"], known))),
            cluster=row["cluster"],
            cluster_name=fit_for_cell(row["cluster_name"]),
            subcluster=row["subcluster"],
            examples=tuple(examples.get(row["label_id"], ())),
            suggested_group=row["suggested_group"] or "",
            suggestions=_suggestions(row),
        )
        for row in clusters.to_pylist()
    ]
    return sorted(labels, key=lambda row: (row.cluster, row.subcluster, -row.landmarks, row.label_id))


def _suggestions(row: dict[str, Any]) -> tuple[Suggestion, ...]:
    if not row["suggestions"] and row["suggested_group"]:
        return (Suggestion(row["suggested_group"], row["suggestion_score"], ""),)
    return tuple(Suggestion(**suggestion) for suggestion in row["suggestions"])


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


def classes_by_item(classes: Sequence[pa.Table]) -> dict[str, dict[str, Any]]:
    """Return the rows of ``classes`` tables by item, from the first table that has it."""
    return {row["item"]: row for table in reversed(classes) for row in table.to_pylist()}


def superclasses(item: str, known: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the superclasses of a class with their labels; the item itself where its label is unknown."""
    parents = known[item]["subclass_of"] if item in known else ()
    return [(parent, known[parent]["label"] if parent in known else parent) for parent in parents]


def example_link(title: str) -> tuple[str, str]:
    """Return the name and the URL of a Commons category.

    >>> example_link("Category:Comet Falls")
    ('Comet Falls', 'https://commons.wikimedia.org/wiki/Category:Comet_Falls')
    """
    return title.removeprefix(CATEGORY_PREFIX), f"https://commons.wikimedia.org/wiki/{title_path(title)}"


def landmark_link(landmark_id: int, category: str) -> tuple[str, str]:
    """Return the name and the URL of a landmark; without a category on Commons, the URL is empty."""
    try:
        return example_link(title_of_url(category))
    except ValueError:
        return f"landmark {landmark_id}", ""


def fit_for_cell(text: str) -> str:
    """Return a text as a cell of a workbook can hold it.

    Characters that XML cannot hold become U+FFFD; text beyond Excel's limit is cut, with "…" at the end.
    """
    text = _ILLEGAL.sub("\ufffd", text)
    if len(text.encode("utf-16-le")) <= 2 * MAX_UNITS:
        return text
    # "ignore" drops half a surrogate pair at the cut.
    return text.encode("utf-16-le")[: 2 * (MAX_UNITS - 1)].decode("utf-16-le", "ignore") + "…"
