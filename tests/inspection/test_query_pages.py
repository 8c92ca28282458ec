"""The pages of worst queries and of differences between methods, in a browser and as HTML."""

import base64
import io
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from PIL import Image

from hgld.datasets.image_dataset import read_images
from hgld.figures.style import level_styles
from hgld.gldv2.image_index import index_images
from hgld.inspection.method_differences import MethodDifferences
from hgld.inspection.photos import FindImage, ManifestImages, Photo, PhotoSource
from hgld.inspection.queries import WorstQueries
from hgld.inspection.query_pages import write_method_differences_page, write_worst_queries_page
from tests.axe import violations
from tests.inspection.toy_pages import HOSTILE, method_differences, photo, photos, picture, worst_queries

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

LONG = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch" * 2
THREE = [[[0, 1, 0, 0], [3, 3, 2, 1]], [[1, 1, 0, -1], [2, 2, 1, -1]], [[3, 3, 3, 3], [3, 2, 0, 0]]]


def worst_page(
    folder: Path,
    worst: WorstQueries,
    image: FindImage = picture,
    describe: Callable[[int], Photo] = photo,
    title: str = "Worst",
    level_names: tuple[str, ...] | None = ("landmark", "hierarchical_label", "root"),
) -> str:
    out = folder / "worst.html"
    write_worst_queries_page(worst, out, PhotoSource(describe, describe, image), title=title, level_names=level_names)
    assert [path.name for path in folder.iterdir()] == ["worst.html"]
    return out.read_text(encoding="utf-8")


def differences_page(
    folder: Path, differences: MethodDifferences, image: FindImage = picture, title: str = "Strips"
) -> Path:
    write_method_differences_page(differences, folder / "strips.html", photos(image), title=title)
    return folder / "strips.html"


def texts(browser: "Chrome", selector: str) -> list[str]:
    return [element.text for element in browser.find_elements("css selector", selector)]


def fits_the_window(browser: "Chrome", url: str, width: int) -> bool:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(url)
        root = "document.documentElement"
        return bool(
            browser.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth && innerWidth == {width}")
        )
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# The worst queries


def test_worst_page_shows_queries_items_and_levels(browser: "Chrome", tmp_path: Path) -> None:
    worst_page(tmp_path, worst_queries([[3, 2, 1, 0], [0, 0, 1, -1]]))
    browser.get((tmp_path / "worst.html").as_uri())

    def alt_texts(selector: str) -> list[str | None]:
        return [image.get_attribute("alt") for image in browser.find_elements("css selector", f"{selector} img")]

    assert texts(browser, "header p")[0] == (
        "The 2 queries with the lowest H-AP, lowest first, with their nearest items."
    )
    assert texts(browser, ".query h2") == ["1. Landmark 10", "2. Landmark 11"]
    assert texts(browser, ".query:first-child td") == ["10.00 %", "1.23 %"]
    assert texts(browser, ".query:first-child .query-card .badge") == ["l3: 1", "l2: 9", "l1: 90"]
    assert texts(browser, ".query:first-child .items .badge") == [
        "level 3\n0.900", "level 2\n0.800", "level 1\n0.700", "level 0\n0.600",
    ]  # fmt: skip
    assert len(texts(browser, ".query:last-child .items li")) == 3
    assert alt_texts(".query-card") == ["query 1: Landmark 10, lakes", "query 2: Landmark 11, lakes"]
    assert alt_texts(".items")[:2] == ["rank 1, level 3: Landmark 0, lakes", "rank 2, level 2: Landmark 1, lakes"]
    assert texts(browser, "header .badges li") == [
        "level 3 landmark", "level 2 hierarchical label", "level 1 root", "level 0 nothing shared",
    ]  # fmt: skip
    assert not texts(browser, ".method")
    assert browser.execute_script("return [...document.images].every(image => image.naturalWidth == 128)")
    link = browser.find_element("link text", "id10")
    assert link.get_attribute("href") == "https://example.org/10.jpg"

    frames = browser.execute_script(
        "return [...document.querySelectorAll('.query:first-child .items .photo')]"
        ".map(frame => getComputedStyle(frame).borderTopColor.match(/[0-9.]+/g).map(Number))"
    )
    colours = ["#" + "".join(f"{round(part):02x}" for part in frame) for frame in frames]
    assert colours == [style.colour for style in level_styles(3, None)]
    badges = browser.execute_script(
        "return [...document.querySelectorAll('.query:first-child .items .badge')]"
        ".map(badge => getComputedStyle(badge).backgroundColor.match(/[0-9.]+/g).map(Number))"
    )
    assert badges == frames
    assert violations(browser) == []


