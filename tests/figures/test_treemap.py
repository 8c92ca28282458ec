from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from hgld.figures.treemap import build_nodes, draw_tree, squarify, write_tree_page
from tests.axe import violations

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

LANDMARKS = ("landmark", "landmarks")
Box = tuple[float, float, float, float]


def overlap(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    wide = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    high = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(high, 0.0)


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=30),
    st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.5, 20), st.floats(0.5, 20)),
)
def test_squarify_fills_the_box_in_proportion_without_overlap(sizes: list[int], box: Box) -> None:
    left, top, width, height = box
    boxes = squarify(sizes, box)
    area = width * height
    assert len(boxes) == len(sizes)
    for size, (x, y, w, h) in zip(sizes, boxes, strict=True):
        assert w * h == pytest.approx(area * size / sum(sizes), rel=1e-6)
        assert x >= left - 1e-6
        assert y >= top - 1e-6
        assert x + w <= left + width + 1e-6
        assert y + h <= top + height + 1e-6
    for n, one in enumerate(boxes):
        assert all(overlap(one, other) <= 1e-6 * area for other in boxes[:n])


def test_squarify_reproduces_the_example_of_its_paper() -> None:
    # Bruls, Huizing and van Wijk (2000), section 3.1: 6, 6, 4, 3, 2, 2, 1 in a box of 6 by 4.
    boxes = squarify([6, 6, 4, 3, 2, 2, 1], (0, 0, 6, 4))
    assert boxes[:2] == [(0, 0, 3, 2), (0, 2, 3, 2)]
    assert boxes[2] == pytest.approx((3, 0, 12 / 7, 7 / 3))
    assert boxes[3] == pytest.approx((3 + 12 / 7, 0, 9 / 7, 7 / 3))


def test_squarify_without_sizes() -> None:
    assert squarify([], (0, 0, 1, 1)) == []


def test_build_nodes_sums_landmarks_and_sorts_by_size() -> None:
    roots = build_nodes(
        [("natural", "lake", "pond", 2), ("natural", "sea", "bay", 5), ("human-made", "inn", "inn", 1)]
    )
    assert [(root.name, root.landmarks) for root in roots] == [("natural", 7), ("human-made", 1)]
    assert [(group.name, group.landmarks) for group in roots[0].children] == [("sea", 5), ("lake", 2)]
    assert roots[0].children[1].children[0].name == "pond"


def test_names_are_drawn_where_they_fit(tmp_path: Path) -> None:
    leaves = [
        ("natural", "lake", "$x^2$ & <b>", 900),
        ("natural", "lake", "灯台", 90),
        ("natural", "reef", "reef", 1),
    ]
    draw_tree(tmp_path / "tree.svg", build_nodes(leaves), LANDMARKS)
    drawn = (tmp_path / "tree.svg").read_text(encoding="utf-8")
    for name in ("natural  991 landmarks, 2 groups", "lake  990", "$x^2$ &amp; &lt;b&gt;"):
        assert f"<!-- {name} -->" in drawn
    assert "reef" not in drawn, "a thousandth of the area holds no name"


def test_many_roots_are_tiles_with_names(tmp_path: Path) -> None:
    leaves = [(f"order {n:02}", f"genus {n}", f"genus {n}", 34 - n) for n in range(34)]
    draw_tree(tmp_path / "tree.svg", build_nodes(leaves), ("species", "species"))
    drawn = (tmp_path / "tree.svg").read_text(encoding="utf-8")
    assert "<!-- order 00  34 species, 1 groups -->" in drawn
    assert all(f"<!-- order {n:02}" in drawn for n in range(25)), "in columns, few names would fit"
    write_tree_page(tmp_path / "tree.html", build_nodes(leaves), ("entity", "entities"))
    page = BeautifulSoup((tmp_path / "tree.html").read_text(encoding="utf-8"), "html.parser")
    assert [title.get_text() for title in page.select(".tile > title")][-1] == "order 33 › genus 33: 1 entity"
    sides = [
        [float(str(tile.rect[side])) for side in ("x", "y", "width", "height")]
        for tile in page.select(".tile")
        if tile.rect
    ]
    boxes = [(x, y, w, h) for x, y, w, h in sides]
    assert all(overlap(one, other) <= 0.1 for n, one in enumerate(boxes) for other in boxes[:n])
    assert all(x >= 0 and y >= 0 and x + w <= 1300 and y + h <= 820 for x, y, w, h in boxes)


def test_tree_is_reproducible(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_tree(tmp_path / name, build_nodes([("natural", "lake", 3), ("human-made", "inn", 1)]), LANDMARKS)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def page_of(leaves: list[tuple[str, str, str, int]], path: Path) -> BeautifulSoup:
    """Return the page of a tree with these leaves, each with the number of its landmarks."""
    write_tree_page(path, build_nodes(leaves), LANDMARKS)
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def test_page_names_every_tile_however_small(tmp_path: Path) -> None:
    leaves = [
        ("natural", "lake", "<b> & co", 90_000),
        ("natural", "lake", "pond", 9),
        ("human-made", "inn", "inn", 1),
    ]
    page = page_of(leaves, tmp_path / "tree.html")
    assert [title.get_text() for title in page.select(".tile > title")] == [
        "natural › lake: 90,009 landmarks",
        "natural › lake › <b> & co: 90,000 landmarks",
        "natural › lake › pond: 9 landmarks",
        "human-made › inn: 1 landmark",
    ]


def test_areas_of_the_page_are_numbers_of_landmarks(tmp_path: Path) -> None:
    leaves = [("natural", f"group {n}", f"group {n}", 10 * n + 5) for n in range(8)]
    page = page_of(leaves, tmp_path / "tree.html")
    areas = {
        str(tile["data-name"]): float(str(tile.rect["width"])) * float(str(tile.rect["height"]))
        for tile in page.select(".tile")
        if tile.rect
    }
    total = sum(count for *_, count in leaves)
    for _, group, _, count in leaves:
        assert areas[group] / sum(areas.values()) == pytest.approx(count / total, rel=1e-3)


def test_pointing_at_a_tile_says_its_name_and_a_search_fades_others(browser: "Chrome", tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    leaves = [("natural", "lake", f"lake {n}", 100 - n) for n in range(99)]
    write_tree_page(tmp_path / "tree.html", build_nodes(leaves), LANDMARKS)
    browser.get((tmp_path / "tree.html").as_uri())
    smallest = browser.find_elements(By.CSS_SELECTOR, ".label")[-1]
    ActionChains(browser).move_to_element(smallest).perform()
    assert browser.find_element(By.ID, "pointed").text == "natural › lake › lake 98: 2 landmarks"
    assert violations(browser) == []
    browser.find_element(By.CSS_SELECTOR, "input").send_keys("LAKE 9")
    assert browser.find_element(By.ID, "count").text == "10 found"
    assert len(browser.find_elements(By.CSS_SELECTOR, ".tile:not(.away)")) == 10
