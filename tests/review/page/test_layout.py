"""The page on screens of every size, from a desktop to a window at 400 % zoom, in a browser."""

from collections.abc import Callable, Iterator

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.remote.webelement import WebElement

from tests.review.conftest import Label
from tests.review.page.page_server import ServedSession, made, serve
from tests.review.page.screens import BROKEN_WORDS, PHONE, SCREENS, SMALL_PHONE, ZOOMED, Screen, shown_on
from tests.review.page.tab import Tab, open_tab, wait_for

LONG = "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenfabrik " + "with a very long name " * 6
LABELS = made(
    Label("Q1", LONG, 1, 1, train=5, group="government building"),
    Label("Q2", "湖 بحيرة", 1, 1, train=4, group="lake"),
    Label("Q3", "unincorporated area", 1, 1, train=3, group="rail transportation", score=0.9),
    *(Label(f"Q{n}", f"label {n}", 1, 2, group="lake") for n in range(4, 24)),
)
#: Buttons that must be within reach on every screen.
PRIMARY = ("[value=accept]", "[data-action=find-group]", "[value=drop]", "[value=unsure]", "#undo button")

#: The text spacing that WCAG 2.2 (1.4.12) asks pages to bear.
SPACING = """
document.adoptedStyleSheets = [new CSSStyleSheet()];
document.adoptedStyleSheets[0].replaceSync(`* { line-height: 1.5 !important; letter-spacing: .12em !important;
  word-spacing: .16em !important; }`);
"""
#: Whether the middle of an element is on the screen, and nothing else covers it.
REACHED = """
const {left, top, width, height} = arguments[0].getBoundingClientRect();
return arguments[0].contains(document.elementFromPoint(left + width / 2, top + height / 2));
"""
SMALL_TARGETS = """
return [...document.querySelectorAll("button, summary, select, input:not([type=checkbox], [type=hidden])")]
  .filter(element => element.checkVisibility() && !element.closest("#group-list"))
  .filter(element => element.getBoundingClientRect().height < arguments[0])
  .map(element => element.outerHTML);
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, browser: Chrome) -> Iterator[ServedSession]:
    with serve(tmp_path_factory.mktemp("layout"), LABELS) as served:
        browser.get(served.address)
        yield served


# The others are slow for their number alone.
@pytest.fixture(
    params=[screen if screen is PHONE else pytest.param(screen, marks=pytest.mark.slow) for screen in SCREENS],
    ids=str,
)
def screen(request: pytest.FixtureRequest) -> Screen:
    found: Screen = request.param
    return found


@pytest.fixture
def tab(browser: Chrome, server: ServedSession, screen: Screen) -> Iterator[Tab]:
    with open_tab(browser, server.home) as opened, shown_on(browser, screen):  # this tab only
        opened.go_to(server.home + "?label=Q1")
        yield opened


def tap(tab: Tab, element: WebElement) -> None:
    """Touch an element in its middle, which must be on the screen."""
    assert tab.browser.execute_script(REACHED, element), element.get_attribute("outerHTML")
    finger = PointerInput("touch", "finger")  # type: ignore[no-untyped-call]
    actions = ActionBuilder(tab.browser, mouse=finger)
    actions.pointer_action.move_to(element).pointer_down().pointer_up()  # type: ignore[no-untyped-call]
    actions.perform()


@pytest.mark.slow
def test_decisions_by_touch(tab: Tab, screen: Screen) -> None:
    decided = dict(tab.decided_kinds)
    assert decided["Q1"] == decided["Q2"] == ""
    for selector in PRIMARY:
        assert tab.browser.execute_script(REACHED, tab.find(f"#actions {selector}")), selector
    tap(tab, tab.find("#actions [value=drop]"))
    wait_for(lambda: (tab.decided_kinds["Q1"], tab.current), ("drop", "Q2"))
    tap(tab, tab.find("#actions [data-action=find-group]"))
    wait_for(lambda: tab.browser.execute_script("return document.activeElement.type"), "search")
    tab.press("muse")
    wait_for(lambda: tab.texts("#group-list li:not([hidden]) button")[0].split()[-1], "museum")
    tap(tab, tab.find("#group-list li.active button"))
    wait_for(lambda: tab.decided_kinds["Q2"], "group")
    for left in ("Q2", "Q1"):
        tap(tab, tab.find("#undo button"))
        wait_for(lambda left=left: tab.decided_kinds[left], "")  # type: ignore[misc]
    assert tab.decided_kinds == decided


@pytest.mark.slow
def test_decisions_by_keyboard_without_keys_of_one_character(tab: Tab) -> None:
    tab.press(Keys.TAB)
    focused = "return document.activeElement.matches(arguments[0])"
    for _ in range(60):
        if tab.browser.execute_script(focused, "#actions [value=drop]"):
            break
        tab.press(Keys.TAB)
    assert tab.browser.execute_script(focused, "#actions [value=drop]"), "within 60 steps of the current row"
    assert tab.browser.execute_script(REACHED, tab.find("#actions [value=drop]"))
    tab.press(Keys.ENTER)
    wait_for(lambda: tab.decided_kinds["Q1"], "drop")
    tab.browser.execute_script("document.querySelector('#undo button').focus()")
    tab.press(Keys.ENTER)
    wait_for(lambda: tab.decided_kinds["Q1"], "")


def test_nothing_is_cut_off_and_everything_can_be_hit(tab: Tab, screen: Screen) -> None:
    size = "const page = document.documentElement; return [page.scrollWidth, document.body.scrollWidth]"
    assert max(tab.browser.execute_script(size)) <= screen.width
    assert tab.browser.execute_script(SMALL_TARGETS, 44 if screen.touch else 24) == []
    tab.browser.execute_script(SPACING)
    assert max(tab.browser.execute_script(size)) <= screen.width
    for selector in PRIMARY:
        assert tab.browser.execute_script(REACHED, tab.find(f"#actions {selector}")), selector


@pytest.mark.slow
@pytest.mark.parametrize("screen", [PHONE, SMALL_PHONE, ZOOMED], ids=str, indirect=True)
def test_words_are_not_broken(tab: Tab) -> None:
    assert tab.browser.execute_script(BROKEN_WORDS) == []
    for drawer in ("clusters", "cluster-menus", "more-actions", "tools"):
        tab.browser.execute_script("document.getElementById(arguments[0]).showPopover()", drawer)
        tab.browser.execute_script("for (const panel of document.querySelectorAll('details')) panel.open = true")
        assert tab.browser.execute_script(BROKEN_WORDS) == [], drawer
    tab.browser.execute_script("document.querySelector(':popover-open').hidePopover()")
    tab.press("j", "j", "u")
    wait_for(lambda: tab.decided_kinds["Q3"], "unsure")
    assert tab.browser.execute_script(BROKEN_WORDS) == []
    tab.press("z")
    wait_for(lambda: tab.decided_kinds["Q3"], "")


@pytest.mark.slow
@pytest.mark.parametrize("screen", [PHONE], ids=str, indirect=True)
def test_drawer_closes_once_something_is_chosen_in_it(tab: Tab) -> None:
    drawer = tab.find("#clusters")
    choices: list[Callable[[], None]] = [
        lambda: tap(tab, tab.find("#clusters a[data-cluster]")),
        lambda: tab.find("#clusters input[type=search]").send_keys("label", Keys.ENTER),
    ]
    for choose in choices:
        assert not drawer.is_displayed()
        tap(tab, tab.find("[popovertarget=clusters]"))
        assert drawer.is_displayed()
        choose()
        wait_for(drawer.is_displayed, False)


@pytest.mark.slow
@pytest.mark.parametrize("screen", [PHONE, ZOOMED], ids=str, indirect=True)
def test_sheet_folds_by_button_and_key(tab: Tab, screen: Screen) -> None:
    comment, toggle = tab.find(".note input[name=comment]"), tab.find("#sheet-toggle")
    unfolded = screen != ZOOMED
    folds: list[Callable[[], None]] = [lambda: tap(tab, toggle), lambda: tab.press("o"), lambda: tab.press("o")]
    for fold in folds:
        assert comment.is_displayed() == unfolded
        assert toggle.get_attribute("aria-expanded") == str(unfolded).lower()
        fold()
        unfolded = not unfolded
    if comment.is_displayed():
        tab.press("o")
    tab.press("c")
    assert comment == tab.browser.switch_to.active_element, "a key that leads into the sheet unfolds it"
