"""The page with a tree of three levels, in a browser: groups by their paths, and labels above the leaves."""

import pytest
from selenium.webdriver import Keys
from selenium.webdriver.support.select import Select

from hgld.taxonomy.groups import Group
from tests.axe import violations
from tests.review.conftest import Label
from tests.review.page.page_server import ServedSession, made
from tests.review.page.screens import BROKEN_WORDS, DESKTOP, PHONE, SMALL_PHONE, Screen, shown_on
from tests.review.page.tab import Tab, wait_for

LEVELS = ("kind", "family", "milk")
LABELS = made(
    Label("Q1", "Gruyère AOP", 1, 1, train=5, group="Gruyère", score=0.9),
    Label("Q2", "alpine cheese", 1, 1, train=4, group="Comté", score=0.4),
    Label("Q3", "blue", 1, 1, train=3),
    Label("Q4", "cheese", 1, 1, train=2),
)
GROUPS = [
    Group("Gruyère", "cow", "Cooked and pressed.", between=("hard cow",), levels=LEVELS),
    Group("Comté", "cow", "", between=("hard cow",), levels=LEVELS),
    Group("Stilton", "cow", "", between=("blue cow",), levels=LEVELS),
    Group("Feta", "sheep", "", between=("Feta",), levels=LEVELS),
    Group("Roquefort", "sheep", "", between=("blue sheep",), levels=LEVELS),
]
SHOWN = "#groups .groups > li:not([hidden]) button"
EXPECTED_ERRORS = ["409"]


def entries(tab: Tab) -> list[str]:
    """Return the names in the list of groups, each with the names above it."""
    return [" | ".join(text.split("\n")) for text in tab.texts(SHOWN)]


def test_groups_are_shown_with_their_paths(tab: Tab) -> None:
    assert entries(tab) == [
        "cow | not known more exactly",
        "hard cow | cow, not known more exactly",
        "Gruyère | cow > hard cow",
        "Comté | cow > hard cow",
        "blue cow | cow, not known more exactly",
        "Stilton | cow > blue cow",
        "sheep | not known more exactly",
        "Feta | sheep",
        "blue sheep | sheep, not known more exactly",
        "Roquefort | sheep > blue sheep",
    ]
    assert not tab.browser.find_elements("css selector", "#groups i"), "initials of the roots tell nothing apart"
    assert tab.texts("#card ol .above") == ["cow > hard cow"]
    assert tab.texts(".row[data-label=Q1] .candidate .above") == ["cow > hard cow"]
    tab.press(Keys.ENTER)
    tab.wait_for_decisions(Q1="✓ Gruyèrecow > hard cow")
    tab.press("g")
    tab.press("blue")
    assert [entry.split(" | ")[0] for entry in entries(tab)] == ["blue cow", "blue sheep", "Stilton", "Roquefort"]
    tab.press(Keys.ESCAPE)
    tab.press("g")
    tab.press("o")
    found = [entry.split(" | ")[0] for entry in entries(tab)]
    assert found[:4] == ["Comté", "Stilton", "Roquefort", "cow"], "groups before the names above them"
    tab.press(Keys.ESCAPE)
    assert entries(tab)[2] == "Gruyère | cow > hard cow", "the order of the tree again"
    tab.click("#rename-group summary")
    options = [option.text for option in Select(tab.find("#rename-group select")).options]
    assert options == [
        "cow > hard cow > Gruyère",
        "cow > hard cow > Comté",
        "cow > blue cow > Stilton",
        "sheep > Feta",
        "sheep > blue sheep > Roquefort",
    ]


def test_choose_a_name_above_the_leaves_by_key_and_mouse(tab: Tab) -> None:
    tab.press("j", "j", "g")
    tab.press("blue", Keys.ENTER)
    tab.wait_for_decisions(Q3="✓ blue cowcow, not known more exactly")
    assert tab.texts("#message") == ["Blue: blue cow."]
    assert tab.current == "Q4", "the next undecided label"
    tab.click("#groups button[value='above:sheep']")
    both = {"Q3": "✓ blue cowcow, not known more exactly", "Q4": "✓ sheepnot known more exactly"}
    tab.wait_for_decisions(**both)
    assert len(entries(tab)) == 10, "each name is there once"
    tab.press("z")
    tab.wait_for_decisions(Q3=both["Q3"])
    tab.press("y")
    tab.wait_for_decisions(**both)
    tab.click(".row[data-label=Q2] .name")
    tab.press("g")
    tab.press("sheep")
    tab.press(Keys.ENTER, shift=True)
    tab.wait_for_decisions(**both, Q2="? unsure, perhaps sheepnot known more exactly")


def test_stale_choice_of_a_name_above_the_leaves_asks(tab: Tab, server: ServedSession) -> None:
    tab.browser.execute_script("Object.defineProperty(document, 'hidden', { get: () => true })")
    server.post("decide", choose="drop", focus="0:Q1")
    tab.click("#groups button[value='above:cow']")
    wait_for(lambda: tab.texts("#conflict .decision"), ["✕ drop", "✓ cow"])
    tab.click("#conflict form:last-child button")
    tab.wait_for_decisions(Q1="✓ cownot known more exactly")


def test_add_a_group_below_a_path(tab: Tab) -> None:
    tab.press("a")
    tab.press("Brocciu")
    parents = Select(tab.find("#propose-group select"))
    assert [option.text for option in parents.options] == [
        "cow", "cow > hard cow", "cow > blue cow", "sheep", "sheep > Feta", "sheep > blue sheep"
    ]  # fmt: skip
    parents.select_by_visible_text("sheep")
    tab.find("#propose-group [name=guideline]").send_keys("Of whey.", Keys.ENTER)
    wait_for(lambda: tab.texts("li[data-name=Brocciu] .above"), ["sheep"])
    assert entries(tab)[6:] == [
        "sheep | not known more exactly",
        "Feta | sheep",
        "blue sheep | sheep, not known more exactly",
        "Roquefort | sheep > blue sheep",
        "Brocciu | sheep",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("screen", [DESKTOP, PHONE, SMALL_PHONE], ids=str)
def test_paths_on_screens(tab: Tab, screen: Screen) -> None:
    tab.press(Keys.ENTER)
    tab.wait_for_decisions(Q1="✓ Gruyèrecow > hard cow")
    with shown_on(tab.browser, screen):
        tab.press("g")
        tab.press("blue")
        assert violations(tab.browser) == []
        assert tab.browser.execute_script(BROKEN_WORDS) == []
        width = tab.browser.execute_script("return document.documentElement.scrollWidth")
        assert width <= screen.width
