"""The queries that two methods rank most differently, as a page and as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import evaluate_retrieval
from hgld.evaluation.relevance_judgements import LabelJudgements
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.inspection.method_differences import MethodDifferences, Side, find_method_differences
from hgld.inspection.method_differences_page import write_method_differences_page
from hgld.inspection.method_differences_picture import draw_method_differences
from hgld.inspection.photo_page import level_styles, manifest_photo
from hgld.inspection.thumbnails import FindImage
from hgld.inspection.top_k import Found
from hgld.ragged import RaggedIndices
from tests.datasets.pictures import manifest_of
from tests.inspection.test_worst_queries import HOSTILE, photo, picture

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


def alone(embeddings: np.ndarray, labels: np.ndarray) -> RetrievalTask:
    vectors, n = torch.from_numpy(embeddings), len(embeddings)
    itself = RaggedIndices.of([[row] for row in range(n)])
    return RetrievalTask(
        "alone", vectors, vectors, LabelJudgements(labels, labels), query_labels=labels, excluded=itself
    )


def result(name: str, values: list[float]) -> RetrievalResult:
    return RetrievalResult(name, pd.DataFrame({"H-AP": values}), ("H-AP",), {"queries": len(values)}, {})


def of_classes(classes: list[int]) -> RetrievalTask:
    return alone(np.eye(len(classes), dtype=np.float32), np.array(classes)[:, None])


# Which queries


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.1, 0.25, 0.5, np.nan]), st.sampled_from([0.0, 0.2, 0.5]), st.integers(0, 4)
        ),
        min_size=2,
        max_size=12,
    ),
    st.integers(1, 6),
)
def test_those_that_gain_and_lose_most_are_found_each_class_once(
    rows: list[tuple[float, float, int]], n: int
) -> None:
    baseline, method, classes = map(list, zip(*rows, strict=True))
    task = of_classes(classes)
    found = find_method_differences((result("a", baseline), result("b", method)), (task, task), n=n, k=2)

    differences = [own - other for own, other in zip(method, baseline, strict=True)]
    left = [row for row in range(len(rows)) if abs(differences[row]) > 0]
    better, worse = [], []
    while left:  # the one that differs most, and then all others of its class are gone
        row = max(left, key=lambda row: abs(differences[row]))
        part, most = (better, n - n // 2) if differences[row] > 0 else (worse, n // 2)
        if len(part) < most:
            part.append(row)
            left = [other for other in left if classes[other] != classes[row]]
        else:
            left.remove(row)
    if not better + worse:
        assert found is None
        return
    assert found is not None
    assert found.queries.tolist() == better + worse
    assert found.n_better == len(better)
    known = [difference for difference in differences if not np.isnan(difference)]
    signs = [sum(np.sign(known) == sign) for sign in (1, -1, 0)]
    assert [found.better, found.worse, found.equal] == signs
    assert found.mean == pytest.approx(np.mean(known))
    assert found.differences.tolist() == [differences[row] for row in found.queries]


def test_each_method_shows_what_it_finds() -> None:
    rng = np.random.default_rng(3)
    labels = np.stack([np.arange(24) // 3, np.arange(24) // 12], axis=1)
    both = [rng.normal(size=(24, 5)).astype(np.float32) for _ in range(2)]
    results = [
        replace(evaluate_retrieval(vectors, labels), name=name) for vectors, name in zip(both, "ab", strict=True)
    ]
    found = find_method_differences(
        (results[0], results[1]), (alone(both[0], labels), alone(both[1], labels)), n=4, k=3
    )
    assert found is not None
    assert (found.n_levels, len(found.queries), found.n_better) == (2, 4, 2)
    for side, vectors, whole in zip((found.baseline, found.method), both, results, strict=True):
        assert side.name == whole.name
        assert side.per_query.equals(whole.per_query.iloc[found.queries])
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for query, items, levels in zip(found.queries, side.found.positions, side.found.levels, strict=True):
            order = [item for item in np.argsort(-unit @ unit[query]) if item != query]
            assert items.tolist() == order[:3]
            assert levels.tolist() == (labels[items] == labels[query]).sum(axis=1).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "NDCG"}, "the result has no NDCG; take one of H-AP"),
        ({"n": 0}, "the 0 most different queries are asked for"),
        ({"k": 0}, "the 0 nearest items are asked for"),
    ],
)
def test_what_cannot_be_asked_for_is_told(change: dict[str, object], message: str) -> None:
    task, results = of_classes([0, 1]), (result("a", [0.5, 0.5]), result("b", [0.6, 0.4]))
    with pytest.raises(ConfigurationError, match=message):
        find_method_differences(results, (task, task), **change)


def test_the_two_are_of_the_same_images_with_labels() -> None:
    task, first, second = of_classes([0, 1]), result("a", [0.5, 0.5]), result("b", [0.6, 0.4])
    others = replace(second, per_query=second.per_query.set_axis(["x", "y"]))
    with pytest.raises(ConfigurationError, match="a and b were not evaluated with the same images"):
        find_method_differences((first, others), (task, task))
    more = RetrievalTask(
        "more", task.queries, torch.eye(3)[:, :2], LabelJudgements(np.zeros((2, 1)), np.zeros((3, 1)))
    )
    with pytest.raises(ConfigurationError, match="a and b were not evaluated with the same images"):
        find_method_differences((first, second), (task, more))
    with pytest.raises(ConfigurationError, match="give a task whose images have labels"):
        find_method_differences((first, second), (replace(task, query_labels=None), task))
    with pytest.raises(ConfigurationError, match="the result is of 2 queries, but the task has 3"):
        find_method_differences((first, second), (of_classes([0, 1, 2]), task))


# The page


def differing(
    levels: list[list[list[int]]], n_better: int, names: tuple[str, str] = ("Smooth-AP", "HAPPIER")
) -> MethodDifferences:
    """Of queries 10, 11, ... the levels of what the baseline and the method find; -1: the gallery has no more."""
    n, gain = len(levels), np.where(np.arange(len(levels)) < n_better, 0.25, -0.125)
    sides = []
    for column, name in enumerate(names):
        found = np.array([row[column] for row in levels])
        values = {"H-AP": 0.5 + column * gain, "AP_l3": np.full(n, 0.0123)}
        or_finer = {f"positives_l{level}": np.full(n, 10 ** (3 - level)) for level in (1, 2, 3)}
        positions = np.where(found < 0, -1, np.arange(found.shape[1]))
        scores = np.linspace(0.9, 0.6, found.shape[1], dtype=np.float32) * np.ones((n, 1), np.float32)
        sides.append(Side(name, pd.DataFrame(values | or_finer), Found(scores, positions, np.maximum(found, 0))))
    return MethodDifferences(
        metric="H-AP",
        level_names=("landmark", "hierarchical_label", "root"),
        n_levels=3,
        queries=np.arange(n) + 10,
        n_better=n_better,
        baseline=sides[0],
        method=sides[1],
        better=1200,
        worse=34,
        equal=0,
        mean=-0.012,
    )


THREE = [[[0, 1, 0, 0], [3, 3, 2, 1]], [[1, 1, 0, -1], [2, 2, 1, -1]], [[3, 3, 3, 3], [3, 2, 0, 0]]]


def page(folder: Path, found: MethodDifferences, image: FindImage = picture, title: str = "Strips") -> Path:
    write_method_differences_page(found, folder / "strips.html", query=photo, gallery=photo, image=image, title=title)
    return folder / "strips.html"


def test_the_page_shows_both_directions_and_both_methods(browser: Chrome, tmp_path: Path) -> None:
    browser.get(page(tmp_path, differing(THREE, 2)).as_uri())

    def all_of(selector: str) -> list[str]:
        return [element.text for element in browser.find_elements("css selector", selector)]

    assert (
        "Of 1,234 queries, HAPPIER has the higher H-AP for 1,200 and the lower for 34; the mean difference from "
        in (all_of("header p")[0])
    )
    assert (
        "Smooth-AP is −1.2 points. Below are those that differ most, in both directions, each landmark at most"
        in (all_of("header p")[0])
    )
    assert all_of("main h2, main h3") == [
        "HAPPIER ranks better than Smooth-AP", "1. Landmark 10", "2. Landmark 11",
        "HAPPIER ranks worse than Smooth-AP", "1. Landmark 12",
    ]  # fmt: skip
    assert all_of(".asked p:last-of-type") == ["H-AP +25.0 points", "H-AP +25.0 points", "H-AP −12.5 points"]
    assert all_of(".method") == [
        "Smooth-AP\nH-AP 50.00 %\nAP_l3 1.23 %", "HAPPIER\nH-AP 75.00 %\nAP_l3 1.23 %",
        "Smooth-AP\nH-AP 50.00 %\nAP_l3 1.23 %", "HAPPIER\nH-AP 75.00 %\nAP_l3 1.23 %",
        "Smooth-AP\nH-AP 50.00 %\nAP_l3 1.23 %", "HAPPIER\nH-AP 37.50 %\nAP_l3 1.23 %",
    ]  # fmt: skip
    frames = browser.execute_script(
        "return [...document.querySelectorAll('.found')].map(strip => [...strip.querySelectorAll('.photo')]"
        ".map(frame => getComputedStyle(frame).borderTopColor.match(/[0-9]+/g).map(Number)))"
    )
    colour = {
        level.number: [int(level.colour[at : at + 2], 16) for at in (1, 3, 5)] for level in level_styles(3, None)
    }
    shown = [strip for query in THREE for strip in query]
    assert frames == [[colour[level] for level in strip if level >= 0] for strip in shown]
    assert all_of("header .marks li")[1] == "level 2 hierarchical label"


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(browser: Chrome, tmp_path: Path, width: int) -> None:
    names = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch" * 2, "HAPPIER"
    found = page(tmp_path, differing([[[3, 2, 1, 0] * 3] * 2] * 2, 1, names))
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(found.as_uri())
        root = "document.documentElement"
        assert browser.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth && innerWidth == {width}")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_hostile_names_are_only_text(browser: Chrome, tmp_path: Path) -> None:
    found = replace(differing(THREE, 2, (HOSTILE, HOSTILE)), level_names=(HOSTILE,) * 3)
    browser.get(page(tmp_path, found, title=HOSTILE).as_uri())
    assert browser.title == HOSTILE
    assert browser.find_element("css selector", ".method b").text == HOSTILE
    assert not browser.find_elements("css selector", "img[src=x], script")


def test_without_photographs_and_without_losses_ids_and_words_remain(tmp_path: Path) -> None:
    html = page(tmp_path, differing(THREE[:1], 1), lambda _: None).read_text()
    assert 'aria-label="rank 4, level 1: Landmark 3, lakes, no photograph">id3<' in html
    assert "5 of 5 photographs are not at hand" in html
    assert html.count("<p>No query.</p>") == 1
    assert "<img" not in html


# The picture


def share(path: Path, colour: str) -> float:
    """Of the picture's pixels, those of a colour."""
    return float(where(path, colour).mean())


