"""The page of the queries that are ranked worst."""

from __future__ import annotations

import base64
import io
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.evaluate import evaluate_retrieval
from hgld.evaluation.relevance_judgements import LabelJudgements
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.gldv2.image_index import index_images
from hgld.gldv2.tar_images import ImageReader
from hgld.hierarchy import Hierarchy
from hgld.inspection.photo_page import Photo, names_of
from hgld.inspection.thumbnails import images_in_folder, images_in_shards, images_of_manifest
from hgld.inspection.top_k import Found
from hgld.inspection.worst_queries import Worst, find_worst_queries
from hgld.inspection.worst_queries_page import worst_page
from hgld.ragged import RaggedIndices
from tests.datasets.pictures import manifest_of, save
from tests.datasets.pictures import picture as picture_bytes
from tests.gldv2.test_image_index import write_tar

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

HOSTILE = """</title><img src=x onerror="document.title='broken'">'"&{{ 7 * 7 }}"""


def worst(levels: list[list[int]], n_levels: int = 3) -> Worst:
    """Queries 10, 11, ... with the gallery items 0, 1, ... of these levels; -1: the gallery has no more."""
    found = np.array(levels)
    n, k = found.shape
    positions = np.where(found < 0, -1, np.arange(k))
    per_query = {"H-AP": np.linspace(0.1, 0.2, n), f"AP_l{n_levels}": np.full(n, 0.0123)}
    or_finer = {f"positives_l{level}": np.full(n, 10 ** (n_levels - level)) for level in range(1, n_levels + 1)}
    return Worst(
        metric="H-AP",
        n_levels=n_levels,
        per_query=pd.DataFrame(per_query | or_finer),
        queries=np.arange(n) + 10,
        found=Found(
            scores=np.where(found < 0, np.nan, 0.9 - 0.1 * np.arange(k)).astype(np.float32),
            positions=positions,
            levels=np.maximum(found, 0),
        ),
    )


def picture(_: str) -> Image.Image:
    return Image.new("RGB", (200, 100), "teal")


def photo(position: int) -> Photo:
    return Photo(f"id{position}", (f"Landmark {position}", "lakes"), f"https://example.org/{position}.jpg")


def page(
    folder: Path,
    found: Worst,
    image: Callable[[str], Image.Image | None] = picture,
    about: Callable[[int], Photo] = photo,
    title: str = "Worst",
    level_names: tuple[str, ...] | None = ("landmark", "hierarchical_label", "root"),
) -> str:
    out = folder / "worst.html"
    worst_page(found, out, query=about, gallery=about, image=image, title=title, level_names=level_names)
    assert [path.name for path in folder.iterdir()] == ["worst.html"]
    return out.read_text(encoding="utf-8")


# Which queries


def alone(embeddings: np.ndarray, labels: np.ndarray) -> RetrievalTask:
    vectors = torch.from_numpy(embeddings)
    return RetrievalTask("alone", vectors, vectors, LabelJudgements(labels, labels))


