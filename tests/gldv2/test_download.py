"""One file at a time, from a server that fails on request."""

from __future__ import annotations

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
from hgld.gldv2 import download as module
from hgld.gldv2.download import AbsentError, ChecksumError, DownloadConfig, Downloader, download
from hgld.gldv2.partial_download import Origin, part_of
from hgld.io.http import RetriesExhaustedError
from tests.gldv2.file_server import Fault, FileServer

CONTENT = random.Random(0).randbytes(3_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()
QUICK = DownloadConfig(max_retries=3, backoff_s=0.001, timeout_s=5)

Serve = Callable[..., FileServer]


class Counted:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self.done = 0

    def start(self, total: int, done: int = 0) -> None:
        self.started.append((total, done))
        self.done += done

    def advance(self, units: int = 1, **details: int) -> None:
        self.done += units


@pytest.fixture
def server(serve: Serve, tmp_path: Path) -> FileServer:
    root = tmp_path / "remote"
    root.mkdir()
    (root / "a.tar").write_bytes(CONTENT)
    return serve(root)


def fetch(server: FileServer, path: Path, **options: Any) -> int:
    return download(f"{server.url}/a.tar", path, config=QUICK, **options)


def leftovers(path: Path) -> list[str]:
    return sorted(other.name for other in path.parent.iterdir() if other != path)


def test_a_file_comes_as_a_whole_into_new_folders(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "new" / "folder" / "a.tar", Counted()
    assert fetch(server, path, md5=MD5, progress=progress) == len(CONTENT)
    assert path.read_bytes() == CONTENT
    assert leftovers(path) == []
    assert progress.started == [(len(CONTENT), 0)]
    assert progress.done == len(CONTENT)
    (asked,) = server.gets("a.tar")
    assert "Range" not in asked
    assert asked["Accept-Encoding"] == "identity"
    assert asked["User-Agent"].startswith("hgld/")


def test_a_file_that_is_there_is_asked_for_only_if_its_checksum_is_wrong(server: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"old")
    assert fetch(server, path) == 0
    assert server.requests == []
    assert fetch(server, path, md5=MD5) == len(CONTENT)
    assert fetch(server, path, md5=MD5.upper(), sha256=hashlib.sha256(CONTENT).hexdigest()) == 0
    assert len(server.requests) == 1


def test_the_rest_is_asked_for_after_a_reset(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "a.tar", Counted()
    server.faults["a.tar"] = [Fault(reset_after=2_000_000), Fault(status=503)]
    assert fetch(server, path, md5=MD5, progress=progress) == len(CONTENT)
    assert path.read_bytes() == CONTENT
    assert progress.done == len(CONTENT)
    first, _, third = server.gets("a.tar")
    assert "Range" not in first
    assert int(third["Range"].removeprefix("bytes=").removesuffix("-")) > 2_000_000 - 2 * 2**16
    assert third["If-Range"].startswith('"')
    assert server.sent["a.tar"] < len(CONTENT) + 2 * 2**16


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "a.tar", Counted()
    server.faults["a.tar"] = [Fault(reset_after=900_000)] + 3 * [Fault(reset_after=0)]
    with pytest.raises(
        RetriesExhaustedError, match=r"a\.tar: given up after 4 attempts.*run the same command.*kB are kept"
    ):
        fetch(server, path)
    assert not path.exists()
    kept = part_of(path).stat().st_size
    assert kept > 700_000
    assert fetch(server, path, md5=MD5, progress=progress) == len(CONTENT) - kept
    assert progress.started == [(len(CONTENT), kept)]
    assert path.read_bytes() == CONTENT
    assert leftovers(path) == ["remote"]


def test_without_an_etag_the_date_says_whether_it_is_the_same_file(server: FileServer, tmp_path: Path) -> None:
    server.etags = False
    server.faults["a.tar"] = [Fault(reset_after=1_000_000)]
    assert fetch(server, tmp_path / "a.tar", md5=MD5) == len(CONTENT)
    assert server.gets("a.tar")[1]["If-Range"].endswith("GMT")


def test_a_size_that_is_not_told(server: FileServer, tmp_path: Path) -> None:
    server.lengths, progress = False, Counted()
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
        ),  # weak: of like bytes
        ({"Content-Length": "7", "ETag": '"x"', "Content-Encoding": "gzip"}, None, None),
        ({}, None, None),
    ],
)
def test_what_an_answer_says_of_a_file(headers: dict[str, str], size: int | None, validator: str | None) -> None:
    response = requests.Response()
    response.headers.update(headers)
    assert Origin.of("http://x/", response) == Origin("http://x/", size, validator)


