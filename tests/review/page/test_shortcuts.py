"""Keys that the annotator changes or switches off, in a browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from hgld.pages.templates import template_folder
from tests.review import conftest
from tests.review.conftest import Label
from tests.review.page.page_server import made, serve
from tests.review.page.tab import Tab, wait_for

#: Labels of which one stays undecided: the page leaves a list as soon as all its labels are decided.
LABELS = made(*conftest.LABELS, Label("Q5", "pond", 0, 3))


@pytest.fixture(autouse=True)
def no_keys_are_left(browser: Chrome) -> Iterator[None]:
    yield
    browser.delete_cookie("hgld-keys")


def change_key(tab: Tab, name: str, *keys: str) -> str:
    """Press the button that changes the key of an action, then keys; return what the page says."""
    tab.browser.execute_script("document.querySelector('#help').open = true")
    tab.click(f"[data-change='{name}']")
    tab.press(*keys)
    (text,) = tab.texts(".keys-note")
    return text


@pytest.mark.slow
def test_key_is_changed_shown_and_kept(tab: Tab, browser: Chrome, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert tab.find("#actions [value=drop]").get_attribute("aria-keyshortcuts") == "D"
    assert "“undo; the history can undo any step”" in change_key(tab, "drop", "z"), "Z has another meaning"
    tab.press(Keys.ESCAPE)
    assert change_key(tab, "drop", "t") == "The key for “drop” is T."
    tab.press(Keys.ESCAPE)
    assert tab.texts("#actions [value=drop] kbd") == ["T"]
    assert tab.find("#actions [value=drop]").get_attribute("aria-keyshortcuts") == "T"
    tab.press("d")
    tab.press("t")
    tab.wait_for_decisions(Q1="✕ drop")

    # Another session has another port, and the same keys.
    with serve(tmp_path_factory.mktemp("other"), LABELS) as other:
        browser.get(other.address)
        wait_for(lambda: tab.texts("#actions [value=drop] kbd"), ["T"])


@pytest.mark.slow
def test_keys_of_one_character_are_switched_off_and_on(tab: Tab) -> None:
    tab.press("?")
    tab.click(".keys-settings input")
    assert tab.texts(".keys-note") == ["Keys of one character are off."]
    tab.press(Keys.ESCAPE)
    assert not tab.find("#actions [value=drop] kbd").is_displayed()
    assert tab.find("#actions [value=drop]").get_attribute("aria-keyshortcuts") is None
    tab.press("d", "j", "?")
    assert tab.current == "Q1"
    tab.press(Keys.ARROW_DOWN)
    assert tab.current == "Q2"
    tab.press(Keys.ARROW_UP, Keys.ENTER)
    tab.wait_for_decisions(Q1="✓ lake")
    tab.browser.execute_script("document.querySelector('#help').open = true")
    tab.click(".keys-settings button")
    assert tab.texts(".keys-note") == ["All keys are as they were at first."]
    tab.press(Keys.ESCAPE)
    tab.press("d")
    tab.wait_for_decisions(Q1="✓ lake", Q2="✕ drop")


_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "review_page.md"
_NAMES = {"arrowdown": "↓", "arrowup": "↑", "pagedown": "Page ↓", "pageup": "Page ↑"}


def _shown(key: str) -> str:
    return " ".join(_NAMES.get(part, part.capitalize()) for part in key.split("+"))


def test_all_keys_are_documented() -> None:
    script = (template_folder("review") / "script" / "keys.js").read_text(encoding="utf-8")
    lists = re.findall(r"keys: \[((?:\"[^\"]+\"(?:, )?)+)\]", script)
    keys = {_shown(key) for text in lists for key in re.findall(r'"([^"]+)"', text)} | {"1", "9"}
    section = _PAGE.read_text(encoding="utf-8").partition("## Keys\n")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| ")]
    assert {key for row in table for key in re.findall(r"`([^`]+)`", row)} == keys
