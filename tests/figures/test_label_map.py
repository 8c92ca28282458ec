"""The map of labels, as an image and as a page."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.figures.label_map import LabelMap, MapPhotograph, draw_label_map, place_names, write_label_page
from tests.axe import violations

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

#: Labels that break a page or a picture unless they are treated as text.
NASTY = ['<small> "inn"', "</script><script>document.title = 'broken'</script>", "$x^2$ & $", "灯台", "a' b"]


def label_map(labels: list[str], clusters: list[int] | None = None) -> LabelMap:
    n = len(labels)
    rng = np.random.default_rng(0)
    cluster = np.asarray(clusters or [1 + row % 3 for row in range(n)], np.int32)
    return LabelMap(
        positions=rng.normal(size=(n, 2)),
        labels=labels,
        landmarks=np.arange(1000, 1000 - n, -1),
        cluster=cluster,
        subcluster=np.ones(n, np.int32),
        names={int(number): f"name of {labels[0]}" for number in np.unique(cluster)},
    )


class Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._elements.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self._elements if name == tag]


def test_page_is_self_contained_and_shows_labels_as_text(tmp_path: Path) -> None:
    labels = [*NASTY, *(f"label {n}" for n in range(100))]
    write_label_page(tmp_path / "map.html", label_map(labels))
    text = (tmp_path / "map.html").read_text(encoding="utf-8")
    page = Elements(text)
    circles = page.all("circle")
    assert [circle["data-label"] for circle in circles] == labels
    assert [circle["data-counted"] for circle in circles[:2]] == ["1,000 landmarks", "999 landmarks"]
    assert [script.get("type") for script in page.all("script")] == ["application/json", None]
    assert not page.all("link")
    assert len(page.all("small")) == 3, "one for each cluster in the legend, none from a label"
    assert not re.search(r"https?:|src=|url\(|@import", text.replace("&#x27;", "'"))
    assert "$" not in re.sub(r"\$x\^2\$ &amp; \$", "", text), "a placeholder is left"
    assert "prefers-color-scheme: dark" in text


def test_other_lists_have_no_landmarks(tmp_path: Path) -> None:
    cheeses = replace(label_map(["brie", "edam"], [1, 1]), nouns=("cheese", "cheeses"), landmarks=np.array([1200, 1]))
    one = replace(label_map(["feta"], [1]), nouns=("cheese", "cheeses"), landmarks=np.array([1]))
    for name, each, counts in (("two", cheeses, "2 labels, 1,201 cheeses"), ("one", one, "1 label, 1 cheese")):
        write_label_page(tmp_path / f"{name}.html", each)
        text = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert f"<small>{counts}</small>" in text
        assert "landmark" not in re.sub(r"// .*|/\*\*.*\*/", "", text)
        draw_label_map(tmp_path / f"{name}.svg", each)
        assert f"<!-- {counts} -->" in (tmp_path / f"{name}.svg").read_text()


def test_files_are_reproducible(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw_label_map(tmp_path / f"{name}.png", label_map(NASTY))
        write_label_page(tmp_path / f"{name}.html", label_map(NASTY))
    for kind in ("png", "html"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


@pytest.mark.parametrize("n", [1, 2, 20])
def test_few_and_many_clusters(tmp_path: Path, n: int) -> None:
    draw_label_map(tmp_path / "map.png", label_map([f"label {row}" for row in range(n)], [*range(1, n + 1)]))
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    write_label_page(tmp_path / "map.html", label_map([f"label {row}" for row in range(n)], [*range(1, n + 1)]))


_NUMBERS = st.floats(0, 100)


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, st.floats(0.5, 20), st.floats(1, 60)), min_size=1, max_size=30))
def test_names_neither_overlap_nor_leave_the_frame(circles: list[tuple[float, float, float, float]]) -> None:
    points = np.array([(x, y) for x, y, _, _ in circles])
    radii = np.array([radius for *_, radius, _ in circles])
    sizes = np.array([(width, 5.0) for *_, width in circles])
    placed = place_names(points, radii, sizes, (0, 0, 100, 100))
    boxes = {n: (*(at - sizes[n] / 2), *(at + sizes[n] / 2)) for n, at in placed.items()}
    for n, (left, low, right, high) in boxes.items():
        assert left >= -1e-9
        assert low >= -1e-9
        assert max(right, high) <= 100 + 1e-9
        for other, box in boxes.items():
            apart = right <= box[0] + 1e-9 or box[2] <= left + 1e-9 or high <= box[1] + 1e-9 or box[3] <= low + 1e-9
            assert n == other or apart


def test_name_is_placed_where_it_covers_least() -> None:
    points = np.array([(50.0, 50.0), (62.0, 50.0)])
    placed = place_names(points, np.array([3.0, 3.0]), np.array([(20.0, 5.0)]), (0, 0, 100, 100))
    assert placed == {0: (35.0, 50.0)}, "to the left, because a circle is on the right"


@pytest.mark.slow
def test_hover_and_search_in_a_browser(browser: "Chrome", tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    labels = [*NASTY, "plain"]
    path = tmp_path / "map.html"
    write_label_page(path, label_map(labels))
    browser.get(path.as_uri())
    hover = browser.find_element(By.ID, "hover")
    circles = browser.find_elements(By.TAG_NAME, "circle")
    assert not hover.is_displayed()
    for row in (0, 1):
        ActionChains(browser).move_to_element(circles[row]).perform()
        assert hover.text.splitlines()[:2] == [labels[row], f"{1000 - row:,} landmarks"]
        assert hover.text.splitlines()[2] == f"cluster {row + 1} (name of {labels[0]}), sub-cluster 1"
    assert browser.title == "6 labels in 3 clusters", "no label was run as a script"

    assert violations(browser) == []
    search = browser.find_element(By.TAG_NAME, "input")
    search.send_keys("INN")
    hidden = ["away" in str(circle.get_attribute("class")) for circle in circles]
    assert [
        circle.get_attribute("data-label") for circle, away in zip(circles, hidden, strict=True) if away
    ] == labels[1:]
    assert browser.find_element(By.TAG_NAME, "output").text == "1 found"
    search.clear()
    browser.find_elements(By.TAG_NAME, "button")[1].click()
    shown = [n for n, circle in enumerate(circles) if "away" not in str(circle.get_attribute("class"))]
    assert shown == [1, 4]
    log = browser.get_log("browser")  # type: ignore[no-untyped-call]
    errors = [entry for entry in log if entry["level"] == "SEVERE"]
    assert errors == []


def test_photographs_in_a_browser(browser: "Chrome", tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    pixel = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
    photographs = {row: [MapPhotograph(f"{NASTY[1]} {row}.{n}", pixel) for n in range(3)] for row in (0, 1, 4)}
    path = tmp_path / "map.html"
    write_label_page(path, label_map([*NASTY, "plain"]), photographs)
    browser.get(path.as_uri())

    def shown(selector: str) -> list[tuple[str, str]]:
        """Texts and alternative texts of the photographs that were loaded."""
        script = """return [...document.querySelectorAll(arguments[0] + " figure")].map(figure =>
            [figure.innerText, figure.querySelector("img").alt, figure.querySelector("img").naturalWidth])"""
        figures = browser.execute_script(script, selector)
        assert all(width == 1 for *_, width in figures)
        return [(text, alt) for text, alt, _ in figures]

    circles = browser.find_elements(By.TAG_NAME, "circle")
    for row, number in ((0, 3), (2, 0), (4, 3)):
        ActionChains(browser).move_to_element(circles[row]).perform()
        names = [f"{NASTY[1]} {row}.{n}" for n in range(number)]
        assert shown("#hover") == [(name, f"Photograph of {name}") for name in names]
    # Rows 1 and 4 are in the second cluster, with one photograph each.
    button = browser.find_elements(By.TAG_NAME, "button")[1]
    button.click()
    assert [text for text, _ in shown("li")] == [NASTY[1], NASTY[4]]
    button.click()
    assert shown("li") == []
    browser.find_element(By.TAG_NAME, "input").send_keys("a' b")
    assert [text for text, _ in shown("#pictures")] == [NASTY[4]]
    assert browser.find_element(By.TAG_NAME, "footer").is_displayed()
    assert browser.title == "6 labels in 3 clusters", "no name was run as a script"
