"""A scrape of a dump that is killed, or that meets a damaged file or a full disk, goes on where it was."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hgld.compute.executors import Part
from hgld.errors import BusyError, InputError
from hgld.io.files import PartLocks, exclusive_lock
from hgld.tables import classes_path
from hgld.wikimedia import dump_extract
from hgld.wikimedia.dump_extract import ExtractConfig, extract_dump, items_path
from tests.child_processes import run_child, run_script, single_thread_environment
from tests.scrapes import write_categories
from tests.slurm_cluster import SlurmCluster
from tests.test_storage import mounted
from tests.wikimedia import wikidata_mix
from tests.wikimedia.dumps import as_line, write_dump, write_parts

URL = "http://commons.wikimedia.org/wiki/"


def write_inputs(folder: Path, n_parts: int = 6, n_items: int = 300) -> tuple[Path, Path]:
    """Write a folder of parts of a dump, and a list of the landmarks in it."""
    lines = [as_line(entity) for entity in wikidata_mix.entities(n_items)]
    suffixes = [(".json.gz", ".json.bz2", ".json")[number % 3] for number in range(n_parts)]
    titles = [wikidata_mix.commons_title(number) for number in range(n_items) if wikidata_mix.has_category(number)]
    categories = write_categories(folder / "categories.csv", [URL + title.replace(" ", "_") for title in titles])
    return write_parts(folder / "dump", lines, suffixes), categories


def command(dump: Path, categories: Path, out: Path, *options: str) -> list[str]:
    run = [sys.executable, "-m", "hgld", "scrape", str(categories), "--split", "train", "-o", str(out)]
    return [*run, "--source", "dump", "--dump", str(dump), "--workers", "2", *options]


def contents(out: Path) -> tuple[bytes, ...]:
    """Return the bytes of what a scrape leaves."""
    extract = items_path(out.parent / "wikidata-items")
    assert [path.name for path in extract.parent.iterdir() if not path.name.startswith(".")] == [extract.name]
    return out.read_bytes(), classes_path(out).read_bytes(), extract.read_bytes()


def test_extract_is_not_completed_while_jobs_make_parts_of_it(tmp_path: Path) -> None:
    dump, _ = write_inputs(tmp_path, n_parts=2, n_items=10)
    folder = tmp_path / "items"
    with PartLocks(folder, folder).held("2/3"), pytest.raises(BusyError, match="part 2/3 is still running"):
        extract_dump(dump, folder, ExtractConfig(workers=1))
    extract_dump(dump, folder, ExtractConfig(workers=1))
    assert items_path(folder).is_file()


def test_no_part_is_made_while_the_extract_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_extract, "OPENING_WAIT_S", 0)
    dump, _ = write_inputs(tmp_path, n_parts=2, n_items=10)
    folder = tmp_path / "items"
    with exclusive_lock(folder), pytest.raises(BusyError, match="another run is writing"):
        extract_dump(dump, folder, ExtractConfig(workers=1), part=Part(1, 2))
    assert not list(folder.rglob("*.parquet"))


KILLED = """
import shutil, sys
from pathlib import Path
from hgld.wikimedia.dump_extract import ExtractConfig, extract_dump, items_path
from tests.wikimedia.test_dump_interruptions import write_inputs
from tests.kill_points import kill_points

home = Path(sys.argv[1])
dump, _ = write_inputs(home, n_parts=2, n_items=40)
whole, folder = home / "whole", home / "out" / "items"
run = lambda folder=folder: extract_dump(dump, folder, ExtractConfig(workers=1))
run(whole)
expected = items_path(whole).read_bytes()

def prepare():
    shutil.rmtree(folder.parent, ignore_errors=True)

