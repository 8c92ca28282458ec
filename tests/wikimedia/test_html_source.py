"""Category pages parsed from HTML."""

from __future__ import annotations

from hgld.wikimedia.html_source import parse_page


def page(content: str, extra: str = "") -> str:
    return (
        '<html><body><h1 id="firstHeading"><span>Category</span><span>:</span><span>Edge</span></h1>'
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
    soft = parse_page(page('<div id="category-redirect"><a href="/wiki/Category:Caf%C3%A9_Edge">x</a></div>'))
    assert (soft.status, soft.soft_target) == ("found", "Category:Café Edge")
    assert parse_page(page('<div id="category-redirect">nowhere</div>')).status == "redirect_unresolved"
    assert parse_page(page('<div class="redirectMsg"></div>')).status == "redirect_unresolved"
    assert parse_page(page("", '<span class="mw-redirectedfrom">(from)</span>')).redirected
