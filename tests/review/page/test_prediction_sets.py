"""The card shows the set that holds the right group with a promised probability."""

from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import Keys

from hgld.review.labels import PredictionSet
from hgld.taxonomy.groups import Group
from tests.review import sessions
from tests.review.page.page_server import open_client
from tests.review.page.tab import Tab, wait_for
from tests.review.sessions import label, open_session

GROUPS = [
    *sessions.GROUPS,
    *(Group(name, "natural", "A kind of nature.") for name in ("bay", "pond", "sea", "spring")),
]
NATURAL = ["lake", "pond", "sea", "bay", "spring"]
SETS = {
    "lake": ([["lake"], ["natural"]], "lake (95 %)"),
    "mere": ([["lake", "pond", "(drop)"], ["natural", "(drop)"]], "lake, pond or drop (95 %)"),
    "water": ([[*NATURAL, "church"], ["natural"]], "natural (95 %)"),
    "thing": ([[*NATURAL, "church", "museum"], ["natural", "human-made", "(drop)"]], ""),
    "other": ([], ""),
}
LABELS = [
    replace(
        label(number, text),
        prediction_sets=tuple(
            PredictionSet(level, 0.95, names) for level, names in zip(("group", "root"), sets, strict=False)
        ),
    )
    for number, (text, (sets, _)) in enumerate(SETS.items(), 1)
]


def test_card_shows_the_finest_set_that_says_something(tab: Tab) -> None:
    for text, (_, shown) in SETS.items():
        expected = [text], [shown] if shown else []
        wait_for(lambda: (tab.texts("#card h2"), tab.texts("#card .set")), expected)
        tab.press("j")
    assert tab.texts(".row .set") == [], "the list stays as it is"


def test_merged_groups_are_one_in_a_set(tab: Tab) -> None:
    tab.press("j")
    wait_for(lambda: tab.texts("#card .set"), ["lake, pond or drop (95 %)"])
    tab.press("m", shift=True)
    tab.find("#merge-group select[name=group]").send_keys("pond")
    tab.find("#merge-group select[name=into]").send_keys("lake", Keys.TAB)
    tab.click("#merge-group button")
    wait_for(lambda: tab.texts("#card .set"), ["lake or drop (95 %)"])


@pytest.mark.parametrize("blind", [False, True])
def test_blind_review_shows_no_set(tmp_path: Path, *, blind: bool) -> None:
    with open_session(tmp_path / "ada.sqlite", LABELS, GROUPS, blind=blind) as session:
        assert ("lake (95 %)" in open_client(session).get("/?label=Q1").text) != blind
