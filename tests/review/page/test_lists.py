"""Lists of labels of all clusters on the page: over HTTP, and in a browser."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver import Keys
from starlette.testclient import TestClient

from hgld.review.page import render
from hgld.review.session import LabelAction, ReviewSession
from tests.assertions import not_none
from tests.review.conftest import Label
from tests.review.page.page_server import FROM_SCRIPT, ServedSession, made, serve
from tests.review.page.tab import Tab, wait_for
from tests.review.sessions import decide

#: Refused forms.
EXPECTED_ERRORS = ["400"]


def listed(page: str) -> str:
    """Return the numbers of the labels in the list."""
    return " ".join(re.findall(r'<li class="row[^"]*" data-label="Q(\d+)"', page))


def current(page: str) -> str:
    (focus,) = re.findall(r'name="focus" value="(?:[^":]*:)?([^"]*)"', page)
    return str(focus)


def fields(page: str) -> dict[str, str]:
    """Return the position that the forms of a page send."""
    names = ("at_view", "at_label")
    return {name: unescape(re.findall(rf'name="{name}" value="([^"]*)"', page)[0]) for name in names}


def test_list_is_in_the_address_and_decided_labels_stay_in_it(client: TestClient, session: ReviewSession) -> None:
    """Work through a queue without script: every decision leads to the next label of the same list."""
    decide(session, LabelAction("drop"), "Q2")
    address = "/?filter=undecided&order=landmarks"
    page = client.get(address).text
    assert (listed(page), current(page)) == ("5 4 3 1", "Q5")
    for label, following in (("Q5", "Q4"), ("Q4", "Q3")):
        answer = client.post("/decide", data={"choose": "drop", "focus": f"0:{label}", **fields(page)})
        page = answer.text
        assert (listed(page), current(page)) == ("5 4 3 1", following)
        query = parse_qs(urlsplit(str(answer.url)).query)
        assert (query["filter"], query["order"], query["label"]) == (["undecided"], ["landmarks"], [following])
    assert listed(client.get(str(answer.url)).text) == "5 4 3 1", "Back and reload show the same list"
    refresh = not_none(re.search(r'<a class="button" href="([^"]*)"[^>]*>Refresh', page))
    assert listed(client.get(unescape(refresh[1])).text) == "3 1"
    link = re.findall(r'<a class="name" href="([^"]*)"', page)[-1]
    page = client.get(unescape(link)).text
    assert (listed(page), current(page)) == ("5 4 3 1", "Q1"), "the link of a label stays in the list"


def test_filters_search_and_order_are_a_form(client: TestClient, session: ReviewSession) -> None:
    decide(session, LabelAction("unsure", "lake"), "Q4", "Q1")
    page = client.get("/?filter=unsure&group=lake&below=&q=&order=table").text
    assert listed(page) == "1 4"
    assert '<h2 dir="auto">Unsure, in lake</h2>' in page
    assert re.findall(r'name="filter" value="(\w+)" checked', page) == ["unsure"]
    assert '<option value="lake" selected>' in page
    sections = [unescape(text) for text in re.findall(r'<span dir="auto">(\d · [^<]*)</span>', page)]
    assert sections == ["1 · name 1", "2 · name 2"]
    assert listed(client.get("/?q=LABEL+3").text) == "3"
    assert re.findall(r'value="group:(\w+)"', client.get("/?groups=standing").text) == ["lake"]


def test_empty_list_decides_nothing(client: TestClient, session: ReviewSession) -> None:
    page = client.get("/?filter=dropped").text
    assert (listed(page), current(page)) == ("", "")
    assert "No label matches." in page
    answer = client.post("/decide", data={"choose": "drop", "focus": "", **fields(page)}, headers=FROM_SCRIPT)
    assert (answer.status_code, answer.json()["error"]) == (400, "no label is selected")
    assert client.post("/decide", data={"choose": "drop", "focus": "", **fields(page)}).status_code == 400


def test_long_list_is_shown_in_parts(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "_MAX_LISTED", 2)
    address = "/?order=landmarks"
    parts = []
    for _ in range(3):
        page = client.get(address).text
        places = dict(re.findall(r'<a class="button (before|after)" href="([^"]*)"', page))
        parts.append((listed(page), current(page), list(places)))
        address = unescape(str(places.get("after") or places["before"]))
    assert parts == [("5 4", "Q5", ["after"]), ("3 2", "Q3", ["before", "after"]), ("1", "Q1", ["before"])]
    assert listed(client.get(address).text) == "3 2"
    page = client.get(address).text
    assert page.count("Labels 3 to 4 of 5") == 2
    assert page.index("Labels 3 to 4 of 5") < page.index('<li class="row'), "before the rows, too"
    assert "Those after" not in client.get("/?cluster=1").text, "a cluster is always shown as a whole"


def test_history_says_when_it_is_cut(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "_MAX_HISTORY", 2)
    for number in range(1, 4):
        assert "steps.</p>" not in client.get("/").text
        client.post("/decide", data={"choose": "drop", "focus": f"0:Q{number}"})
    assert "<p>The last 2 of 3 steps.</p>" in client.get("/").text


def test_script_gets_rows_of_labels_that_no_longer_match(client: TestClient, session: ReviewSession) -> None:
    at = fields(client.get("/?filter=undecided&order=landmarks").text)
    form = at | {"choose": "drop", "focus": "0:Q5", "since": str(session.state.last_event)}
    update = client.post("/decide", data=form, headers=FROM_SCRIPT).json()
    assert list(update["rows"]) == ["Q5"]
    assert 'data-decision="drop"' in update["rows"]["Q5"]
    assert update["view"] == at["at_view"]
    everything = client.get("/changes", params=at | {"since": "-1"}).json()
    assert listed(everything["parts"]["list"]) == "5 4 3 2 1"


def test_undo_stays_in_the_list_if_the_label_is_there(client: TestClient, session: ReviewSession) -> None:
    decide(session, LabelAction("drop"), "Q2")
    at = fields(client.get("/?filter=undecided&order=landmarks").text)
    decide(session, LabelAction("drop"), "Q5")
    form = at | {"since": str(session.state.last_event)}
    update = client.post("/undo", data=form, headers=FROM_SCRIPT).json()
    assert (update["view"], update["label"]) == (at["at_view"], "Q5")
    update = client.post("/undo", data=form, headers=FROM_SCRIPT).json()
    assert (update["view"], update["label"]) == ("cluster=1", "Q2")
    assert listed(update["parts"]["list"]) == "1 2 3"


def test_views_are_links_with_their_numbers(client: TestClient, session: ReviewSession) -> None:
    decide(session, LabelAction("unsure"), "Q4", "Q1")
    page = client.get("/?filter=unsure").text
    links = re.findall(r'<a href="([^"]*)" data-view[^>]*><span class="view">([\w ]+).*?<small>(\d+)</small>', page)
    addresses = {title.strip(): (unescape(address), int(count)) for address, title, count in links}
    counts = {title: count for title, (_, count) in addresses.items()}
    assert counts == {"Queue": 3, "All labels": 5, "Unsure": 2}
    for address, count in addresses.values():
        assert len(listed(client.get(address).text).split()) == count
    assert 'data-view="filter=unsure&amp;order=table" aria-current=true' in page


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServedSession]:
    labels = made(
        Label("Q1", "lake", 1, 1, train=5, group="lake"),
        Label("Q2", "glacial lake", 1, 1, train=1, group="lake"),
        Label("Q3", "Église", 2, 2, train=4, group="church"),
        Label("Q4", "chapel", 2, 2, train=2, group="church"),
    )
    with serve(tmp_path, labels) as served:
        yield served


def rows(tab: Tab) -> list[str]:
    script = "return [...document.querySelectorAll('.row')].map(row => row.dataset.label)"
    label_ids: list[str] = tab.browser.execute_script(script)
    return label_ids


@pytest.mark.slow
def test_queue_by_key(tab: Tab) -> None:
    tab.press("f")
    wait_for(lambda: tab.find("#filters [name=q]").is_displayed(), True)
    tab.browser.execute_script("document.querySelector('#filters [value=undecided]').click()")
    tab.browser.execute_script("document.querySelector('#filters [name=order]').value = 'landmarks'")
    tab.click("#filters form button")
    wait_for(lambda: rows(tab), ["Q1", "Q3", "Q4", "Q2"])
    tab.press(Keys.ENTER)
    wait_for(lambda: (tab.current, tab.decided_kinds["Q1"]), ("Q3", "group"))
    assert rows(tab) == ["Q1", "Q3", "Q4", "Q2"], "the decided label stays"
    tab.press("d")
    wait_for(lambda: (tab.current, tab.decided_kinds["Q3"]), ("Q4", "drop"))
    tab.press("z")
    wait_for(lambda: (tab.current, tab.decided_kinds["Q3"]), ("Q3", ""))
    assert "filter=undecided" in tab.browser.current_url
    tab.press("w")
    wait_for(lambda: (rows(tab), tab.current), (["Q3", "Q4"], "Q3"))
    tab.browser.back()
    wait_for(lambda: rows(tab), ["Q1", "Q3", "Q4", "Q2"])
    tab.browser.refresh()
    wait_for(lambda: rows(tab), ["Q3", "Q4", "Q2"])
    tab.press("q")
    wait_for(lambda: tab.texts("#clusters [data-queue][aria-current] small"), ["3"])
    tab.press("u", "u", "u")
    wait_for(lambda: set(tab.decided_kinds.values()), {"unsure"})
    tab.press("n")
    wait_for(lambda: "All labels of this list are decided." in "".join(tab.texts("#message")), True)
    tab.press("v", "v")
    wait_for(lambda: tab.texts("#head h2"), ["Unsure"])


@pytest.mark.slow
def test_find_labels_by_key(tab: Tab) -> None:
    tab.press("f", shift=True)
    tab.press("eglise", Keys.ENTER)
    wait_for(lambda: rows(tab), ["Q3"])
    tab.press("d")
    wait_for(lambda: tab.decided_kinds, {"Q3": "drop"})
    tab.press("f", shift=True)
    tab.press("xyz", Keys.ENTER)
    wait_for(lambda: tab.texts("#list .empty"), ["No label matches."])
    for key in ("j", "x", "b", "n", "e", "d"):
        tab.press(key)
    assert tab.texts("#message") == ["No label is selected."]
    assert not tab.find("#unsaved").is_displayed(), "no request is kept"
    tab.press("]")
    wait_for(lambda: rows(tab), ["Q1", "Q2"])
