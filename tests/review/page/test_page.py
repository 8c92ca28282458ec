"""The page in a browser, served by the real command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from hgld.resources import annotation_file
from hgld.taxonomy.decisions import Decision, read_decisions, write_decisions
from hgld.taxonomy.groups import read_taxonomy
from tests.review.conftest import Label

NASTY = """<img src=x onerror="document.title='broken'"> 'a' "b" </template>"""
LABELS = (
    Label("Q1", "lake", 1, 1, train=5, group="lake"),
    Label("Q2", "glacial lake", 1, 1, train=4, group="lake"),
    Label("Q3", "pond", 1, 1, train=3, group="lake"),
    Label("Q4", NASTY, 1, 2, train=2),
    Label("Q5", "湖 بحيرة", 1, 2, train=1),
    Label("Q6", "church building", 2, 3, train=2, group="church"),
    Label("Q7", "chapel", 2, 3, train=1, group="church"),
)
WAIT_S = 8


def eventually(what, expected):
    """Wait until something is as expected."""
    end = time.monotonic() + WAIT_S
    while (found := what()) != expected:
        assert time.monotonic() < end, f"{found} is not {expected}"
        time.sleep(0.02)


class Server:
    """A command that serves the page, in a process of its own."""

    def __init__(self, arguments):
        command = [sys.executable, "-c", "from hgld.cli import app; app()", *arguments]
        self.process = subprocess.Popen([*command, "--no-open"], stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.process.stdout.read()

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.wait(15)
        self.process.stdout.close()

    def post(self, path, **fields):
        """Somebody else who has the address, in the moment before the page looks again."""
        home = self.address.partition("?token=")[0]
        opener = build_opener(HTTPCookieProcessor())
        opener.open(self.address)
        opener.open(home + path, urlencode(fields).encode()).read()


@pytest.fixture
def clusters(tables):
    return tables(LABELS)


@pytest.fixture
def server(clusters):
    started = Server(["review", str(clusters), "--annotator", "ada"])
    yield started
    started.stop()


class Tab:
    """A tab with the page."""

    def __init__(self, browser, address):
        self.browser = browser
        browser.switch_to.new_window("tab")
        self.handle = browser.current_window_handle
        browser.get_log("browser")
        browser.get(address)

    def focus(self):
        self.browser.switch_to.window(self.handle)

    def press(self, *keys, shift=False):
        from selenium.webdriver import ActionChains, Keys

        actions = ActionChains(self.browser)
        if shift:
            actions.key_down(Keys.SHIFT)
        actions.send_keys(*keys)
        if shift:
            actions.key_up(Keys.SHIFT)
        actions.perform()

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def click(self, selector):
        self.find(selector).click()

    def texts(self, selector):
        """What the elements read, in one look: the page may put new ones in their place at any time."""
        script = "return [...document.querySelectorAll(arguments[0])].map(element => element.innerText.trim())"
        return self.browser.execute_script(script, selector)

    @property
    def decided(self):
        """The decisions of the rows that are shown, as they read."""
        script = (
            "return Object.fromEntries([...document.querySelectorAll('.row')]"
            ".map(row => [row.dataset.label, row.querySelector('.decided').textContent.trim()]))"
        )
        return self.browser.execute_script(script)

    @property
    def current(self):
        return self.browser.execute_script("return document.querySelector('.row.current').dataset.label")

    def sees(self, **decided):
        eventually(lambda: {key: text for key, text in self.decided.items() if text != "–"}, decided)

    def close(self):
        errors = [entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]
        self.focus()
        self.browser.close()
        return errors


@pytest.fixture
def tab(browser, server):
    first = browser.current_window_handle
    opened = Tab(browser, server.address)
    yield opened
    errors = opened.close()
    browser.switch_to.window(first)
    # A refused write is an answer of the server's, and so are the ones that it no longer gives.
    assert [error for error in errors if "409" not in error["message"] and "ERR_CON" not in error["message"]] == []


def test_decide_by_key_undo_and_redo(tab):
    from selenium.webdriver import Keys

    tab.press(Keys.ENTER)
    tab.sees(Q1="✓ lake")
    assert tab.current == "Q2", "the next one is next"
    tab.press("d")
    tab.press("u")
    tab.sees(Q1="✓ lake", Q2="✕ drop", Q3="? unsure")
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
    eventually(lambda: tab.texts("#clusters a[data-cluster='1'] small"), ["✓ all 5"])
    eventually(lambda: tab.current, "Q6")  # the next cluster that has something left
    tab.press("[")
    tab.sees(**everything)
    for _ in range(3):
        tab.press("z")
    tab.sees(Q1="✓ lake", Q2="✕ drop")
    tab.press("y")
    tab.press("y")
    tab.sees(Q1="✓ lake", Q2="✕ drop", Q3="? unsure", Q4="✓ museum")
    assert "50% as suggested" in tab.texts("#status")[0]


def test_a_range_a_comment_and_taking_any_step_back(tab):
    from selenium.webdriver import Keys

    tab.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, shift=True)
    assert tab.find("#selected").text == "3 selected"
    tab.press("d")
    tab.sees(Q1="✕ drop", Q2="✕ drop", Q3="✕ drop")
    assert not tab.find("#selected").is_displayed()
    assert tab.current == "Q4"
    tab.press("c")
    tab.press("<b>why</b>", Keys.ENTER)
    eventually(lambda: tab.texts(".row q"), ["<b>why</b>"])
    tab.press("u")
    tab.sees(Q1="✕ drop", Q2="✕ drop", Q3="✕ drop", Q4="? unsure")
    tab.press("h")
    tab.browser.find_elements("css selector", "#history button")[-1].click()
    tab.sees(Q4="? unsure")
    tab.press("y")
    tab.sees(Q1="✕ drop", Q2="✕ drop", Q3="✕ drop", Q4="? unsure")


def test_decide_by_mouse_in_any_script(tab):
    tab.click(".row[data-label='Q2'] .candidate")
    tab.sees(Q2="✓ lake")
    tab.click(".row[data-label='Q5'] .name")
    assert tab.current == "Q5"
    eventually(lambda: tab.texts("#card h2"), ["湖 بحيرة"])
    tab.click("#groups button[value='group:lake']")
    tab.sees(Q2="✓ lake", Q5="✓ lake")
    tab.click(".row[data-label='Q1'] .tick")
    tab.click(".row[data-label='Q3'] .tick")
    tab.click("footer [value=drop]")
    tab.sees(Q1="✕ drop", Q2="✓ lake", Q3="✕ drop", Q5="✓ lake")
    tab.click("#undo button")
    tab.sees(Q2="✓ lake", Q5="✓ lake")
    tab.click("#clusters a[data-cluster='2']")
    eventually(lambda: tab.current, "Q6")


def test_clusters_and_groups_by_key(tab):
    from selenium.webdriver import Keys

    tab.press("x", "j", "x", "s")
    tab.press(Keys.TAB, "still waters", Keys.TAB, Keys.ENTER)

    def shown():
        return tab.texts("#clusters .title")

    eventually(shown, ["cluster 1", "cluster 2", "still waters"])
    tab.press("r")
    tab.press("the rest", Keys.ENTER)
    eventually(shown, ["the rest", "cluster 2", "still waters"])
    tab.press("a")
    tab.press("quay", Keys.TAB, Keys.TAB, "Where boats land.", Keys.ENTER)
    eventually(lambda: len(tab.texts("li[data-name=quay]")), 1)
    tab.press("g")
    tab.press("qua", Keys.ENTER)
    eventually(lambda: "✓ quay" in tab.decided.values(), True)
    tab.press("m", Keys.TAB, Keys.ENTER)
    eventually(shown, ["cluster 2", "still waters"])


def test_a_label_with_html_is_text(tab):
    tab.click(".row[data-label='Q4'] .name")
    eventually(lambda: tab.texts("#card h2"), [NASTY])
    assert tab.find(".row[data-label='Q4'] .name").text == NASTY
    assert "broken" not in tab.browser.title


def test_a_killed_server_loses_nothing_and_is_missed(browser, clusters):
    first = browser.current_window_handle
    server = Server(["review", str(clusters), "--annotator", "ada"])
    tab = Tab(browser, server.address)
    tab.press("d")
    tab.press("u")
    tab.sees(Q1="✕ drop", Q2="? unsure")
    server.stop(signal.SIGKILL)
    tab.press("d")
    eventually(lambda: "does not answer" in tab.texts("#message")[0], True)
    server = Server(["review", str(clusters), "--annotator", "ada"])
    try:
        browser.get(server.address)
        tab.sees(Q1="✕ drop", Q2="? unsure")
        assert tab.current == "Q3", "it goes on where it was"
        tab.press("z")
        tab.sees(Q1="✕ drop")
    finally:
        tab.close()
        browser.switch_to.window(first)
        server.stop()
    assert server.process.returncode == 0, "told to stop, it stops well"


def test_two_tabs_stay_in_step(tab, server):
    other = Tab(tab.browser, server.address)
    other.press("d")
    other.sees(Q1="✕ drop")
    tab.focus()
    tab.sees(Q1="✕ drop")
    tab.press("z")
    tab.sees()
    other.focus()
    other.sees()
    other.close()
    tab.focus()


@pytest.mark.parametrize(("way", "left"), [("Keep theirs", "✕ drop"), ("Save mine", "✓ lake")])
def test_a_stale_write_shows_the_other_value_beside_ours(tab, server, way, left):
    from selenium.webdriver import Keys

    tab.browser.execute_script("refresh = () => {}")  # the moment before it looks again
    server.post("decide", choose="drop", focus="0:Q1")
    tab.press(Keys.ENTER)
    eventually(lambda: tab.find("#conflict").is_displayed(), True)
    assert tab.texts("#conflict .decision") == ["✕ drop", "✓ lake"]
    (button,) = (
        found for found in tab.browser.find_elements("css selector", "#conflict button") if found.text == way
    )
    button.click()
    tab.browser.refresh()
    tab.sees(Q1=left)


def test_the_page_works_without_script(browser, server):
    def shown():
        page = browser.page_source
        return re.findall(
            r'data-label="Q1"[^>]*data-decision="(\w*)"|<section id="card".*?<h2[^>]*>(.*?)<', page, re.DOTALL
        )

    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(server.address)
        eventually(shown, [("", ""), ("", "lake")])
        browser.find_element("css selector", "footer [value=drop]").click()
        eventually(shown, [("drop", ""), ("", "glacial lake")])
        browser.find_element("css selector", "#undo button").click()
        eventually(shown, [("", ""), ("", "glacial lake")])
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_settling_on_the_page_writes_the_final_decisions(clusters, tmp_path):
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for name, group in (("ada", "lake"), ("ben", "river")):
        rows = [Decision("Q1", "lake", "group", "lake", name, now), Decision("Q3", "pond", "group", group, name, now)]
        write_decisions(tmp_path / f"{name}.csv", rows)
    final = tmp_path / "final.csv"
    files = [str(tmp_path / "ada.csv"), str(tmp_path / "ben.csv"), "--out", str(final)]
    command = ["adjudicate", *files, "--clusters", str(clusters), "--annotator", "cleo"]

    def sitting(*posts: tuple[str, dict[str, str]]) -> None:
        server = Server(command)
        for action, fields in posts:
            server.post(action, **fields)
        server.stop(signal.SIGINT)
        assert server.process.returncode == 0

    def written(taxonomy: Path) -> list[tuple[str, str | None, str]]:
        rows = read_decisions(final, {group.name for group in read_taxonomy(taxonomy)})
        return [(row.label_id, row.group, row.annotator) for row in rows]

    sitting(("decide", {"choose": "take:2", "focus": "0:Q3"}))
    assert written(annotation_file("taxonomy.csv")) == [("Q1", "lake", "ada+ben"), ("Q3", "river", "cleo")]

    # A group of which nobody thought before, at a second sitting; and a third one that finds all settled.
    sitting(
        ("propose-group", {"name": "puddle", "root": "natural", "guideline": "Water that dries up: puddle."}),
        ("decide", {"choose": "group:proposed 2", "focus": "1:Q3"}),
    )
    sitting()
    assert written(tmp_path / "final.taxonomy.csv") == [("Q1", "lake", "ada+ben"), ("Q3", "puddle", "cleo")]
