"""The review page as tests start, use and stop it: in their process, in a thread of it, or served by the command."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, build_opener

from starlette.testclient import TestClient

from hgld.pages.server import PageKeys, page_server
from hgld.resources import annotation_file
from hgld.review.labels import FactBook, ReviewLabel, review_labels
from hgld.review.page.app import review_app
from hgld.review.page.render import References
from hgld.review.session import ReviewSession
from hgld.review.store import open_store
from hgld.taxonomy.groups import Group, read_taxonomy
from tests.review.conftest import Label, clean_table, clusters_table

HOME = "http://127.0.0.1:8000"
#: Headers by which the page's script asks for changed parts.
FROM_SCRIPT = {"accept": "application/json"}
#: The guideline that comes with hgld, and no facts about labels.
REFERENCES = References(FactBook(clean_table([])), annotation_file("guideline.md"))


def open_client(
    session: ReviewSession, keys: PageKeys | None = None, *, references: References = REFERENCES
) -> TestClient:
    """Return a browser without a screen that has used the printed address of a session."""
    keys = keys or PageKeys()
    client = TestClient(review_app(session, references, keys), base_url=HOME)
    client.post("/open", data={"key": keys.key})
    return client


def seen(page: str, label_id: str) -> str:
    """Return what forms of a page send for a label."""
    (value,) = set(re.findall(rf'name="label" value="([^"]*:{label_id})"', page))
    return str(value)


def made(*labels: Label) -> list[ReviewLabel]:
    return review_labels(clusters_table(labels), clean_table(labels))


class _Page:
    """A served page, with a browser without a screen that it admits.

    Attributes:
        home: Address of the page without a key.
        address: Address that admits one browser.
    """

    def __init__(self, home: str) -> None:
        self.home = self.address = home
        self.cookies = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self.cookies))

    def get(self, path: str) -> str:
        with self._opener.open(self.home + path) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **fields: str) -> None:
        self._opener.open(self.home + path, urlencode(fields).encode()).close()


class Server(_Page):
    """A command that serves the page, in a process of its own.

    Args:
        arguments: Command of hgld and its arguments.
        prefix: Command that runs it, such as one that mounts a file system.
    """

    def __init__(self, arguments: list[str], prefix: Sequence[str] = ()) -> None:
        command = [*prefix, sys.executable, "-c", "from hgld.cli import app; app()", *arguments]
        self.process = subprocess.Popen([*command, "--no-open"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._output = self.process.stdout
        first = self._output.readline().strip()
        assert first.startswith("http://127.0.0.1:"), first + self._output.read()
        super().__init__(first.partition("open?key=")[0])
        self._opener.open(self.home + "open", urlsplit(first).query.encode()).close()
        assert "works once" in self._output.readline()
        self.address = self._output.readline().split()[-1]

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.wait(15)
        self._output.close()


class ServedSession(_Page):
    """The page of a session in a thread of the test, which starts sooner than a command."""

    def __init__(self, session: ReviewSession, references: References = REFERENCES) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        super().__init__(f"http://127.0.0.1:{self._listener.getsockname()[1]}/")
        keys = PageKeys()
        self.app = review_app(session, references, keys)
        self._server = page_server(self.app)
        self._thread = threading.Thread(target=self._server.run, args=[[self._listener]])
        self._thread.start()
        self.post("open", key=keys.key)
        self.address = f"{self.home}open?key={keys.key}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(15)
        self._listener.close()


@contextmanager
def serve(
    folder: Path,
    labels: Sequence[ReviewLabel],
    groups: Sequence[Group] | None = None,
    references: References = REFERENCES,
    group_problems: Mapping[str, str] | None = None,
) -> Iterator[ServedSession]:
    """Serve the review of labels in a thread of the test, by default with the groups that come with hgld."""
    groups = read_taxonomy(annotation_file("taxonomy.csv")) if groups is None else groups
    with open_store(folder / "ada.sqlite", "ada") as store:
        served = ServedSession(ReviewSession(labels, groups, store, group_problems=group_problems), references)
        try:
            yield served
        finally:
            served.stop()
