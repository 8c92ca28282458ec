"""New suggestions while a page is open: the page says so, and takes them when it is loaded again."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys

from hgld.review.decision_files import export_decisions
from hgld.review.session import LabelAction
from tests.commands import run_hgld
from tests.review.conftest import LABELS, Label, write_tables
from tests.review.page.page_server import Server, seen
from tests.review.page.tab import open_tab, wait_for
from tests.review.sessions import decide, open_session

#: Lakes are suggested with a score, and churches, which had no suggestion.
BETTER = [replace(label, group="church" if label.cluster else "lake", score=0.97) for label in LABELS]
NOTICE = "clusters.parquet has new suggestions. Load them Decisions stay."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    clusters = write_tables(tmp_path)
    server = Server(["review", str(clusters), "--annotator", "ada"])
    yield server
    server.stop()


def suggestions(page: str) -> dict[str, str]:
    """Return the first suggestion in each row of a page, by label_id."""
    rows = re.findall(r'data-label="(Q\d)".*?<span class="candidates">(.*?)<span class="decided">', page, re.DOTALL)
    return {label_id: " ".join(re.findall(r"<(?:span|small)>(.*?)<", candidates)) for label_id, candidates in rows}


def test_open_page_offers_new_suggestions(server: Server, browser: Chrome, tmp_path: Path) -> None:
    with open_tab(browser, server.address) as tab:
        tab.go_to(server.home + "?cluster=1")
        tab.press("d")
        tab.wait_for_decisions(Q4="✕ drop")
        tab.press("c")
        tab.press("not a chapel")
        write_tables(tmp_path, BETTER)
        wait_for(lambda: [" ".join(text.split()) for text in tab.texts("#notice")], [NOTICE])
        assert tab.of_rows("row.dataset.candidates") == {"Q3": "", "Q4": ""}
        tab.click("#notice button")
        wait_for(lambda: tab.texts("#notice"), [""])
        wait_for(lambda: tab.of_rows("row.dataset.candidates"), {"Q3": "sure", "Q4": "sure"})
        assert tab.decided["Q4"] == "✕ drop"
        assert tab.current == "Q3"
        assert tab.find(".note input[name=comment]").get_property("value") == "not a chapel", (
            "what was typed is there"
        )
        tab.press(Keys.ESCAPE)
        tab.press(Keys.ENTER)
        # All labels of the cluster are decided, so the page goes to the next one.
        wait_for(lambda: set(tab.decided), {"Q1", "Q2"})
        tab.go_to(server.home + "?cluster=1")
        tab.wait_for_decisions(Q3="✓ church", Q4="✕ drop")


def test_page_takes_the_table_that_is_there_when_it_is_loaded(server: Server, tmp_path: Path) -> None:
    before = {"Q1": "lake", "Q2": ""}
    assert suggestions(server.get("?cluster=0")) == before
    server.post("decide", choose="drop", focus="0:Q1", comment="why")
    write_tables(tmp_path, [replace(label, group="Gruyère") for label in LABELS])
    page = server.get("?cluster=0")
    assert suggestions(page) == before, "a table that cannot be used changes nothing"
    assert "clusters.parquet was written again and cannot be used: " in page
    assert "suggestions are for groups that" in page
    (tmp_path / "clusters.parquet").unlink()
    assert suggestions(server.get("?cluster=0")) == before
    write_tables(tmp_path, [*BETTER, Label("Q5", "pond", 0, 1, group="lake", score=0.5)])
    page = server.get("?cluster=0")
    assert suggestions(page) == {"Q1": "lake 97 %", "Q2": "lake 97 %", "Q5": "lake 50 %"}
    assert "cannot be used" not in page
    assert 'data-decision="drop" data-comment="why"' in page
    server.post("decide", choose=f"take:1@{seen(page, 'Q5')}")
    run_hgld("decisions", tmp_path / "review" / "ada.sqlite", "-o", tmp_path / "ada.csv")
    rows = (tmp_path / "ada.csv").read_text().splitlines()
    assert [row.split(",")[:4] for row in rows[1:]] == [["Q1", "lake", "drop", ""], ["Q5", "pond", "group", "lake"]]


def test_window_learns_of_a_table_that_another_window_loaded(server: Server, tmp_path: Path) -> None:
    page = server.get("?cluster=0")
    (version,) = re.findall(r'data-clusters="([^"]+)"', page)
    shown = f"changes?at_view=cluster%3D0&shown=Q1&label=Q1&since=0&clusters={version}"
    assert server.get(shown) == ""
    write_tables(tmp_path, BETTER)
    assert f'data-clusters="{version}"' not in server.get("?cluster=0"), "the other window"
    assert "has new suggestions" in server.get(shown)


def test_suggestions_for_groups_that_the_annotator_added(tmp_path: Path) -> None:
    """Also after a restart; an annotator without these groups is not offered them."""
    write_tables(tmp_path)
    (tmp_path / "review").mkdir()
    with open_session(tmp_path / "review" / "ada.sqlite") as session:
        session.propose_group("quay", "human-made", "Where boats land.")
        decide(session, LabelAction("group", "quay"), "Q1")
    export_decisions(tmp_path / "review" / "ada.sqlite", tmp_path / "decisions.csv")
    write_tables(tmp_path, [replace(label, group="quay" if label.label_id == "Q2" else "lake") for label in LABELS])
    for annotator, expected in (("ada", "quay"), ("ben", "")):
        server = Server(["review", str(tmp_path / "clusters.parquet"), "--annotator", annotator])
        try:
            assert suggestions(server.get("?cluster=0"))["Q2"] == expected
        finally:
            server.stop()
