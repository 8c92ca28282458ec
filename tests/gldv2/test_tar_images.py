"""Photographs read from tar files by threads and processes, and tar files that have changed."""

import multiprocessing
import os
import pickle
import random
import resource
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hgld.errors import InputError
from hgld.gldv2.tar_images import ImageReader, TarFiles, default_max_open, index_images
from hgld.tables import IMAGES, read_table
from tests.gldv2.test_image_index import write_tar

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
