"""Where names and photographs of images come from."""

import io
import tarfile
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from hgld.datasets.image_dataset import read_images
from hgld.errors import InputError
from hgld.gldv2.image_index import index_images
from hgld.hierarchy import Hierarchy
from hgld.inspection.photos import (
    FolderImages,
    ManifestImages,
    landmark_names,
    manifest_photo,
)
from tests.datasets.pictures import manifest_of, picture, save_pictures
from tests.gldv2.test_image_index import write_tar


def test_photographs_in_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    Image.new("RGB", (3, 1)).save(tmp_path / "a" / "b" / "c" / "abcd.jpg")
    Image.new("RGB", (2, 1)).save(tmp_path / "x.png")
    (tmp_path / "text.jpg").write_text("no picture")
    Image.new("RGB", (9, 9)).save(tmp_path.parent / "outside.jpg")
    find = FolderImages(tmp_path)
    assert [image and image.width for image in map(find, ["abcd", "x", "abce", "text"])] == [3, 2, None, None]
    assert [image and image.width for image in map(find, ["x.png", "a/b/c/abcd.jpg", "a/b/c/x.png"])] == [2, 3, None]
    hostile_paths = ("../outside.jpg", str(tmp_path.parent / "outside.jpg"), "a/../../outside.jpg")
    assert [find(hostile) for hostile in hostile_paths] == [None] * 3
    assert [find(hostile) for hostile in ("../outside", "", "a/b/c/abcd", "..", "x\x00")] == [None] * 5


def test_photographs_in_tar_files(tmp_path: Path) -> None:
    data = io.BytesIO()
    Image.new("RGB", (3, 1)).save(data, "JPEG")
    write_tar(tmp_path / "tars" / "0.tar", {"a.jpg": data.getvalue(), "text.jpg": b"no picture"})
    index_images(tmp_path / "tars", tmp_path / "images.parquet")
    find = ManifestImages(read_images(tmp_path / "images.parquet"), tmp_path / "tars")
    assert [image and image.width for image in map(find, ["a", "text", "absent"])] == [3, None, None]
    write_tar(tmp_path / "tars" / "0.tar", {"a.jpg": b"another"})
    find = ManifestImages(read_images(tmp_path / "images.parquet"), tmp_path / "tars")
    with pytest.raises(InputError, match="not the tar file that was indexed"):
        find("a")


def test_photographs_of_a_manifest(tmp_path: Path) -> None:
    tar, data = tmp_path / "0.tar", picture("tar")
    write_tar(tar, {"a.jpg": data, "text.jpg": b"no picture"})
    with tarfile.open(tar) as members:
        places = {member.name: (member.offset_data, member.size) for member in members}
    save_pictures(tmp_path, "b/plain.png")
    ids = ["a", "text", "plain", "absent", "gone"]
    paths = ["0.tar", "0.tar", "b/plain.png", "b/absent.png", "gone.tar"]
    offsets, sizes = zip(places["a.jpg"], places["text.jpg"], (None, None), (None, None), (512, 9), strict=True)
    manifest = manifest_of(paths, {"landmark": list("xxyyy")}, id=ids, offset=list(offsets), size=list(sizes))
    find = ManifestImages(manifest, tmp_path)
    assert [image and image.size for image in map(find, ids)] == [(20, 16), None, (20, 16), None, None]
    assert find("unknown") is None
    write_tar(tar, {"a.jpg": b"another"})
    with pytest.raises(InputError, match="not the tar file that was indexed"):
        ManifestImages(manifest, tmp_path)("a")


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
    assert landmark_names(hierarchy, labels[0]) == ("Café de Flore", "restaurants")
    assert landmark_names(hierarchy, labels[1]) == ("Lake 3", "lakes")
    without_categories = Hierarchy.from_pandas(frame.drop(columns="category"))
    assert landmark_names(without_categories, labels[0]) == ("landmark 7", "restaurants")


def test_numeric_class_names_are_shown_with_their_level() -> None:
    manifest = manifest_of(["a", "b"], {"landmark": ["17", "Pike Place"], "hierarchical_label": ["4", "markets"]})
    assert manifest_photo(manifest, 0).names == ("landmark 17", "hierarchical label 4")
    assert manifest_photo(manifest, 1).names == ("Pike Place", "markets")
    assert (manifest_photo(manifest, 1).id, manifest_photo(manifest, 1).link) == ("b", None)