for number in kill_points(run, folder.parent, prepare):
    assert not items_path(folder).exists() or items_path(folder).read_bytes() == expected, number
    assert run().complete, number
    assert items_path(folder).read_bytes() == expected, number
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert left <= {path.name for path in whole.iterdir()}, (number, left)
print(number)
"""


@pytest.mark.slow
def test_pass_killed_at_any_change_of_the_files_goes_on(tmp_path: Path) -> None:
    assert int(run_script(KILLED, tmp_path)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("parts_before", [1, 4])
def test_killed_command_goes_on(tmp_path: Path, parts_before: int) -> None:
    """All processes are killed when so many of six parts are there, and the next run makes the others only."""
    dump, categories = write_inputs(tmp_path)
    (tmp_path / "whole").mkdir()
    in_parts = command(dump, categories, tmp_path / "whole" / "out.parquet", "--executor", "local", "--parts", "4")
    run_child(in_parts, environment=single_thread_environment())
    out = tmp_path / "killed" / "out.parquet"
    parts = out.parent / "wikidata-items" / "parts"
    child = subprocess.Popen(
        command(dump, categories, out), env=single_thread_environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not parts.is_dir() or len(list(parts.glob("0*.json"))) < parts_before:
        assert child.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    made = {path.name: path.stat().st_mtime_ns for path in parts.glob("0*.json")}
    run_child(command(dump, categories, out, "--part", "1/1"), environment=single_thread_environment())
    assert len(list(parts.glob("0*.json"))) == 6
    assert made == {name: (parts / name).stat().st_mtime_ns for name in made}, "made once"
    run_child(command(dump, categories, out), environment=single_thread_environment())
    assert contents(out) == contents(tmp_path / "whole" / "out.parquet")


@pytest.mark.slow
def test_array_on_a_cluster(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Four jobs read a share each; one is killed and requeued, and the call without a part makes the table."""
    dump, categories = write_inputs(tmp_path, n_parts=8)
    (tmp_path / "whole").mkdir()
    whole, out = tmp_path / "whole" / "out.parquet", tmp_path / "shared" / "out.parquet"
    run_child(command(dump, categories, whole), environment=single_thread_environment())
    run = shlex.join(command(dump, categories, out)).replace("--workers 2", "--workers 1")
    # The first run of the second job is killed as if its node were lost.
    fate = 'if [ "$SLURM_ARRAY_TASK_ID" = 2 ] && [ -z "$SLURM_RESTART_COUNT" ]; then sleep 300; fi'
    script = f"{fate}\nexec {run} --part $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
    options = ("--array=1-4", "--requeue", "--mem=1000", f"--output={tmp_path}/%a.log")
    job = cluster.submit(script, *options, environment=single_thread_environment())
    cluster.wait_for(f"{job}_2", "RUNNING")
    cluster.requeue(f"{job}_2")
    for number in range(1, 5):
        facts = cluster.wait_for(f"{job}_{number}")
        assert facts["JobState"] == "COMPLETED", (tmp_path / f"{number}.log").read_text()
    last = cluster.submit(f"exec {run}", f"--output={tmp_path}/last.log", environment=single_thread_environment())
    assert cluster.wait_for(last)["JobState"] == "COMPLETED", (tmp_path / "last.log").read_text()
    assert contents(out) == contents(whole)


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.bz2"])
def test_truncated_dump_is_refused_and_what_was_read_is_kept(tmp_path: Path, suffix: str) -> None:
    dump, _ = write_inputs(tmp_path, n_parts=1, n_items=24)
    next(dump.iterdir()).unlink()
    lines = [as_line(entity) for entity in wikidata_mix.entities(24)]
    for number, part in enumerate((lines[:12], lines[12:])):
        write_dump(dump / f"{number}{suffix}", part, lines_per_member=4)
    last, items = dump / f"1{suffix}", tmp_path / "items"
    whole = last.read_bytes()
    for n_bytes in (len(whole) // 2, len(whole) - 5):
        last.write_bytes(whole[:n_bytes])
        with pytest.raises(InputError, match=f"1{suffix}.*download it again"):
            extract_dump(dump, items, ExtractConfig(workers=1))
    assert [path.name for path in (items / "parts").glob("0*.json")] == ["000000.json"]
    made = (items / "parts" / "000000.json").stat().st_mtime_ns
    last.write_bytes(whole)
    extract_dump(dump, items, ExtractConfig(workers=1), part=Part(2, 2))
    assert (items / "parts" / "000000.json").stat().st_mtime_ns == made
    assert extract_dump(dump, items, ExtractConfig(workers=1)).complete
    assert pq.read_metadata(items_path(items)).num_rows >= 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"landmark_id,category\n1,x\n", "is not one of Wikidata|expected a JSON dump"),
        (b"[\n]\n", "no item in it"),
        (b"", "no item in it"),
        (b'[\n{"type":"item","id":"Q1","labels"\n]\n', "entity 1"),
        (b'[\n{"id":"Q1","claims":{},"lastrevid":1},\n<html>\n]\n', "entity|does not begin"),
    ],
)
def test_files_that_are_no_dumps(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "dump.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        extract_dump(path, tmp_path / "items", ExtractConfig(workers=1))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not items_path(tmp_path / "items").exists()


@pytest.mark.slow
def test_full_disk_ends_in_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    """With 64 kB there is no room for all parts; with more, the same command goes on."""
    dump, categories = write_inputs(tmp_path)
    disk = tmp_path / "disk"
    run = shlex.join(command(dump, categories, disk / "out.parquet"))
    script = f"{run} --part 1/3 && echo made; {run}; echo $?; mount -o remount,size=64M {disk}; {run} && echo done"
    child = run_child([*mounted(disk, "size=64k"), "sh", "-c", script], environment=single_thread_environment())
    assert "done" in child.stdout
    errors = [line for line in child.stderr.splitlines() if line.startswith("error: ")]
    assert errors
    assert all("No space left on device" in line for line in errors)
