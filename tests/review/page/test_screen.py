"""Accepting all sure suggestions on the screen, in a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.review.conftest import Label
from tests.review.page.page_server import ServedSession, serve_clusters
from tests.review.page.tab import open_tab, wait_for

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

#: More labels than fit on a screen: most are sure, three are not.
LABELS = [
    Label(f"Q{n}", f"lake {n}", 1, 1, train=100 - n, group="lake", score=0.6 if n in (3, 5, 8) else 0.97)
    for n in range(1, 61)
]


@pytest.fixture
def server(tables: Callable[..., Path]) -> Iterator[ServedSession]:
    with serve_clusters(tables(LABELS)) as served:
        yield served


@pytest.mark.slow
def test_sure_suggestions_on_the_screen_are_accepted_with_one_key(browser: Chrome, server: ServedSession) -> None:
    from selenium.webdriver import Keys

    with open_tab(browser, server.address) as tab:
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
