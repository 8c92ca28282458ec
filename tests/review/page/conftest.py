"""The page of a session for each test: a module chooses its labels and groups by ``LABELS`` and ``GROUPS``."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from starlette.testclient import TestClient

from hgld.review.session import ReviewSession
from tests.review.page.page_server import ServedSession, open_client, serve
from tests.review.page.tab import Tab, open_tab


@pytest.fixture
def client(session: ReviewSession) -> TestClient:
    """A browser without a screen that has opened the printed address."""
    return open_client(session)


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServedSession]:
    with serve(tmp_path, request.module.LABELS, getattr(request.module, "GROUPS", None)) as served:
        yield served


@pytest.fixture
def tab(request: pytest.FixtureRequest, browser: Chrome, server: ServedSession) -> Iterator[Tab]:
    """A tab with the page; a module names the errors that are expected in its log by ``EXPECTED_ERRORS``."""
    with open_tab(browser, server.address, getattr(request.module, "EXPECTED_ERRORS", ())) as opened:
        yield opened
