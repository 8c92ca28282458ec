import re
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from hgld.review.decision_files import with_opinions
from tests.review.conftest import Label, decide
from tests.review.page.page_server import ServedSession, made, serve
from tests.review.page.screens import no_script
from tests.review.page.tab import Tab, open_tab, wait_for

NASTY = """<img src=x onerror="document.title='broken'"> 'a' "b" </template>"""
LABELS = made(
    Label("Q1", "lake", 1, 1, train=5, group="lake"),
    Label("Q2", "glacial lake", 1, 1, train=4, group="lake"),
    Label("Q3", "pond", 1, 1, train=3, group="lake"),
    Label("Q4", NASTY, 1, 2, train=2),
    Label("Q5", "湖 بحيرة", 1, 2, train=1),
    Label("Q6", "church building", 2, 3, train=2, group="church"),
    Label("Q7", "chapel", 2, 3, train=1, group="church"),
)
#: Refused forms, and a stopped server.
EXPECTED_ERRORS = ["409", "ERR_CON"]


def test_decide_undo_and_redo_by_key(tab: Tab) -> None:
    tab.press(Keys.ENTER)
    tab.wait_for_decisions(Q1="✓ lake")
    assert tab.current == "Q2", "the next label is current"
    tab.press("d")
    tab.press("u")
    tab.wait_for_decisions(Q1="✓ lake", Q2="✕ drop", Q3="? unsure")
    tab.press("g")
    tab.press("muse", Keys.ENTER)
    tab.press("/")
    tab.press("chu")
    tab.press(Keys.ENTER, shift=True)
    everything = {
        "Q1": "✓ lake",
        "Q2": "✕ drop",
        "Q3": "? unsure",
        "Q4": "✓ museum",
        "Q5": "? unsure, perhaps church",
    }
    wait_for(lambda: tab.texts("#clusters a[data-cluster='1'] small"), ["✓ all 5"])
    wait_for(lambda: tab.current, "Q6")  # the next cluster with an undecided label
    tab.press("[")
    tab.wait_for_decisions(**everything)
    for _ in range(3):
        tab.press("z")
    tab.wait_for_decisions(Q1="✓ lake", Q2="✕ drop")
    tab.press("y")
    tab.press("y")
    tab.wait_for_decisions(Q1="✓ lake", Q2="✕ drop", Q3="? unsure", Q4="✓ museum")


@pytest.mark.slow
def test_next_undecided_label_goes_through_all_clusters(tab: Tab) -> None:
    """Also past clusters with undecided labels above the cursor, and back to them."""
    visited = []
    for _ in range(8):
        visited.append(tab.current)
        before = tab.current
        tab.press("n")
        wait_for(lambda: tab.current != before, True)  # noqa: B023 - called at once
    assert visited == ["Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q1"]
    tab.press("d", "d", "d", "d")
    tab.wait_for_decisions(Q2="✕ drop", Q3="✕ drop", Q4="✕ drop", Q5="✕ drop")
    wait_for(lambda: tab.current, "Q1")
    tab.press("n")
    wait_for(lambda: tab.current, "Q6")
    assert tab.texts("#message") == ["This is cluster 2."]
    tab.press("d", "d")
    wait_for(lambda: tab.current, "Q1")
    tab.press("n")
    wait_for(lambda: tab.texts("#message"), ["This is the only undecided label."])
    tab.press("j")
    tab.press("n")
    assert tab.current == "Q1"
    tab.press("d")
    wait_for(lambda: "All labels are decided." in tab.texts("#message")[0], True)


@pytest.mark.slow
def test_group_search_forgives_a_typo_where_nothing_else_matches(tab: Tab) -> None:
    shown = "#groups .groups > li:not([hidden]) button > span"
    tab.press("g")
    for typed, found in (
        ("musuem", "museum"),  # exchanged
        ("chirch", "church"),  # another letter
        ("lghthouse", "lighthouse"),  # missing
        ("observvatory", "observatory"),  # twice
        ("muzwum", None),  # two typos
        ("-(x)'.", None),
        ("lake", "lake"),
    ):
        tab.browser.execute_script("document.activeElement.value = ''")
        tab.press(typed)
        assert tab.texts(shown)[:1] == ([found] if found else []), typed
    assert not {"cave", "bath"} & set(tab.texts(shown)), "typos count only where nothing else matches"
    tab.press(Keys.ENTER)
    tab.wait_for_decisions(Q1="✓ lake")


