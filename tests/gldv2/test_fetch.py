"""Downloads of the Washington part of the dataset from a server with the host's layout and scripted faults."""

import dataclasses
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.gldv2.download import partial_path
from hgld.gldv2.fetch import FetchRecord, FetchSummary, fetch_gldv2, files_to_fetch
from hgld.gldv2.settings import DownloadConfig, FetchConfig
from hgld.io.locks import exclusive_lock
from tests.commands import run_hgld
from tests.gldv2.file_server import Fault, FileServer
from tests.gldv2.test_download import RecordedProgress
from tests.http_servers import BODY_BEGUN, HEADERS_BEGUN, dripping_server, interrupted_soon

QUICK = DownloadConfig(max_retries=2, backoff_s=0.001, timeout_s=5)
TARS = ("train/images_000.tar", "train/images_001.tar")
#: Metadata files of the train split that the Washington part has.
CSVS = ("train.csv", "train_clean.csv", "train_label_to_category.csv")

Serve = Callable[..., FileServer]


@pytest.fixture
def host(serve: Serve, shared: Path, tmp_path: Path) -> FileServer:
    """A server with the host's layout; CSV files that Washington lacks are made up."""
    root = tmp_path / "host"
    (root / "metadata").mkdir(parents=True)
    for name in CSVS:
        (root / "metadata" / name).symlink_to(shared / "wa_gldv2" / name)
    for name in ("train_attribution.csv", "train_label_to_hierarchical.csv"):
        (root / "metadata" / name).write_text("made,up\n")
    for name in ("train", "md5sum"):
        (root / name).symlink_to(shared / "wa_gldv2" / name)
    return serve(root)


def config(server: FileServer, **changes: Any) -> FetchConfig:
    plain = FetchConfig("train", images=True, shards=[0, 1], base_url=server.url, download=QUICK)
    return dataclasses.replace(plain, **changes)


def outcome_counts(summary: FetchSummary) -> tuple[int, int, int, int]:
    return summary.fetched, summary.existing, summary.verified, len(summary.failed)


def same(out: Path, shared: Path, names: tuple[str, ...] = TARS) -> bool:
    return all((out / name).read_bytes() == (shared / "wa_gldv2" / name).read_bytes() for name in names)


