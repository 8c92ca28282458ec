"""Clusters with many labels."""

import re
from pathlib import Path

import pytest
from selenium.webdriver import Keys

from tests.review.conftest import Label
from tests.review.page.page_server import made, open_client
from tests.review.page.tab import Tab, wait_for
from tests.review.sessions import label, open_session

LABELS = made(*(Label(f"Q{n}", f"label {n}", 1, n // 50, group="lake") for n in range(400)))


def test_page_with_a_cluster_of_2000_labels_has_all_of_them(tmp_path: Path) -> None:
    labels = [label(n, f"kind of building number {n}") for n in range(2000)]
    with open_session(tmp_path / "ada.sqlite", labels) as session:
        page = open_client(session).get("/?label=Q1000").text
        assert len(page.encode()) < 3_000_000
        rows = re.findall(r'<li class="row" data-label="(\w+)"', page)
        assert rows == [f"Q{n}" for n in range(2000)]


@pytest.mark.slow
def test_keys_work_on_all_labels_of_a_long_cluster(tab: Tab) -> None:
    tab.press(Keys.END)
    assert tab.current == "Q399"
    wait_for(lambda: tab.texts(".row.current .candidate span"), ["lake"])
    assert tab.browser.execute_script("return document.activeElement.closest('.row').dataset.label") == "Q399"
    tab.press(Keys.HOME)
    tab.press("a", control=True)
    assert tab.find("#selected").text == "400 selected"
    tab.press("d")
    wait_for(lambda: set(tab.decided_kinds.values()), {"drop"})
    tab.press("z")
    wait_for(lambda: set(tab.decided_kinds.values()), {""})
    tab.press(Keys.END)
    wait_for(lambda: tab.texts(".row.current .candidate span"), ["lake"])
    tab.press(Keys.ENTER)
    wait_for(lambda: tab.decided_kinds["Q399"], "group")
