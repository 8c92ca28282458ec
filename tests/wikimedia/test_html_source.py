"""Responses to page requests, and what they may say about a landmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hgld.errors import SourceError
from hgld.wikimedia.client import HtmlResponse
from hgld.wikimedia.html_source import PAGE, HtmlSource, ParsedPage

#: What MediaWiki 1.39 answers to the header Promise-Non-Write-API-Action outside its API.
REFUSED = "Promise-Non-Write-API-Action HTTP header cannot be sent to non-API modules."
MISSING = '<h1 id="firstHeading">X</h1><div id="mw-content-text"><div class="noarticletext"></div></div>'
BAD_TITLE = '<h1 id="firstHeading">Bad title</h1><div id="mw-content-text">Illegal characters</div>'
FOUND = '<h1 id="firstHeading">Category:X</h1><div id="mw-content-text"></div>'


class CannedClient:
    """Gives each request the same response."""

    def __init__(self, status: int, html: str) -> None:
        self.response = HtmlResponse("http://wiki/Category:X", status, html)

    def page(self, title: str, read: Callable[[HtmlResponse], Any]) -> Any:
        return read(self.response)


def fetch(status: int, html: str) -> ParsedPage:
    page = HtmlSource(CannedClient(status, html)).fetch(PAGE, ["Category:X"])["Category:X"]  # type: ignore[arg-type]
    assert isinstance(page, ParsedPage)
    return page


@pytest.mark.parametrize(
    ("status", "html", "expected"),
    [
        (200, FOUND, "found"),
        (200, MISSING, "missing"),
        (404, MISSING, "missing"),
        (400, BAD_TITLE, "invalid_title"),
        (404, BAD_TITLE, "invalid_title"),  # MediaWiki 1.39
    ],
)
def test_status_of_a_landmark_is_what_the_page_says(status: int, html: str, expected: str) -> None:
    assert fetch(status, html).status == expected


@pytest.mark.parametrize(
    ("status", "html"),
    [
        (400, f"<html><body>{REFUSED}</body></html>"),
        (400, REFUSED),
        (400, MISSING),
        (400, FOUND),
        (404, "<html><body><h1>404 Not Found</h1>nginx</body></html>"),
        (404, FOUND),
    ],
)
def test_errors_of_proxies_and_refused_requests_are_no_status_of_a_landmark(status: int, html: str) -> None:
    with pytest.raises(SourceError, match=f"http://wiki/Category:X answered {status} for another reason") as caught:
        fetch(status, html)
    if REFUSED in html:
        assert REFUSED in str(caught.value)


@pytest.mark.parametrize("html", ["", "<html><body>Welcome to the hotel</body></html>", BAD_TITLE])
def test_other_pages_with_status_200_are_transient_failures(html: str) -> None:
    with pytest.raises(ValueError, match="page of MediaWiki"):
        fetch(200, html)
