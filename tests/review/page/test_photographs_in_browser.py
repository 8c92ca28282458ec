"""Photographs beside the card in a browser: enlarged, in the dialog, fetched ahead, and without JavaScript."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys

from tests.axe import violations
from tests.review.conftest import Label
from tests.review.page.page_server import REFERENCES, ServedSession, made, serve
from tests.review.page.screens import no_script
from tests.review.page.tab import Tab, wait_for
from tests.review.photograph_files import jpeg, label_photographs

NASTY = """<img src=x onerror="document.title='broken'"> "b" 湖"""
#: The landmarks of the label at place n are 1000 n and following.
LABELS = (
    Label("Q1", "lake", 1, 1, train=8, group="lake"),
    Label("Q2", NASTY, 1, 1, train=2, group="lake"),
    Label("Q3", "pond", 1, 1, train=1),
)
COUNTS = {**dict.fromkeys(range(8), 10), 1000: 1, 1001: 1}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedSession]:
    folder = tmp_path_factory.mktemp("review")
    photographs = label_photographs(folder, LABELS, COUNTS, {"1001-0": jpeg()[:500]})
    with serve(folder, made(*LABELS), references=replace(REFERENCES, photographs=photographs)) as served:
        yield served


def photographs(tab: Tab, within: str = "#photographs") -> list[tuple[str, bool]]:
    """Ids of the photographs, and whether each was loaded."""
    script = """return [...document.querySelectorAll(arguments[0] + " .photographs img")].map(image =>
        [image.getAttribute("src").split("/")[2], image.complete && image.naturalWidth > 0])"""
    return [tuple(pair) for pair in tab.browser.execute_script(script, within)]


def viewer(tab: Tab) -> Any:
    """Number and caption of the photograph in the dialog; None if it is closed."""
    script = """const viewer = document.querySelector("#viewer"), image = viewer.querySelector("figure img");
        return viewer.open && image.complete && image.naturalWidth > 0
            ? [viewer.querySelector("output").innerText, viewer.querySelector("figcaption").innerText] : null"""
    return tab.browser.execute_script(script)


def wait_for_photographs(tab: Tab, *ids: str) -> None:
    wait_for(lambda: photographs(tab), [(image_id, True) for image_id in ids])


@pytest.mark.slow
def test_photographs_follow_the_current_label(tab: Tab) -> None:
    six = [f"{landmark}-0" for landmark in range(6)]
    wait_for_photographs(tab, *six)
    tab.press("j")
    wait_for_photographs(tab, "1000-0", "1001-0")
    assert tab.texts("#photographs .place") == ["Q2 train 0", "Q2 train 1"]
    tab.press("j")
    wait_for(lambda: tab.texts("#photographs"), ["No photographs of its landmarks."])
    tab.press("k", "k")
    wait_for_photographs(tab, *six)
    tab.press(Keys.ENTER)
    tab.wait_for_decisions(Q1="✓ lake")
    wait_for_photographs(tab, "1000-0", "1001-0")
    first = tab.find("#photographs img")
    tab.press("d")
    tab.wait_for_decisions(Q1="✓ lake", Q2="✕ drop")
    tab.press("k")
    wait_for_photographs(tab, "1000-0", "1001-0")
    assert first.id != tab.find("#photographs img").id
    tab.press("z", "z")
    tab.wait_for_decisions()
    assert tab.browser.title == "Review · ada · hgld", "no label was run as HTML"


@pytest.mark.slow
def test_photographs_stay_while_others_change_the_label(tab: Tab, server: ServedSession) -> None:
    wait_for(lambda: len(photographs(tab)), 6)
    before = tab.find("#photographs img")
    version = tab.find(".row.current").get_attribute("data-version")
    server.post("decide", choose="drop", focus=f"{version}:Q1")
    tab.wait_for_decisions(Q1="✕ drop")
    assert tab.find("#photographs img").id == before.id, "neither replaced nor loaded again"
    server.post("undo")
    tab.wait_for_decisions()


@pytest.mark.slow
def test_the_next_label_is_fetched_ahead(tab: Tab) -> None:
    script = """return performance.getEntriesByType("resource").map(entry => entry.name.split("/").slice(3).join("/"))
        .filter(name => name.endsWith("/small")).sort()"""
    expected = sorted(f"photographs/{image}-0/small" for image in (*range(6), 1000, 1001))
    wait_for(lambda: tab.browser.execute_script(script), expected)
    tab.press("j")
    wait_for_photographs(tab, "1000-0", "1001-0")


@pytest.mark.slow
def test_photographs_are_enlarged_under_pointer_and_focus(tab: Tab) -> None:
    def preview() -> list[str]:
        return [text for text in tab.texts("#preview:not([hidden]) p") if text]

    links = tab.browser.find_elements("css selector", "#photographs .enlarge")
    ActionChains(tab.browser).move_to_element(links[1]).perform()
    wait_for(preview, ["Photograph of Q1 train 1"])
    ActionChains(tab.browser).move_to_element(tab.find("#preview")).pause(0.4).perform()
    assert preview() == ["Photograph of Q1 train 1"], "the pointer may move onto it"
    tab.press(Keys.ESCAPE)
    wait_for(preview, [])
    ActionChains(tab.browser).move_to_element(links[2]).perform()
    wait_for(preview, ["Photograph of Q1 train 2"])
    ActionChains(tab.browser).move_to_element(tab.find("h1")).perform()
    wait_for(preview, [])
    tab.browser.execute_script("arguments[0].focus()", links[0])
    tab.press(Keys.TAB, Keys.TAB)
    wait_for(preview, ["Photograph of Q1 train 1"])
    tab.press(Keys.ESCAPE)
    wait_for(preview, [])


def test_dialog_goes_through_all_photographs_by_key(tab: Tab) -> None:
    wait_for(lambda: len(photographs(tab)), 6)
    tab.press("p")
    wait_for(lambda: viewer(tab), ["1 of 80", "Q1 train 0"])
    wait_for(lambda: len(photographs(tab, "#viewer")), 66)
    tab.press(Keys.ARROW_RIGHT)
    wait_for(lambda: viewer(tab), ["2 of 80", "Q1 train 1"])
    tab.press(Keys.END)
    wait_for(lambda: viewer(tab), ["66 of 80", "Q1 train 1"])
    wait_for(lambda: len(photographs(tab, "#viewer")), 80)
    tab.press(Keys.END)
    wait_for(lambda: viewer(tab), ["80 of 80", "Q1 train 7"])
    tab.press(Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    wait_for(lambda: viewer(tab), ["79 of 80", "Q1 train 6"])
    tab.press("d", Keys.ESCAPE)
    wait_for(lambda: viewer(tab), None)
    assert set(tab.decided.values()) == {"–"}, "the dialog takes no decisions"
    assert tab.browser.execute_script("return document.activeElement.closest('.row')?.dataset.label") == "Q1"
    tab.press("p", "p")
    wait_for(lambda: viewer(tab), None)


@pytest.mark.slow
def test_dialog_by_mouse_and_with_a_damaged_photograph(tab: Tab) -> None:
    wait_for(lambda: len(photographs(tab)), 6)
    tab.press("j")
    wait_for_photographs(tab, "1000-0", "1001-0")
    tab.browser.find_elements("css selector", "#photographs .enlarge")[1].click()
    wait_for(lambda: viewer(tab), ["2 of 2", "Q2 train 1"])
    assert tab.texts("#viewer-title") == [NASTY]
    assert tab.find("#viewer [data-step='1']").get_attribute("disabled")
    tab.click("#viewer [data-step='-1']")
    wait_for(lambda: viewer(tab), ["1 of 2", "Q2 train 0"])
    tab.browser.find_elements("css selector", "#viewer .enlarge")[1].click()
    wait_for(lambda: viewer(tab), ["2 of 2", "Q2 train 1"])
    tab.click("#viewer [data-close]")
    wait_for(lambda: viewer(tab), None)
    tab.click("#photographs .all")
    wait_for(lambda: viewer(tab), ["1 of 2", "Q2 train 0"])


@pytest.mark.slow
def test_no_axe_violation(tab: Tab) -> None:
    wait_for(lambda: len(photographs(tab)), 6)
    assert violations(tab.browser) == []
    tab.press("p")
    wait_for(lambda: viewer(tab), ["1 of 80", "Q1 train 0"])
    assert violations(tab.browser) == []


@pytest.mark.slow
def test_photographs_without_script(browser: Chrome, server: ServedSession) -> None:
    browser.get(server.address)
    wait_for(lambda: len(browser.find_elements("css selector", ".row.current")), 1)
    with no_script(browser):
        browser.get(server.home)
        assert len(browser.find_elements("css selector", "#photographs img")) == 6
        link = browser.find_element("css selector", "#photographs .all")
        assert link.text == "80 photographs of 8 landmarks"
        link.click()
        assert browser.title == "Photographs of lake · hgld"
        assert len(browser.find_elements("css selector", ".photographs img")) == 60
        browser.find_element("link text", "More").click()
        assert len(browser.find_elements("css selector", ".photographs img")) == 20
        browser.find_element("css selector", ".enlarge").click()
        assert browser.current_url.endswith("/large")
        browser.back()
        browser.find_element("link text", "Back to the labels").click()
        assert browser.find_element("css selector", "#card h2").text == "lake"
