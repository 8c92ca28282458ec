"""Serving the review page: on labels to decide, or on opinions to settle."""

from __future__ import annotations

import secrets
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn

from hgld.errors import ConfigurationError, InputError
from hgld.resources import annotation_file
from hgld.review.adjudicate import AdjudicateSummary, disagreements, outcome_of, write_outcome
from hgld.review.opinions import Opinions, read_opinions
from hgld.review.outcome import decisions_of, groups_of, write_proposals
from hgld.review.page.app import review_app
from hgld.review.review_labels import ReviewLabel, review_labels, with_opinions
from hgld.review.session import ReviewSession
from hgld.review.sheets.export import clean_beside
from hgld.review.store import open_store, read_store
from hgld.tables import CLASSES, CLEAN, CLUSTERS, read_table
from hgld.taxonomy.decisions import Decision, read_decisions
from hgld.taxonomy.groups import Group, read_taxonomy

#: Open connections get this long when the server is stopped.
_GRACE_S = 2


@dataclass(frozen=True)
class ServerConfig:
    """Where the page is served.

    Args:
        host: the name or address to listen at.
        port: the port; 0 takes a free one.
    """

    host: str = "127.0.0.1"
    port: int = 0


def serve_review(
    clusters: Path,
    store: Path,
    annotator: str,
    config: ServerConfig,
    *,
    started: Callable[[str], None],
    clean: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
    decisions: Path | None = None,
) -> None:
    """Serve the page for one annotator until the process is told to stop (SIGINT, SIGTERM).

    Args:
        clusters: the ``clusters`` table.
        store: where the annotator's events are kept; made if it is not there.
        annotator: who decides.
        config: where to serve.
        started: is called with the page's address, token included, as soon as it answers.
        clean: the ``clean`` table, for the examples; ``clean.parquet`` beside ``clusters`` by default.
        classes: ``classes`` tables, for the parents; ``*.classes.parquet`` beside ``clusters`` by default.
        taxonomy: the groups; those that come with hgld by default.
        decisions: decisions to start from, for labels that the store says nothing of.

    Raises:
        BusyError: the store is open in another process.
        ConfigurationError: the store is another annotator's, or the port cannot be had.
        InputError: an input cannot be read.
    """
    labels, groups = read_inputs(clusters, clean=clean, classes=classes, taxonomy=taxonomy)
    begun = read_decisions(decisions, {group.name for group in groups}) if decisions else []
    serve(labels, groups, store, annotator, config, started=started, begun=begun)


def serve_adjudication(
    labels: Iterable[ReviewLabel],
    groups: Sequence[Group],
    opinions: tuple[Opinions, Opinions],
    store: Path,
    annotator: str,
    config: ServerConfig,
    *,
    started: Callable[[str], None],
) -> None:
    """Serve the page with the labels on which annotators differ, their opinions side by side, until told to stop.

    What was settled is in the store: :func:`hgld.review.outcome.decisions_of`.

    Args:
        labels: all labels; those that are settled are left out (:func:`hgld.review.adjudicate.disagreements`).
        groups: the taxonomy.
        opinions: what two annotators decided, in the order in which they are shown.
        store: where the events are kept.
        annotator: who settles.
        config: where to serve.
        started: is called with the page's address, token included, as soon as it answers.

    Raises:
        BusyError: the store is open in another process.
        ConfigurationError: the store is another annotator's, or the port cannot be had.
        InputError: there is no disagreement, or the store cannot be read.
    """
    first, second = opinions
    differing = with_opinions(labels, opinions, {row.label_id for row in disagreements(first, second)})
    if not differing:
        raise InputError(f"{first.name} and {second.name} agree on every label; there is nothing to settle")
    serve(differing, groups, store, annotator, config, started=started)


