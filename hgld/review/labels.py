"""Labels to review, and the files that say what an annotator is shown of each: its class, examples and landmarks."""

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


#: Suggestions that are less likely are not accepted with the rest, only by their number.
LIKELY_SCORE = 0.5
#: Suggestions that are this likely are accepted together, for all rows on the screen.
SURE_SCORE = 0.9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decision that a label can take over as it is: a suggestion, another annotator's opinion, or an earlier one.

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
        """``sure``: a suggestion with a high score; ``likely``: what the action "accept" takes; or ``unlikely``."""
        if self.score is not None and self.score >= SURE_SCORE:
            return "sure"
        return "likely" if self.score is None or self.score >= LIKELY_SCORE else "unlikely"


@dataclass(frozen=True, slots=True)
class ReviewLabel:
    """A label to decide on, as an annotator sees it.

    Args:
        label_id: Wikidata item of the class if known, else an id made from the label.
        label: Text of the label, cut to fit into a cell of a workbook, like all other texts.
        landmarks: Number of landmarks with the label, both splits together.
        examples: Titles of Commons categories of landmarks with the label, at most ``N_EXAMPLES``.
        suggested_group: Key of the most likely group, in a sheet its name; or empty.
        opinions: Decisions of other annotators, one of each, if these are to be adjudicated.
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
    """Return the labels by cluster and sub-cluster, within these the labels with most landmarks first.

    Args:
        clean: ``clean`` table with the example landmarks: those of the train split first, by landmark id, which
            GLDv2 assigned at random.
        classes: ``classes`` tables with the superclasses; a class is looked up in the first table that has it.
    """
    examples = _examples(clean)
    known = classes_by_item(classes)
    labels = [
        ReviewLabel(
            label_id=row["label_id"],
            label=fit_for_cell(row["label"]),
            landmarks=row["landmarks_train"] + row["landmarks_index"],
            parents=fit_for_cell(
                ", ".join(label for _, label in superclasses(row["label_id"], known))
            ),
            cluster=row["cluster"],
            cluster_name=fit_for_cell(row["cluster_name"]),
            subcluster=row["subcluster"],
            examples=tuple(examples.get(row["label_id"], ())),
            suggested_group=row["suggested_group"] or "",
            suggestions=_suggestions(row),
        )
        for row in clusters.to_pylist()
    ]
    return sorted(
        labels, key=lambda row: (row.cluster, row.subcluster, -row.landmarks, row.label_id)
    )


def _suggestions(row: dict[str, Any]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            "group", each["group"], each["reason"], None if isnan(each["score"]) else each["score"]
        )
        for each in row["suggestions"]
    )


def label_ids(clean: pa.Table) -> list[str]:
    """Return the label_id of every landmark in a ``clean`` table."""
    columns = (clean[name].to_pylist() for name in ("supercategory", "class_item"))
    return [label_id(*label) for label in zip(*columns, strict=True)]


def _examples(clean: pa.Table) -> dict[str, list[str]]:
    """Return titles of the first categories of each label by label_id, or the addresses of items on Wikidata."""
    examples: defaultdict[str, list[str]] = defaultdict(list)
    in_order = clean.sort_by([("split", "descending"), ("landmark_id", "ascending")])
    for key, url in zip(label_ids(in_order), in_order["category"].to_pylist(), strict=True):
        titles = examples[key]
        if url is not None and len(titles) < N_EXAMPLES:
            try:
                title = url if _ITEM_PAGE.fullmatch(url) else title_of_url(url)
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
    """Return the name and the URL of a Commons category, or of an item on Wikidata given by its URL.

    >>> example_link("Category:Comet Falls")
    ('Comet Falls', 'https://commons.wikimedia.org/wiki/Category:Comet_Falls')
    """
    if _ITEM_PAGE.fullmatch(title):
        return title.rpartition("/")[2], title
    return title.removeprefix(
        CATEGORY_PREFIX
    ), f"https://commons.wikimedia.org/wiki/{title_path(title)}"


def landmark_link(landmark_id: int | str, category: str | None) -> tuple[str, str]:
    """Return the name and the URL of a landmark or another entity; the URL is empty where there is no page."""
    if category is None or _ITEM_PAGE.fullmatch(category):
        return str(landmark_id), category or ""
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
            added_groups: Groups that the annotator added to the taxonomy, for which there may be suggestions.
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

        Groups that another annotator added may be among them, but not more than half of all.
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
        """``guideline.md`` beside the taxonomy, if there is one."""
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
    """Return the address of an item on Wikidata; empty for the id of a label without one.

    >>> item_url("Q23397"), item_url("label-6f021f0268")
    ('https://www.wikidata.org/wiki/Q23397', '')
    """
    return f"https://www.wikidata.org/wiki/{item}" if ITEM_ID.fullmatch(item) else ""


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
        """Return all landmarks of a label by name, each with the URL of its category on Commons, or empty."""
        rows = self._landmarks.take(pa.array(self._rows.get(label_id, []), pa.int64()))
        return sorted(
            (landmark_link(**row) for row in rows.to_pylist()),
            key=lambda landmark: landmark[0].casefold(),
        )
