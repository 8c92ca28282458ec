import os
import tarfile
from pathlib import Path

import pytest

from hgld.datasets.image_dataset import read_images
from hgld.datasets.image_folders import find_images, find_images_digest, image_id
from hgld.errors import InputError
from tests.datasets.pictures import picture
from tests.gldv2.test_image_index import write_tar


def touch(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def test_images_at_any_depth_without_hidden_ones(tmp_path: Path) -> None:
    touch(tmp_path, "b/c/1.JPG", "b/1.png", "1.webp", ".cache/1.jpg", "b/._1.png", "b/1.txt", "README", "x.jpg/1.tif")
    found = find_images(tmp_path)
    assert found.names == found.files == ["1.webp", "b/1.png", "b/c/1.JPG", "x.jpg/1.tif"]
    assert found.offsets == found.sizes == [None] * 4
    assert found.other_files == {".txt": 1, "": 1}


def test_linked_folders_are_followed_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    touch(root, "real/1.jpg", "real/below/2.jpg")
    touch(tmp_path, "elsewhere/3.jpg")
    links = {
        "a": "real",
        "real/up": "..",
        "above": "..",
        "disk": "/",
        "linked": "../elsewhere",
        "too": "../elsewhere",
    }
    for link, target in links.items():
        (root / link).symlink_to(target)
    (root / "broken.jpg").symlink_to("absent.jpg")
    (root / "4.jpg").symlink_to("real/1.jpg")
    (root / "circle.jpg").symlink_to("circle.jpg")
    (root / "broken.txt").symlink_to("absent.txt")
    found = find_images(root)
    assert found.names == ["4.jpg", "linked/3.jpg", "real/1.jpg", "real/below/2.jpg"]
    assert found.broken_links == 2


def test_a_folder_of_broken_links_alone_is_refused(tmp_path: Path) -> None:
    for name in ("1.jpg", "2.jpg", "3.tar"):
        (tmp_path / name).symlink_to(f"/absent/annex/{name}")
    with pytest.raises(InputError, match="no images in this folder .*; 3 links are broken: fetch the files"):
        find_images(tmp_path)


def test_members_of_tar_files_where_there_are_no_image_files(tmp_path: Path) -> None:
    long = "f" * 60 + "/" + "g" * 60 + "/1.png"
    write_tar(tmp_path / "below" / "0.tar", {"./a/1.jpg": b"one", "a/1.txt": b"text", long: b"three"})
    write_tar(tmp_path / "1.tar", {"b/1.jpg": b"four"})
    touch(tmp_path, "list.csv")
    found = find_images(tmp_path)
    assert list(zip(found.names, found.files, found.sizes, strict=True)) == [
        ("b/1.jpg", "1.tar", 4),
        ("a/1.jpg", "below/0.tar", 3),
        (long, "below/0.tar", 5),
    ]
    assert found.other_files == {".csv": 1, ".txt": 1}
    one = find_images(tmp_path / "1.tar")
    assert (one.names, one.files, one.offsets) == (["b/1.jpg"], ["1.tar"], [512])
    before = find_images_digest(tmp_path)
    write_tar(tmp_path / "1.tar", {"b/1.jpg": b"five!"})
    assert find_images_digest(tmp_path) != before
    touch(tmp_path, "extracted/b/1.jpg")
    assert find_images(tmp_path).names == ["extracted/b/1.jpg"]


def test_paths_that_several_tar_files_have_are_refused(tmp_path: Path) -> None:
    for name in ("train.tar", "test.tar"):
        write_tar(tmp_path / name, {"Apple/1.jpg": name.encode(), f"{name}.jpg": b""})
    with pytest.raises(InputError, match=r"1 images are in tar files several times(?s:.*)Apple/1.jpg: test.tar, tr"):
        find_images(tmp_path)
    assert len(find_images(tmp_path / "train.tar")) == 2


@pytest.mark.parametrize(("mode", "program"), [("w:gz", "gzip"), ("w:bz2", "bzip2"), ("w:xz", "xz")])
def test_compressed_tar_files_are_refused_by_name(tmp_path: Path, mode: str, program: str) -> None:
    with tarfile.open(tmp_path / "x.tar", mode) as archive:  # type: ignore[call-overload]
        archive.add(__file__)
    with pytest.raises(InputError, match=f"x.tar: compressed; .* unpack it with {program} -d$"):
        find_images(tmp_path)


def test_folders_without_images_say_what_they_hold(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found no files$"):
        find_images(tmp_path)
    touch(tmp_path, "a.zip", "b.zip", "c.HEIC", "d")
    with pytest.raises(
        InputError, match=r"no images in this folder .*; found 2 .zip, 1 without suffix, 1 .heic; unpack"
    ):
        find_images(tmp_path)
    write_tar(tmp_path / "x.tar", {"a.txt": b""})
    with pytest.raises(InputError, match=r"no images in this tar file .*; found 1 .txt$"):
        find_images(tmp_path / "x.tar")
    with pytest.raises(InputError, match="no such folder; name the one that contains the images"):
        find_images(tmp_path / "absent")
    with pytest.raises(InputError, match=r"absent.tar: no such file; name a tar file of images"):
        find_images(tmp_path / "absent.tar")
    for name, shown in ((os.fsdecode(b"caf\xe9.jpg"), r"caf\\udce9.jpg"), ("a\nb.jpg", r"a\\nb.jpg")):
        touch(tmp_path / "names", name)
        with pytest.raises(InputError, match=f"the name '{shown}' is not a line of text in UTF-8; rename it"):
            find_images(tmp_path / "names")
        (tmp_path / "names" / name).unlink()


def test_ids_are_paths_but_for_the_layout_of_gldv2() -> None:
    assert [image_id(name) for name in ("1.jpg", "a/b/1.jpg", "a/b/c/abd1.jpg", "train/a/b/c/abc1.jpg")] == [
        "1.jpg",
        "a/b/1.jpg",
        "a/b/c/abd1.jpg",
        "abc1",
    ]


def test_folders_with_repeated_file_names_and_tar_files_can_be_embedded(tmp_path: Path) -> None:
    touch(tmp_path / "plain", "train/1.jpg", "test/1.jpg", "test/1.png")
    assert read_images(tmp_path / "plain").ids.tolist() == ["test/1.jpg", "test/1.png", "train/1.jpg"]
    write_tar(tmp_path / "x.tar", {"train/1.jpg": picture("a"), "test/1.jpg": picture("b")})
    images = read_images(tmp_path / "x.tar")
    assert images.ids.tolist() == ["train/1.jpg", "test/1.jpg"]
    assert (images.paths.tolist(), images.offsets[0]) == (["x.tar"] * 2, 512)
