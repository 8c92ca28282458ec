"""The stage ``adjudicate`` on the page: a person settles the labels on which two annotators differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hgld.errors import InputError
from hgld.review.adjudication import (
    AdjudicateSummary,
    Adjudication,
    combine_decisions,
    open_labels,
    require_replaceable,
    write_adjudication,
)
from hgld.review.decision_export import write_changed_taxonomy
from hgld.review.inputs import find_inputs
from hgld.review.opinions import Opinions, read_opinions
from hgld.review.output_guard import require_other_file
from hgld.review.page.server import ServerConfig, serve_session
from hgld.review.projections import current_decisions, current_groups
from hgld.review.review_labels import review_labels, with_opinions
from hgld.review.state import ReviewState
from hgld.review.store import read_store
from hgld.taxonomy.decisions import Decision, read_decisions
from hgld.taxonomy.groups import Group


def adjudicate_on_page(
    first: Path,
    second: Path,
    out: Path,
    clusters: Path,
    store: Path,
    annotator: str,
    config: ServerConfig,
    *,
    on_start: Callable[[str], None],
    taxonomy: Path | None = None,
    force: bool = False,
) -> AdjudicateSummary | None:
    """Serve the labels on which two annotators differ, and write one decision per label when the page is stopped.

    Args:
        first: Decisions of one annotator, in a file named after the annotator.
        second: Decisions of the other annotator, likewise.
        out: File of decisions to write; see :func:`hgld.review.adjudication.write_adjudication`. If groups were
            proposed, the changed taxonomy is written beside it, as ``final.taxonomy.csv`` beside ``final.csv``.
        clusters: ``clusters`` table, with ``clean.parquet`` beside it.
        store: Event store of the adjudication; created if it does not exist.
        annotator: Name of the person who adjudicates.
        config: Where to serve.
        on_start: Called with the address of the page, including the token, once the server answers.
        taxonomy: Groups; by default those that come with hgld.
        force: Replace decisions of other annotators in ``out`` on labels that are adjudicated.

    Returns:
        None if ``out`` holds these decisions already and no label is open.

    Raises:
        BusyError: Another process has the store open.
        ConfigurationError: The store belongs to another annotator or cannot be written, or the port is not available.
        InputError: The annotators agree on every label, or a file cannot be read.
    """
    require_other_file(out, [first, second, clusters, store, *filter(None, [taxonomy])])
    inputs = find_inputs(clusters, taxonomy=taxonomy)
    groups = inputs.read_groups()
    labels = review_labels(*inputs.read_tables())
    one, other = read_opinions([first, second], {group.name for group in groups})
    to_adjudicate = with_opinions(labels, (one, other), {label.label_id for label in open_labels(one, other)})
    if not to_adjudicate:
        raise InputError(
            f"{one.annotator} and {other.annotator} agree on every label; there is nothing to adjudicate"
        )
    if not force:
        state = read_store(store)[1] if store.is_file() else ReviewState()
        _, adjudication = _adjudicated(one, other, state, groups)
        require_replaceable(out, one, other, adjudication, _earlier_decisions(out, state, groups), annotator)
    serve_session(to_adjudicate, groups, store, annotator, config, on_start=on_start)

    _, state = read_store(store)
    final_groups, adjudication = _adjudicated(one, other, state, groups)
    summary = write_adjudication(
        out,
        one,
        other,
        adjudication,
        earlier=_earlier_decisions(out, state, groups),
        landmarks={label.row.label_id: label.row.landmarks for label in labels},
        adjudicator=annotator,
        force=force,
    )
    changed_taxonomy = write_changed_taxonomy(final_groups, groups, out)
    return summary and replace(summary, taxonomy=changed_taxonomy)


def _adjudicated(
    one: Opinions, other: Opinions, state: ReviewState, groups: Sequence[Group]
) -> tuple[list[Group], Adjudication]:
    final_groups = current_groups(state, groups)
    return list(final_groups.values()), combine_decisions(one, other, current_decisions(state, final_groups))


def _earlier_decisions(out: Path, state: ReviewState, groups: Sequence[Group]) -> list[Decision]:
    """Return the decisions in the output, which may name groups that were proposed in an earlier session."""
    names = {group.name for group in current_groups(state, groups).values()}
    return read_decisions(out, names) if out.exists() else []
