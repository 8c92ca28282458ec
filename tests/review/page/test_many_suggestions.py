"""Twelve suggestions for a label, as several models may give them: all can be taken by key and by mouse."""

from dataclasses import replace

from selenium.webdriver import Keys

from hgld.resources import annotation_file
from hgld.review.labels import Candidate
from hgld.taxonomy.groups import read_taxonomy
from tests.review.conftest import Label
from tests.review.page.page_server import made
from tests.review.page.tab import Tab, wait_for

NAMES = [group.name for group in read_taxonomy(annotation_file("taxonomy.csv"))][:12]
SUGGESTIONS = tuple(Candidate("group", name, f"reason {n}", 0.3 - n / 100) for n, name in enumerate(NAMES))
#: The card folds the second one away, because it is unlikely.
ONE_SHOWN = (SUGGESTIONS[0], replace(SUGGESTIONS[1], score=0.01))
BY_LABEL = {"Q4": SUGGESTIONS[:2], "Q5": ONE_SHOWN}
LABELS = [
    replace(label, suggestions=BY_LABEL.get(label.label_id, SUGGESTIONS))
    for label in made(*(Label(f"Q{n}", f"label {n}", 1, 1, train=9 - n) for n in range(1, 6)))
]
ON_CARD = "#card .candidate > span"


def shown(tab: Tab) -> list[str]:
    """Return the names of the suggestions that can be seen on the card."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).map(e => e.innerText)"
    )
    names: list[str] = tab.browser.execute_script(script, ON_CARD)
    return names


def test_all_suggestions_can_be_taken(tab: Tab) -> None:
    assert shown(tab) == NAMES[:3]
    assert tab.texts("#more-suggestions summary") == ["9 more suggestions\n0"]
    tab.press("5")
    assert tab.texts("#message") == ["Suggestion 5 is not shown yet; open “more suggestions” first."]
    tab.wait_for_decisions()
    tab.press("0")
    assert shown(tab) == NAMES
    tab.press(*([Keys.TAB] * 8), Keys.ENTER)
    tab.wait_for_decisions(Q1=f"✓ {NAMES[11]}")
    wait_for(lambda: tab.texts("#card h2"), ["label 2"])
    assert shown(tab) == NAMES, "they stay open for the next label"
    tab.press("5")
    tab.wait_for_decisions(Q1=f"✓ {NAMES[11]}", Q2=f"✓ {NAMES[4]}")
    wait_for(lambda: tab.texts("#card h2"), ["label 3"])
    tab.press(Keys.ESCAPE)
    assert shown(tab) == NAMES[:3]
    tab.click("#more-suggestions summary")
    tab.browser.find_elements("css selector", "#more-suggestions button")[6].click()
    decided = {"Q1": f"✓ {NAMES[11]}", "Q2": f"✓ {NAMES[4]}", "Q3": f"✓ {NAMES[9]}"}
    tab.wait_for_decisions(**decided)
    wait_for(lambda: tab.texts("#card h2"), ["label 4"])
    tab.press("0")
    assert tab.texts("#message") == ["There are no other suggestions."]
    tab.press("2")
    tab.wait_for_decisions(**decided, Q4=f"✓ {NAMES[1]}")


def test_folded_suggestion_is_not_taken_for_several_labels(tab: Tab) -> None:
    tab.press("j", "j", "j", "x", "j", "x")
    tab.press("2")
    assert tab.texts("#message") == [
        "Suggestion 2 of “label 5” is not shown yet; decide that label alone, or deselect it."
    ]
    tab.wait_for_decisions()
    tab.press("x", "k", "k", "x")
    tab.press("2")
    tab.wait_for_decisions(Q3=f"✓ {NAMES[1]}", Q4=f"✓ {NAMES[1]}")
