"""Labels to review, and the files with their classes, examples and landmarks."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import preview
from hgld.tables import (
    CLASSES,
    CLEAN,
    CLUSTERS,
    find_classes_tables,
    input_digests,
    read_provenance,
    read_table,
)
from hgld.taxonomy.groups import Group, find_taxonomy, read_taxonomy, survivors
from hgld.taxonomy.label_identity import ITEM_ID, label_id
from hgld.wikimedia.titles import CATEGORY_PREFIX, title_of_url, title_path

log = logging.getLogger(__name__)

N_EXAMPLES = 3
#: Excel's limit for the text of a cell, in UTF-16 units.
MAX_UNITS = 32_767
_ITEM_PAGE = re.compile(r"https://www\.wikidata\.org/wiki/Q[0-9]+")
#: Characters that XML 1.0, and so a workbook, cannot hold.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


#: Smallest score of a suggestion that the action "accept" takes; others are taken by their number.
LIKELY_SCORE = 0.5
#: Smallest score of suggestions that are accepted together, for all rows on the screen.
SURE_SCORE = 0.9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decision that a label can take over: a suggestion, an annotator's opinion, or an earlier decision.

    Args:
        decision: Kind of the decision; None if the annotator did not decide the label.
        reason: Evidence for a suggestion, or the annotator's comment.
        score: Probability of a suggestion, 0 to 1; None if unknown.
        annotator: Annotator of the opinion or the earlier decision; empty for a suggestion.
    """

    decision: str | None
    group: str | None
    reason: str = ""
    score: float | None = None
    annotator: str = ""

    @property
    def certainty(self) -> str:
        """``sure``, ``likely`` or ``unlikely`` by the score; a candidate without a score is likely."""
        if self.score is None:
            return "likely"
        if self.score >= SURE_SCORE:
            return "sure"
        return "likely" if self.score >= LIKELY_SCORE else "unlikely"


@dataclass(frozen=True, slots=True)
class ReviewLabel:
    """A label to decide on, as an annotator sees it.

    Args:
        label_id: Wikidata item of the class, or an id made from the label if the item is unknown.
        label: Text of the label, cut to fit into a cell of a workbook, like all other texts.
        landmarks: Number of landmarks with the label, both splits together.
        examples: Titles of Commons categories of landmarks with the label, at most ``N_EXAMPLES``.
        suggested_group: Key of the most likely group, in a sheet its name; or empty.
        opinions: In an adjudication, the decision of each annotator; empty in other reviews.
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
    suggestions: tuple[Candidate, ...] = ()
    opinions: tuple[Candidate, ...] = ()


def review_labels(
    clusters: pa.Table, clean: pa.Table, classes: Sequence[pa.Table] = ()
) -> list[ReviewLabel]:
    """Return the labels by cluster, sub-cluster and descending number of landmarks.

    Args:
        clean: ``clean`` table with the example landmarks. Landmarks of the train split come first, by landmark
            id, which GLDv2 assigned at random.
        classes: ``classes`` tables with the superclasses; the first table with a class counts.
    """
    examples = _examples(clean)
    known_classes = classes_by_item(classes)
    labels = []
    for row in clusters.to_pylist():
        key = row["label_id"]
        parents = ", ".join(name for _, name in superclasses(key, known_classes))
        label = ReviewLabel(
            label_id=key,
            label=fit_for_cell(row["label"]),
            landmarks=row["landmarks_train"] + row["landmarks_index"],
            parents=fit_for_cell(parents),
            cluster=row["cluster"],
            cluster_name=fit_for_cell(row["cluster_name"]),
            subcluster=row["subcluster"],
            examples=tuple(examples.get(key, ())),
            suggested_group=row["suggested_group"] or "",
            suggestions=tuple(_suggestion(suggestion) for suggestion in row["suggestions"]),
        )
        labels.append(label)
    labels.sort(key=lambda row: (row.cluster, row.subcluster, -row.landmarks, row.label_id))
    return labels


def _suggestion(suggestion: dict[str, Any]) -> Candidate:
    """Return the candidate for a suggestion in a ``clusters`` table; a score of NaN becomes None."""
    score = None if isnan(suggestion["score"]) else suggestion["score"]
    return Candidate("group", suggestion["group"], suggestion["reason"], score)


def label_ids(clean: pa.Table) -> list[str]:
    """Return the label_id of every landmark in a ``clean`` table."""
    labels = clean["supercategory"].to_pylist()
    items = clean["class_item"].to_pylist()
    return [label_id(label, item) for label, item in zip(labels, items, strict=True)]


def _examples(clean: pa.Table) -> dict[str, list[str]]:
    """Return the first categories of each label as titles, or URLs of Wikidata items, by label_id."""
    examples: defaultdict[str, list[str]] = defaultdict(list)
    in_order = clean.sort_by([("split", "descending"), ("landmark_id", "ascending")])
    for key, url in zip(label_ids(in_order), in_order["category"].to_pylist(), strict=True):
        titles = examples[key]
        if url is None or len(titles) == N_EXAMPLES:
            continue
        try:
            title = url if _ITEM_PAGE.fullmatch(url) else title_of_url(url)
        except ValueError as error:
            raise InputError(f"cannot link to an example: {error}") from error
        if title not in titles:
            titles.append(title)
    return examples


def classes_by_item(classes: Sequence[pa.Table]) -> dict[str, dict[str, Any]]:
    """Return the rows of ``classes`` tables by item, from the first table with the item."""
    rows: dict[str, dict[str, Any]] = {}
    for table in classes:
        for row in table.to_pylist():
            rows.setdefault(row["item"], row)
    return rows


def superclasses(item: str, known_classes: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the items and labels of the superclasses of a class; the item stands for an unknown label."""
    if item not in known_classes:
        return []
    labelled = []
    for parent in known_classes[item]["subclass_of"]:
        label = known_classes[parent]["label"] if parent in known_classes else parent
        labelled.append((parent, label))
    return labelled