def test_the_lowest_come_first_with_their_nearest_items() -> None:
    rng = np.random.default_rng(2)
    embeddings = rng.normal(size=(60, 6)).astype(np.float32)
    rows = np.arange(60)
    labels = np.stack([rows // 3, rows // 15], axis=1)
    labels[-1] = 99  # shares nothing with anyone: it has no value
    result = evaluate_retrieval(embeddings, labels)
    itself = RaggedIndices.of([[row] for row in range(60)])
    gallery_mask = rows % 7 != 0
    task = replace(alone(embeddings, labels), excluded=itself, gallery_mask=gallery_mask)
    found = find_worst_queries(result, task, metric="AP_l1", n=7, k=4)

    values = result.per_query["AP_l1"].to_numpy()
    assert found.queries.tolist() == sorted(range(59), key=lambda row: values[row])[:7]
    assert found.per_query.equals(result.per_query.loc[found.queries])
    lengths = np.linalg.norm(embeddings, axis=1)
    scores = embeddings @ embeddings.T / lengths / lengths[:, None]
    for query, positions, levels, shown in zip(
        found.queries, found.found.positions, found.found.levels, found.found.scores, strict=True
    ):
        allowed = [item for item in rows if item != query and gallery_mask[item]]
        assert positions.tolist() == sorted(allowed, key=lambda item, query=query: -scores[query, item])[:4]
        assert levels.tolist() == (labels[positions] == labels[query]).sum(axis=1).tolist()
        np.testing.assert_allclose(shown, scores[query, positions], atol=1e-6)


def test_there_may_be_fewer_queries_and_items_than_asked_for() -> None:
    embeddings, labels = np.eye(3), np.array([[0], [0], [1]])
    result = evaluate_retrieval(embeddings, labels)
    itself = RaggedIndices.of([[0], [1], [2]])
    found = find_worst_queries(result, replace(alone(embeddings, labels), excluded=itself))
    assert found.queries.tolist() == [0, 1]  # equal: in the order of the queries
    assert found.found.positions[:, :3].tolist() == [[1, 2, -1], [0, 2, -1]]
    assert found.found.levels[:, :3].tolist() == [[1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "mAP"}, r"the result has no mAP; take one of mAP@R, R@1"),
        ({"n": 0}, "the 0 worst queries are asked for"),
        ({"k": 0}, "the 0 nearest items are asked for"),
    ],
)
def test_what_cannot_be_asked_for_is_told(change: dict[str, object], message: str) -> None:
    embeddings, labels = np.eye(2), np.array([[0], [0]])
    result = evaluate_retrieval(embeddings, labels)
    with pytest.raises(ConfigurationError, match=message):
        find_worst_queries(result, alone(embeddings, labels), **change)


def test_positions_in_a_part_of_a_result_are_not_those_of_queries() -> None:
    embeddings, labels = np.eye(2), np.array([[0], [0]])
    part = evaluate_retrieval(embeddings, labels).part("public", np.array([False, True]))
    with pytest.raises(ConfigurationError, match="the result is of 1 queries, but the task has 2; give"):
        find_worst_queries(part, alone(embeddings, labels))


# The page


def test_the_page_shows_queries_items_and_levels(browser: Chrome, tmp_path: Path) -> None:
    page(tmp_path, worst([[3, 2, 1, 0], [0, 0, 1, -1]]))
    browser.get((tmp_path / "worst.html").as_uri())

    def all_of(selector: str) -> list[str]:
        return [element.text for element in browser.find_elements("css selector", selector)]

    def alt_texts(selector: str) -> list[str | None]:
        return [image.get_attribute("alt") for image in browser.find_elements("css selector", f"{selector} img")]

    assert all_of(".query h2") == ["1. Landmark 10", "2. Landmark 11"]
    assert all_of(".query:first-child td") == ["10.00 %", "1.23 %"]
    assert all_of(".query:first-child .asked .mark") == ["1 of l3", "9 of l2", "90 of l1"]
    assert all_of(".query:first-child .found .mark") == [
        "level 3\n0.900", "level 2\n0.800", "level 1\n0.700", "level 0\n0.600",
    ]  # fmt: skip
    assert len(all_of(".query:last-child .found li")) == 3
    assert alt_texts(".asked") == ["query 1: Landmark 10, lakes", "query 2: Landmark 11, lakes"]
    assert alt_texts(".found")[:2] == ["rank 1, level 3: Landmark 0, lakes", "rank 2, level 2: Landmark 1, lakes"]
    assert all_of("header .marks li") == [
        "level 3 landmark", "level 2 hierarchical label", "level 1 root", "level 0 nothing shared",
    ]  # fmt: skip
    assert browser.execute_script("return [...document.images].every(image => image.naturalWidth == 128)")
    link = browser.find_element("link text", "id10")
    assert link.get_attribute("href") == "https://example.org/10.jpg"

    frames = browser.execute_script(
        "return [...document.querySelectorAll('.query:first-child .found .photo')]"
        ".map(frame => getComputedStyle(frame).borderTopColor.match(/[0-9.]+/g).map(Number))"
    )
    green, orange, yellow, red = frames
    assert green[1] == max(green)
    assert max(orange) == orange[0] > orange[1] + 50 > orange[2]
    assert orange[1] + 40 < yellow[1] < yellow[0]
    assert max(red) == red[0] > red[1] + 60
    marks = browser.execute_script(
        "return [...document.querySelectorAll('.query:first-child .found .mark')]"
        ".map(mark => getComputedStyle(mark).backgroundColor.match(/[0-9.]+/g).map(Number))"
    )
    assert marks == frames


