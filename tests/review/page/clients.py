"""Browsers without a screen, for tests of the page in the test's own process."""

from __future__ import annotations

from starlette.testclient import TestClient

from hgld.pages.access import PageKeys
from hgld.resources import annotation_file
from hgld.review.labels import FactBook
from hgld.review.page.app import review_app
from hgld.review.page.render import References
from hgld.review.session import ReviewSession
from tests.review.conftest import clean_table

HOME = "http://127.0.0.1:8000"
#: The guideline that comes with hgld, and no facts about labels.
REFERENCES = References(FactBook(clean_table([])), annotation_file("guideline.md"))


def open_client(
    session: ReviewSession, keys: PageKeys | None = None, *, references: References = REFERENCES
) -> TestClient:
    """Return a browser that has used the printed address of a session."""
    keys = keys or PageKeys()
    client = TestClient(review_app(session, references, keys), base_url=HOME)
    client.post("/open", data={"key": keys.key})
    return client