def example_link(title: str) -> tuple[str, str]:
    """Return the name and the URL of a Commons category, or of an item on Wikidata given by its URL.

    >>> example_link("Category:Comet Falls")
    ('Comet Falls', 'https://commons.wikimedia.org/wiki/Category:Comet_Falls')
    """
    if _ITEM_PAGE.fullmatch(title):
        return title.rpartition("/")[2], title
    name = title.removeprefix(CATEGORY_PREFIX)
    return name, f"https://commons.wikimedia.org/wiki/{title_path(title)}"


def landmark_link(landmark_id: int | str, category: str | None) -> tuple[str, str]:
    """Return the name and the URL of a landmark or another entity; the URL is empty without a page."""
    if category is None or _ITEM_PAGE.fullmatch(category):
        return str(landmark_id), category or ""
    try:
        return example_link(title_of_url(category))
    except ValueError:
        return f"landmark {landmark_id}", ""


def fit_for_cell(text: str) -> str:
    """Return a text that fits into a cell of a workbook.

    Characters that are illegal in XML become U+FFFD; text beyond Excel's limit is cut, with "…" at the end.
    """
    text = _ILLEGAL.sub("\ufffd", text)
    if len(text.encode("utf-16-le")) <= 2 * MAX_UNITS:
        return text
    # "ignore" drops half a surrogate pair at the cut.
    return text.encode("utf-16-le")[: 2 * (MAX_UNITS - 1)].decode("utf-16-le", "ignore") + "…"


