"""Downloads of single files from a server with scripted faults."""

import errno
import hashlib
import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, SourceError
from hgld.gldv2.dataset_files import metadata_files, parse_shards, shard_files
from hgld.gldv2.download import (
    ChecksumError,
    Downloader,
    NotFoundError,
    Origin,
    PartialDownload,
    partial_path,
    read_md5,
)
from hgld.gldv2.settings import DownloadConfig
from hgld.io.http import RetriesExhaustedError
from tests.gldv2.file_server import Fault, FileServer
from tests.http_servers import BODY_BEGUN, HEADERS_BEGUN, dripping_server

CONTENT = random.Random(0).randbytes(3_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()
QUICK = DownloadConfig(max_retries=3, backoff_s=0.001, timeout_s=5)

Serve = Callable[..., FileServer]


class RecordedProgress:
    """Progress that records its calls."""

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self.done = 0

    def start(self, total: int, done: int = 0) -> None:
        self.started.append((total, done))
        self.done += done

    def advance(self, units: int = 1, **details: float) -> None:
        self.done += units


@pytest.fixture
def server(serve: Serve, tmp_path: Path) -> FileServer:
    root = tmp_path / "remote"
    root.mkdir()
    (root / "a.tar").write_bytes(CONTENT)
    return serve(root)


def download(url: str, path: Path, config: DownloadConfig = QUICK, **options: Any) -> int:
    return Downloader(config).download(url, path, **options)


def fetch(server: FileServer, path: Path, **options: Any) -> int:
    return download(f"{server.url}/a.tar", path, **options)


def leftovers(path: Path) -> list[str]:
    return sorted(other.name for other in path.parent.iterdir() if other != path)


def test_download_creates_folders_and_writes_the_whole_file(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "new" / "folder" / "a.tar", RecordedProgress()
    assert fetch(server, path, md5=MD5, progress=progress) == len(CONTENT)
    assert path.read_bytes() == CONTENT
    assert leftovers(path) == []
    assert progress.started == [(len(CONTENT), 0)]
    assert progress.done == len(CONTENT)
    (asked,) = server.gets("a.tar")
    assert "Range" not in asked
    assert asked["Accept-Encoding"] == "identity"
    assert asked["User-Agent"].startswith("hgld/")


def test_existing_file_is_replaced_only_if_its_checksum_is_wrong(server: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"old")
    assert fetch(server, path) == 0
    assert server.requests == []
    assert fetch(server, path, md5=MD5) == len(CONTENT)
    assert fetch(server, path, md5=MD5.upper(), sha256=hashlib.sha256(CONTENT).hexdigest()) == 0
    assert len(server.requests) == 1


def test_reset_connection_resumes_with_a_range_request(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "a.tar", RecordedProgress()
    server.faults["a.tar"] = [Fault(reset_after=2_000_000), Fault(status=503)]
    assert fetch(server, path, md5=MD5, progress=progress) == len(CONTENT)
    assert path.read_bytes() == CONTENT
    assert progress.done == len(CONTENT)
    first, _, third = server.gets("a.tar")
    assert "Range" not in first
    # A reset connection also loses what has arrived but was not read yet.
    assert 0 < int(third["Range"].removeprefix("bytes=").removesuffix("-")) <= 2_000_000
    assert third["If-Range"].startswith('"')


def test_later_call_resumes_an_abandoned_download(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "a.tar", RecordedProgress()
    server.faults["a.tar"] = [Fault(reset_after=900_000)] + 3 * [Fault(reset_after=0)]
    with pytest.raises(
        RetriesExhaustedError, match=r"a\.tar: given up after 4 attempts.*run the same command.*kB are kept"
    ):
        fetch(server, path)
    assert not path.exists()
    kept = partial_path(path).stat().st_size
    assert 0 < kept <= 900_000
    assert fetch(server, path, md5=MD5, progress=progress) == len(CONTENT) - kept
    assert progress.started == [(len(CONTENT), kept)]
    assert path.read_bytes() == CONTENT
    assert leftovers(path) == ["remote"]


def test_modification_date_validates_resumption_without_an_etag(server: FileServer, tmp_path: Path) -> None:
    server.etags = False
    server.faults["a.tar"] = [Fault(reset_after=1_000_000)]
    assert fetch(server, tmp_path / "a.tar", md5=MD5) == len(CONTENT)
    assert server.gets("a.tar")[1]["If-Range"].endswith("GMT")


def test_unknown_size(server: FileServer, tmp_path: Path) -> None:
    server.lengths, progress = False, RecordedProgress()
    server.faults["a.tar"] = [Fault(reset_after=1_500_000)]
    assert Downloader(QUICK).size(f"{server.url}/a.tar") is None
    fetch(server, tmp_path / "a.tar", md5=MD5, progress=progress)
    assert (tmp_path / "a.tar").read_bytes() == CONTENT
    assert (progress.started, progress.done) == ([(0, 0)], len(CONTENT))


@pytest.mark.parametrize(
    ("headers", "size", "validator"),
    [
        ({"Content-Length": "7", "ETag": '"x"', "Last-Modified": "Mon"}, 7, '"x"'),
        (
            {"Content-Length": "7", "ETag": 'W/"x"', "Last-Modified": "Mon"},
            7,
            "Mon",
        ),  # a weak ETag, for equivalent bytes
        ({"Content-Length": "7", "ETag": '"x"', "Content-Encoding": "gzip"}, None, None),
        ({}, None, None),
    ],
)
def test_origin_from_response_headers(headers: dict[str, str], size: int | None, validator: str | None) -> None:
    response = requests.Response()
    response.headers.update(headers)
    assert Origin.from_response("http://x/", response) == Origin("http://x/", size, validator)


def test_server_without_ranges_sends_the_file_again(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "a.tar", RecordedProgress()
    server.ranges = False
    server.faults["a.tar"] = [Fault(reset_after=1_000_000), Fault(reset_after=1_900_000)]
    fetch(server, path, md5=MD5, progress=progress)
    assert path.read_bytes() == CONTENT
    assert progress.done == len(CONTENT)


def test_retries_end_where_a_server_without_ranges_always_fails(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    server.faults["a.tar"] = 100 * [Fault(reset_after=2_500_000)]
    with pytest.raises(RetriesExhaustedError):
        fetch(server, tmp_path / "a.tar")
    assert len(server.requests) <= 6


def test_parts_of_two_versions_are_never_joined(server: FileServer, tmp_path: Path) -> None:
    path, remote = tmp_path / "a.tar", server.roots[0] / "a.tar"
    server.faults["a.tar"] = 4 * [Fault(reset_after=100_000)]
    with pytest.raises(SourceError):
        fetch(server, path)
    changed = CONTENT[::-1]
    remote.write_bytes(changed)
    assert fetch(server, path) == len(CONTENT)
    assert path.read_bytes() == changed


@pytest.mark.parametrize("note", ["{", "{}", '{"url": "http://other/", "size": 9, "validator": "x"}', None])
def test_bytes_of_unknown_origin_are_discarded(server: FileServer, tmp_path: Path, note: str | None) -> None:
    path = tmp_path / "a.tar"
    partial_path(path).write_bytes(b"of what?")
    if note is not None:
        path.with_name("a.tar.part.json").write_text(note)
    assert fetch(server, path) == len(CONTENT)
    assert path.read_bytes() == CONTENT


def test_complete_partial_download_needs_no_request(server: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    partial_path(path).write_bytes(CONTENT)
    note = {"url": f"{server.url}/a.tar", "size": len(CONTENT), "validator": '"x"'}
    path.with_name("a.tar.part.json").write_text(json.dumps(note))
    assert fetch(server, path, md5=MD5) == 0
    assert path.read_bytes() == CONTENT
    assert server.requests == []


def test_wrong_checksum_downloads_once_more(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "a.tar", RecordedProgress()
    server.faults["a.tar"] = [Fault(wrong_byte=True)]
    assert fetch(server, path, md5=MD5, progress=progress) == 2 * len(CONTENT)
    assert path.read_bytes() == CONTENT
    assert progress.done == len(CONTENT)
    server.faults["a.tar"] = 2 * [Fault(wrong_byte=True)]
    with pytest.raises(ChecksumError, match=f"its md5 is [0-9a-f]{{32}}, expected {MD5}; it was downloaded twice"):
        fetch(server, tmp_path / "b.tar", md5=MD5)
    assert leftovers(path) == ["remote"]


def test_retry_after_is_respected(server: FileServer, tmp_path: Path) -> None:
    server.faults["a.tar"] = [Fault(status=429, retry_after="0.3")]
    began = time.monotonic()
    fetch(server, tmp_path / "a.tar")
    assert time.monotonic() - began >= 0.3


def test_missing_file_is_not_retried(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"b\.tar answered 404: the server has no such file"):
        download(f"{server.url}/b.tar", tmp_path / "b.tar")
    server.faults["a.tar"] = [Fault(status=400)]
    with pytest.raises(SourceError, match="answered 400"):
        fetch(server, tmp_path / "a.tar")
    assert len(server.requests) == 2
    assert not list(tmp_path.glob("*.part*"))


def test_offline_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:9 cannot be reached: .*refused\. Check the address"):
        download("http://127.0.0.1:9/a.tar", tmp_path / "a.tar")
    with pytest.raises(SourceError, match="No scheme"):
        download("a.tar", tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("begun", "message"),
    [(HEADERS_BEGUN, "no complete response within 0.5 s"), (BODY_BEGUN, r"sent only \d+ bytes in 0.5 s")],
)
def test_stalled_download_is_given_up(tmp_path: Path, begun: bytes, message: str) -> None:
    stalls = DownloadConfig(max_retries=1, backoff_s=0, timeout_s=0.5)
    with (
        dripping_server(begun) as url,
        pytest.raises(RetriesExhaustedError, match=rf"given up after 2 attempts: .*{message}"),
    ):
        download(f"{url}/a.tar", tmp_path / "a.tar", stalls)


def test_full_disk(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PartialDownload, "append", full)
    with pytest.raises(
        ConfigurationError, match=r"a\.tar cannot be written: the disk is full; correct that or choose"
    ):
        fetch(server, tmp_path / "a.tar")


def test_folder_cannot_be_created(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        fetch(server, tmp_path / "file" / "a.tar")


def test_concurrent_calls_for_one_file_download_it_once(server: FileServer, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        transferred = list(pool.map(lambda _: fetch(server, tmp_path / "a.tar"), range(4)))
    assert sorted(transferred) == [0, 0, 0, len(CONTENT)]


def test_closed_download_can_be_resumed(server: FileServer, tmp_path: Path) -> None:
    server.pause_s = 0.02
    downloader, path = Downloader(QUICK), tmp_path / "a.tar"

    def close_soon() -> None:
        while not partial_path(path).exists() or not partial_path(path).stat().st_size:
            time.sleep(0.001)
        downloader.close()

    closer = threading.Thread(target=close_soon)
    closer.start()
    with pytest.raises(SourceError, match="stopped"):
        downloader.download(f"{server.url}/a.tar", path)
    closer.join()
    server.pause_s = 0
    assert 0 < fetch(server, path, md5=MD5) < len(CONTENT)


def test_size_without_download(server: FileServer) -> None:
    assert Downloader(QUICK).size(f"{server.url}/a.tar") == len(CONTENT)
    with pytest.raises(NotFoundError):
        Downloader(QUICK).size(f"{server.url}/b.tar")
    assert server.sent["a.tar"] == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.integers(0, 300_000),
    faults=st.lists(
        st.one_of(
            st.just(Fault(status=503)),
            st.just(Fault(wrong_byte=True)),
            st.builds(Fault, reset_after=st.integers(0, 300_000)),
        ),
        max_size=3,
    ),
    ranges=st.booleans(),
)
def test_file_is_correct_or_absent_after_any_faults(
    server: FileServer, tmp_path: Path, size: int, faults: list[Fault], ranges: bool
) -> None:
    content, path = CONTENT[:size], tmp_path / "a.tar"
    (server.roots[0] / "a.tar").write_bytes(content)
    path.unlink(missing_ok=True)
    server.ranges, server.faults["a.tar"] = ranges, faults if size else []
    try:
        fetch(server, path, sha256=hashlib.sha256(content).hexdigest())
    except SourceError:
        assert not path.exists()
    else:
        assert path.read_bytes() == content


@pytest.mark.parametrize("wrong", [{"max_retries": -1}, {"timeout_s": 0}, {"backoff_s": -1}])
def test_invalid_config(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="cannot be negative"):
        DownloadConfig(**wrong)


@pytest.mark.parametrize(("split", "count", "last"), [("train", 500, 499), ("index", 100, 99), ("test", 20, 19)])
def test_shard_files_of_each_split(split: str, count: int, last: int) -> None:
    files = shard_files(split)
    assert len(files) == count
    assert files[-1].path == f"{split}/images_{last:03}.tar"
    assert files[-1].remote_paths == (files[-1].path,)
    assert files[-1].md5_path == f"md5sum/{split}/md5.images_{last:03}.txt"
    with pytest.raises(ConfigurationError, match=f"{split} has no shard {count}; its shards are 0 to {last}"):
        shard_files(split, [0, count])


def test_local_and_remote_paths_of_csv_files() -> None:
    assert metadata_files("train")[0].remote_paths == ("metadata/train.csv", "train.csv")
    places = {file.path: file.remote_paths[0] for file in metadata_files("test")}
    assert places == {
        "test.csv": "metadata/test.csv",
        "recognition_solution_v2.1.csv": "ground_truth/recognition_solution_v2.1.csv",
        "retrieval_solution_v2.1.csv": "ground_truth/retrieval_solution_v2.1.csv",
    }


def test_parse_shard_numbers_and_ranges() -> None:
    assert list(parse_shards("0:4")) == [0, 1, 2, 3, 4]
    assert list(parse_shards("3, 0")) == [3, 0]
    assert [file.path[-7:-4] for file in shard_files("train", [3, 0, 3])] == ["000", "003"]


@pytest.mark.parametrize("text", ["", "4:0", "a", "-1", "1:", "0,,2", "1:2:3", "١"])
def test_parse_invalid_shards(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected numbers and first:last"):
        parse_shards(text)


def test_read_md5(tmp_path: Path, shared: Path) -> None:
    real = shared / "wa_gldv2" / "md5sum" / "train" / "md5.images_000.txt"
    assert read_md5(real) == "b4ce6f81e867ca51c98d0e9da991161e"
    path = tmp_path / "md5.txt"
    path.write_text("B4CE6F81E867CA51C98D0E9DA991161E")
    assert read_md5(path) == "b4ce6f81e867ca51c98d0e9da991161e"
    path.write_text("<html>Not here</html>")
    with pytest.raises(SourceError, match="expected an MD5 of 32 hex digits, but the server sent '<html>"):
        read_md5(path)
