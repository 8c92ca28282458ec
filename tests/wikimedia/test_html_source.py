"""Category pages parsed from HTML, responses to page requests, and what they may say about a landmark."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hgld.errors import SourceError
from hgld.wikimedia.client import HtmlResponse
from hgld.wikimedia.html_source import PAGE, HtmlSource, ParsedPage, parse_page

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


def page(content: str, extra: str = "", **config: object) -> str:
    """A page of MediaWiki; its head has the configuration as MediaWiki writes it."""
    script = (
        f'<script>(function(){{}})();RLCONF={{"wgBreakFrames":!1,{json.dumps(config)[1:-1]}}};RLSTATE={{}};</script>'
    )
    return (
        f"<html><head>{script}</head>"
        '<body><h1 id="firstHeading"><span>Category</span><span>:</span><span>Edge</span></h1>'
        f"{extra}<div id='mw-content-text'>{content}</div></body></html>"
    )


def infobox(cell: str, header: str = "Instance of") -> str:
    edit = '<span class="wikidatainfobox-edit"><a href="https://www.wikidata.org/wiki/Q42">edit</a></span>'
    return page(
        f'<table id="wdinfobox"><tr><th>Location</th><td>Kent</td></tr><tr><th> {header}</th><td>{cell}</td></tr>'
        f"<tr><td>{edit}</td></tr></table>"
    )


def labels(cell: str) -> list[str]:
    values = parse_page(infobox(cell)).values
    assert values is not None
    return [label for _, label in values]


def test_single_value_and_list_of_values() -> None:
    assert labels("<ul><li>church</li><li><a href='/wiki/Category:Museums'>museum</a></li></ul>") == [
        "church",
        "museum",
    ]
    assert labels("<a href='/wiki/Category:Lakes'>lake</a>") == ["lake"]
    assert labels("<ul><li> </li></ul>") == []


def test_qualifiers_are_not_part_of_a_label() -> None:
    assert labels("<ul><li>church building (1172–1954)</li></ul>") == ["church building"]
    assert labels("<ul><li>hall (<a>King County (Washington)</a>)</li></ul>") == ["hall"]
    assert labels("<ul><li>shrine (Shinto) gate</li></ul>") == ["shrine (Shinto) gate"]


def test_item_is_read_where_the_page_shows_it() -> None:
    linked = '<li><a class="extiw" href="https://www.wikidata.org/wiki/Q16970">church</a></li><li>Q960000002</li>'
    parsed = parse_page(infobox(f"<ul>{linked}</ul>"))
    assert parsed.values == (("Q16970", "church"), ("Q960000002", "Q960000002"))
    assert (parsed.title, parsed.item) == ("Category:Edge", "Q42")


def test_row_in_another_language_is_ignored() -> None:
    assert parse_page(infobox("<ul><li>Kirche</li></ul>", header="Ist ein(e)")).values == ()


def test_pages_without_an_infobox_and_redirects() -> None:
    assert parse_page(page("")).values is None
    assert parse_page(page('<div id="category-redirect">nowhere</div>')).status == "redirect_unresolved"
    assert parse_page(page('<div class="redirectMsg"></div>')).status == "redirect_unresolved"
    assert parse_page(page("", '<span class="mw-redirectedfrom">(from)</span>')).redirected


CAFE = '<a href="/wiki/Category:Caf%C3%A9_Edge">x</a>'
OTHER = '<a href="/wiki/Category:Other">other</a>'


@pytest.mark.parametrize(
    "html",
    [
        page(f'<div id="category-redirect">{CAFE} {OTHER}</div>'),
        page(f'<div class="catredirect plainlinks">{CAFE} {OTHER}</div>'),
        page(
            f"<table class='movedbox'><tr><td>{CAFE}</td></tr></table>", wgCategories=["Hidden", "Category redirects"]
        ),
        page(f"<div>{CAFE}<a href='http://['>broken</a>{CAFE}</div>", wgCategories=["Non-empty category redirects"]),
        page(
            '<div class="catredirect"><a class="new" '
            'href="/w/index.php?title=Category:Caf%C3%A9_Edge&amp;action=edit&amp;redlink=1">x</a></div>'
        ),
    ],
)
def test_soft_redirect_is_recognised_by_several_signs(html: str) -> None:
    soft = parse_page(html)
    assert (soft.status, soft.soft_target) == ("found", "Category:Café Edge")


def test_soft_redirect_of_unknown_markup_with_several_links_names_no_page() -> None:
    html = page(f"<div>{CAFE} {OTHER}</div>", wgCategories=["Category redirects"])
    assert parse_page(html).status == "redirect_unresolved"
    assert parse_page(page(f"<div>{CAFE} {OTHER}</div>", wgCategories=["Edge"])).soft_target is None


BAD_TITLE_CLASSES = "mediawiki ns--1 ns-special mw-special-Badtitle page-Special_Badtitle"


@pytest.mark.parametrize(
    ("html", "status"),
    [
        (page("", wgNamespaceNumber=-1, wgCanonicalSpecialPageName="Badtitle"), "invalid_title"),
        (page("").replace("<body>", f'<body class="{BAD_TITLE_CLASSES}">'), "invalid_title"),
        (
            page("Invalid.").replace("<span>Category</span><span>:</span><span>Edge</span>", "Bad title"),
            "invalid_title",
        ),
        (page('<div class="noarticletext mw-content-ltr"><p>There is no text in this page.</p></div>'), "missing"),
        (page("<p>Diese Seite gibt es nicht.</p>", wgArticleId=0), "missing"),
        (page('<div class="noarticletext">There is no text.</div>', wgArticleId=7), "found"),
    ],
)
def test_status_is_read_from_several_signs(html: str, status: str) -> None:
    assert parse_page(html).status == status


@pytest.mark.parametrize(
    ("html", "message"),
    [
        ("", "not a page of MediaWiki"),
        ("<html><body><h1>Hotel guests: log in</h1></body></html>", "'Hotel guests: log in'"),
        ("Promise-Non-Write-API-Action was sent", "'Promise-Non-Write-API-Action was sent'"),
        (
            page("Please log in", wgCanonicalSpecialPageName="Userlogin"),
            "the special page Userlogin: .*Please log in",
        ),
    ],
)
def test_other_pages_are_refused_with_what_they_say(html: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_page(html)
