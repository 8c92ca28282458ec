"""The index compared with what tarfile extracts, photographs read by it, and damaged or changed tar files."""

import io
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgld.cli.images import format_index
from hgld.errors import ConfigurationError, InputError
from hgld.gldv2 import image_index
from hgld.gldv2.image_index import ShardIndex, index_images, index_shard
from hgld.gldv2.tar_images import ImageReader, TarFiles, default_max_open
from hgld.tables import IMAGES, read_table
from tests.assertions import not_none
from tests.commands import run_hgld


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

    monkeypatch.setattr(image_index, "index_shard", record_and_index)
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


N_SHARDS, PER_SHARD = 6, 5


def content(image_id: str) -> bytes:
    return random.Random(image_id).randbytes(3000)


@pytest.fixture
def indexed(tmp_path: Path) -> tuple[Path, Path]:
    """Six tar files of five photographs and their index."""
    for shard in range(N_SHARDS):
        ids = [f"{shard}-{n}" for n in range(PER_SHARD)]
        write_tar(tmp_path / "tars" / f"{shard}.tar", {f"{image_id}.jpg": content(image_id) for image_id in ids})
    index_images(tmp_path / "tars", tmp_path / "images.parquet")
    return tmp_path / "images.parquet", tmp_path / "tars"


def n_open(folder: Path) -> int:
    """Return the number of files below the folder that this process has open."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("needs Linux's list of open files")
    links = [os.path.realpath(descriptor) for descriptor in descriptors.iterdir()]
    return sum(link.startswith(f"{folder.resolve()}/") for link in links)


def all_ids() -> list[str]:
    return [f"{shard}-{n}" for shard in range(N_SHARDS) for n in range(PER_SHARD)]


def test_positions_of_many_ids(indexed: tuple[Path, Path]) -> None:
    reader, ids = ImageReader(*indexed), ["3-1", "0-0", "3-1", "5-4"]
    rows = reader.positions(ids)
    assert rows.dtype == np.int64
    table = read_table(indexed[0], IMAGES)
    assert table["id"].take(rows).to_pylist() == ids
    assert [reader.read_at(row) for row in rows.tolist()] == [content(image_id) for image_id in ids]
    assert reader.positions([]).shape == (0,)


ABSENT = ["", "3-", "3-11", "3-1\0", "zzz", "é"]


@pytest.mark.parametrize("absent", ABSENT)
def test_absent_ids(indexed: tuple[Path, Path], absent: str) -> None:
    with pytest.raises(InputError, match="1 of 2 photographs are not in this index.*hgld index-images"):
        ImageReader(*indexed).positions(["3-1", absent])


def test_rows_of_ids_of_which_some_are_absent(indexed: tuple[Path, Path]) -> None:
    reader = ImageReader(*indexed)
    rows = reader.find(pa.array([*ABSENT, "5-4", "3-1", "5-4"]))
    assert rows[: len(ABSENT)].tolist() == [-1] * len(ABSENT)
    assert rows[len(ABSENT) :].tolist() == reader.positions(["5-4", "3-1", "5-4"]).tolist()
    assert [reader.id_at(row) for row in rows[-2:]] == ["3-1", "5-4"]
    assert reader.shards == tuple(f"{shard}.tar" for shard in range(N_SHARDS))


def test_empty_index(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"a.txt": b"1"})
    index_images(tmp_path, tmp_path / "images.parquet")
    reader = ImageReader(tmp_path / "images.parquet", tmp_path)
    assert len(reader) == 0
    with pytest.raises(InputError, match="1 of 1"):
        reader.read("a")


def test_open_files_are_limited_and_closed_with_the_reader(indexed: tuple[Path, Path]) -> None:
    reader = ImageReader(*indexed, max_open=2)
    for image_id in all_ids():
        assert reader.read(image_id) == content(image_id)
        assert 1 <= n_open(indexed[1]) <= 2
    del reader
    assert n_open(indexed[1]) == 0


def test_few_files_are_kept_open_where_few_are_allowed(indexed: tuple[Path, Path]) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert default_max_open() == min(512, before[0] // 4)
    reader = ImageReader(*indexed)
    for image_id in all_ids():
        reader.read(image_id)
    assert n_open(indexed[1]) == N_SHARDS
    resource.setrlimit(resource.RLIMIT_NOFILE, (12, before[1]))
    try:
        limited = TarFiles(indexed[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    del reader
    for number in range(N_SHARDS):
        limited.read(f"{number}.tar", 512, 3000)
    assert n_open(indexed[1]) == 3


def test_threads_can_evict_each_others_files(indexed: tuple[Path, Path]) -> None:
    reader, ids = ImageReader(*indexed, max_open=1), all_ids() * 40
    random.Random(0).shuffle(ids)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(reader.read, ids)) == [content(image_id) for image_id in ids]
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # since Python 3.12, because Arrow has threads
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_reader_is_passed_to_worker_processes(indexed: tuple[Path, Path], method: str) -> None:
    reader, ids = ImageReader(*indexed, max_open=2), all_ids()
    reader.read(ids[0])  # one file is open when the workers start
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        assert list(pool.map(reader.read, ids)) == [content(image_id) for image_id in ids]
    assert pickle.loads(pickle.dumps(reader))._files._open.cache_info().maxsize == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_process_shares_open_files(indexed: tuple[Path, Path]) -> None:
    reader = ImageReader(*indexed)
    reader.read("0-0")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send([reader.read("0-1") for _ in range(200)]))
    child.start()
    assert all(reader.read("0-2") == content("0-2") for _ in range(200))
    assert ours.recv() == [content("0-1")] * 200
    child.join()


def test_open_decodes_photographs(shared: Path, tmp_path: Path) -> None:
    folder = shared / "wa_gldv2"
    index_images(folder, tmp_path / "images.parquet")
    reader = ImageReader(tmp_path / "images.parquet", folder)
    ids = read_table(tmp_path / "images.parquet", IMAGES)["id"].to_pylist()
    for image_id in random.Random(0).sample(ids, 20):
        picture = reader.open(image_id)
        assert picture.size == (224, 224)
        assert np.asarray(picture.convert("RGB")).std() > 1


def test_open_refuses_a_file_that_is_not_an_image(indexed: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="the photograph 3-1 cannot be read as an image"):
        ImageReader(*indexed).open("3-1")


def test_copy_of_the_indexed_folder(indexed: tuple[Path, Path], tmp_path: Path) -> None:
    indexed[1].rename(tmp_path / "elsewhere")
    os.utime(tmp_path / "elsewhere" / "0.tar", (0, 0))
    assert ImageReader(indexed[0], tmp_path / "elsewhere").read("0-1") == content("0-1")


def test_missing_or_changed_tar_file(indexed: tuple[Path, Path]) -> None:
    path = indexed[1] / "0.tar"
    whole = path.read_bytes()
    path.write_bytes(whole[:-512])
    with pytest.raises(InputError, match=r"0\.tar: not the tar file that was indexed: it has [0-9,]+ bytes, but had"):
        ImageReader(*indexed).read("0-0")
    path.write_bytes(whole[512:] + bytes(512))
    with pytest.raises(InputError, match="there is no header before byte 512"):
        ImageReader(*indexed).read("0-0")
    write_tar(path, {"other.jpg": b"x" * 2999})
    path.write_bytes(path.read_bytes().ljust(len(whole), b"\0"))
    with pytest.raises(InputError, match="byte 512 has 2,999 bytes, but had 3,000; run hgld index-images again"):
        ImageReader(*indexed).read("0-0")
    path.unlink()
    with pytest.raises(InputError, match=r"0\.tar: No such file or directory; fetch it again"):
        ImageReader(*indexed).read("0-0")