def adjudicate_on_page(
    first: Path,
    second: Path,
    out: Path,
    clusters: Path,
    store: Path,
    annotator: str,
    config: ServerConfig,
    *,
    started: Callable[[str], None],
    taxonomy: Path | None = None,
    force: bool = False,
) -> AdjudicateSummary | None:
    """Have a person settle what two annotators differ in; write one decision per label when the page is stopped.

    Args:
        first: decisions of one annotator, in a file named after them.
        second: those of the other.
        out: the file of decisions to write; see :func:`hgld.review.adjudicate.write_outcome`. If groups were
            proposed, the taxonomy with them goes beside it, as ``final.taxonomy.csv`` beside ``final.csv``.
        clusters: the ``clusters`` table, with ``clean.parquet`` beside it.
        store: where the events of the page are kept.
        annotator: who settles.
        config: where to serve.
        started: is called with the page's address as soon as it answers.
        taxonomy: the groups; those that come with hgld by default.
        force: do not look at what ``out`` holds.

    Raises:
        BusyError: the store is open in another process.
        ConfigurationError: the store is another annotator's, or the port cannot be had.
        InputError: there is no disagreement, or a file cannot be read.
    """
    labels, groups = read_inputs(clusters, taxonomy=taxonomy)
    one, other = read_opinions([first, second], {group.name for group in groups})
    # What an earlier sitting wrote may name groups that were proposed in it.
    proposed = groups_of(read_store(store)[1], groups).values() if store.is_file() else groups
    before = [] if force or not out.exists() else read_decisions(out, {group.name for group in proposed})
    serve_adjudication(labels, groups, (one, other), store, annotator, config, started=started)
    landmarks = {label.row.label_id: label.row.landmarks for label in labels}
    _, fold = read_store(store)
    there = groups_of(fold, groups)
    outcome = outcome_of(one, other, decisions_of(fold, there))
    proposals = write_proposals(list(there.values()), groups, out)
    summary = write_outcome(out, one, other, outcome, before=before, landmarks=landmarks)
    return summary and replace(summary, taxonomy=proposals)


def read_inputs(
    clusters: Path, *, clean: Path | None = None, classes: Sequence[Path] | None = None, taxonomy: Path | None = None
) -> tuple[list[ReviewLabel], list[Group]]:
    """The labels and groups of the page; see :func:`serve_review` for the files.

    Raises:
        ConfigurationError: there is no ``clean.parquet`` beside ``clusters``, and none is named.
        InputError: a file cannot be read, or there is no label.
    """
    clean = clean_beside(clusters) if clean is None else clean
    classes = sorted(clusters.parent.glob("*.classes.parquet")) if classes is None else classes
    labels = review_labels(
        read_table(clusters, CLUSTERS), read_table(clean, CLEAN), [read_table(path, CLASSES) for path in classes]
    )
    if not labels:
        raise InputError(f"{clusters}: no labels to review")
    return labels, read_taxonomy(annotation_file("taxonomy.csv") if taxonomy is None else taxonomy)


def serve(
    labels: Iterable[ReviewLabel],
    groups: Sequence[Group],
    store: Path,
    annotator: str,
    config: ServerConfig,
    *,
    started: Callable[[str], None],
    begun: Iterable[Decision] = (),
) -> None:
    """Serve a page of labels until told to stop; see :func:`serve_review`."""
    token = secrets.token_urlsafe(24)
    with _listening(config) as listener, open_store(store, annotator) as opened:
        desk = ReviewSession(labels, groups, opened)
        desk.start_from(begun)
        app = review_app(desk, token, names=[config.host])
        settings = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        server = _Server(settings, lambda: started(_address(config.host, listener, token)))
        with _stopped_by_signals():
            server.run(sockets=[listener])


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let the server stop well: uvicorn repeats the signal that stopped it, which would end the process at once."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """Says when it answers."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell()


def _listening(config: ServerConfig) -> socket.socket:
    try:
        family = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"cannot serve at {config.host}, port {config.port} ({error}); choose another --port, or 0 for a free one"
        ) from error


def _address(host: str, listener: socket.socket, token: str) -> str:
    port = listener.getsockname()[1]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={token}"
