"""Tar files of photographs that are written one by one, and cut at every byte."""

import tarfile
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import pytest

from hgld.errors import InputError
from hgld.gldv2.image_index import index_shard
from hgld.gldv2.photograph_store import PhotographStore

PHOTOGRAPHS = {"abc0": b"x" * 700, "abd1": b"", "bbb2": b"y" * 512}


def write(folder: Path, *ids: str, recorded: Collection[str] = (), finish: bool = True) -> set[str]:
    """Add photographs to those that were recorded, and return the ids that the store had before."""
    with closing(PhotographStore(folder, "train", recorded)) as store:
        before = set(store.ids)
        for image_id in ids:
            store.add(image_id, ".jpg", PHOTOGRAPHS[image_id])
        if finish:
            store.finish()
    return before


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path, "r:") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def test_layout_is_that_of_the_dataset(tmp_path: Path) -> None:
    write(tmp_path, *PHOTOGRAPHS)
    assert contents(tmp_path / "train/images_000.tar") == {
        "a/b/c/abc0.jpg": PHOTOGRAPHS["abc0"],
        "a/b/d/abd1.jpg": b"",
        "b/b/b/bbb2.jpg": PHOTOGRAPHS["bbb2"],
    }
    assert index_shard(tmp_path / "train/images_000.tar").ids == list(PHOTOGRAPHS)
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["images_000.tar"]


def test_next_run_writes_the_next_file_and_nothing_without_photographs(tmp_path: Path) -> None:
    for ids in (["abc0"], ["bbb2"], []):
        write(tmp_path, *ids)
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["images_000.tar", "images_001.tar"]
    write(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_file_that_was_cut_anywhere_keeps_its_complete_photographs(tmp_path: Path) -> None:
    write(tmp_path, *PHOTOGRAPHS, finish=False)
    part = tmp_path / "train/images_000.tar.part"
    whole = part.read_bytes()
    ends = [0, 512 + 1024, 512 + 1024 + 512, len(whole)]
    for cut in sorted({0, 1, 511, 512, len(whole) - 1, *ends, *(end + 300 for end in ends)}):
        part.write_bytes(whole[:cut])
        complete = list(PHOTOGRAPHS)[: sum(end <= cut for end in ends[1:])]
        missing = [image_id for image_id in PHOTOGRAPHS if image_id not in complete]
        assert write(tmp_path, *missing, recorded=PHOTOGRAPHS, finish=False) == set(complete), cut
        assert part.read_bytes() == whole


def test_photograph_without_record_is_removed(tmp_path: Path) -> None:
    write(tmp_path, "abc0", "bbb2", finish=False)
    assert write(tmp_path, recorded={"abc0"}, finish=False) == {"abc0"}


def test_kill_between_the_end_of_a_file_and_its_new_name(tmp_path: Path) -> None:
    write(tmp_path, "abc0")
    tar = tmp_path / "train/images_000.tar"
    whole = tar.read_bytes()
    tar.rename(tar.with_name("images_000.tar.part"))
    write(tmp_path, recorded={"abc0"})
    assert tar.read_bytes() == whole


def test_damaged_tar_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train/images_000.tar").write_bytes(b"x" * 5000)
    with pytest.raises(InputError, match=r"images_000\.tar: cannot be read"):
        PhotographStore(tmp_path, "train", ())