def test_a_server_without_ranges_sends_the_file_anew(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "a.tar", Counted()
    server.ranges = False
    server.faults["a.tar"] = [Fault(reset_after=1_000_000), Fault(reset_after=1_900_000)]
    fetch(server, path, md5=MD5, progress=progress)
    assert path.read_bytes() == CONTENT
    assert progress.done == len(CONTENT)


def test_a_server_without_ranges_that_always_breaks_is_given_up(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    server.faults["a.tar"] = 100 * [Fault(reset_after=2_500_000)]
    with pytest.raises(RetriesExhaustedError):
        fetch(server, tmp_path / "a.tar")
    assert len(server.requests) <= 6


def test_halves_of_two_versions_are_never_glued_together(server: FileServer, tmp_path: Path) -> None:
    path, remote = tmp_path / "a.tar", server.roots[0] / "a.tar"
    server.faults["a.tar"] = 4 * [Fault(reset_after=100_000)]
    with pytest.raises(SourceError):
        fetch(server, path)
    changed = CONTENT[::-1]
    remote.write_bytes(changed)
    assert fetch(server, path) == len(CONTENT)
    assert path.read_bytes() == changed


@pytest.mark.parametrize("note", ["{", "{}", '{"url": "http://other/", "size": 9, "validator": "x"}', None])
def test_bytes_of_unknown_origin_are_dropped(server: FileServer, tmp_path: Path, note: str | None) -> None:
    path = tmp_path / "a.tar"
    part_of(path).write_bytes(b"of what?")
    if note is not None:
        path.with_name("a.tar.part.json").write_text(note)
    assert fetch(server, path) == len(CONTENT)
    assert path.read_bytes() == CONTENT


def test_a_part_that_is_whole_already_costs_no_request(server: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    part_of(path).write_bytes(CONTENT)
    note = {"url": f"{server.url}/a.tar", "size": len(CONTENT), "validator": '"x"'}
    path.with_name("a.tar.part.json").write_text(json.dumps(note))
    assert fetch(server, path, md5=MD5) == 0
    assert path.read_bytes() == CONTENT
    assert server.requests == []


def test_wrong_bytes_are_asked_for_again_once(server: FileServer, tmp_path: Path) -> None:
    path, progress = tmp_path / "a.tar", Counted()
    server.faults["a.tar"] = [Fault(wrong_byte=True)]
    assert fetch(server, path, md5=MD5, progress=progress) == 2 * len(CONTENT)
    assert path.read_bytes() == CONTENT
    assert progress.done == len(CONTENT)
    server.faults["a.tar"] = 2 * [Fault(wrong_byte=True)]
    with pytest.raises(ChecksumError, match=f"its md5 is [0-9a-f]{{32}}, expected {MD5}; it was downloaded twice"):
        fetch(server, tmp_path / "b.tar", md5=MD5)
    assert leftovers(path) == ["remote"]


def test_retry_after_is_obeyed(server: FileServer, tmp_path: Path) -> None:
    server.faults["a.tar"] = [Fault(status=429, retry_after="0.3")]
    began = time.monotonic()
    fetch(server, tmp_path / "a.tar")
    assert time.monotonic() - began >= 0.3


def test_what_is_not_there_is_not_asked_for_again(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match=r"b\.tar answered 404: the server has no such file"):
        download(f"{server.url}/b.tar", tmp_path / "b.tar", config=QUICK)
    server.faults["a.tar"] = [Fault(status=400)]
    with pytest.raises(SourceError, match="answered 400"):
        fetch(server, tmp_path / "a.tar")
    assert len(server.requests) == 2
    assert not list(tmp_path.glob("*.part*"))


def test_a_machine_that_is_offline_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        RetriesExhaustedError, match=r":9/a.tar: given up after 4 attempts.*If this machine is online"
    ):
        download("http://127.0.0.1:9/a.tar", tmp_path / "a.tar", config=QUICK)
    with pytest.raises(SourceError, match="No scheme"):
        download("a.tar", tmp_path / "a.tar", config=QUICK)


def test_a_full_disk(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.Part, "write", full)
    with pytest.raises(ConfigurationError, match=r"a\.tar cannot be written: the disk is full; mend that or choose"):
        fetch(server, tmp_path / "a.tar")


def test_a_folder_that_cannot_be_made(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        fetch(server, tmp_path / "file" / "a.tar")


def test_of_several_calls_for_one_file_one_does_the_work(server: FileServer, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        transferred = list(pool.map(lambda _: fetch(server, tmp_path / "a.tar"), range(4)))
    assert sorted(transferred) == [0, 0, 0, len(CONTENT)]


def test_closing_ends_a_download_that_can_be_taken_up_again(server: FileServer, tmp_path: Path) -> None:
    server.pause_s = 0.02
    downloader, path = Downloader(QUICK), tmp_path / "a.tar"

    def close_soon() -> None:
        while not part_of(path).exists() or not part_of(path).stat().st_size:
            time.sleep(0.001)
        downloader.close()

    closer = threading.Thread(target=close_soon)
    closer.start()
    with pytest.raises(SourceError, match="stopped"):
        downloader.download(f"{server.url}/a.tar", path)
    closer.join()
    server.pause_s = 0
    assert 0 < fetch(server, path, md5=MD5) < len(CONTENT)


def test_the_size_is_known_before(server: FileServer) -> None:
    assert Downloader(QUICK).size(f"{server.url}/a.tar") == len(CONTENT)
    with pytest.raises(AbsentError):
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
def test_whatever_fails_the_file_is_right_or_not_there(
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
def test_settings_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="cannot be negative"):
        DownloadConfig(**wrong)
