"""The index compared with what tarfile extracts, and damaged tar files."""

import io
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgld.cli.images import format_index
from hgld.errors import ConfigurationError, InputError
from hgld.gldv2 import tar_images
from hgld.gldv2.tar_images import ImageReader, ShardIndex, index_images, index_shard
from hgld.tables import IMAGES, read_table
from tests.commands import run_hgld
from tests.review.sessions import not_none


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def write_tar(path: Path, members: dict[str, bytes], format: int = tarfile.GNU_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format) as archive:
        for name, data in members.items():
            add(archive, name, data)
    return path


def test_every_washington_photograph_equals_what_tarfile_extracts(shared: Path, tmp_path: Path) -> None:
    folder, out = shared / "wa_gldv2", tmp_path / "images.parquet"
    summary = not_none(index_images(folder, out))
    assert (summary.images, summary.shards, summary.read, summary.skipped) == (4625, 2, 2, 0)
    table = read_table(out, IMAGES)
    assert table["id"].to_pylist() == sorted(table["id"].to_pylist())
    reader = ImageReader(out, folder)
    seen = 0
    for shard in ("train/images_000.tar", "train/images_001.tar"):
        with tarfile.open(folder / shard) as archive:
            for member in archive:
                assert reader.read(PurePosixPath(member.name).stem) == not_none(archive.extractfile(member)).read()
                seen += 1
    assert seen == len(reader) == 4625


def test_tar_files_in_linked_folders_are_indexed_once(tmp_path: Path) -> None:
    write_tar(tmp_path / "elsewhere" / "0.tar", {"a.jpg": b"one"})
    write_tar(tmp_path / "gldv2" / ".cache" / "1.tar", {"b.jpg": b"two"})
    for link in ("train", "again"):
        (tmp_path / "gldv2" / link).symlink_to("../elsewhere")
    index_images(tmp_path / "gldv2", tmp_path / "images.parquet")
    reader = ImageReader(tmp_path / "images.parquet", tmp_path / "gldv2")
    assert (len(reader), reader.read("a")) == (1, b"one")


def test_only_new_and_changed_tar_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = tmp_path / "gldv2", tmp_path / "images.parquet"
    for number in range(3):
        write_tar(folder / "train" / f"images_{number:03}.tar", {f"a/{number}.jpg": b"x" * number})
    read: list[str] = []

    def record_and_index(path: Path) -> ShardIndex:
        read.append(path.name)
        return index_shard(path)

    monkeypatch.setattr(tar_images, "index_shard", record_and_index)
    summary = not_none(index_images(folder, out))
    assert format_index(summary).startswith("3 photographs in 3 tar files, 3 of them read")
    assert index_images(folder, out) is None
    assert len(read) == 3

    read.clear()
    write_tar(folder / "train" / "images_001.tar", {"a/new.jpg": b"", "a/other.jpg": b"1"})
    write_tar(folder / "index" / "images_000.tar", {"b.jpg": b"2"})
    (folder / "train" / "images_002.tar").unlink()
    (folder / "train" / "images_003.tar.part").touch()
    summary = not_none(index_images(folder, out))
    assert sorted(read) == ["images_000.tar", "images_001.tar"]
    assert (summary.images, summary.shards, summary.read) == (4, 3, 2)
    assert read_table(out, IMAGES)["id"].to_pylist() == ["0", "b", "new", "other"]

    incremental = read_table(out, IMAGES)
    index_images(folder, out, force=True)
    assert read_table(out, IMAGES).equals(incremental)


