"""A session by keyboard alone, whose server is killed after every action that the page has shown as done."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from tests.review.conftest import Label
from tests.review.page.page_server import Server
from tests.review.page.screens import DESKTOP, shown_on
from tests.review.page.tab import Tab, open_tab, wait_for

LABELS = (
    Label("Q1", "lake", 1, 1, train=5, group="lake"),
    Label("Q2", "glacial lake", 1, 1, train=4, group="lake"),
    Label("Q3", "pond", 1, 1, train=3, group="lake"),
    Label("Q4", "quay", 1, 2, train=2),
    Label("Q5", "church building", 2, 3, train=2, group="church"),
)


def decided(**texts: str) -> Callable[[Tab], bool]:
    return lambda tab: {key: text for key, text in tab.decided.items() if text != "–"} == texts


def clusters_are(*names: str) -> Callable[[Tab], bool]:
    return lambda tab: tab.texts("#clusters .title") == list(names)


@pytest.mark.slow
def test_what_was_shown_as_done_is_there_after_every_kill(
    browser: Chrome, tables: Callable[..., Path], tmp_path: Path
) -> None:
    command = ["review", str(tables(LABELS)), "--annotator", "ada"]
    actions: list[tuple[list[tuple[str, ...]], Callable[[Tab], bool]]] = [
        ([(Keys.ENTER,)], decided(Q1="✓ lake")),
        ([("d",)], decided(Q1="✓ lake", Q2="✕ drop")),
        ([("c",), ("why", Keys.ENTER)], lambda tab: tab.texts(".row q") == ["why"]),
        (
            [("a",), ("Quay", Keys.TAB, Keys.TAB, "Where boats land.", Keys.ENTER)],
            lambda tab: "Quay" in tab.texts("#groups")[0],
        ),
        ([("g",), ("qua", Keys.ENTER)], decided(Q1="✓ lake", Q2="✕ drop", Q3="✓ Quay")),
        ([("s",), (Keys.TAB, "harbours", Keys.TAB, Keys.ENTER)], clusters_are("cluster 1", "cluster 2", "harbours")),
        ([("z",)], clusters_are("cluster 1", "cluster 2")),
        ([("r",), ("waters", Keys.ENTER)], clusters_are("waters", "cluster 2")),
        ([("z",), ("z",)], decided(Q1="✓ lake", Q2="✕ drop")),
        ([("y",)], decided(Q1="✓ lake", Q2="✕ drop", Q3="✓ Quay")),
    ]
    server = Server(command)
    try:
        with open_tab(browser, server.address, [""]) as tab, shown_on(browser, DESKTOP):
            for keys, is_done in actions:
                for several in keys:
                    tab.press(*several)
                wait_for(lambda: is_done(tab), True)  # noqa: B023
                server.stop(signal.SIGKILL)
                server = Server(command)
                tab.go_to(server.address)
                wait_for(lambda: is_done(tab), True)  # noqa: B023
    finally:
        server.stop()
