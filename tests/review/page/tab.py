"""A browser tab with the review page, as tests use it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.remote.webelement import WebElement

WAIT_S = 30


def wait_for(observe: Callable[[], object], expected: object) -> None:
    end = time.monotonic() + WAIT_S
    while (observed := observe()) != expected:
        assert time.monotonic() < end, f"{observed} is not {expected}"
        time.sleep(0.02)


class Tab:
    def __init__(self, browser: Chrome, address: str) -> None:
        self.browser = browser
        browser.switch_to.new_window("tab")
        self.handle = browser.current_window_handle
        browser.get_log("browser")  # type: ignore[no-untyped-call]
        self.go_to(address)

    def go_to(self, address: str) -> None:
        """Open an address, and wait until the script shows the current row."""
        self.browser.get(address)
        wait_for(lambda: bool(self.texts(".row.current")), True)

    def focus(self) -> None:
        self.browser.switch_to.window(self.handle)

    def press(self, *keys: str, shift: bool = False, control: bool = False) -> None:
        held = [key for key, is_held in ((Keys.SHIFT, shift), (Keys.CONTROL, control)) if is_held]
        actions = ActionChains(self.browser)
        for key in held:
            actions.key_down(key)
        actions.send_keys(*keys)
        for key in held:
            actions.key_up(key)
        actions.perform()

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element("css selector", selector)

    def click(self, selector: str) -> None:
        self.find(selector).click()

    def texts(self, selector: str) -> list[str]:
        """Return the texts of elements, read at once: the page may replace the elements at any time."""
        script = "return [...document.querySelectorAll(arguments[0])].map(element => element.innerText.trim())"
        texts: list[str] = self.browser.execute_script(script, selector)
        return texts

    def of_rows(self, value: str) -> dict[str, str]:
        """Return a value of each row in the list of labels, by label_id."""
        script = f"[...document.querySelectorAll('.row')].map(row => [row.dataset.label, {value}])"
        values: dict[str, str] = self.browser.execute_script(f"return Object.fromEntries({script})")
        return values

    @property
    def decided(self) -> dict[str, str]:
        """Texts of the decisions in the list of labels, by label_id."""
        return self.of_rows("row.querySelector('.decided').textContent.trim()")

    @property
    def decided_kinds(self) -> dict[str, str]:
        """Kinds of decisions of all labels in the list, by label_id."""
        return self.of_rows("row.dataset.decision")

    @property
    def current(self) -> str:
        script = "return document.querySelector('.row.current').dataset.label"
        return str(self.browser.execute_script(script))

    def wait_for_decisions(self, **decided: str) -> None:
        wait_for(lambda: {key: text for key, text in self.decided.items() if text != "–"}, decided)

    def close(self) -> list[dict[str, Any]]:
        """Close the tab and return the errors in its log."""
        log = self.browser.get_log("browser")  # type: ignore[no-untyped-call]
        errors = [entry for entry in log if entry["level"] == "SEVERE"]
        self.focus()
        self.browser.close()
        return errors


@contextmanager
def open_tab(browser: Chrome, address: str, expected_errors: Sequence[str] = ()) -> Iterator[Tab]:
    """Open the page in a tab; close it afterwards, and fail for errors in its log.

    Args:
        browser: Browser.
        address: Address of the page.
        expected_errors: Parts of messages of the errors that are expected.
    """
    first = browser.current_window_handle
    tab = Tab(browser, address)
    try:
        yield tab
    finally:
        errors = [entry["message"] for entry in tab.close()]
        browser.switch_to.window(first)
    assert [message for message in errors if not any(part in message for part in expected_errors)] == []