def test_worst_page_escapes_hostile_names(browser: "Chrome", tmp_path: Path) -> None:
    def describe(position: int) -> Photo:
        return Photo(HOSTILE + str(position), (HOSTILE, HOSTILE), "javascript:document.title='broken'")

    worst_page(tmp_path, worst_queries([[3, 0]]), describe=describe, title=HOSTILE, level_names=(HOSTILE, "a", "b"))
    browser.get((tmp_path / "worst.html").as_uri())
    assert browser.title == HOSTILE
    assert browser.find_element("css selector", "h2").text == f"1. {HOSTILE}"
    assert browser.find_element("css selector", ".items .id").text == HOSTILE + "0"
    assert not browser.find_elements("css selector", "a, img[src=x], script")
    assert browser.find_element("css selector", ".items img").get_attribute("alt") == (
        f"rank 1, level 3: {HOSTILE}, {HOSTILE}"
    )


def test_missing_photograph_is_replaced_by_its_id(tmp_path: Path) -> None:
    damaged = io.BytesIO()
    Image.effect_noise((200, 200), 60).save(damaged, "JPEG")

    def image(image_id: str) -> Image.Image | None:
        if image_id == "id1":
            return Image.open(io.BytesIO(damaged.getvalue()[:900]))
        return None if image_id in {"id0", "id10"} else picture(image_id)

    html = worst_page(tmp_path, worst_queries([[3, 2, 1]]), image)
    assert re.findall(r'role="img" aria-label="([^"]*)">(\w+)<', html) == [
        ("query 1: Landmark 10, lakes, no photograph", "id10"),
        ("rank 1, level 3: Landmark 0, lakes, no photograph", "id0"),
        ("rank 2, level 2: Landmark 1, lakes, no photograph", "id1"),
    ]
    assert html.count("<img ") == 1
    assert "3 of 4 photographs are not available" in html


def test_page_without_names_and_photographs_shows_ids(tmp_path: Path) -> None:
    html = worst_page(
        tmp_path, worst_queries([[2, 0]], n_levels=2), lambda _: None, lambda i: Photo(f"id{i}"), level_names=None
    )
    assert '<h2 dir="auto">1. id10</h2>' in html
    assert 'aria-label="rank 1, level 2: id0, no photograph"' in html
    assert "of 2" in html


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "I;16", "1"])
def test_photographs_of_any_mode_become_small_jpegs(tmp_path: Path, mode: str) -> None:
    html = worst_page(tmp_path, worst_queries([[3]]), lambda _: Image.new(mode, (60, 300)))
    for data in re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html):
        thumbnail = Image.open(io.BytesIO(base64.b64decode(data)))
        assert (thumbnail.format, thumbnail.mode, thumbnail.size) == ("JPEG", "RGB", (26, 128))


def test_photographs_are_rotated_by_their_exif_orientation(tmp_path: Path) -> None:
    rotated = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (300, 100)).save(rotated, "JPEG", exif=exif)
    html = worst_page(tmp_path, worst_queries([[3]]), lambda _: Image.open(rotated))
    data = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html)[0]
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (43, 128)


def test_levels_of_any_hierarchy_have_distinct_colours(tmp_path: Path) -> None:
    for n_levels in (1, 2, 3, 5):
        html = worst_page(tmp_path, worst_queries([[0]], n_levels=n_levels), level_names=None)
        colours = re.findall(r"\.level-(\d+) \{ --level: (#[0-9a-f]{6}); \}", html)
        assert [int(level) for level, _ in colours] == list(range(n_levels, -1, -1))
        assert len({colour for _, colour in colours}) == n_levels + 1