@dataclass(frozen=True)
class ReviewInputs:
    """Paths of the input files."""

    clusters: Path
    clean: Path
    classes: Sequence[Path]
    taxonomy: Path

    def read_tables(
        self, added_groups: Iterable[Group] = ()
    ) -> tuple[pa.Table, pa.Table, list[pa.Table]]:
        """Return the ``clusters``, ``clean`` and ``classes`` tables.

        Args:
            added_groups: Groups that the annotator added to the taxonomy; suggestions may name these groups.
        """
        clusters = read_table(self.clusters, CLUSTERS)
        if not len(clusters):
            raise InputError(f"{self.clusters}: no labels to review")
        self._check_suggestions(clusters, added_groups)
        clean = read_table(self.clean, CLEAN)
        if not self.classes and read_provenance(self.clean).command != "labels":
            log.info(
                "no *.classes.parquet beside %s; labels are shown without parents", self.clusters
            )
        return clusters, clean, [read_table(path, CLASSES) for path in self.classes]

    def _check_suggestions(self, clusters: pa.Table, added_groups: Iterable[Group]) -> None:
        """Raise a ConfigurationError if suggestions are for groups of another taxonomy.

        At most half of the suggested groups may be unknown, because another annotator may have added groups.
        """
        groups = [*read_taxonomy(self.taxonomy), *added_groups]
        known = {group.key for group in groups} | survivors(groups).keys()
        suggested = {group for group in clusters["suggested_group"].to_pylist() if group}
        unknown = sorted(suggested - known)
        if 2 * len(unknown) > len(suggested):
            raise ConfigurationError(
                f"{self.clusters}: suggestions are for groups that {self.taxonomy} lacks: {preview(unknown, 3)}; "
                "give the taxonomy of the suggestions as `taxonomy`, or run hgld suggest again"
            )

    @property
    def guideline(self) -> Path | None:
        """``guideline.md`` beside the taxonomy; None if the file is missing."""
        path = self.taxonomy.with_name("guideline.md")
        return path if path.is_file() else None

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every file, by name."""
        return input_digests(
            clusters=self.clusters, clean=self.clean, classes=self.classes, taxonomy=self.taxonomy
        )


def find_inputs(
    clusters: Path,
    *,
    clean: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
) -> ReviewInputs:
    """Return the paths of all input files of a review.

    Args:
        clean: ``clean`` table; by default ``clean.parquet`` beside ``clusters``.
        classes: ``classes`` tables; by default ``*.classes.parquet`` beside ``clusters``.
    """
    if clean is None:
        clean = clusters.with_name("clean.parquet")
        if not clean.is_file():
            raise ConfigurationError(
                f"{clean}: no such file; give the table that the labels come from as `clean`"
            )
    if classes is None:
        classes = find_classes_tables(clusters)
    return ReviewInputs(clusters, clean, classes, find_taxonomy(taxonomy, clusters))


def item_url(item: str) -> str:
    """Return the address of an item on Wikidata; empty for the id of a label without an item.

    >>> item_url("Q23397"), item_url("label-6f021f0268")
    ('https://www.wikidata.org/wiki/Q23397', '')
    """
    if not ITEM_ID.fullmatch(item):
        return ""
    return f"https://www.wikidata.org/wiki/{item}"


class FactBook:
    """Facts about labels."""

    def __init__(self, clean: pa.Table, classes: Sequence[pa.Table] = ()) -> None:
        self._classes = classes_by_item(classes)
        self._landmarks = clean.select(["landmark_id", "category"])
        self._rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, key in enumerate(label_ids(clean)):
            self._rows[key].append(row)

    def facts(self, label_id: str) -> dict[str, Any]:
        """Return the description and address of the class of a label, and its superclasses with their addresses."""
        above = [(label, item_url(item)) for item, label in superclasses(label_id, self._classes)]
        description = self._classes.get(label_id, {}).get("description") or ""
        return {"description": description, "url": item_url(label_id), "superclasses": above}

    def landmarks(self, label_id: str) -> list[tuple[str, str]]:
        """Return the names and URLs (:func:`landmark_link`) of all landmarks of a label, by name."""
        rows = self._landmarks.take(pa.array(self._rows.get(label_id, []), pa.int64()))
        links = [landmark_link(row["landmark_id"], row["category"]) for row in rows.to_pylist()]
        links.sort(key=lambda link: link[0].casefold())
        return links
