"""The stage ``adjudicate`` on the page: a person settles the labels and groups on which two annotators differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hgld.errors import InputError
from hgld.pages.server import ServerConfig
from hgld.review.adjudication import (
    AdjudicateSummary,
    Adjudication,
    combine_decisions,
    kept_decisions,
    open_labels,
    require_replaceable,
    write_adjudication,
)
from hgld.review.inputs import find_inputs
from hgld.review.merged_taxonomy import MergedTaxonomy, after_review, changed_groups
from hgld.review.opinions import Opinions, read_opinions
from hgld.review.output_guard import require_other_file
from hgld.review.page.served_session import serve_session
from hgld.review.projections import current_decisions
from hgld.review.references import open_references
from hgld.review.review_labels import review_labels, with_opinions
from hgld.review.state import ReviewState
from hgld.review.store import read_store
from hgld.taxonomy.decisions import Decision, read_decisions


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
    """Serve the labels on which two annotators differ, and write one decision per label when the page is stopped.

    The page offers the groups of both annotators. Groups can be renamed, which settles a conflict of names, and
    proposed groups that mean the same can be merged. If the annotators differ only in names of groups, the page shows
    the labels of these groups.

    Args:
        first: Decisions of one annotator, in a file named after the annotator, with the taxonomy beside it if the
            annotator renamed or proposed groups.
        second: Decisions of the other annotator, likewise.
        out: File of decisions to write; see :func:`hgld.review.adjudication.write_adjudication`. If groups were
            changed, their taxonomy is written beside it, as ``final.taxonomy.csv`` beside ``final.csv``.
        clusters: ``clusters`` table, with ``clean.parquet`` beside it.
        store: Event store of the adjudication; created if it does not exist.
        annotator: Name of the person who adjudicates.
        config: Where to serve.
        on_address: Called with addresses of the page; see :func:`hgld.pages.server.serve_page`.
        taxonomy: Original groups; by default those that come with hgld.
        images: Table of ``hgld index-images``, to show photographs; see
            :func:`hgld.review.photographs.open_photographs`.
        image_landmarks: Files with the landmark of each image; by default GLDv2's lists beside ``images``.
        force: Replace decisions of other annotators in ``out`` on labels that are adjudicated.

    Returns:
        None if ``out`` holds these decisions and groups already, and nothing is open.

    Raises:
        BusyError: Another process has the store open.
        ConfigurationError: The store belongs to another annotator or cannot be written, the port is not available, or
            ``out`` is an input or holds decisions of other annotators that would be replaced.
        InputError: The annotators agree on every label and group, or a file cannot be read.
    """
    require_other_file(out, [first, second, clusters, store, *filter(None, [taxonomy])])
    inputs = find_inputs(clusters, taxonomy=taxonomy)
    original = inputs.read_groups()
    tables = inputs.read_tables()
    labels = review_labels(*tables)
    opinions, merged = read_opinions([first, second], original)
    merged = _with_kept_groups(merged, opinions, out)
    state = read_store(store)[1] if store.is_file() else ReviewState()
    one, other, adjudication, final_taxonomy = _adjudicated(opinions, merged, state)
    to_adjudicate = with_opinions(labels, opinions, _ids_to_adjudicate(one, other, final_taxonomy))
    if not to_adjudicate:
        raise InputError(
            f"{one.annotator} and {other.annotator} agree on every label; there is nothing to adjudicate"
        )
    if not force:
        earlier = final_taxonomy.with_survivors(_earlier_decisions(out))
        require_replaceable(out, one, other, adjudication, earlier, annotator)
    serve_session(
        to_adjudicate,
        merged.groups,
        store,
        annotator,
        config,
        open_references(inputs, *tables[1:], images, image_landmarks),
        on_address=on_address,
        group_problems={conflict.key: conflict.problem for conflict in merged.conflicts},
    )

    one, other, adjudication, final_taxonomy = _adjudicated(opinions, merged, read_store(store)[1])
    return write_adjudication(
        out,
        one,
        other,
        adjudication,
        taxonomy=final_taxonomy,
        original=original,
        earlier=_earlier_decisions(out),
        landmarks={label.row.label_id: label.row.landmarks for label in labels},
        adjudicator=annotator,
        force=force,
    )


def _with_kept_groups(merged: MergedTaxonomy, opinions: Sequence[Opinions], out: Path) -> MergedTaxonomy:
    """Add the groups that only decisions to be kept in the output refer to.

    Raises:
        InputError: Such a group is not in the taxonomy beside the output either.
    """
    kept = kept_decisions(_earlier_decisions(out), *opinions)
    missing = {row.group for row in kept if row.group is not None} - merged.keys
    added = [group for group in changed_groups(out) if group.key in missing]
    unknown = sorted(missing - {group.key for group in added})
    if unknown:
        raise InputError(f"{out}: the taxonomy has no group {', '.join(unknown)}")
    return replace(merged, groups=[*merged.groups, *added])


def _adjudicated(
    opinions: Sequence[Opinions], merged: MergedTaxonomy, state: ReviewState
) -> tuple[Opinions, Opinions, Adjudication, MergedTaxonomy]:
    """Return the opinions on merged groups, the decisions, and the groups, according to the adjudicator's store."""
    taxonomy = after_review(merged, state)
    one, other = (
        replace(
            annotator,
            decisions={row.label_id: row for row in taxonomy.with_survivors(annotator.decisions.values())},
        )
        for annotator in opinions
    )
    return one, other, combine_decisions(one, other, current_decisions(state, merged.groups)), taxonomy


def _ids_to_adjudicate(one: Opinions, other: Opinions, taxonomy: MergedTaxonomy) -> set[str]:
    """Return the ids of open labels; if there are none, those of labels in groups on which the annotators differ."""
    conflicts = {conflict.key for conflict in taxonomy.conflicts}
    return {label.label_id for label in open_labels(one, other)} or {
        row.label_id for row in (*one.decisions.values(), *other.decisions.values()) if row.group in conflicts
    }


def _earlier_decisions(out: Path) -> list[Decision]:
    return read_decisions(out, None) if out.exists() else []