def test_files_are_downloaded_once(host: FileServer, shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "data" / "gldv2"
    first = fetch_gldv2(out, config(host, metadata=True))
    assert outcome_counts(first) == (7, 0, 2, 0)
    assert same(out, shared, CSVS + TARS)
    assert first.n_bytes == sum(path.stat().st_size for path in [*out.glob("*.csv"), *out.glob("train/*.tar")])
    asked = len(host.requests)
    assert outcome_counts(fetch_gldv2(out, config(host, metadata=True))) == (0, 7, 0, 0)
    assert len(host.requests) == asked
    assert not [path for path in out.rglob("*") if ".part" in path.name or path.suffix == ".lock"]
    record = FetchRecord(out)
    for file in files_to_fetch(config(host, metadata=True)):
        assert record.is_finished(file)
        assert record.md5(file) == hashlib.md5((out / file.path).read_bytes()).hexdigest()


def test_mirror_with_the_layout_of_a_local_folder(serve: Serve, shared: Path, tmp_path: Path) -> None:
    server = serve(shared / "wa_gldv2")
    summary = fetch_gldv2(tmp_path / "out", config(server, images=False, shards=None, metadata=True))
    assert outcome_counts(summary) == (3, 0, 0, 2)
    assert same(tmp_path / "out", shared, CSVS)
    for name, message in zip(("attribution", "label_to_hierarchical"), summary.failed, strict=True):
        assert f"{server.url}/metadata/train_{name}.csv answered 404" in message


def test_killed_run_resumes(host: FileServer, shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = {"--split": "train", "--shards": "0:1", "--workers": "1", "-o": str(out), "--base-url": host.url}
    arguments = ["fetch", "gldv2", "--images", *(text for option in options.items() for text in option)]
    run = [sys.executable, "-c", "from hgld.cli import app; app()", *arguments]
    host.pause_s = 0.001
    process = subprocess.Popen(run)
    second = partial_path(out / TARS[1])
    while not second.exists() or second.stat().st_size < 5_000_000:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = second.stat().st_size
    time.sleep(0.05)  # the server notices
    host.pause_s, host.requests = 0, []
    host.sent.clear()
    summary = fetch_gldv2(out, config(host))
    assert outcome_counts(summary) == (1, 1, 1, 0)
    assert same(out, shared)
    assert host.sent[TARS[0]] == 0
    assert host.sent[TARS[1]] == summary.n_bytes == (out / TARS[1]).stat().st_size - kept
    assert host.gets(TARS[1])[0]["Range"] == f"bytes={kept}-"


def test_resets_and_pauses_do_not_change_the_files(host: FileServer, shared: Path, tmp_path: Path) -> None:
    host.faults[TARS[0]] = [Fault(reset_after=3_000_000), Fault(status=429, retry_after="0.1"), Fault(status=503)]
    host.faults[TARS[1]] = [Fault(wrong_byte=True)]
    assert outcome_counts(fetch_gldv2(tmp_path / "out", config(host))) == (2, 0, 2, 0)
    assert same(tmp_path / "out", shared)


def test_failed_file_does_not_stop_the_others(host: FileServer, shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    host.faults[TARS[0]] = 2 * [Fault(wrong_byte=True)]
    summary = fetch_gldv2(out, config(host))
    assert outcome_counts(summary) == (1, 0, 1, 1)
    assert "expected b4ce6f81e867ca51c98d0e9da991161e; it was downloaded twice" in summary.failed[0]
    assert same(out, shared, TARS[1:])
    assert not (out / TARS[0]).exists()
    assert outcome_counts(fetch_gldv2(out, config(host))) == (1, 1, 1, 0)


def test_copied_tar_file_is_verified_once(host: FileServer, shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "train").mkdir(parents=True)
    for name in TARS:
        shutil.copyfile(shared / "wa_gldv2" / name, out / name)
    with (out / TARS[1]).open("r+b") as stream:
        stream.seek(1_000_000)
        stream.write(b"damage")
    summary = fetch_gldv2(out, config(host))
    assert outcome_counts(summary) == (1, 1, 2, 0)
    assert host.sent[TARS[0]] == 0
    assert same(out, shared)
    assert outcome_counts(fetch_gldv2(out, config(host))) == (0, 2, 0, 0)


def test_verify_detects_damage_that_leaves_size_and_date_unchanged(
    host: FileServer, shared: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    fetch_gldv2(out, config(host))
    damaged = out / TARS[0]
    stat = damaged.stat()
    with damaged.open("r+b") as stream:
        stream.write(b"damage")
    os.utime(damaged, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert outcome_counts(fetch_gldv2(out, config(host))) == (0, 2, 0, 0)
    assert outcome_counts(fetch_gldv2(out, config(host, verify=True))) == (1, 1, 2, 0)
    assert same(out, shared)


def test_metadata_of_another_size_is_downloaded_again(host: FileServer, shared: Path, tmp_path: Path) -> None:
    out, metadata_only = tmp_path / "out", config(host, images=False, shards=None, metadata=True)
    out.mkdir()
    (out / "train.csv").write_text("cut short")
    shutil.copyfile(shared / "wa_gldv2" / "train_clean.csv", out / "train_clean.csv")
    assert outcome_counts(fetch_gldv2(out, metadata_only)) == (4, 1, 0, 0)
    assert same(out, shared, CSVS)
    assert outcome_counts(fetch_gldv2(out, dataclasses.replace(metadata_only, force=True))) == (5, 0, 0, 0)


def test_progress_ends_at_the_total(host: FileServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    host.faults[TARS[0]] = 3 * [Fault(reset_after=300_000)]
    host.faults[TARS[1]] = [Fault(wrong_byte=True)]
    assert outcome_counts(fetch_gldv2(out, config(host)))[3] == 1
    for changes in ({}, {"verify": True}, {"force": True}):
        progress = RecordedProgress()
        fetch_gldv2(out, config(host, **changes), progress=progress)
        ((total, _),) = progress.started
        assert 0 < total == progress.done


def test_lack_of_disk_space_is_reported_before_the_download(
    host: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 0, 30_000_000))
    with pytest.raises(
        ConfigurationError, match=r"the files need about 45\.3 MB, but the disk has only 30\.0 MB left; free"
    ):
        fetch_gldv2(tmp_path / "out", config(host))
    assert not host.sent


def test_no_more_requests_to_a_server_that_is_down(host: FileServer, tmp_path: Path) -> None:
    host.faults = defaultdict(lambda: 9 * [Fault(status=503)])
    summary = fetch_gldv2(tmp_path / "out", config(host, workers=1, images=False, shards=None, metadata=True))
    assert len(summary.failed) == 5
    assert sum("not tried" in text for text in summary.failed) == 1
    assert "If this machine is online" in summary.failed[0]
    with pytest.raises(ConfigurationError, match="127.0.0.1:9 cannot be reached"):
        fetch_gldv2(tmp_path / "out", config(host, shards=None, base_url="http://127.0.0.1:9"))


@pytest.mark.parametrize("begun", [HEADERS_BEGUN, BODY_BEGUN])
def test_one_interrupt_ends_downloads_that_wait_for_the_server(
    host: FileServer, tmp_path: Path, begun: bytes
) -> None:
    with dripping_server(begun) as url, interrupted_soon():
        fetch_gldv2(tmp_path, config(host, base_url=url))


def test_invalid_md5_file(host: FileServer, serve: Serve, tmp_path: Path) -> None:
    other = tmp_path / "other" / "md5sum" / "train"
    other.mkdir(parents=True)
    (other / "md5.images_000.txt").write_text("<Error>")
    server = serve(tmp_path / "other", *host.roots)
    summary = fetch_gldv2(tmp_path / "out", config(server))
    assert outcome_counts(summary) == (1, 0, 1, 1)
    assert "expected an MD5" in summary.failed[0]


def test_concurrent_run_and_damaged_record_are_refused(host: FileServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with exclusive_lock(out), pytest.raises(BusyError):
        fetch_gldv2(out, config(host))
    for text in ("{", '{"format": "other/1"}', "[]"):
        (out / ".hgld-fetched.json").write_text(text)
        with pytest.raises(InputError, match="is damaged .*; delete it"):
            fetch_gldv2(out, config(host))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "all"}, '`split` is "all"; expected one of train, index, test'),
        ({"images": False, "shards": None}, "nothing to fetch"),
        ({"images": False, "metadata": True}, "`shards` requires `images`"),
        ({"workers": 0}, "`workers` is 0; expected 1 to 16"),
        ({"base_url": "s3.amazonaws.com"}, "expected a URL such as https://s3"),
    ],
)
def test_invalid_config(host: FileServer, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        config(host, **changes)


def test_command(host: FileServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = ["fetch", "gldv2", "--metadata", "--images", "--shards", "1", "--split", "train", "-o", str(out)]
    assert run_hgld(*run, env={"HGLD_GLDV2_URL": host.url}).stdout.startswith("6 files: 6 downloaded (23.3 MB in ")
    (host.roots[0] / "metadata" / "train_attribution.csv").unlink()
    result = run_hgld(*run, "--force", code=1, env={"HGLD_GLDV2_URL": host.url})
    assert "5 downloaded" in result.stdout
    assert "error: 1 files could not be downloaded:" in result.stderr
    assert "train_attribution.csv answered 404" in result.stderr