def test_page_of_550_photographs_is_smaller_than_five_megabytes(shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in sorted((shared / "wa_gldv2" / "train").glob("*.tar")):
        shutil.copy(path, folder)
    index_images(folder, tmp_path / "images.parquet")
    ids = pd.read_parquet(tmp_path / "images.parquet")["id"][:60].tolist()
    out = tmp_path / "page" / "worst.html"
    find = ManifestImages(read_images(tmp_path / "images.parquet"), folder)
    source = PhotoSource(query=lambda i: Photo(ids[i]), gallery=lambda i: Photo(ids[i]), image=find)
    write_worst_queries_page(worst_queries([[0] * 10] * 50), out, source)
    assert out.read_text(encoding="utf-8").count("data:image/jpeg") == 550
    assert out.stat().st_size < 5e6


# Differences between methods


def test_differences_page_shows_both_directions_and_both_methods(browser: "Chrome", tmp_path: Path) -> None:
    browser.get(differences_page(tmp_path, method_differences(THREE, 2)).as_uri())
    assert texts(browser, "header p")[0] == (
        "Of 1,234 queries, HAPPIER has a higher H-AP for 1,200 and a lower one for 34; the mean difference from "
        "Smooth-AP is −1.2 points. Below are the queries that differ most, in both directions, each landmark at most "
        "once."
    )
    assert texts(browser, "main h2, main h3") == [
        "HAPPIER ranks better than Smooth-AP", "1. Landmark 10", "2. Landmark 11",
        "HAPPIER ranks worse than Smooth-AP", "1. Landmark 12",
    ]  # fmt: skip
    assert texts(browser, ".query-card p:last-of-type") == [
        "H-AP +25.0 points", "H-AP +25.0 points", "H-AP −12.5 points",
    ]  # fmt: skip
    assert texts(browser, ".method") == [
        "Smooth-AP\nH-AP 50.00 %\nAP_l3 1.23 %", "HAPPIER\nH-AP 75.00 %\nAP_l3 1.23 %",
        "Smooth-AP\nH-AP 50.00 %\nAP_l3 1.23 %", "HAPPIER\nH-AP 75.00 %\nAP_l3 1.23 %",
        "Smooth-AP\nH-AP 50.00 %\nAP_l3 1.23 %", "HAPPIER\nH-AP 37.50 %\nAP_l3 1.23 %",
    ]  # fmt: skip
    assert not texts(browser, "table")
    frames = browser.execute_script(
        "return [...document.querySelectorAll('.items')].map(strip => [...strip.querySelectorAll('.photo')]"
        ".map(frame => getComputedStyle(frame).borderTopColor.match(/[0-9]+/g).map(Number)))"
    )
    colour = {
        style.level: [int(style.colour[at : at + 2], 16) for at in (1, 3, 5)] for style in level_styles(3, None)
    }
    strips = [strip for query in THREE for strip in query]
    assert frames == [[colour[level] for level in strip if level >= 0] for strip in strips]
    assert texts(browser, "header .badges li")[1] == "level 2 hierarchical label"


@pytest.mark.parametrize("width", [390, 820, 1280])
def test_pages_fit_the_window(browser: "Chrome", tmp_path: Path, width: int) -> None:
    worst = worst_queries([[3, 2, 1, 0] * 3] * 2)
    worst_page(tmp_path, worst, describe=lambda position: Photo(LONG + str(position), (LONG, LONG)))
    differences_page(tmp_path, method_differences([[[3, 2, 1, 0] * 3] * 2] * 2, 1, (LONG, "HAPPIER")))
    for name in ("worst", "strips"):
        assert fits_the_window(browser, (tmp_path / f"{name}.html").as_uri(), width)


def test_differences_page_escapes_hostile_names(browser: "Chrome", tmp_path: Path) -> None:
    differences = replace(method_differences(THREE, 2, (HOSTILE, HOSTILE)), level_names=(HOSTILE,) * 3)
    browser.get(differences_page(tmp_path, differences, title=HOSTILE).as_uri())
    assert browser.title == HOSTILE
    assert browser.find_element("css selector", ".method b").text == HOSTILE
    assert not browser.find_elements("css selector", "img[src=x], script")


def test_differences_page_without_photographs_and_without_degraded_queries(tmp_path: Path) -> None:
    html = differences_page(tmp_path, method_differences(THREE[:1], 1), lambda _: None).read_text()
    assert 'aria-label="rank 4, level 1: Landmark 3, lakes, no photograph">id3<' in html
    assert "5 of 5 photographs are not available" in html
    assert html.count("<p>No queries.</p>") == 1
    assert "<img" not in html
