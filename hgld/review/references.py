"""Input files of a review, and what an annotator can look at besides the labels and groups."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hgld.errors import ConfigurationError, InputError
from hgld.resources import annotation_file
from hgld.review.labels import classes_by_item, landmark_link, superclasses
from hgld.review.photographs import LabelPhotographs, open_photographs
from hgld.tables import CLASSES, CLEAN, CLUSTERS, input_digests, read_table
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.label_identity import ITEM_ID, label_id

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReviewInputs:
    """Paths of the input files."""

    clusters: Path
    clean: Path
    classes: Sequence[Path]
    taxonomy: Path

    def read_tables(self) -> tuple[pa.Table, pa.Table, list[pa.Table]]:
        """Return the ``clusters``, ``clean`` and ``classes`` tables.

        Raises:
            InputError: A table cannot be read, or there is no label to review.
        """
        clusters = read_table(self.clusters, CLUSTERS)
        if not len(clusters):
            raise InputError(f"{self.clusters}: no labels to review")
        return clusters, read_table(self.clean, CLEAN), [read_table(path, CLASSES) for path in self.classes]

    def read_groups(self) -> list[Group]:
        """Return the groups of the taxonomy."""
        return read_taxonomy(self.taxonomy)

    @property
    def guideline(self) -> Path | None:
        """``guideline.md`` beside the taxonomy, if there is one."""
        path = self.taxonomy.with_name("guideline.md")
        return path if path.is_file() else None

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every file, by name."""
        return input_digests(clusters=self.clusters, clean=self.clean, classes=self.classes, taxonomy=self.taxonomy)


def find_inputs(
    clusters: Path, *, clean: Path | None = None, classes: Sequence[Path] | None = None, taxonomy: Path | None = None
) -> ReviewInputs:
    """Return the paths of all input files of a review.

    Args:
        clusters: ``clusters`` table.
        clean: ``clean`` table; by default ``clean.parquet`` beside ``clusters``.
        classes: ``classes`` tables; by default ``*.classes.parquet`` beside ``clusters``.
        taxonomy: Groups; by default those that come with hgld.

    Raises:
        ConfigurationError: There is no ``clean.parquet`` beside ``clusters``, and ``clean`` is not given.
    """
    if clean is None:
        clean = clusters.with_name("clean.parquet")
        if not clean.is_file():
            raise ConfigurationError(f"{clean}: no such file; give the table that the labels come from as `clean`")
    if classes is None:
        classes = sorted(clusters.parent.glob("*.classes.parquet"))
        if not classes:
            log.info("no *.classes.parquet beside %s; labels are shown without parents", clusters)
    return ReviewInputs(clusters, clean, classes, annotation_file("taxonomy.csv") if taxonomy is None else taxonomy)


@dataclass(frozen=True, slots=True)
class ClassLink:
    """A class on Wikidata; both addresses are empty if ``item`` is no item.

    Args:
        item: Id of the class.
        label: Label of the class, or its id if it has none.
    """

    item: str
    label: str

    @property
    def url(self) -> str:
        """Address of the item on Wikidata."""
        return f"https://www.wikidata.org/wiki/{self.item}" if ITEM_ID.fullmatch(self.item) else ""

    @property
    def commons_url(self) -> str:
        """Address that leads to the page on Commons that is linked to the item."""
        special = "https://www.wikidata.org/wiki/Special:GoToLinkedPage/commonswiki"
        return f"{special}/{self.item}" if self.url else ""


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """The class of a label, its description on Wikidata (or empty), and its superclasses."""

    link: ClassLink
    description: str = ""
    superclasses: tuple[ClassLink, ...] = ()


class FactBook:
    """Facts about labels."""

    def __init__(self, clean: pa.Table, classes: Sequence[pa.Table] = ()) -> None:
        self._classes = classes_by_item(classes)
        self._landmarks = clean.select(["landmark_id", "category"])
        self._rows: defaultdict[str, list[int]] = defaultdict(list)
        columns = (clean[name].to_pylist() for name in ("supercategory", "class_item"))
        for row, pair in enumerate(zip(*columns, strict=True)):
            self._rows[label_id(*pair)].append(row)

    def facts(self, label_id: str) -> LabelFacts:
        """Return what is known about the class of a label; of a label without an item, nothing is."""
        row = self._classes.get(label_id)
        if row is None:
            return LabelFacts(ClassLink(label_id, label_id))
        parents = (ClassLink(*parent) for parent in superclasses(label_id, self._classes))
        return LabelFacts(ClassLink(label_id, row["label"]), row["description"] or "", tuple(parents))

    def landmarks(self, label_id: str) -> list[tuple[str, str]]:
        """Return all landmarks of a label by name, each with the URL of its category on Commons, or empty."""
        rows = self._landmarks.take(pa.array(self._rows.get(label_id, []), pa.int64()))
        return sorted((landmark_link(**row) for row in rows.to_pylist()), key=lambda landmark: landmark[0].casefold())


@dataclass(frozen=True)
class References:
    """Sources of what the page shows of a label besides its row.

    Args:
        facts: Classes and landmarks of the labels.
        guideline: Guideline for annotators, in Markdown; None if there is none.
        photographs: Photographs of the landmarks; None to show none.
    """

    facts: FactBook
    guideline: Path | None = None
    photographs: LabelPhotographs | None = None


def open_references(
    inputs: ReviewInputs,
    clean: pa.Table,
    classes: Sequence[pa.Table],
    images: Path | None = None,
    image_landmarks: Sequence[Path | tuple[str, Path]] = (),
) -> References:
    """Open the references of a review.

    Raises:
        ConfigurationError: The landmarks of images are not known.
        InputError: The photographs cannot be opened.
    """
    photographs = open_photographs(images, inputs.clean, image_landmarks)
    return References(FactBook(clean, classes), inputs.guideline, photographs)
