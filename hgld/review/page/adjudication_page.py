"""The stage ``adjudicate`` on the page: a person settles the labels on which two annotators differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hgld.errors import InputError
from hgld.review.adjudication import AdjudicateSummary, combine_decisions, open_labels, write_adjudication
from hgld.review.decision_export import write_changed_taxonomy
from hgld.review.inputs import find_inputs
from hgld.review.opinions import read_opinions
from hgld.review.page.server import ServerConfig, serve_session
from hgld.review.projections import current_decisions, current_groups
from hgld.review.review_labels import review_labels, with_opinions
from hgld.review.store import read_store
from hgld.taxonomy.decisions import read_decisions


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
        force: Discard the decisions in ``out``.

    Returns:
        None if ``out`` holds these decisions already and no label is open.

    Raises:
        BusyError: Another process has the store open.
        ConfigurationError: The store belongs to another annotator or cannot be written, or the port is not available.
        InputError: The annotators agree on every label, or a file cannot be read.
    """
    inputs = find_inputs(clusters, taxonomy=taxonomy)
    groups = inputs.read_groups()
    labels = review_labels(*inputs.read_tables())
    one, other = read_opinions([first, second], {group.name for group in groups})
    # The output of an earlier session may name groups that were proposed in it.
    known_groups = current_groups(read_store(store)[1], groups).values() if store.is_file() else groups
    earlier = [] if force or not out.exists() else read_decisions(out, {group.name for group in known_groups})
    to_adjudicate = with_opinions(labels, (one, other), {label.label_id for label in open_labels(one, other)})
    if not to_adjudicate:
        raise InputError(
            f"{one.annotator} and {other.annotator} agree on every label; there is nothing to adjudicate"
        )
    serve_session(to_adjudicate, groups, store, annotator, config, on_start=on_start)

    _, state = read_store(store)
    final_groups = current_groups(state, groups)
    adjudication = combine_decisions(one, other, current_decisions(state, final_groups))
    changed_taxonomy = write_changed_taxonomy(list(final_groups.values()), groups, out)
    landmarks = {label.row.label_id: label.row.landmarks for label in labels}
    summary = write_adjudication(out, one, other, adjudication, earlier=earlier, landmarks=landmarks)
    return summary and replace(summary, taxonomy=changed_taxonomy)
