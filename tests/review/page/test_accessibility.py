"""What axe-core finds on the pages of a review: nothing, whatever is open, with script and without, on the largest
and the smallest screens."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from selenium.webdriver import Chrome

from hgld.review.decision_files import with_opinions
from hgld.review.labels import FactBook
from tests.assertions import not_none
from tests.axe import violations
from tests.review.conftest import Label, clean_table, decide
from tests.review.page.page_server import REFERENCES, ServedSession, made, serve
from tests.review.page.screens import BROKEN_WORDS, DESKTOP, PHONE, SMALL_PHONE, ZOOMED, Screen, no_script, shown_on
from tests.review.page.tab import wait_for

LABELS = (
    Label("Q1", "lake", 1, 1, train=5, group="lake"),
    Label("Q2", "a label " + 24 * "that is long ", 1, 1, train=4, group="government building"),
    Label("Q3", "湖 بحيرة", 1, 2, train=3),
    Label("Q4", "chapel", 2, 3, train=1, group="church"),
)

#: What is open on the page: a script that opens it, if it is not open already.
OPEN = {
    "nothing": "",
    "search": "search.focus(); search.value = 'par'; search.dispatchEvent(new Event('input'))",
    "history": "reveal('#history-panel')",
    "keys": "reveal('#help')",
    "rename": "reveal('#rename-cluster')",
    "split": "reveal('#split')",
    "merge": "reveal('#merge')",
    "add a group": "reveal('#propose-group')",
    "clusters": "drawer('clusters')",
    "menu": "drawer('tools')",
    "more actions": "drawer('more-actions')",
    "folded sheet": "if (toggle.checkVisibility()) toggle.click()",
}
_HELPERS = """
const search = document.querySelector("#search input[type=search]"), toggle = document.querySelector("#sheet-toggle");
const drawer = id => {
  const button = document.querySelector(`[popovertarget=${id}]`);
  if (button.checkVisibility()) button.click();
};
const reveal = selector => {
  const panel = document.querySelector(selector), inside = panel.closest("[popover]");
  if (inside) drawer(inside.id);
  panel.open = true;
};
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, browser: Chrome) -> Iterator[ServedSession]:
    references = replace(REFERENCES, facts=FactBook(clean_table(LABELS)))
    with serve(tmp_path_factory.mktemp("review"), made(*LABELS), references=references) as served:
        served.post("decide", choose="drop", focus="0:Q3", comment="why")
        browser.get(served.address)
        yield served


@pytest.fixture(scope="module")
def adjudication(tmp_path_factory: pytest.TempPathFactory, browser: Chrome) -> Iterator[ServedSession]:
    opinions = [decide("ada", "- lake lake - lake"), decide("ben", "- river river - river")]
    labels = with_opinions(made(*LABELS), opinions, {"Q1", "Q2", "Q4"})
    with serve(tmp_path_factory.mktemp("adjudication"), labels) as served:
        browser.get(served.address)
        yield served


#: Screens on which the sheet with the current label is open from the start.
WITH_OPEN_SHEET = [DESKTOP, SMALL_PHONE]


@pytest.fixture(params=[DESKTOP, ZOOMED], ids=str)
def screen(request: pytest.FixtureRequest, browser: Chrome) -> Iterator[Screen]:
    with shown_on(browser, request.param):
        yield request.param


@pytest.mark.parametrize("screen", [PHONE], ids=str, indirect=True)
def test_page_on_a_phone(browser: Chrome, server: ServedSession, screen: Screen) -> None:
    browser.get(server.home)
    assert violations(browser) == []


@pytest.mark.slow
@pytest.mark.parametrize("screen", WITH_OPEN_SHEET, ids=str, indirect=True)
def test_page_with_whatever_is_open(browser: Chrome, server: ServedSession, screen: Screen) -> None:
    found = {}
    for name, script in OPEN.items():
        browser.get(server.home)
        browser.execute_script(_HELPERS + script)
        found[name] = violations(browser)
    assert found == {name: [] for name in OPEN}


@pytest.mark.slow
def test_adjudication(browser: Chrome, adjudication: ServedSession, screen: Screen) -> None:
    browser.get(adjudication.home)
    assert violations(browser) == []


@pytest.mark.slow
def test_page_without_script(browser: Chrome, server: ServedSession, screen: Screen) -> None:
    with no_script(browser):
        browser.get(server.home + "?cluster=2")
    assert violations(browser) == []


def change_meanwhile(server: ServedSession) -> None:
    row = not_none(re.search(r'data-label="Q3" data-version="(\d+)" data-decision="(\w*)"', server.get("?label=Q3")))
    server.post("decide", choose="group:lake" if row[2] == "drop" else "drop", focus=f"{row[1]}:Q3")


@pytest.mark.slow
def test_changes_that_were_not_saved(browser: Chrome, server: ServedSession, screen: Screen) -> None:
    page = server.home + "?label=Q3"
    with no_script(browser):
        browser.get(page)
        browser.find_element("css selector", "#redo button").submit()
        wait_for(lambda: "There is nothing to redo." in browser.page_source, True)
    assert violations(browser) == []
    with no_script(browser):
        browser.get(page)
        change_meanwhile(server)
        browser.find_element("css selector", "#actions [value=unsure]").click()
        wait_for(lambda: "changed in another tab" in browser.page_source, True)
    assert violations(browser) == []
    browser.get(page)
    browser.execute_script("Object.defineProperty(document, 'hidden', { get: () => true })")  # it does not look again
    change_meanwhile(server)
    browser.find_element("css selector", "#actions [value=unsure]").click()
    wait_for(lambda: browser.find_element("id", "conflict").is_displayed(), True)
    assert violations(browser) == []
    browser.execute_script("document.querySelector('#conflict td').textContent = 'reservoir'")
    assert browser.execute_script(BROKEN_WORDS) == []


@pytest.mark.slow
@pytest.mark.parametrize("screen", WITH_OPEN_SHEET, ids=str, indirect=True)
def test_pages_to_read(browser: Chrome, server: ServedSession, screen: Screen) -> None:
    for path in ("guideline", "landmarks?label=Q1"):
        browser.get(server.home + path)
        assert violations(browser) == []
    browser.get(server.home)
    browser.find_element("css selector", "#card a[data-dialog]").send_keys("\n")
    wait_for(lambda: browser.find_element("css selector", "dialog.reading").is_displayed(), True)
    assert violations(browser) == []


@pytest.mark.slow
def test_page_for_refused_browsers(browser: Chrome, server: ServedSession, screen: Screen) -> None:
    browser.get(server.home.replace("127.0.0.1", "localhost"))
    assert "Refused" in browser.title
    assert violations(browser) == []
