"""A browser for examples: a real one, in which an annotator decides all labels by keys, then presses Ctrl-C.

    export BROWSER="python tests/examples/keyboard.py keys.txt page.png %s"
    hgld review clusters.parquet --annotator ada

The annotator presses Enter, which accepts the suggestion, on every label but those in the file of keys. Its lines
name a label, and the keys and texts to enter instead:

    temple: c 'Of which religion?' Enter d
    volcano: g volcano Enter

A picture of the page is taken after the first of these labels that was decided.
"""

import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

#: Seconds that the page may take to answer a key.
_WAIT_S = 30


def main(keys_of: Mapping[str, Sequence[str]], picture: Path, address: str) -> None:
    """Decide all labels on the page at an address, and stop the command that serves it."""
    browser = open_browser()
    try:
        browser.get(address)
        n_labels = _wait_for(browser, n_decided=0)
        for n_decided in range(1, n_labels + 1):
            label = _current_label(browser)
            for key in keys_of.get(label, ["Enter"]):
                _press(browser, key)
            # The page goes to the next undecided label by itself, also to one in another cluster.
            _wait_for(browser, n_decided, after=label if n_decided < n_labels else "")
            if label in keys_of and not picture.exists():
                browser.save_screenshot(str(picture))
    finally:
        browser.quit()
        os.kill(os.getppid(), signal.SIGINT)


def open_browser() -> "Chrome":
    """Open a headless Chromium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--disable-background-networking")
    options.add_argument("--window-size=1280,800")
    return webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))


def read_keys(path: Path) -> dict[str, list[str]]:
    """Read the keys to press on each label."""
    lines = (line.partition(":") for line in path.read_text(encoding="utf-8").splitlines())
    return {label: shlex.split(keys) for label, _, keys in lines}


def _press(browser: "Chrome", key: str) -> None:
    from selenium.webdriver import ActionChains, Keys

    ActionChains(browser).send_keys(getattr(Keys, key.upper(), key)).perform()


def _current_label(browser: "Chrome") -> str:
    """Return the label at the cursor, or nothing while there is none."""
    text = browser.execute_script("return document.querySelector('.row.current')?.innerText ?? ''")
    return str(text).strip().partition("\n")[0]


def _wait_for(browser: "Chrome", n_decided: int, after: str = "") -> int:
    """Wait until so many labels are decided, and another one than ``after`` is current; return the number of all."""
    end = time.monotonic() + _WAIT_S
    while True:
        shown = browser.execute_script("return document.body.innerText")
        counts = re.search(rf"\b{n_decided} of (\d+) labels", shown)
        if counts and _current_label(browser) not in ("", after):
            return int(counts[1])
        assert time.monotonic() < end, f"the page does not show that {n_decided} labels are decided:\n{shown}"
        time.sleep(0.05)


if __name__ == "__main__":
    main(read_keys(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3])
