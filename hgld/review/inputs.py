"""Input files of a review: the clusters, and the tables and groups that belong to them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hgld.errors import ConfigurationError, InputError
from hgld.resources import annotation_file
from hgld.tables import CLASSES, CLEAN, CLUSTERS, input_digests, read_table
from hgld.taxonomy.groups import Group, read_taxonomy

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReviewInputs:
    """Paths of the input files.

    Args:
        clusters: ``clusters`` table.
        clean: ``clean`` table, for the examples.
        classes: ``classes`` tables, for the parents.
        taxonomy: CSV file of the groups.
    """

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
