"""A command that serves the review page, as tests start, use and stop it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, build_opener

from hgld.pages.access import PageKeys
from hgld.pages.server import page_server
from hgld.review.labels import find_inputs, review_labels
from hgld.review.page.app import review_app
from hgld.review.page.render import References
from hgld.review.page.serve import open_references
from hgld.review.session import ReviewSession
from hgld.review.store import open_store
from tests.review.page.clients import REFERENCES


class Server:
    """A command that serves the page, in a process of its own.

    Attributes:
        home: Address of the page without a key.
        address: Address that admits one browser.

    Args:
        arguments: Command of hgld and its arguments.
        prefix: Command that runs it, such as one that mounts a file system.
    """

    def __init__(self, arguments: list[str], prefix: Sequence[str] = ()) -> None:
        command = [*prefix, sys.executable, "-c", "from hgld.cli import app; app()", *arguments]
        self.process = subprocess.Popen([*command, "--no-open"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._output = self.process.stdout
        self._opener = build_opener(HTTPCookieProcessor())
        first = self._output.readline().strip()
        assert first.startswith("http://127.0.0.1:"), first + self._output.read()
        self.home = first.partition("open?key=")[0]
        self._exchange(first)
        assert "works once" in self._output.readline()
        self.address = self._output.readline().split()[-1]

    def _exchange(self, address: str) -> None:
        """Use the key in an address for the requests of this class."""
        self._opener.open(self.home + "open", urlsplit(address).query.encode()).close()

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.wait(15)
        self._output.close()

    def get(self, path: str) -> str:
        """Return a page."""
        with self._opener.open(self.home + path) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **fields: str) -> None:
        """Send a form from another browser."""
        self._opener.open(self.home + path, urlencode(fields).encode()).close()


class ServedSession:
    """The page of a session in a thread of the test, which starts sooner than a command.

    Attributes:
        home: Address of the page without a key.
        address: Address that admits one browser.

    Args:
        session: Session to serve.
        references: What the page shows besides.
    """

    def __init__(self, session: ReviewSession, references: References = REFERENCES) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.home = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        keys = PageKeys()
        self.app = review_app(session, references, keys)
        self._server = page_server(self.app)
        self._thread = threading.Thread(target=self._server.run, args=[[self._listener]])
        self._thread.start()
        self.cookies = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self.cookies))
        self._opener.open(f"{self.home}open", urlencode({"key": keys.key}).encode()).close()
        self.address = f"{self.home}open?key={keys.key}"

    def get(self, path: str) -> str:
        """Return a page."""
        with self._opener.open(self.home + path) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **fields: str) -> None:
        """Send a form from another browser."""
        self._opener.open(self.home + path, urlencode(fields).encode()).close()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(15)
        self._listener.close()


@contextmanager
def serve_clusters(clusters: Path, images: Path | None = None) -> Iterator[ServedSession]:
    """Serve the review of a ``clusters`` table, as the command does, in a thread of the test."""
    inputs = find_inputs(clusters)
    tables = inputs.read_tables()
    with open_store(clusters.parent / "review" / "ada.sqlite", "ada") as store:
        session = ReviewSession(review_labels(*tables), inputs.read_groups(), store)
        served = ServedSession(session, open_references(inputs, tables, images))
        try:
            yield served
        finally:
            served.stop()
