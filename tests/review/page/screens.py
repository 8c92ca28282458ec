"""Screens of several sizes, as the browser of the tests can imitate them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from selenium.webdriver import Chrome


class Screen(NamedTuple):
    """A screen: its size in CSS pixels, and whether it is touched."""

    width: int
    height: int
    touch: bool = False

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


DESKTOP = Screen(1440, 900)
PHONE = Screen(390, 844, touch=True)
SMALL_PHONE = Screen(320, 568, touch=True)
#: A window of 1280 x 1024 at 400 %.
ZOOMED = Screen(320, 256)
SCREENS = (DESKTOP, PHONE, SMALL_PHONE, ZOOMED)

#: Words that are shown on several lines, but for those that are longer than any line.
BROKEN_WORDS = r"""
const found = [], range = document.createRange();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const parent = node.parentElement;
  if (!parent.checkVisibility() || getComputedStyle(parent).clipPath !== "none") continue;  // for screen readers
  for (const { index, 0: word } of node.data.matchAll(/[\p{L}\p{N}]+/gu)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const lines = new Set([...range.getClientRects()].filter(box => box.width).map(box => Math.round(box.top)));
    if (lines.size > 1 && word.length < 30) found.push(word);
  }
}
return found;
"""


@contextmanager
def shown_on(browser: Chrome, screen: Screen) -> Iterator[None]:
    size = {"width": screen.width, "height": screen.height, "deviceScaleFactor": 1, "mobile": screen.touch}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": screen.touch})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextmanager
def no_script(browser: Chrome) -> Iterator[None]:
    """Let the pages that are opened meanwhile do without script."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