def test_members_that_are_not_photographs_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "mixed.tar"
    with tarfile.open(path, "w") as archive:
        folder = tarfile.TarInfo("a.jpg")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        link = tarfile.TarInfo("b.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "c.jpg"
        archive.addfile(link)
        for name in ("README.txt", "._d.jpg", ".jpg", "e.JPG", "x/f.png", "g.h.jpeg"):
            add(archive, name, name.encode())
    index = index_shard(path)
    assert (list(index.ids), index.skipped) == (["e", "f", "g.h"], 5)
    assert list(index.sizes) == [5, 7, 8]


def test_truncated_tar_file_is_reported_with_its_offset(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "whole.tar", {f"{n}.jpg": bytes([n]) * 700 for n in range(3)})
    end = 3 * (512 + 1024)
    path = tmp_path / "cut.tar"
    for size in [0, 1, 511, 512, 513, 1535, 1536, 1537, 2047, 2048, 2500, 3072, end - 1024, end - 1, end, end + 511]:
        path.write_bytes(whole.read_bytes()[:size])
        with pytest.raises(InputError, match=r"cut\.tar: (cannot be read from|is cut short at) byte [0-9,]+.*fetch"):
            index_shard(path)
    path.write_bytes(whole.read_bytes()[: end + 512])  # one block of zeros ends an archive
    assert len(index_shard(path).ids) == 3


def test_all_damaged_headers_are_reported_together(tmp_path: Path) -> None:
    for number in range(3):
        path = write_tar(tmp_path / f"{number}.tar", {f"{number}-{n}.jpg": b"data" for n in range(3)})
        if number:
            with path.open("r+b") as stream:
                stream.seek(2 * 1024)
                stream.write(b"\xff" * 300)
    with pytest.raises(InputError, match="2 tar files cannot be indexed") as caught:
        index_images(tmp_path, tmp_path / "images.parquet")
    for number in (1, 2):
        assert f"{number}.tar: is damaged at byte 2,048, after 2 members" in str(caught.value)
    assert not (tmp_path / "images.parquet").exists()


def test_file_that_is_not_a_tar_file(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"<html>" * 1000)
    with pytest.raises(InputError, match=r"a\.tar: cannot be read from byte 0 on"):
        index_shard(tmp_path / "a.tar")
    name = b"\xe9.jpg"
    write_tar(tmp_path / "b.tar", {os.fsdecode(name): b"1"}, tarfile.GNU_FORMAT)
    with pytest.raises(InputError, match=r"b\.tar: .*surrogates not allowed"):
        index_shard(tmp_path / "b.tar")


def test_repeated_ids_are_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"x/1.jpg": b"1", "y/1.png": b"2", "2.jpg": b"3"})
    write_tar(tmp_path / "b.tar", {"2.jpg": b"3", "3.jpg": b"4"})
    with pytest.raises(InputError, match="2 ids appear more than once") as caught:
        index_images(tmp_path, tmp_path / "images.parquet")
    assert "1: a.tar, byte 512\n  1: a.tar, byte 1,536\n  2: a.tar, byte 2,560\n  2: b.tar" in str(caught.value)


def test_no_tar_files_and_no_workers_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tar files in this folder; download some"):
        index_images(tmp_path, tmp_path / "images.parquet")
    with pytest.raises(ConfigurationError, match="`workers` is 0"):
        index_images(tmp_path, tmp_path / "images.parquet", workers=0)


def test_command(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"1.jpg": b"1", "2.txt": b"2"})
    run = ["index-images", str(tmp_path), "-o", str(tmp_path / "images.parquet")]
    assert run_hgld(*run).stdout.startswith("1 photographs in 1 tar files, 1 of them read in ")
    assert run_hgld(*run).stdout == f"{tmp_path / 'images.parquet'}: up to date\n"


IDS = st.text(st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: not text.startswith(".")
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    members=st.dictionaries(IDS, st.binary(max_size=2000), max_size=6),
    folder=st.sampled_from(["", "0/1/2/", "a" * 60 + "/" + "b" * 90 + "/"]),
    format=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_any_set_of_members_round_trips(tmp_path: Path, members: dict[str, bytes], folder: str, format: int) -> None:
    shutil.rmtree(tmp_path)
    write_tar(tmp_path / "a.tar", {f"{folder}{name}.jpg": data for name, data in members.items()}, format)
    index_images(tmp_path, tmp_path / "images.parquet")
    reader = ImageReader(tmp_path / "images.parquet", tmp_path)
    assert len(reader) == len(members)
    assert {name: reader.read(name) for name in members} == members