def test_select_a_range_comment_and_undo_an_earlier_step(tab: Tab) -> None:
    tab.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, shift=True)
    assert tab.find("#selected").text == "3 selected"
    tab.press("d")
    tab.wait_for_decisions(Q1="✕ drop", Q2="✕ drop", Q3="✕ drop")
    assert not tab.find("#selected").is_displayed()
    assert tab.current == "Q4"
    tab.press("c")
    tab.press("<b>why</b>", Keys.ENTER)
    wait_for(lambda: tab.texts(".row q"), ["<b>why</b>"])
    tab.press("u")
    tab.wait_for_decisions(Q1="✕ drop", Q2="✕ drop", Q3="✕ drop", Q4="? unsure")
    tab.press("h")
    tab.browser.find_elements("css selector", "#history button")[-1].click()
    tab.wait_for_decisions(Q4="? unsure")
    tab.press("y")
    tab.wait_for_decisions(Q1="✕ drop", Q2="✕ drop", Q3="✕ drop", Q4="? unsure")


@pytest.mark.slow
def test_decide_by_mouse_on_labels_in_other_scripts(tab: Tab) -> None:
    tab.click(".row[data-label='Q2'] .candidate")
    tab.wait_for_decisions(Q2="✓ lake")
    tab.click(".row[data-label='Q5'] .name")
    assert tab.current == "Q5"
    wait_for(lambda: tab.texts("#card h2"), ["湖 بحيرة"])
    tab.click("#groups button[value='group:lake']")
    tab.wait_for_decisions(Q2="✓ lake", Q5="✓ lake")
    tab.click(".row[data-label='Q1'] .tick")
    tab.click(".row[data-label='Q3'] .tick")
    tab.click("footer [value=drop]")
    tab.wait_for_decisions(Q1="✕ drop", Q2="✓ lake", Q3="✕ drop", Q5="✓ lake")
    tab.click("#undo button")
    tab.wait_for_decisions(Q2="✓ lake", Q5="✓ lake")
    tab.click("#clusters a[data-cluster='2']")
    wait_for(lambda: tab.current, "Q6")


@pytest.mark.slow
def test_change_clusters_and_groups_by_key(tab: Tab) -> None:
    tab.press("x", "j", "x", "s")
    tab.press(Keys.TAB, "still waters", Keys.TAB, Keys.ENTER)

    def shown() -> list[str]:
        return tab.texts("#clusters .title")

    wait_for(shown, ["cluster 1", "cluster 2", "still waters"])
    tab.press("r")
    tab.press("the rest", Keys.ENTER)
    wait_for(shown, ["the rest", "cluster 2", "still waters"])
    tab.press("a")
    tab.press("quay", Keys.TAB, Keys.TAB, "Where boats land.", Keys.ENTER)
    wait_for(lambda: len(tab.texts("li[data-name=quay]")), 1)
    tab.press("g")
    tab.press("qua", Keys.ENTER)
    wait_for(lambda: "✓ quay" in tab.decided.values(), True)
    tab.press("m", Keys.TAB, Keys.ENTER)
    wait_for(shown, ["cluster 2", "still waters"])


def test_undo_goes_to_what_it_undid(tab: Tab) -> None:
    tab.press("]")
    wait_for(lambda: tab.current, "Q6")
    tab.press("d")
    tab.wait_for_decisions(Q6="✕ drop")
    tab.press("[")
    wait_for(lambda: tab.current, "Q1")
    tab.press("z")
    wait_for(lambda: (tab.current, tab.texts("#message")), ("Q6", ["Undone: church building: drop."]))
    tab.wait_for_decisions()
    wait_for(lambda: tab.texts("#clusters [aria-current] .title"), ["cluster 2"])


@pytest.mark.slow
def test_decided_label_is_not_overwritten_unseen_after_undo(tab: Tab) -> None:
    tab.press("]")
    wait_for(lambda: tab.current, "Q6")
    tab.press(Keys.ENTER)
    tab.press("d")
    shown = "#clusters [aria-current] .title"
    wait_for(lambda: tab.texts(shown), ["cluster 1"])  # all labels of cluster 2 are decided
    wait_for(lambda: tab.texts("#card h2"), ["lake"])
    tab.press("]")
    wait_for(lambda: tab.texts(shown), ["cluster 2"])
    wait_for(lambda: tab.texts("#card h2"), ["church building"])
    tab.press("m", Keys.TAB, Keys.ENTER)  # into cluster 1
    wait_for(lambda: tab.texts("#clusters .title"), ["cluster 1"])
    tab.click(".row[data-label='Q1'] .name")
    tab.press("z")
    wait_for(lambda: tab.texts("#message"), ["Undone: church building and 1 more: moved to cluster 1."])
    assert tab.current == "Q6"
    tab.press("u")
    wait_for(lambda: tab.texts("#message"), ["church building is decided already; press again to change it."])
    tab.wait_for_decisions(Q6="✓ church", Q7="✕ drop")
    tab.press("u")
    # The page shows the decision, then goes to the cluster with open labels: a slow observer sees that one only.
    wait_for(lambda: tab.texts(shown), ["cluster 1"])
    wait_for(lambda: tab.texts("#card h2"), ["lake"])
    tab.press("]")
    wait_for(lambda: tab.texts(shown), ["cluster 2"])
    tab.wait_for_decisions(Q6="? unsure", Q7="✕ drop")