def where(path: Path, colour: str) -> np.ndarray:
    """Which of the picture's pixels, bool [h, w], have a colour."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    return (pixels == [int(colour[at : at + 2], 16) for at in (1, 3, 5)]).all(axis=2)


def test_frames_of_the_picture_tell_levels(tmp_path: Path) -> None:
    path = tmp_path / "strips.png"
    levels = [[[3] * 2, [2] * 2], [[1] * 2, [0] * 2], [[3] * 2, [2] * 2]]
    draw_method_differences(path, differing(levels, 2), query=photo, gallery=photo, image=picture)
    green, orange, yellow, red = (share(path, level.colour) for level in level_styles(3, None))
    assert (
        green == pytest.approx(orange, rel=0.05) == pytest.approx(2 * yellow, rel=0.1)
    )  # the legend has one of each
    assert yellow == pytest.approx(red, rel=0.05)
    draw_method_differences(path, differing(levels, 2), query=photo, gallery=photo, image=picture, per_part=1)
    assert share(path, level_styles(3, None)[3].colour) < red / 4  # that query is not shown any more


def test_the_picture_shows_whole_photographs_or_ids(tmp_path: Path) -> None:
    path = tmp_path / "strips.png"
    found = differing([[[3], [3]]], 1, ("a_$b", "c^$"))  # no mathematics
    draw_method_differences(
        path, found, query=photo, gallery=photo, image=lambda _: Image.new("RGB", (200, 100), "#123456")
    )
    columns = where(path, "#123456").any(axis=0)
    query = where(path, "#123456")[:, : np.flatnonzero(~columns & (np.cumsum(columns) > 0))[0]]
    height, width = (np.ptp(np.flatnonzero(query.any(axis=axis))) + 1 for axis in (1, 0))
    assert width == pytest.approx(2 * height, abs=3)
    draw_method_differences(path, found, query=photo, gallery=photo, image=lambda _: None)
    assert share(path, "#123456") == 0


# What a manifest tells


def test_classes_that_are_only_numbers_are_named_with_their_level() -> None:
    manifest = manifest_of(["a", "b"], {"landmark": ["17", "Pike Place"], "hierarchical_label": ["4", "markets"]})
    assert manifest_photo(manifest, 0).names == ("landmark 17", "hierarchical label 4")
    assert manifest_photo(manifest, 1).names == ("Pike Place", "markets")
    assert (manifest_photo(manifest, 1).id, manifest_photo(manifest, 1).link) == ("b", None)
