"""The stage ``review``: decide on labels on a local page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hgld.pages.server import ServerConfig
from hgld.review.inputs import find_inputs
from hgld.review.merged_taxonomy import changed_groups
from hgld.review.page.served_session import serve_session
from hgld.review.references import open_references
from hgld.review.review_labels import review_labels
from hgld.taxonomy.decisions import read_decisions


def serve_review(
    clusters: Path,
    store: Path,
    annotator: str,
    config: ServerConfig,
    *,
    on_address: Callable[[str], None],
    clean: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
    decisions: Path | None = None,
    blind: bool = False,
    images: Path | None = None,
    image_landmarks: Sequence[Path | tuple[str, Path]] = (),
) -> None:
    """Serve the page for one annotator until the process is told to stop (SIGINT, SIGTERM).

    Args:
        clusters: ``clusters`` table.
        store: Event store of the annotator; created if it does not exist.
        annotator: Name of the annotator.
        config: Where to serve.
        on_address: Called with addresses of the page; see :func:`hgld.pages.server.serve_page`.
        clean: ``clean`` table, for the examples; by default ``clean.parquet`` beside ``clusters``.
        classes: ``classes`` tables, for the parents; by default ``*.classes.parquet`` beside ``clusters``.
        taxonomy: Groups; by default those that come with hgld.
        decisions: Decisions to start from, for labels that were never touched in the store, with the taxonomy beside
            it if groups were renamed or proposed.
        blind: Whether to hide suggestions and to record decisions as blind.
        images: Table of ``hgld index-images``, to show photographs; see
            :func:`hgld.review.photographs.open_photographs`.
        image_landmarks: Files with the landmark of each image; by default GLDv2's lists beside ``images``.

    Raises:
        BusyError: Another process has the store open.
        ConfigurationError: The store belongs to another annotator or cannot be written, or the port is not available.
        InputError: An input cannot be read.
    """
    inputs = find_inputs(clusters, clean=clean, classes=classes, taxonomy=taxonomy)
    groups = inputs.read_groups()
    tables = inputs.read_tables()
    labels = review_labels(*tables)
    added = changed_groups(decisions) if decisions else []
    initial = read_decisions(decisions, {group.key for group in (*groups, *added)}) if decisions else []
    serve_session(
        labels,
        groups,
        store,
        annotator,
        config,
        open_references(inputs, *tables[1:], images, image_landmarks),
        on_address=on_address,
        decisions=initial,
        changed_groups=added,
        blind=blind,
    )