@pytest.mark.slow
def test_landmarks_and_guideline_are_read_in_front_of_the_labels(tab: Tab) -> None:
    for key, title in (("l", "lake"), ("i", "How to put labels into groups")):
        tab.press(key)
        wait_for(lambda: tab.texts("dialog.reading[open] h1"), [title])
        tab.press("d")
        tab.press(Keys.ESCAPE)
        wait_for(lambda: tab.texts("dialog.reading[open] h1"), [])
    tab.press("u")
    tab.wait_for_decisions(Q1="? unsure")  # "d" decided nothing while something was read


def test_two_tabs_show_the_same(tab: Tab, server: ServedSession) -> None:
    other = Tab(tab.browser, server.address)
    other.press("d")
    other.wait_for_decisions(Q1="✕ drop")
    tab.focus()
    tab.wait_for_decisions(Q1="✕ drop")
    tab.press("z")
    tab.wait_for_decisions()
    other.focus()
    other.wait_for_decisions()
    other.close()
    tab.focus()


@pytest.mark.slow
@pytest.mark.parametrize(("way", "left"), [("Keep the other tab's", "✕ drop"), ("Save this tab's", "✓ lake")])
def test_stale_decision_is_shown_beside_the_saved_one(tab: Tab, server: ServedSession, way: str, left: str) -> None:
    # The page must not notice the other change before the key, as in the background.
    tab.browser.execute_script("Object.defineProperty(document, 'hidden', { get: () => true })")
    server.post("decide", choose="drop", focus="0:Q1")
    tab.press(Keys.ENTER)
    wait_for(lambda: tab.find("#conflict").is_displayed(), True)
    assert tab.texts("#conflict .decision") == ["✕ drop", "✓ lake"]
    buttons = tab.browser.find_elements("css selector", "#conflict button")
    (button,) = (button for button in buttons if button.text == way)
    button.click()
    tab.browser.refresh()
    tab.wait_for_decisions(Q1=left)


def test_page_works_without_script(browser: Chrome, server: ServedSession) -> None:
    def shown() -> list[tuple[str, str]]:
        page = browser.page_source
        return re.findall(
            r'data-label="Q1"[^>]*data-decision="(\w*)"|<section id="card".*?<h2[^>]*>(.*?)<', page, re.DOTALL
        )

    with no_script(browser):
        browser.get(server.address)
        browser.find_element("css selector", "form button").click()
        wait_for(shown, [("", ""), ("", "lake")])
        browser.find_element("css selector", "footer [value=drop]").click()
        wait_for(shown, [("drop", ""), ("", "glacial lake")])
        browser.find_element("css selector", "#undo button").click()
        wait_for(shown, [("", ""), ("", "lake")])


@pytest.mark.slow
def test_adjudication_counts_what_closes_and_lists_groups_to_settle(browser: Chrome, tmp_path: Path) -> None:
    opinions = [decide("ada", "- lake lake - - - lake"), decide("ben", "- river river - - - river")]
    labels = with_opinions(LABELS, opinions, {"Q1", "Q2", "Q6"})
    problems = {"lake": '"loch" by ada, "mere" by ben'}
    with serve(tmp_path, labels, group_problems=problems) as server, open_tab(browser, server.address) as tab:
        tab.press("u")
        tab.press("1")
        wait_for(lambda: tab.current, "Q6")  # the next cluster: what is unsure is not asked again
        wait_for(lambda: "Cluster 1 is decided, but 1 label is unsure; this is cl" in tab.texts("#message")[0], True)
        tab.press("2")
        status = "2 of 3 labels decided"
        wait_for(lambda: status in tab.texts("#status")[0], True)
        assert tab.texts("#status .open") == ["1 unsure label, 1 group to settle"]
        tab.press("n")
        open_now = "All labels are decided. Open: 1 unsure label, 1 group to settle."
        assert tab.texts("#message") == [open_now]
        assert tab.texts("#clusters a[data-cluster='1'] small") == ["1 of 2"]
        assert tab.texts("#clusters .to-settle li") == ['lake: "loch" by ada, "mere" by ben']
        server.post("rename-group", group="0:lake", name="lake")
        wait_for(lambda: tab.texts("#status .open"), ["1 unsure label"])
        assert tab.texts("#clusters .to-settle") == []
        server.post("undo")
        wait_for(lambda: tab.texts("#status .open"), ["1 unsure label, 1 group to settle"])
        server.post("merge-group", group="0:river", into="lake")
        server.post("merge-group", group="5:lake", into="church")
        wait_for(lambda: tab.texts("#status .open"), ["1 unsure label"])
        tab.press("[")
        wait_for(lambda: tab.current, "Q1")
        tab.press(Keys.BACKSPACE)  # both opinions are the same now
        wait_for(lambda: "3 of 3 labels decided" in tab.texts("#status")[0], True)
        assert tab.texts("#status .open") == []
