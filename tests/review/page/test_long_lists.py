"""Clusters with so many labels that most rows are sent in brief at first."""

import re
from pathlib import Path

import pytest
from selenium.webdriver import Keys

from tests.review.conftest import Label
from tests.review.page.page_server import made, open_client
from tests.review.page.tab import Tab, wait_for
from tests.review.sessions import label, open_session

LABELS = made(*(Label(f"Q{n}", f"label {n}", 1, n // 50, group="lake") for n in range(400)))
BRIEF = '<li class="row brief"'


def test_page_with_a_cluster_of_2000_labels_is_below_1_mb(tmp_path: Path) -> None:
    labels = [label(n, f"kind of building number {n}") for n in range(2000)]
    with open_session(tmp_path / "ada.sqlite", labels) as session:
        client = open_client(session)
        page = client.get("/?label=Q1000").text
        assert len(page.encode()) < 1_000_000
        rows = re.findall(r'<li class="row[^"]*" data-label="(\w+)"', page)
        assert rows == [f"Q{n}" for n in range(2000)]
        brief = set(re.findall(rf'{BRIEF} data-label="(\w+)"', page))
        assert not brief & {f"Q{n}" for n in range(960, 1111)}
        assert "Q0" in brief, "only rows near the current one are sent in full"
        update = client.get("/rows?label=Q0&label=Q1999&label=Q2000").json()
        assert list(update["rows"]) == ["Q0", "Q1999"]
        assert BRIEF not in "".join(update["rows"].values())
        many = "&".join(f"label=Q{n}" for n in range(150))
        assert len(client.get(f"/rows?{many}").json()["rows"]) == 100


@pytest.mark.slow
def test_rows_are_completed_where_one_looks_and_keys_work_on_all(tab: Tab) -> None:
    def n_brief() -> int:
        return len(tab.browser.find_elements("css selector", ".row.brief"))

    n_at_first = n_brief()
    assert n_at_first > 200
    tab.press(Keys.END)
    assert tab.current == "Q399"
    wait_for(lambda: tab.texts(".row.current .candidate span"), ["lake"])
    assert tab.browser.execute_script("return document.activeElement.closest('.row').dataset.label") == "Q399"
    assert 0 < n_brief() < n_at_first, "rows in the middle are still brief"
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
