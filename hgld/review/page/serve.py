"""The stages ``review`` and ``adjudicate`` on a local page, served until SIGINT or SIGTERM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hgld.errors import InputError, indented_list
from hgld.io.writable import require_other_file
from hgld.pages.server import PageKeys, ServerConfig, listen, serve_page
from hgld.review.adjudication import (
    AdjudicateSummary,
    Adjudication,
    combine_decisions,
    kept_decisions,
    open_labels,
    require_replaceable,
    write_adjudication,
)
from hgld.review.decision_files import (
    MergedTaxonomy,
    Opinions,
    after_review,
    changed_groups,
    read_opinions,
    with_opinions,
)
from hgld.review.labels import FactBook, ReviewInputs, find_inputs, review_labels
from hgld.review.page.app import review_app
from hgld.review.page.clusters_file import ClustersFile
from hgld.review.page.render import References
from hgld.review.photographs import open_photographs
from hgld.review.session import ReviewSession
from hgld.review.state import ReviewState, current_decisions, current_groups
from hgld.review.store import EventStore, open_store, read_store
from hgld.taxonomy.decisions import Decision, read_decisions
from hgld.taxonomy.groups import Group, read_taxonomy, survivors
from hgld.taxonomy.label_identity import normalise_label
from hgld.taxonomy.project import nouns_of

log = logging.getLogger(__name__)


def log_table_changes(session: ReviewSession) -> None:
    """Compare the labels of a session with the labels of the last session, and log the differences.

    A label with the same text and another id is the same label; its class has become known.
    """
    present = {}
    for label_id, label in session.labels.items():
        present[label_id] = label.label, label.cluster
    previous = session.store.replace_labels(present)
    if not previous or previous == present:
        return
    new_ids: dict[str, str] = {}
    for label_id, (text, _) in present.items():
        if label_id not in previous:
            new_ids[normalise_label(text)] = label_id
    gone = []
    renumbered = []
    offered = set()
    for label_id, (text, _) in previous.items():
        new_id = new_ids.get(normalise_label(text))
        if label_id not in present and new_id is not None:
            renumbered.append(f"{text} ({label_id}, now {new_id})")
            offered.add(new_id)
        elif label_id not in present:
            gone.append(f"{text} ({label_id})")
    new = []
    for label_id, (text, _) in present.items():
        if label_id not in previous and label_id not in offered:
            new.append(f"{text} ({label_id})")
    lists = {
        "new labels": new,
        "labels that are gone, whose decisions are kept": gone,
        "labels with another id, for which the decisions on the old ids are offered": renumbered,
    }
    parts = []
    for title, items in lists.items():
        if items:
            parts.append(f"{title} ({len(items):,}):\n{indented_list(items)}")
    if parts:
        text = "\n".join(parts)
        log.warning("%s: labels have changed since the last start:\n%s", session.store.path, text)


def _references(
    inputs: ReviewInputs,
    tables: Sequence[Any],
    images: Path | None,
    image_landmarks: Sequence[Path | tuple[str, Path]],
) -> References:
    """Return the references of a page; ``tables`` are the result of :meth:`ReviewInputs.read_tables`."""
    _, clean, classes = tables
    return References(
        FactBook(clean, classes),
        inputs.guideline,
        open_photographs(images, inputs.clean, image_landmarks),
        nouns=nouns_of(inputs.clusters),
        row_nouns=nouns_of(inputs.clean),
    )


def _serve(
    open_session: Callable[[EventStore], ReviewSession],
    store: Path,
    annotator: str,
    config: ServerConfig,
    references: References,
    on_address: Callable[[str], None],
    clusters: ClustersFile | None = None,
) -> None:
    """Serve the page of a session until SIGINT or SIGTERM."""
    keys = PageKeys()
    with listen(config, store) as listener, open_store(store, annotator) as event_store:
        session = open_session(event_store)
        app = review_app(session, references, keys, host_names=[config.host], clusters=clusters)
        serve_page(app, keys, listener, config, on_address=on_address)


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
    """Serve the page for one annotator until SIGINT or SIGTERM.

    Args:
        clusters: Clusters from hgld cluster.
        store: Event store of the annotator; created if it does not exist.
        annotator: Name of the annotator.
        config: Host and port of the server.
        on_address: Called with addresses that admit a browser, see :func:`hgld.pages.server.serve_page`.
        clean: ``clean`` table, for the examples; by default ``clean.parquet`` beside ``clusters``.
        classes: ``classes`` tables, for the parents; by default ``*.classes.parquet`` beside ``clusters``.
        taxonomy: File of the groups. Default: the file of the list's project; for GLDv2 the file in hgld.
        decisions: CSV file of decisions to start from, for labels without a decision in ``store``; the
            taxonomy is beside this file if groups were renamed or proposed.
        blind: Hide suggestions, and record that decisions were made without suggestions.
        images: Table of ``hgld index-images``, to show photographs.
        image_landmarks: Files with the landmark of each image; by default GLDv2's lists beside ``images``.

    Raises:
        ConfigurationError: The store belongs to another annotator or cannot be written, or the port is not available.
    """
    inputs = find_inputs(clusters, clean=clean, classes=classes, taxonomy=taxonomy)
    groups = read_taxonomy(inputs.taxonomy)
    added: list[Group] = []
    initial: list[Decision] = []
    if decisions is not None:
        added = changed_groups(decisions)
        initial = read_decisions(decisions, {group.key for group in groups + added})

    def read_tables(state: ReviewState) -> tuple[Any, ...]:
        return inputs.read_tables([*added, *current_groups(state, groups).values()])

    def open_session(event_store: EventStore, tables: tuple[Any, ...]) -> ReviewSession:
        session = ReviewSession(review_labels(*tables), groups, event_store, blind=blind)
        session.import_decisions(initial, added)
        log_table_changes(session)
        return session

    def open_again(event_store: EventStore) -> ReviewSession:
        return open_session(event_store, read_tables(event_store.state))

    # Before the tables are read: if the file is written again meanwhile, the page loads it again.
    clusters_file = None if blind else ClustersFile(inputs.clusters, open_again)
    tables = read_tables(_stored_state(store))
    references = _references(inputs, tables, images, image_landmarks)
    _serve(
        lambda event_store: open_session(event_store, tables),
        store,
        annotator,
        config,
        references,
        on_address,
        clusters_file,
    )


def adjudicate_on_page(
    first: Path,
    second: Path,
    out: Path,
    clusters: Path,
    store: Path,
    annotator: str,
    config: ServerConfig,
    *,
    on_address: Callable[[str], None],
    taxonomy: Path | None = None,
    images: Path | None = None,
    image_landmarks: Sequence[Path | tuple[str, Path]] = (),
    force: bool = False,
) -> AdjudicateSummary | None:
    """Serve the labels on which two annotators differ, then write one decision per label.

    The page offers the groups of both annotators. Renaming a group settles a conflict of names, and proposed
    groups with the same meaning can be merged. If the annotators differ only in names of groups, the page
    shows the labels of these groups. The decisions are written when the page is stopped.

    Inputs are as for :func:`serve_review` and :func:`hgld.review.adjudication.adjudicate_files`.

    Args:
        store: Event store of the adjudication; created if it does not exist.
        force: Replace decisions of other annotators in ``out`` on labels that are adjudicated.

    Returns:
        None if ``out`` already holds these decisions and groups, and no label is open.

    Raises:
        ConfigurationError: The store belongs to another annotator or cannot be written, the port is not
            available, or ``out`` is an input or holds decisions of other annotators that would be replaced.
        InputError: The annotators agree on every label and group, or a file cannot be read.
    """
    paths = [first, second, clusters, store]
    if taxonomy is not None:
        paths.append(taxonomy)
    require_other_file(out, paths)
    inputs = find_inputs(clusters, taxonomy=taxonomy)
    original = read_taxonomy(inputs.taxonomy)
    tables = inputs.read_tables()
    labels = review_labels(*tables)
    opinions, merged = read_opinions([first, second], original)
    merged = _with_kept_groups(merged, opinions, out)
    adjudication, final_taxonomy = _adjudicated(opinions, merged, _stored_state(store))
    open_ids = _ids_to_adjudicate(adjudication, final_taxonomy)
    to_adjudicate = with_opinions(labels, opinions, open_ids)
    if not to_adjudicate:
        names = " and ".join(annotator.annotator for annotator in opinions)
        raise InputError(f"{names} agree on every label; there is nothing to adjudicate")
    if not force:
        earlier = final_taxonomy.with_survivors(_earlier_decisions(out))
        require_replaceable(out, adjudication, earlier, annotator)
    problems = {conflict.key: conflict.problem for conflict in merged.conflicts}
    references = _references(inputs, tables, images, image_landmarks)

    def open_session(event_store: EventStore) -> ReviewSession:
        return ReviewSession(to_adjudicate, merged.groups, event_store, group_problems=problems)

    _serve(open_session, store, annotator, config, references, on_address)

    adjudication, final_taxonomy = _adjudicated(opinions, merged, _stored_state(store))
    return write_adjudication(
        out,
        adjudication,
        taxonomy=final_taxonomy,
        original=original,
        earlier=_earlier_decisions(out),
        landmarks={label.label_id: label.landmarks for label in labels},
        adjudicator=annotator,
        force=force,
    )


def _stored_state(store: Path) -> ReviewState:
    """Return the state of an event store; the initial state if the store does not exist."""
    if not store.is_file():
        return ReviewState()
    _, state = read_store(store)
    return state


def _with_kept_groups(
    merged: MergedTaxonomy, opinions: Sequence[Opinions], out: Path
) -> MergedTaxonomy:
    """Add the groups of decisions that are kept in the output, if the annotators lack these groups."""
    kept = kept_decisions(_earlier_decisions(out), opinions)
    missing = {row.group for row in kept if row.group is not None} - merged.keys
    added = [group for group in changed_groups(out) if group.key in missing]
    unknown = sorted(missing - {group.key for group in added})
    if unknown:
        raise InputError(f"{out}: the taxonomy has no group {', '.join(unknown)}")
    return replace(merged, groups=[*merged.groups, *added])


def _adjudicated(
    opinions: Sequence[Opinions], merged: MergedTaxonomy, state: ReviewState
) -> tuple[Adjudication, MergedTaxonomy]:
    """Return the decisions and the groups according to the adjudicator's store."""
    taxonomy = after_review(merged, state)
    merges = survivors(taxonomy.groups)
    first = opinions[0].with_groups(merges)
    second = opinions[1].with_groups(merges)
    adjudicated = current_decisions(state, merged.groups)
    return combine_decisions(first, second, adjudicated), taxonomy


def _ids_to_adjudicate(adjudication: Adjudication, taxonomy: MergedTaxonomy) -> set[str]:
    """Return the ids of open labels; without open labels, the ids of labels in groups with a conflict."""
    first, second = adjudication.annotators
    open_ids = {label.label_id for label in open_labels(first, second)}
    if open_ids:
        return open_ids
    conflicts = {conflict.key for conflict in taxonomy.conflicts}
    return {row.label_id for row in adjudication.inputs if row.group in conflicts}


def _earlier_decisions(out: Path) -> list[Decision]:
    if out.exists():
        return read_decisions(out, None)
    return []
