"""What all comparisons share: runs that fail, results that are up to date, and reports."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hgld.benchmark.engine import Report, compute_runs, describe_failures, open_folder, report_provenance
from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.figures.style import also_written_as
from hgld.progress import NoProgress
from hgld.tables import Provenance


def fail(error: Exception) -> None:
    raise error


def test_a_run_that_fails_does_not_stop_the_others() -> None:
    done: list[str] = []
    runs = {
        "a": lambda: fail(InputError("a.pt: no such file")),
        "b": lambda: done.append("b"),
        "c": lambda: fail(RuntimeError("CUDA out of memory")),
    }
    failures = compute_runs(runs, NoProgress())
    assert describe_failures(failures) == ["a: a.pt: no such file", "c: RuntimeError: CUDA out of memory"]
    assert done == ["b"]


@pytest.mark.parametrize(
    ("error", "stop_at_failure"), [(OSError(28, "No space left on device"), False), (InputError("no images"), True)]
)
def test_errors_of_the_system_and_of_one_of_several_processes_stop_all_runs(
    error: Exception, stop_at_failure: bool
) -> None:
    runs = {"a": lambda: fail(error), "b": lambda: pytest.fail("the run after a failure")}
    with pytest.raises(type(error)):
        compute_runs(runs, NoProgress(), stop_at_failure=stop_at_failure)


def test_a_report_is_written_again_only_if_it_would_differ(tmp_path: Path) -> None:
    result, names = tmp_path / "result.parquet", ["table.md", "page.html"]
    result.write_text("0.5")

    def update(**settings: int) -> bool:
        def write(provenance: Provenance) -> Sequence[Path]:
            files = [tmp_path / name for name in names]
            for file in files:
                file.write_text(provenance.to_json())
            return files

        provenance = report_provenance("compare", settings, {"a": result})
        return Report(tmp_path / "results.made.json", provenance, write).update()

    assert update(seed=0)
    assert not update(seed=0)
    assert update(seed=1)
    result.write_text("0.6")
    assert update(seed=1)
    (tmp_path / "table.md").unlink()
    assert update(seed=1)
    assert not update(seed=1)
    del names[1]
    result.write_text("0.7")
    assert update(seed=1)
    assert not (tmp_path / "page.html").exists()


def test_figures_are_listed_with_their_further_formats(tmp_path: Path) -> None:
    def write(_: Provenance) -> Sequence[Path]:
        for file in files:
            file.touch()
        return files[:1]

    files = [tmp_path / "figure.png", tmp_path / "figure.pdf"]
    report = Report(tmp_path / "results.made.json", Provenance("compare"), write)
    with also_written_as(["pdf"]):
        assert report.update()
        assert report.files == files
        files[1].unlink()
        assert report.update()


def test_one_comparison_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out"), pytest.raises(BusyError), open_folder(tmp_path / "out"):
        pass


def reports_of(folder: Path, title: str) -> Report:
    """A report of one file, which is made again where its title changes."""

    def write(_: Provenance) -> Sequence[Path]:
        (folder / "table.md").write_text(title)
        return [folder / "table.md"]

    return Report(folder / "results.made.json", Provenance("compare", {"title": title}), write)


@pytest.mark.parametrize("name", ["../victim.txt", "{absolute}", "../folder", ".", "a/../../victim.txt"])
def test_files_outside_the_folder_are_not_deleted(tmp_path: Path, name: str) -> None:
    folder, victim = tmp_path / "out", tmp_path / "victim.txt"
    folder.mkdir()
    (tmp_path / "folder").mkdir()
    victim.write_text("mine")
    assert reports_of(folder, "a").update()
    record = json.loads((folder / "results.made.json").read_text())
    record["files"].append(name.format(absolute=victim))
    (folder / "results.made.json").write_text(json.dumps(record))
    with pytest.raises(ConfigurationError, match="results.made.json: lists .*, which is not in its folder; remove"):
        reports_of(folder, "b").update()
    assert victim.read_text() == "mine"
    assert (folder / "table.md").read_text() == "a"


@pytest.mark.parametrize(
    "text",
    ["", '{"files": ["tab', "[]", "null", "\x00", '{"files": 1, "provenance": {}}', '{"files": []}', "[" * 10_000],
)
def test_reports_with_a_damaged_record_are_made_again(tmp_path: Path, text: str) -> None:
    assert reports_of(tmp_path, "a").update()
    (tmp_path / "results.made.json").write_text(text)
    assert reports_of(tmp_path, "a").update()
    assert not reports_of(tmp_path, "a").update()
