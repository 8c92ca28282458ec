"""Serve the page of a review session until the process is told to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from hgld.pages.keys import PageKeys
from hgld.pages.server import ServerConfig, listen, serve_page
from hgld.review.page.app import review_app
from hgld.review.references import References
from hgld.review.review_labels import ReviewLabel
from hgld.review.session import ReviewSession
from hgld.review.store import open_store
from hgld.review.table_changes import log_table_changes
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group


def serve_session(
    labels: Iterable[ReviewLabel],
    groups: Sequence[Group],
    store: Path,
    annotator: str,
    config: ServerConfig,
    references: References,
    *,
    on_address: Callable[[str], None],
    decisions: Iterable[Decision] = (),
    changed_groups: Sequence[Group] = (),
    group_problems: Mapping[str, str] | None = None,
    blind: bool = False,
) -> None:
    """Serve the page of a session until SIGINT or SIGTERM.

    Args:
        labels: Labels in the order of the page.
        groups: Groups of the taxonomy.
        store: Event store of the annotator; created if it does not exist.
        annotator: Name of the annotator.
        config: Where to serve.
        references: What the page shows besides.
        on_address: Called with addresses of the page; see :func:`hgld.pages.server.serve_page`.
        decisions: Decisions to start from, for labels that were never touched in the store.
        changed_groups: Groups that these decisions refer to, for groups that were never touched in the store.
        group_problems: In an adjudication, what annotators differ on about groups, by key of the group.
        blind: Whether to hide suggestions and to record decisions as blind.

    Raises:
        BusyError: Another process has the store open.
        ConfigurationError: The store belongs to another annotator or cannot be written, or the port is not available.
        InputError: The store cannot be read.
    """
    keys = PageKeys()
    with listen(config, store) as listener, open_store(store, annotator) as event_store:
        session = ReviewSession(labels, groups, event_store, group_problems=group_problems, blind=blind)
        session.import_decisions(decisions, changed_groups)
        if not session.adjudicating:
            log_table_changes(session)
        app = review_app(session, references, keys, host_names=[config.host])
        serve_page(app, keys, listener, config, on_address=on_address)
