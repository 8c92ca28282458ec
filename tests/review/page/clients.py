"""Browsers without a screen, for tests of the page in the test's own process."""

from __future__ import annotations

from starlette.testclient import TestClient

from hgld.review.page.app import review_app
from hgld.review.page.keys import PageKeys
from hgld.review.photographs import LabelPhotographs
from hgld.review.session import ReviewSession

HOME = "http://127.0.0.1:8000"


def open_client(
    session: ReviewSession, keys: PageKeys | None = None, *, photographs: LabelPhotographs | None = None
) -> TestClient:
    """Return a browser that has used the printed address of a session."""
    keys = keys or PageKeys()
    client = TestClient(review_app(session, keys, photographs=photographs), base_url=HOME)
    client.post("/open", data={"key": keys.key})
    return client
