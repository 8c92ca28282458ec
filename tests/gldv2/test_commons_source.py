"""Photographs from a server that speaks Commons' API: odd names, absent files, faults, kills and resumes."""

import hashlib
import io
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest
from PIL import Image

from hgld.errors import ConfigurationError, InputError, SourceError
from hgld.gldv2.image_index import index_images
from hgld.gldv2.photograph_list import PhotographList
from hgld.gldv2.photographs import TABLE_NAME, PhotographsSummary, fetch_photographs, plan_photographs
from hgld.io.journal import Journal
from hgld.tables import read_provenance
from tests.assertions import not_none
from tests.child_processes import run_child
from tests.commands import run_hgld
from tests.gldv2.commons_server import CommonsFile, CommonsServer, Fault
from tests.gldv2.photograph_files import address, commons_config, contents_of, listed, real_photographs, rows_of
from tests.http_servers import interrupted_soon

NAMES = [
    "Comet Falls (2937382438).jpg",
    "MRNP — Comet Falls.jpg",
    'Devils Thumb 5172\' "north", a & b, 50% + more;.jpg',
    "Ωραία Αθήνα 東京.jpg",
    "Long " + "ü" * 115 + ".jpg",
    "Renamed before.jpg",
    "Small.jpg",
    "Plan.png",
]


def png(width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), "green").save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def photographs(shared: Path) -> dict[str, bytes]:
    return real_photographs(shared, len(NAMES))


@pytest.fixture
def titles(photographs: Mapping[str, bytes]) -> dict[str, str]:
    return {image_id: f"File:{name}" for image_id, name in zip(photographs, NAMES, strict=True)}


@pytest.fixture
def server(photographs: Mapping[str, bytes], titles: Mapping[str, str]) -> Iterator[CommonsServer]:
    files = {titles[image_id]: CommonsFile(data) for image_id, data in photographs.items()}
    files["File:Renamed after.jpg"] = files.pop("File:Renamed before.jpg")
    files["File:Small.jpg"].imageinfo = {"thumburl": None}
    files["File:Plan.png"].data = png(300, 200)
    server = CommonsServer(files, {"File:Renamed before.jpg": "File:Renamed after.jpg"})
    files["File:Small.jpg"].imageinfo = {"thumburl": f"{server.url}/original/0/Small.jpg"}
    yield server
    server.close()


def fetch(titles: Mapping[str, str], out: Path, server: CommonsServer, **client: object) -> PhotographsSummary:
    return not_none(fetch_photographs(listed(titles), out, commons_config(server, **client)))  # type: ignore[arg-type]


def thumbnails(server: CommonsServer) -> Counter[str]:
    return Counter(server.paths("/thumb/") + server.paths("/original/"))


