"""Serve the page of a review session until the process is told to stop."""

from __future__ import annotations

import hashlib
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from hgld.errors import ConfigurationError
from hgld.labels.suggest import SuggestionFiles
from hgld.review.page.access import OPEN_PATH
from hgld.review.page.app import review_app
from hgld.review.page.connections import LimitedConnection
from hgld.review.page.keys import PageKeys
from hgld.review.page.limits import MAX_HEADER_BYTES
from hgld.review.re_estimation import ReEstimation
from hgld.review.references import References
from hgld.review.review_labels import ReviewLabel
from hgld.review.session import ReviewSession
from hgld.review.store import open_store
from hgld.review.table_changes import log_table_changes
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group

#: Time that open connections get when the server is stopped, in seconds.
_GRACE_PERIOD_S = 2
#: Estimates go on at each of so many ticks of the server, of which there are ten in a second.
_TICKS_PER_STEP = 5


@dataclass(frozen=True)
class ServerConfig:
    """Address at which the page is served.

    Args:
        host: Host name or address to listen at.
        port: Port; 0 for a free one, which is the same for the same store if possible.
    """

    host: str = "127.0.0.1"
    port: int = 0


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
    group_notes: Mapping[str, str] | None = None,
    blind: bool = False,
    suggestion_files: SuggestionFiles | None = None,
) -> None:
    """Serve the page of a session until SIGINT or SIGTERM.

    Args:
        labels: Labels in the order of the page.
        groups: Groups of the taxonomy.
        store: Event store of the annotator; created if it does not exist.
        annotator: Name of the annotator.
        config: Where to serve.
        references: What the page shows besides.
        on_address: Called with an address that admits one browser to the page, once the server answers, and with the
            address for the next browser as soon as one was used.
        decisions: Decisions to start from, for labels that were never touched in the store.
        changed_groups: Groups that these decisions refer to, for groups that were never touched in the store.
        group_notes: What to know about groups, by key.
        blind: Whether to hide suggestions and to record decisions as blind.
        suggestion_files: What suggestions are made from, to estimate them again while one decides; by default they
            stay as they are.

    Raises:
        BusyError: Another process has the store open.
        ConfigurationError: The store belongs to another annotator or cannot be written, or the port is not available.
        InputError: The store cannot be read.
    """
    keys = PageKeys()
    with _listen(config, store) as listener, open_store(store, annotator) as event_store:
        session = ReviewSession(labels, groups, event_store, group_notes=group_notes, blind=blind)
        session.import_decisions(decisions, changed_groups)
        if not session.adjudicating:
            log_table_changes(session)
        app = review_app(session, references, keys, host_names=[config.host])

        def announce(key: str) -> None:
            on_address(_address(config.host, listener, key))

        keys.on_new_key = announce
        estimation = None if suggestion_files is None else ReEstimation(session, suggestion_files)
        with _ignore_repeated_signals(), closing(estimation) if estimation else nullcontext():
            page_server(app, lambda: announce(keys.key), estimation).run(sockets=[listener])


def page_server(app: ASGIApp, on_start: Callable[[], None], estimation: ReEstimation | None = None) -> uvicorn.Server:
    """Return a server for the page, which logs only faults of its own.

    Args:
        app: Application of the page.
        on_start: Called once the server answers.
        estimation: Estimates of suggestions that go on between requests.
    """
    config = uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",
        log_config=None,
        log_level="error",  # clients that send no valid HTTP are warnings
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=2 * MAX_HEADER_BYTES,
        timeout_graceful_shutdown=_GRACE_PERIOD_S,
    )
    return _Server(config, on_start, estimation)


@contextmanager
def _ignore_repeated_signals() -> Iterator[None]:
    """Ignore the signal that stopped uvicorn, which it raises again at its end and which would end the process."""
    handlers = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """A server that reports when it answers, and goes on with the estimates of suggestions between requests."""

    def __init__(
        self, config: uvicorn.Config, on_start: Callable[[], None], estimation: ReEstimation | None = None
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._estimation = estimation

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        if self._estimation is not None and counter % _TICKS_PER_STEP == 0:
            self._estimation.step()
        return await super().on_tick(counter)


def _listen(config: ServerConfig, store: Path) -> socket.socket:
    """Listen at the port that was asked for; at the usual one of the store, if it is free, when any will do."""
    if config.port == 0:
        with suppress(ConfigurationError):
            return _listen(replace(config, port=_usual_port(store)), store)
    try:
        family = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"cannot serve at {config.host}, port {config.port} ({error}); choose another `port`, or 0 for a free one"
        ) from error


def _usual_port(store: Path) -> int:
    """Return a port for a store, outside the range from which systems take free ones.

    A page that is open when the server is started again goes on at the same address, and what it could not save is
    kept by the browser for this address.
    """
    digest = hashlib.sha256(str(store.absolute()).encode(errors="replace")).digest()
    return 20_000 + int.from_bytes(digest[:4], "big") % 12_000


def _address(host: str, listener: socket.socket, key: str) -> str:
    port = listener.getsockname()[1]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{OPEN_PATH}?key={key}"
