"""New suggestions on the page: they never change what the annotator is about to decide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgld.review.actions import LabelAction
from hgld.review.review_labels import Suggestion
from hgld.review.session import ReviewSession
from tests.review.page.clients import open_client
from tests.review.page.page_server import ServedSession
from tests.review.page.tab import Tab, wait_for
from tests.review.sessions import decide, label, open_session

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

CHURCH = (Suggestion("church", 0.98, "decisions on others"),)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[ReviewSession]:
    with open_session(tmp_path / "ada.sqlite", [label(number) for number in range(1, 5)]) as session:
        yield session


def test_a_page_hears_of_new_suggestions_once_and_keeps_those_of_the_current_label(session: ReviewSession) -> None:
    client = open_client(session)
    decide(session, LabelAction("drop"), "Q4")
    shown = {"at_view": "cluster=1", "at_label": "Q1", "since": "1", "seen": "0"}
    session.updates.add({"Q1": CHURCH, "Q2": CHURCH}, n_decisions=20)
    number = session.updates.last
    answer = client.get("/changes", params=shown | {"estimate": "0"}).json()
    assert answer["suggestions"]["message"] == "Suggestions re-estimated from 20 decisions: 2 changed."
    assert f'value="0.{number}:Q2"' in answer["suggestions"]["rows"]["Q2"]
    assert "church" in answer["suggestions"]["rows"]["Q2"]
    assert 'value="take:1@0:Q1"' in answer["parts"]["card"]
    assert "church" not in answer["parts"]["card"]
    assert "suggestions" not in client.get("/changes", params=shown | {"estimate": str(number)}).json()
    moved = client.get("/changes", params=shown | {"at_label": "Q2", "seen": str(number)}).json()
    assert f'value="take:1@0.{number}:Q2"' in moved["parts"]["card"]
    client.post("/decide", data={"choose": "accept", "label": [f"0.{number}:Q2", "0:Q1"]})
    assert {row.label_id: row.group for row in session.decisions()} == {"Q1": "lake", "Q2": "church", "Q4": None}


@pytest.fixture
def address(session: ReviewSession) -> Iterator[str]:
    served = ServedSession(session)
    yield served.address
    served.stop()


@pytest.mark.slow
def test_new_suggestions_leave_the_current_and_selected_labels_alone(
    browser: Chrome, session: ReviewSession, address: str
) -> None:
    from selenium.webdriver import Keys

    first = browser.current_window_handle
    tab = Tab(browser, address)
    suggested = "#list .row .candidates"
    tab.press("j", "x", "k")  # Q2 is selected, Q1 current
    wait_for(lambda: tab.texts("#card h2"), ["label 1"])
    session.updates.add({"Q1": CHURCH, "Q2": CHURCH, "Q3": CHURCH}, n_decisions=20)
    wait_for(lambda: tab.texts(suggested), ["lake\n90 %", "lake\n90 %", "church\n98 %", "lake\n90 %"])
    assert "Suggestions re-estimated from 20 decisions: 3 changed." in tab.texts("#note")[0]
    assert tab.texts("#card li button span") == ["lake"]
    tab.press(Keys.ESCAPE, Keys.ENTER)
    tab.wait_for_decisions(Q1="✓ lake")
    assert tab.texts("#card h2") == ["label 2"], "current now, so that its suggestion still waits"
    tab.press("j")
    wait_for(lambda: tab.texts(suggested)[1], "church\n98 %")
    wait_for(lambda: tab.texts("#card li button span"), ["church"])
    tab.press(Keys.ENTER)
    tab.wait_for_decisions(Q1="✓ lake", Q3="✓ church")
    assert tab.close() == []
    browser.switch_to.window(first)