def test_photographs_of_every_name(
    server: CommonsServer, photographs: dict[str, bytes], titles: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    summary = fetch(titles, out, server)
    assert (summary.statuses, summary.fetched, summary.problems) == ({"ok": len(NAMES)}, len(NAMES), [])
    assert len(server.paths("/w/api.php")) == 1
    contents, rows = contents_of(out), rows_of(out)
    for image_id, title in titles.items():
        row = rows[image_id]
        suffix = ".png" if title == "File:Plan.png" else ".jpg"
        data = contents["/".join((*image_id[:3], image_id + suffix))]
        assert row["sha1"] == hashlib.sha1(data).hexdigest()
        assert (row["url"], row["shard"]) == (address(title), "train/images_000.tar")
        expected = (224, 224) if title == "File:Small.jpg" else (120, 80) if suffix == ".png" else (120, 120)
        assert (row["width"], row["height"]) == Image.open(io.BytesIO(data)).size == expected
        assert row["uploaded_at"] == datetime(2012, 5, 18, 20, 16, 49, tzinfo=timezone.utc)
    renamed = rows[next(key for key, title in titles.items() if "Renamed" in title)]
    assert renamed["page"] == "https://commons.wikimedia.org/wiki/File%3ARenamed_after.jpg"
    small = next(key for key, title in titles.items() if "Small" in title)
    assert contents["/".join((*small[:3], f"{small}.jpg"))] == photographs[small]
    assert not_none(index_images(out, tmp_path / "images.parquet")).images == len(NAMES)
    assert sorted(path.name for path in out.iterdir()) == [TABLE_NAME, "train"]


def test_authors_and_licences_are_texts(server: CommonsServer, titles: dict[str, str], tmp_path: Path) -> None:
    of_first, of_second, of_third = (server.files[f"File:{name}"] for name in NAMES[:3])
    of_first.metadata = {
        "Artist": '<a href="//commons.wikimedia.org/wiki/User:Jö" title="User:Jö">Jö &amp; "Co", Seattle</a>'
        '<span style="display: none;">creator QS:P170,Q1</span>\n  <br />and friends',
        "LicenseShortName": "CC BY-SA 3.0",
        "LicenseUrl": "https://creativecommons.org/licenses/by-sa/3.0",
    }
    of_second.metadata = {"Artist": "http://example.org/someone", "LicenseShortName": "Public domain"}
    of_third.imageinfo = {"extmetadata": {"Artist": {"value": ["not", "a text"]}}}
    fetch(titles, tmp_path, server)
    rows = list(map(rows_of(tmp_path).get, titles))
    values = [tuple((row or {})[name] for name in ("author", "licence", "licence_url")) for row in rows[:4]]
    assert values == [
        ('Jö & "Co", Seattle and friends', "CC BY-SA 3.0", "https://creativecommons.org/licenses/by-sa/3.0"),
        ("http://example.org/someone", "Public domain", None),
        (None, None, None),
        (None, None, None),
    ]


def test_absent_photographs_are_listed_with_the_reason(
    server: CommonsServer, titles: dict[str, str], tmp_path: Path
) -> None:
    first, second, third, fourth, fifth, *_ = titles
    del server.files[titles[first]]
    server.files[titles[second]].imageinfo = None
    server.files[titles[third]].imageinfo = {"filehidden": True}
    server.files[titles[fourth]].imageinfo = {"thumburl": None}
    server.faults[titles[fifth]] = [Fault(404)]
    known = listed(titles)
    extra = {"0" * 16: {"url": "https://example.org/x.jpg"}, "1" * 16: {}, "2" * 16: {"url": address("a|b.jpg")}}
    wanted = PhotographList([*known.ids, *extra], {**known.facts, **extra})
    summary = not_none(fetch_photographs(wanted, tmp_path, commons_config(server)))
    assert summary.problems == []
    assert summary.statuses == {
        "ok": 3, "missing": 4, "no_thumbnail": 1, "invalid_address": 1, "no_address": 1, "invalid_title": 1,
    }  # fmt: skip
    rows = rows_of(tmp_path)
    assert [rows[image_id]["status"] for image_id in (first, second, third, fourth, fifth)] == [
        "missing", "missing", "missing", "no_thumbnail", "missing",
    ]  # fmt: skip
    assert rows[first]["sha1"] is rows[first]["shard"] is None
    assert fetch_photographs(wanted, tmp_path, commons_config(server)) is None
    # Asked again by another list, as a file may be restored.
    asked = len(server.requests)
    server.files[titles[second]].imageinfo = {}
    assert fetch({second: titles[second]}, tmp_path, server).statuses == {"ok": 1}
    assert len(server.requests) == asked + 2


def test_faults_change_nothing_but_the_time(
    server: CommonsServer, titles: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fetch(titles, tmp_path / "clean", server)
    names = [server.redirects.get(title, title) for title in titles.values()]
    server.faults["api"] = [
        Fault(503),
        Fault(body=b"<!DOCTYPE html><title>Wikimedia Error</title>"),
        Fault(body=b'{"error": {"code": "maxlag", "info": "Waiting for db"}}', headers=(("Retry-After", "0"),)),
    ]
    server.faults |= {
        names[0]: [Fault(429, headers=(("Retry-After", "0.3"),))],
        names[1]: [Fault(503), Fault(cut=True)],
        names[2]: [Fault(body=b"<html>Our servers are under maintenance</html>")],
        names[3]: [Fault(body=b"\xff\xd8\xff\xe0 garbage"), Fault(reset=True)],
        names[4]: [Fault(silent_s=1.0)],
        names[5]: [Fault(body=b"")],
    }
    server.requests.clear()
    server.thumbnails_in_part = 3
    summary = fetch(titles, tmp_path / "faulty", server, timeout_s=0.5)
    assert summary.problems == []
    assert contents_of(tmp_path / "faulty") == contents_of(tmp_path / "clean")
    assert rows_of(tmp_path / "faulty") == rows_of(tmp_path / "clean")
    asked = [
        time for time, path, _, _ in server.requests if "Comet_Falls_%28" in path or "Comet%20Falls%20%28" in path
    ]
    assert len(asked) == 2
    assert asked[1] - asked[0] >= 0.3


def test_redirected_thumbnails_are_followed(server: CommonsServer, titles: dict[str, str], tmp_path: Path) -> None:
    first, *_ = titles.values()
    server.faults[first] = [Fault(301, headers=(("Location", f"{server.url}/thumb/60/Plan.png"),))]
    fetch(titles, tmp_path, server)
    assert rows_of(tmp_path)[next(iter(titles))]["width"] == 60


def test_photographs_that_keep_failing_are_tried_again_by_the_same_call(
    server: CommonsServer, titles: dict[str, str], tmp_path: Path
) -> None:
    bad, *_, other = titles.values()
    server.faults[bad] = [Fault(500)] * 4
    server.faults[other] = [Fault(400, body=b"Use thumbnail steps")]
    summary = fetch(titles, tmp_path, server)
    assert summary.statuses == {"ok": len(titles) - 2, "error": 2}
    assert "given up after 4 attempts" in summary.problems[0]
    assert "answered 400: 'Use thumbnail steps'" in summary.problems[1]
    before = thumbnails(server)
    summary = fetch(titles, tmp_path, server)
    assert (summary.statuses, summary.fetched) == ({"ok": len(titles)}, 2)
    assert sum((thumbnails(server) - before).values()) == 2
    assert len(list(tmp_path.rglob("*.tar"))) == 2
    assert fetch_photographs(listed(titles), tmp_path, commons_config(server)) is None


def test_journal_lines_of_another_shape_are_fetched_again(
    server: CommonsServer, titles: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, *_, last = titles
    server.faults[titles[last]] = [Fault(400)]
    fetch(titles, tmp_path, server)
    path = tmp_path / f"{TABLE_NAME}.journal"
    lines = path.read_bytes()
    with Journal(path, commons_config(server).origin()) as journal:
        _, at, facts = next(iter(journal.batches()))
        (tmp_path / TABLE_NAME).unlink()
        path.write_bytes(lines)
        for image_id, row in ((first, []), (second, next(iter(facts.values())) | {"width": "wide"})):
            journal.append("photograph", at, {image_id: row})
    assert fetch(titles, tmp_path, server).statuses == {"ok": len(titles)}
    n = len(titles)
    assert f"2 damaged lines are ignored, and their facts requested again: {n}, {n + 1}" in caplog.text


def test_server_that_is_down_ends_the_run_and_loses_nothing(
    server: CommonsServer, titles: dict[str, str], tmp_path: Path
) -> None:
    for title in list(titles.values())[2:7]:
        server.faults[server.redirects.get(title, title)] = [Fault(503)]
    with pytest.raises(SourceError, match="5 requests in a row failed, .* run the same command again"):
        fetch(titles, tmp_path, server, max_retries=0)
    assert not (tmp_path / TABLE_NAME).exists()
    before = thumbnails(server)
    summary = fetch(titles, tmp_path, server)
    assert summary.fetched == len(titles) - 2
    assert sum((thumbnails(server) - before).values()) == len(titles) - 2
    assert len(contents_of(tmp_path)) == len(titles)


def test_one_interrupt_ends_a_run_that_waits_for_the_server(
    server: CommonsServer, titles: dict[str, str], tmp_path: Path
) -> None:
    server.faults["api"] = [Fault(silent_s=30)]
    with interrupted_soon():
        fetch(titles, tmp_path, server)


def test_refusal_stops_the_run_at_once(server: CommonsServer, titles: dict[str, str], tmp_path: Path) -> None:
    server.faults[list(titles.values())[1]] = [Fault(403, body=b"Please set a user-agent")]
    with pytest.raises(ConfigurationError, match="answered 403 and the run was stopped.*set a user-agent"):
        fetch(titles, tmp_path, server)
    assert len(thumbnails(server)) == 2
    assert fetch(titles, tmp_path, server).fetched == len(titles) - 1


def test_manners_are_those_of_scraping(server: CommonsServer, titles: dict[str, str], tmp_path: Path) -> None:
    fetch(titles, tmp_path, server, rate_per_minute=1200)
    times = [time for time, *_ in server.requests]
    assert len(times) == len(titles) + 1
    assert times[-1] - times[0] >= (len(times) - 5 - 1) * 0.05
    for _, _, headers, _ in server.requests:
        assert headers["User-Agent"].startswith("hgld/")
        assert "operator: tests@example.org" in headers["User-Agent"]


def test_further_lists_extend_a_folder(server: CommonsServer, titles: dict[str, str], tmp_path: Path) -> None:
    some = dict(list(titles.items())[:3])
    fetch(some, tmp_path, server)
    plan = plan_photographs(listed(titles), tmp_path, commons_config(server))
    assert (plan.wanted, plan.there, plan.work.requests) == (len(titles), 3, len(titles) - 3 + 1)
    assert fetch(titles, tmp_path, server).fetched == len(titles) - 3
    assert thumbnails(server).most_common(1)[0][1] == 1
    assert len(rows_of(tmp_path)) == len(contents_of(tmp_path)) == len(titles)
    assert read_provenance(tmp_path / TABLE_NAME).parameters["width"] == 120
    # A tar file that somebody deleted is fetched again.
    (tmp_path / "train/images_000.tar").unlink()
    assert fetch(some, tmp_path, server).fetched == 3
    assert len(contents_of(tmp_path)) == len(titles)


def test_folders_are_of_one_source_and_width(server: CommonsServer, titles: dict[str, str], tmp_path: Path) -> None:
    fetch(titles, tmp_path, server)
    with pytest.raises(
        ConfigurationError, match=r"holds photographs from commons \(split train, .*width 120\).*width 60"
    ):
        fetch_photographs(listed(titles), tmp_path, commons_config(server, 60))
    summary = not_none(fetch_photographs(listed(titles), tmp_path, commons_config(server, 60), force=True))
    assert summary.fetched == len(titles)
    assert {row["width"] for row in rows_of(tmp_path).values()} == {60, 224}
    (tmp_path / TABLE_NAME).unlink()
    with pytest.raises(ConfigurationError, match="holds tar files without a table photographs.parquet"):
        fetch(titles, tmp_path, server)


def test_unfinished_folder_of_another_width_is_refused(
    server: CommonsServer, titles: dict[str, str], tmp_path: Path
) -> None:
    server.faults[list(titles.values())[1]] = [Fault(403)]
    with pytest.raises(ConfigurationError):
        fetch(titles, tmp_path, server)
    with pytest.raises(InputError, match="finish that run, choose another output, or use `force`"):
        fetch_photographs(listed(titles), tmp_path, commons_config(server, 60))
    assert fetch_photographs(listed(titles), tmp_path, commons_config(server, 60), force=True) is not None
    assert len(contents_of(tmp_path)) == len(titles)


@pytest.mark.parametrize("width", [512, 0, 1920])
def test_widths_that_wikimedia_does_not_make(server: CommonsServer, width: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="certain widths only; choose (500|20|1280), or another of 20, 40"):
        fetch_photographs(listed({}), tmp_path, commons_config(server, width))


def command(server: CommonsServer, titles: Mapping[str, str], folder: Path) -> list[str]:
    path = folder / "list.csv"
    rows = "".join(f'{image_id},"{address(title)}"\n' for image_id, title in titles.items())
    path.write_text(f"id,url\n{rows}", encoding="utf-8")
    options = ["--width", "120", "--rate", "0", "--contact", "tests@example.org", "--commons-url", server.url]
    return ["fetch", "gldv2", "--ids", str(path), "-o", str(folder / "out"), *options]


def test_command(server: CommonsServer, titles: dict[str, str], tmp_path: Path) -> None:
    run = command(server, titles, tmp_path)
    plan = f"8 photographs; 8 thumbnails 120 pixels wide from {server.url}: 9 requests, about 25.9 kB\n"
    assert run_hgld(*run, "--plan").stdout == plan
    assert not server.requests
    server.faults[next(iter(titles.values()))] = [Fault(400)]
    result = run_hgld(*run, code=1)
    assert plan in result.stderr
    assert result.stdout.startswith("8 photographs: 7 in the folder, 1 error; 7 added (")
    assert "error: 1 photographs could not be fetched:\n  " in result.stderr
    assert "8 photographs (7 done before); 1 thumbnails" in run_hgld(*run).stderr
    assert run_hgld(*run).stdout == f"{tmp_path / 'out'}: up to date\n"


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
@pytest.mark.slow
def test_kill_at_any_request_loses_one_photograph_at_most(
    server: CommonsServer, titles: dict[str, str], tmp_path: Path, count: int
) -> None:
    run = [sys.executable, "-m", "hgld", *command(server, titles, tmp_path)]
    child = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server.on_request = lambda n: os.kill(child.pid, signal.SIGKILL) if n == count else None
    assert child.wait(60) == -signal.SIGKILL
    assert not (tmp_path / "out" / TABLE_NAME).exists()
    run_child(run)
    assert len(contents_of(tmp_path / "out")) == len(titles)
    requested = thumbnails(server)
    assert sum(requested.values()) <= len(titles) + 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [TABLE_NAME, "train"]


_KILLS = """
import sys
from pathlib import Path
from tests.gldv2.commons_server import CommonsServer, CommonsFile
from tests.gldv2.photograph_files import commons_config, contents_of, listed, rows_of, real_photographs
from tests.kill_points import kill_points
from hgld.gldv2.photographs import fetch_photographs
import shutil
url, shared, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
class Server: pass
server = Server()
server.url = url
titles = {image_id: f"File:{n}.jpg" for n, image_id in enumerate(real_photographs(shared, 3))}
def work():
    fetch_photographs(listed(titles), folder, commons_config(server))
def prepare():
    shutil.rmtree(folder, ignore_errors=True)
kills = 0
for number in kill_points(work, folder, prepare):
    work()
    assert len(contents_of(folder)) == 3, number
    assert {row["status"] for row in rows_of(folder).values()} == {"ok"}, number
    assert len(list(folder.iterdir())) == 2, number
    kills += 1
print(kills)
"""


@pytest.mark.slow
def test_kill_at_every_change_of_the_folder(shared: Path, tmp_path: Path) -> None:
    files = {f"File:{n}.jpg": CommonsFile(data) for n, data in enumerate(real_photographs(shared, 3).values())}
    server = CommonsServer(files)
    try:
        script = [sys.executable, "-c", _KILLS, server.url, str(shared), str(tmp_path / "out")]
        printed = run_child(script, cwd=Path(__file__).parent.parent.parent).stdout
    finally:
        server.close()
    assert int(printed) >= 5