@pytest.mark.parametrize("width", [390, 820, 1280])
def test_nothing_is_wider_than_the_window(browser: Chrome, tmp_path: Path, width: int) -> None:
    long = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch" * 2
    page(tmp_path, worst([[3, 2, 1, 0] * 3] * 2), about=lambda position: Photo(long + str(position), (long, long)))
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get((tmp_path / "worst.html").as_uri())
        root = "document.documentElement"
        assert browser.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth && innerWidth == {width}")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_hostile_names_are_only_text(browser: Chrome, tmp_path: Path) -> None:
    def about(position: int) -> Photo:
        return Photo(HOSTILE + str(position), (HOSTILE, HOSTILE), "javascript:document.title='broken'")

    page(tmp_path, worst([[3, 0]]), about=about, title=HOSTILE, level_names=(HOSTILE, "a", "b"))
    browser.get((tmp_path / "worst.html").as_uri())
    assert browser.title == HOSTILE
    assert browser.find_element("css selector", "h2").text == f"1. {HOSTILE}"
    assert browser.find_element("css selector", ".found .id").text == HOSTILE + "0"
    assert not browser.find_elements("css selector", "a, img[src=x], script")
    assert browser.find_element("css selector", ".found img").get_attribute("alt") == (
        f"rank 1, level 3: {HOSTILE}, {HOSTILE}"
    )


def test_a_photograph_that_is_missing_is_a_box_with_its_id(tmp_path: Path) -> None:
    damaged = io.BytesIO()
    Image.effect_noise((200, 200), 60).save(damaged, "JPEG")

    def image(image_id: str) -> Image.Image | None:
        if image_id == "id1":
            return Image.open(io.BytesIO(damaged.getvalue()[:900]))
        return None if image_id in {"id0", "id10"} else picture(image_id)

    html = page(tmp_path, worst([[3, 2, 1]]), image)
    assert re.findall(r'role="img" aria-label="([^"]*)">(\w+)<', html) == [
        ("query 1: Landmark 10, lakes, no photograph", "id10"),
        ("rank 1, level 3: Landmark 0, lakes, no photograph", "id0"),
        ("rank 2, level 2: Landmark 1, lakes, no photograph", "id1"),
    ]
    assert html.count("<img ") == 1
    assert "3 of 4 photographs are not at hand" in html


def test_without_names_and_photographs_the_ids_remain(tmp_path: Path) -> None:
    html = page(tmp_path, worst([[2, 0]], n_levels=2), lambda _: None, lambda i: Photo(f"id{i}"), level_names=None)
    assert '<h2 dir="auto">1. id10</h2>' in html
    assert 'aria-label="rank 1, level 2: id0, no photograph"' in html
    assert "of 2" in html


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "I;16", "1"])
def test_photographs_of_any_kind_become_small_jpegs(tmp_path: Path, mode: str) -> None:
    html = page(tmp_path, worst([[3]]), lambda _: Image.new(mode, (60, 300)))
    for data in re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html):
        thumbnail = Image.open(io.BytesIO(base64.b64decode(data)))
        assert (thumbnail.format, thumbnail.mode, thumbnail.size) == ("JPEG", "RGB", (26, 128))


def test_photographs_are_turned_as_the_camera_says(tmp_path: Path) -> None:
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (300, 100)).save(turned, "JPEG", exif=exif)
    html = page(tmp_path, worst([[3]]), lambda _: Image.open(turned))
    data = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html)[0]
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (43, 128)


def test_the_levels_of_any_hierarchy_have_colours(tmp_path: Path) -> None:
    for n_levels in (1, 2, 3, 5):
        html = page(tmp_path, worst([[0]], n_levels=n_levels), level_names=None)
        colours = re.findall(r"\.level-(\d+) \{ --level: (#[0-9a-f]{6}); \}", html)
        assert [int(level) for level, _ in colours] == list(range(n_levels, -1, -1))
        assert len({colour for _, colour in colours}) == n_levels + 1


