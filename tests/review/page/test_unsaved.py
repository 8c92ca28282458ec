"""What is decided or typed is not lost, whatever happens to the server, the connection or another window."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from tests.review import sessions
from tests.review.conftest import Label
from tests.review.page.faulty_proxy import FaultyProxy
from tests.review.page.page_server import ServedSession, Server
from tests.review.page.tab import Tab, wait_for
from tests.review.sessions import label

WATERS = ("lake", "glacial lake", "pond", "tarn", "mere")
LABELS = [
    *(label(number, text, 1, "lake" if "lake" in text else None) for number, text in enumerate(WATERS, 1)),
    label(6, "church", 2, "church"),
]
GROUPS = sessions.GROUPS
#: Any: forms are refused or get no answer.
EXPECTED_ERRORS = [""]
UNSAVED = "#unsaved li span"


@pytest.fixture
def open_tab(browser: Chrome) -> Iterator[Callable[[str], Tab]]:
    """Open an address in a tab, which is closed at the end."""
    first = browser.current_window_handle
    yield lambda address: Tab(browser, address)
    for handle in browser.window_handles:
        if handle != first:
            browser.switch_to.window(handle)
            browser.close()
    browser.switch_to.window(first)


def saving(tab: Tab) -> list[str]:
    return tab.texts(".row.saving .name")


def history(tab: Tab) -> list[str]:
    script = "return [...document.querySelectorAll('#history li > span')].map(step => step.textContent)"
    steps: list[str] = tab.browser.execute_script(script)
    return steps


def warns_before_closing(tab: Tab) -> bool:
    script = "return !dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    return bool(tab.browser.execute_script(script))


@pytest.mark.slow
def test_queue_survives_faulty_answers(server: ServedSession, open_tab: Callable[[str], Tab]) -> None:
    proxy = FaultyProxy(server.address)
    tab = open_tab(proxy.address)
    assert not warns_before_closing(tab)

    # A form that never reached the server.
    proxy.fault = "500"
    tab.press("d")
    wait_for(lambda: tab.texts(UNSAVED), ["lake: drop"])
    assert tab.texts("#unsaved p") == ["1 change is not saved."]
    assert "status 500" in tab.texts("#unsaved li small")[0]
    assert warns_before_closing(tab)
    assert saving(tab) == []
    proxy.fault = ""
    tab.press("u")
    tab.wait_for_decisions(Q2="? unsure")
    tab.click("#unsaved li [data-again]")
    tab.wait_for_decisions(Q1="✕ drop", Q2="? unsure")
    wait_for(lambda: tab.texts(UNSAVED), [])

    # A form that was saved, but whose answer cannot be read.
    proxy.fault = "no-json"
    tab.click(".row[data-label='Q3'] .name")
    tab.press("d")
    wait_for(lambda: tab.texts(UNSAVED), ["pond: drop"])
    proxy.fault = ""
    tab.click("#unsaved li [data-again]")
    wait_for(lambda: tab.texts(UNSAVED), [])
    assert history(tab)[:1] == ["pond: drop"]

    # A form that was saved, but the connection ended in the middle of the answer: it is sent again.
    proxy.fault = "cut"
    n_forms = proxy.n_forms
    tab.press("u")
    wait_for(lambda: proxy.n_forms > n_forms, True)
    proxy.fault = ""
    tab.wait_for_decisions(Q1="✕ drop", Q2="? unsure", Q3="✕ drop", Q4="? unsure")
    wait_for(lambda: (tab.texts(UNSAVED), saving(tab)), ([], []))
    assert history(tab) == ["tarn: unsure", "pond: drop", "lake: drop", "glacial lake: unsure"]
    tab.press("z")
    tab.wait_for_decisions(Q1="✕ drop", Q2="? unsure", Q3="✕ drop")
    assert not warns_before_closing(tab)
    proxy.stop()


@pytest.mark.slow
def test_queue_survives_an_exception_while_drawing(tab: Tab) -> None:
    tab.browser.execute_script("document.querySelector('#history').id = 'gone'")
    tab.press("d")
    wait_for(lambda: "Reload it; nothing is lost" in tab.texts("#error")[0], True)
    tab.press("u")
    wait_for(lambda: saving(tab), [])
    tab.browser.execute_script("document.querySelector('#gone').id = 'history'")
    tab.press("d")
    tab.wait_for_decisions(Q1="✕ drop", Q2="? unsure", Q3="✕ drop")


@pytest.mark.slow
def test_decisions_wait_for_a_server_that_was_killed(
    tables: Callable[..., Path], open_tab: Callable[[str], Tab]
) -> None:
    labels = [Label(f"Q{number}", text, 1, 1, train=9 - number) for number, text in enumerate(WATERS, 1)]
    command = ["review", str(tables(labels)), "--annotator", "ada"]
    server = Server(command)
    try:
        tab = open_tab(server.address)
        tab.press("d")
        tab.wait_for_decisions(Q1="✕ drop")
        server.stop(signal.SIGKILL)
        tab.press("d")
        tab.press("u")
        tab.press("d")
        wait_for(lambda: tab.texts(UNSAVED), ["glacial lake: drop", "pond: unsure", "tarn: drop"])
        assert tab.texts("#unsaved p")[0].startswith("3 changes are not saved. The server does not answer;")
        assert tab.texts("#card h2") == ["mere"], "no card of another label"
        assert tab.find(".row[data-label='Q3']").get_attribute("data-unsaved") == "not saved: unsure"
        tab.press("z")
        wait_for(lambda: tab.texts(UNSAVED), ["glacial lake: drop", "pond: unsure"])
        assert tab.texts("#message") == ["Withdrawn: tarn: drop."]
        assert tab.current == "Q4"

        first_home = server.home
        server = Server(command)
        assert server.home == first_home, "the same port"
        wait_for(lambda: "Open the address" in tab.texts("#unsaved p")[0], True)
        other = open_tab(server.address)
        tab.focus()
        tab.wait_for_decisions(Q1="✕ drop", Q2="✕ drop", Q3="? unsure")
        wait_for(lambda: tab.texts("#unsaved:not([hidden])"), [])
        other.focus()
        other.wait_for_decisions(Q1="✕ drop", Q2="✕ drop", Q3="? unsure")
        other.close()

        # The window is closed while something is unsaved: the next one offers it.
        tab.focus()
        server.stop(signal.SIGKILL)
        tab.press("d")
        wait_for(lambda: tab.texts(UNSAVED), ["tarn: drop"])
        tab.browser.switch_to.new_window("tab")
        spare = tab.browser.current_window_handle
        tab.focus()
        tab.browser.close()
        tab.browser.switch_to.window(spare)
        server = Server(command)
        tab = open_tab(server.address)
        wait_for(lambda: tab.texts(UNSAVED), ["tarn: drop"])
        tab.click("#unsaved li [data-again]")
        tab.wait_for_decisions(Q1="✕ drop", Q2="✕ drop", Q3="? unsure", Q4="✕ drop")
        wait_for(lambda: tab.texts(UNSAVED), [])
    finally:
        server.stop()


@pytest.mark.slow
def test_suggestion_that_waited_is_not_taken_for_a_new_one(
    tables: Callable[..., Path], open_tab: Callable[[str], Tab]
) -> None:
    """Suggestions were made again while the server was down."""
    labels = [
        Label("Q1", "desert", group="beach"),
        Label("Q2", "dune", group="beach"),
        Label("Q3", "pond", group="lake"),
    ]
    command = ["review", str(tables(labels)), "--annotator", "ada"]
    server = Server(command)
    try:
        tab = open_tab(server.address)
        server.stop(signal.SIGKILL)
        tab.press("1")
        tab.press(Keys.ENTER)
        tab.press("1")
        wait_for(lambda: tab.texts(UNSAVED), ["desert: beach", "dune: beach", "pond: lake"])
        tables([replace(each, group="mountain") for each in labels[:2]] + labels[2:])
        server = Server(command)
        other = open_tab(server.address)
        tab.focus()
        for name, button in (("desert", -1), ("dune", 0)):
            wait_for(lambda: tab.texts("#conflict td")[:1] == [name], True)  # noqa: B023 - called at once
            assert "have changed since this tab showed them" in tab.texts("#conflict p")[0]
            assert tab.texts("#conflict p")[0].endswith(f"Not saved: {name}: beach.")
            assert tab.texts("#conflict td")[1:] == ["–", "✓ mountain"]
            tab.browser.find_elements("css selector", "#conflict button")[button].click()
        tab.wait_for_decisions(Q1="✓ mountain", Q3="✓ lake")
        wait_for(lambda: tab.texts(UNSAVED), [])
        assert tab.texts(".row[data-label='Q2'] .candidates span") == ["mountain"], "the list shows the new ones"
        tab.click(".row[data-label='Q2'] .name")
        tab.press("1")
        tab.wait_for_decisions(Q1="✓ mountain", Q2="✓ mountain", Q3="✓ lake")
        other.focus()
        other.close()
    finally:
        server.stop()


@pytest.mark.slow
def test_group_that_was_undone_in_another_window(tab: Tab, server: ServedSession) -> None:
    server.post("propose-group", name="quay", parent="human-made", guideline="Where boats land.")
    wait_for(lambda: len(tab.texts("li[data-name=quay]")), 1)
    # The page must not notice the other changes before the click, as in the background.
    tab.browser.execute_script("Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    server.post("undo")
    server.post("decide", choose="drop", focus="0:Q1")
    tab.click("#groups button[value='group:quay']")
    wait_for(lambda: tab.texts(UNSAVED), ["lake: quay"])
    assert tab.texts("#unsaved li small") == ["this group does not exist (any more)"]
    wait_for(lambda: tab.texts("#card .now"), ["Decision: –"])
    assert tab.texts("#card h2") == tab.texts(".current .name") == ["glacial lake"]
    tab.press("d")
    tab.wait_for_decisions(Q1="✕ drop", Q2="✕ drop")
    assert tab.texts(UNSAVED) == ["lake: quay"], "which the decision on another label leaves alone"
    tab.click("#unsaved [data-discard]")
    wait_for(lambda: tab.texts(UNSAVED), [])
    tab.press("z")
    tab.wait_for_decisions(Q1="✕ drop")


@pytest.mark.slow
def test_conflict_is_not_answered_by_the_key_for_the_next_label(tab: Tab, server: ServedSession) -> None:
    tab.browser.execute_script("Object.defineProperty(document, 'hidden', { get: () => true })")
    server.post("decide", choose="drop", focus="0:Q1")
    tab.press(Keys.ENTER)
    wait_for(lambda: tab.find("#conflict").is_displayed(), True)
    tab.press(Keys.ENTER)
    assert tab.find("#conflict").is_displayed()
    tab.press(Keys.ESCAPE)
    wait_for(lambda: tab.texts(UNSAVED), ["lake: lake"])
    tab.click("#unsaved li [data-again]")
    wait_for(lambda: tab.find("#conflict").is_displayed(), True)
    tab.browser.find_elements("css selector", "#conflict button")[-1].click()
    tab.wait_for_decisions(Q1="✓ lake")


@pytest.mark.slow
def test_label_is_decided_again_before_the_first_answer(tab: Tab) -> None:
    tab.browser.execute_script(
        "const send = window.fetch; window.fetch = async (...request) => {"
        " await new Promise(resolve => setTimeout(resolve, 300)); return send(...request); }"
    )
    tab.press("d", "k", "u")
    assert tab.texts("#card h2") == tab.texts(".current .name") == ["glacial lake"]
    assert not tab.find("#card .facts").is_displayed(), "no facts of another label until its own come"
    tab.wait_for_decisions(Q1="? unsure")
    assert not tab.find("#conflict").is_displayed()
    assert history(tab) == ["lake: unsure", "lake: drop"]


def test_typed_text_is_kept(tab: Tab, server: ServedSession) -> None:

    def comment() -> tuple[object, list[str]]:
        value = tab.browser.execute_script("return document.querySelector('.note [name=comment]').value")
        return value, tab.texts("#draft:not([hidden])")

    tab.press("c")
    tab.press("half a ")
    assert comment() == ("half a ", ["not saved"])
    tab.click(".row[data-label='Q2'] .name")
    assert comment() == ("", [])
    assert tab.texts(".row[data-draft] .name") == ["lake"]
    tab.press("d")
    tab.wait_for_decisions(Q2="✕ drop")
    tab.browser.refresh()
    tab.click(".row[data-label='Q1'] .name")
    wait_for(comment, ("half a ", ["not saved"]))
    tab.press("c")
    tab.press(Keys.END, "thought", Keys.ENTER)
    wait_for(lambda: (tab.texts(".row q"), tab.texts(".row[data-draft]")), (["half a thought"], []))
    assert comment() == ("half a thought", [])

    tab.press("a")
    tab.press("quay", Keys.TAB, Keys.TAB, "Where bo")
    server.post("propose-group", name="pier", parent="human-made", guideline="Where boats land.")
    wait_for(lambda: len(tab.texts("li[data-name=pier]")), 1)
    tab.press("ats land, too.", Keys.ENTER)
    wait_for(lambda: len(tab.texts("li[data-name=quay]")), 1)
    wait_for(lambda: tab.texts("#message"), ["Group quay added."])
    assert tab.texts("#propose-group[open]") == []
    tab.press("a")
    tab.press("Pier", Keys.TAB, Keys.TAB, "Twice.", Keys.ENTER)
    wait_for(lambda: tab.texts("#error"), ['There is already a group "Pier"'])
    assert tab.find("#propose-group [name=guideline]").get_property("value") == "Twice.", "the form stays as it is"


@pytest.mark.slow
def test_enter_in_the_name_of_a_new_cluster_splits(tab: Tab) -> None:
    tab.press("x", "s")
    tab.press(Keys.TAB, "still waters", Keys.ENTER)
    wait_for(lambda: tab.texts("#clusters .title"), ["name 1", "name 2", "still waters"])
    assert tab.texts("#message") == ["Lake: moved to cluster 3."]
    tab.click("#undo-step button")
    wait_for(lambda: tab.texts("#clusters .title"), ["name 1", "name 2"])
    assert tab.texts("#undo-step") == ["Redo"]
