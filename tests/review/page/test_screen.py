"""Accepting suggestions by key, in a browser: one, or all sure ones on the screen."""

import pytest
from selenium.webdriver import Keys

from tests.review.conftest import Label
from tests.review.page.page_server import made
from tests.review.page.tab import Tab, wait_for

#: More labels than fit on a screen: most are sure, three are not, of which one is unlikely.
SCORES = {3: 0.6, 5: 0.03, 8: 0.6}
LABELS = made(
    *(Label(f"Q{n}", f"lake {n}", 1, 1, train=100 - n, group="lake", score=SCORES.get(n, 0.97)) for n in range(1, 61))
)


@pytest.mark.slow
def test_sure_suggestions_on_the_screen_are_accepted_with_one_key(tab: Tab) -> None:
    tab.press("d")
    wait_for(lambda: tab.texts(".current .name"), ["lake 2"])
    decided = ".row[data-decision=group] .name"
    tab.press(Keys.ENTER, shift=True)
    wait_for(lambda: "lake 2" in tab.texts(decided), True)
    accepted = tab.texts(decided)
    assert tab.texts(".current .name") == ["lake 3"], "the first label that is not sure"
    assert not {"lake 1", "lake 3", "lake 5", "lake 8"} & set(accepted), "dropped, or not sure"
    assert "lake 60" not in accepted, "nobody has seen it"
    assert accepted == [f"lake {n}" for n in range(2, 61) if n not in (3, 5, 8)][: len(accepted)]
    tab.press("z")
    wait_for(lambda: tab.texts(decided), [])


@pytest.mark.slow
def test_key_without_a_suggestion_to_take_stays_at_its_label(tab: Tab) -> None:
    tab.browser.execute_script("Object.defineProperty(document, 'hidden', { get: () => true })")  # no polling
    tab.press("jjjj")
    wait_for(lambda: tab.texts("#card h2"), ["lake 5"])
    for key, why in ((Keys.ENTER, "lake 5 has no suggestion of 50 %"), ("2", "lake 5 has no suggestion 2.")):
        tab.press(key)
        assert tab.texts("#message")[0].startswith(why)
        assert (tab.current, tab.texts("#card h2")) == ("Q5", ["lake 5"])
        assert not tab.find("#unsaved").is_displayed(), "no request is kept"
    tab.press("x", "j", "x")
    tab.press("2")
    assert tab.texts("#message") == ["The selected labels have no suggestion 2."]
    assert (tab.current, tab.find("#selected").text) == ("Q6", "2 selected")
    tab.press(Keys.ESCAPE, "k", "1")
    wait_for(lambda: tab.texts(".row[data-decision=group] .name"), ["lake 5"])


def hold(tab: Tab, key: str) -> None:
    """Press a key for as long as the system repeats it four times."""
    event: dict[str, object] = {"key": key, "code": key if len(key) > 1 else f"Key{key.upper()}", "type": "keyDown"}
    event |= {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {"text": key}
    for n in range(5):
        tab.browser.execute_cdp_cmd("Input.dispatchKeyEvent", event | {"autoRepeat": n > 0})
    tab.browser.execute_cdp_cmd("Input.dispatchKeyEvent", event | {"type": "keyUp"})


@pytest.mark.slow
def test_held_key_decides_one_label(tab: Tab) -> None:
    hold(tab, "d")
    hold(tab, "Enter")
    hold(tab, "j")
    assert tab.current == "Q8", "other keys are repeated"
    tab.find("#actions [value=unsure]").send_keys("")  # the focus is on the button
    hold(tab, "Enter")
    decided = {"Q1": "drop", "Q2": "group", "Q8": "unsure"}
    wait_for(lambda: {key: kind for key, kind in tab.decided_kinds.items() if kind}, decided)
    tab.press("c", "why")
    hold(tab, "Enter")
    wait_for(lambda: tab.texts(".row q"), ["why"])
    wait_for(lambda: {key: kind for key, kind in tab.decided_kinds.items() if kind}, decided)
    hold(tab, "z")
    wait_for(lambda: tab.texts(".row q"), [])
    assert {key: kind for key, kind in tab.decided_kinds.items() if kind} == decided, "one step is undone"