def test_fifty_queries_with_ten_photographs_each_stay_below_five_megabytes(shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in sorted((shared / "wa_gldv2" / "train").glob("*.tar")):
        shutil.copy(path, folder)
    index_images(folder, tmp_path / "images.parquet")
    reader = ImageReader(tmp_path / "images.parquet", folder)
    ids = pd.read_parquet(tmp_path / "images.parquet")["id"][:60].tolist()
    out = tmp_path / "page" / "worst.html"
    found = worst([[0] * 10] * 50)
    worst_page(
        found, out, query=lambda i: Photo(ids[i]), gallery=lambda i: Photo(ids[i]), image=images_in_shards(reader)
    )
    assert out.read_text(encoding="utf-8").count("data:image/jpeg") == 550
    assert out.stat().st_size < 5e6


# Where photographs and names come from


def test_photographs_are_found_in_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    Image.new("RGB", (3, 1)).save(tmp_path / "a" / "b" / "c" / "abcd.jpg")
    Image.new("RGB", (2, 1)).save(tmp_path / "x.png")
    (tmp_path / "text.jpg").write_text("no picture")
    Image.new("RGB", (9, 9)).save(tmp_path.parent / "outside.jpg")
    find = images_in_folder(tmp_path)
    assert [image and image.width for image in map(find, ["abcd", "x", "abce", "text"])] == [3, 2, None, None]
    assert [find(hostile) for hostile in ("../outside", "", "a/b/c/abcd", "..", "x\x00")] == [None] * 5


def test_photographs_are_found_in_tar_files(tmp_path: Path) -> None:
    data = io.BytesIO()
    Image.new("RGB", (3, 1)).save(data, "JPEG")
    write_tar(tmp_path / "tars" / "0.tar", {"a.jpg": data.getvalue(), "text.jpg": b"no picture"})
    index_images(tmp_path / "tars", tmp_path / "images.parquet")
    find = images_in_shards(ImageReader(tmp_path / "images.parquet", tmp_path / "tars"))
    assert [image and image.width for image in map(find, ["a", "text", "absent"])] == [3, None, None]
    write_tar(tmp_path / "tars" / "0.tar", {"a.jpg": b"another"})
    find = images_in_shards(ImageReader(tmp_path / "images.parquet", tmp_path / "tars"))
    with pytest.raises(InputError, match="not the tar file that was indexed"):
        find("a")


def test_photographs_of_a_manifest_are_files_or_in_tar_files(tmp_path: Path) -> None:
    tar, data = tmp_path / "0.tar", picture_bytes("tar")
    write_tar(tar, {"a.jpg": data, "text.jpg": b"no picture"})
    with tarfile.open(tar) as members:
        places = {member.name: (member.offset_data, member.size) for member in members}
    save(tmp_path, "b/plain.png")
    ids = ["a", "text", "plain", "absent", "gone"]
    paths = ["0.tar", "0.tar", "b/plain.png", "b/absent.png", "gone.tar"]
    offsets, sizes = zip(places["a.jpg"], places["text.jpg"], (None, None), (None, None), (512, 9), strict=True)
    manifest = manifest_of(paths, {"landmark": list("xxyyy")}, id=ids, offset=list(offsets), size=list(sizes))
    find = images_of_manifest(manifest, tmp_path)
    assert [image and image.size for image in map(find, ids)] == [(20, 16), None, (20, 16), None, None]
    assert find("unknown") is None
    write_tar(tar, {"a.jpg": b"another"})
    with pytest.raises(InputError, match="not the tar file that was indexed"):
        images_of_manifest(manifest, tmp_path)("a")


def test_names_are_those_of_the_category_and_the_group() -> None:
    frame = pd.DataFrame(
        {
            "split": "train",
            "landmark_id": [7, 3],
            "category": ["http://commons.wikimedia.org/wiki/Category:Caf%C3%A9_de_Flore", "Lake 3"],
            "hierarchical_label": ["restaurants", "lakes"],
            "natural_or_human_made": ["human-made", "natural"],
        }
    )
    hierarchy = Hierarchy.from_pandas(frame)
    labels = hierarchy.labels_of([7, 3])
    assert names_of(hierarchy, labels[0]) == ("Café de Flore", "restaurants")
    assert names_of(hierarchy, labels[1]) == ("Lake 3", "lakes")
    bare = Hierarchy.from_pandas(frame.drop(columns="category"))
    assert names_of(bare, labels[0]) == ("landmark 7", "restaurants")
