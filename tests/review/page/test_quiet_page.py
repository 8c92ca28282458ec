"""The page neither takes the focus nor speaks by itself, and stays within the browser's history."""

import pytest

from tests.review import sessions
from tests.review.page.tab import Tab, wait_for
from tests.review.sessions import label

LABELS = [
    *(label(number, text) for number, text in enumerate(("lake", "glacial lake"), 1)),
    *(label(number, text, 2, "church") for number, text in enumerate(("church", "chapel"), 3)),
]
GROUPS = sessions.GROUPS
#: Notes in `spoken` what a live region says, and in `polls` the status of each request for changes.
OBSERVE = """
window.spoken = [];
new MutationObserver(changes => {
  for (const { target } of changes) {
    const element = target.closest ? target : target.parentElement;
    const region = element?.closest("[role=status], [role=alert], [aria-live]");
    if (region?.textContent) spoken.push(region.textContent);
  }
}).observe(document.body, { subtree: true, childList: true, characterData: true });
window.polls = [];
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) if (entry.name.includes("/changes")) polls.push(entry.responseStatus);
}).observe({ type: "resource" });
"""


@pytest.mark.slow
def test_message_with_undo_is_spoken_once_and_polling_changes_nothing(tab: Tab) -> None:
    run = tab.browser.execute_script
    run(OBSERVE)
    tab.press("d")
    wait_for(lambda: (tab.texts("#message"), tab.texts("#undo-step")), (["Lake: drop."], ["Undo"]))
    wait_for(lambda: tab.texts("#card h2"), ["glacial lake"])
    run("window.heading = document.querySelector('#card h2')")
    run("document.querySelector('#card button').focus(); polls.length = 0")
    wait_for(lambda: run("return polls.length >= 2"), True)
    assert set(run("return polls")) == {204}
    assert run("return window.heading.isConnected && document.activeElement.closest('#card') !== null")
    assert run("return spoken") == ["Lake: drop."]
    feedback, list_ = (
        run("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)
        for selector in ("#feedback", "#labels")
    )
    assert feedback["top"] >= list_["bottom"], "it covers nothing"
    tab.click("#undo-step button")
    wait_for(lambda: (tab.texts("#message"), tab.texts("#undo-step")), (["Undone: lake: drop."], ["Redo"]))
    assert run("return spoken") == ["Lake: drop.", "Undone: lake: drop."]


@pytest.mark.slow
def test_back_stays_in_the_tool(tab: Tab) -> None:
    start = tab.browser.execute_script("return history.length")
    tab.press("j")
    tab.press("]")
    wait_for(lambda: tab.current, "Q3")
    tab.press("j")
    wait_for(lambda: tab.texts("#card h2"), ["chapel"])
    tab.browser.back()
    wait_for(lambda: (tab.current, tab.texts("#card h2")), ("Q2", ["glacial lake"]))
    assert tab.texts("#clusters [aria-current] .title") == ["name 1"]
    tab.browser.forward()
    wait_for(lambda: (tab.current, tab.texts("#card h2")), ("Q4", ["chapel"]))
    assert tab.browser.execute_script("return history.length") == start + 1
    tab.browser.back()
    wait_for(lambda: tab.current, "Q2")
    wait_for(lambda: tab.browser.current_url.endswith("label=Q2"), True)
    tab.browser.refresh()
    wait_for(lambda: tab.texts(".row.current .name"), ["glacial lake"])
