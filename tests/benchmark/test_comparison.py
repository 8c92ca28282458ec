"""Whole comparisons, whose runs are trained in this process."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from hgld.benchmark import comparison
from hgld.benchmark.comparison import ComparisonSummary, compare_methods, parse_seeds, read_comparison
from hgld.benchmark.runs import BenchmarkSettings, Run, train_and_evaluate
from hgld.cli.benchmark import format_comparison, format_results
from hgld.compute.parts import Part
from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.io.files import sha256_of
from hgld.io.locks import exclusive_lock
from hgld.models.model_loading import read_checkpoint
from hgld.tables import read_provenance
from tests.assertions import not_none
from tests.benchmark.comparisons import N_STEPS, write_comparison, write_data
from tests.commands import run_hgld

PRESETS = Path(__file__).parents[2] / "pipelines" / "benchmarks"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the folders of the runs that are trained or evaluated, relative to the folder of runs."""
    names: list[str] = []

    def record(settings: BenchmarkSettings, run: Run, **options: Any) -> None:
        names.append(run.folder.as_posix().partition("/runs/")[2])
        train_and_evaluate(settings, run, **options)

    monkeypatch.setattr(comparison, "train_and_evaluate", record)
    return names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_data(tmp_path)
    write_comparison(tmp_path, pictures=False)
    return tmp_path


def compare(
    folder: Path, *, part: Part | None = None, force: bool = False, **chosen: Any
) -> ComparisonSummary | None:
    read = read_comparison(folder / "comparison.yaml", folder / "out", **chosen)
    return compare_methods(read, part=part, force=force)


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("pictures", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_comparison_is_not_repeated(folder: Path, trained: list[str], pictures: bool) -> None:
    write_comparison(folder, pictures=pictures)
    summary = compare(folder)
    assert trained == ["roadmap/seed0", "happier/seed0"]
    assert summary is not None
    assert "HAPPIER" in format_comparison(summary)
    assert "2 runs, 0 of them done before" in format_comparison(summary)
    tables = {"results.md", "results.tex", "results.parquet"}
    assert tables | ({"strips.html"} if pictures else set()) <= {path.name for path in summary.files}
    assert all(path.is_file() for path in summary.files)
    inputs = read_provenance(folder / "out" / "results.parquet").inputs
    evaluation = folder / "out" / "runs" / "happier" / "seed0" / "evaluation" / "per_query.parquet"
    assert inputs["happier, seed 0"] == sha256_of(evaluation)
    assert len(inputs) == 2
    written = {
        "manifest.parquet",
        "features.npy",
        "features.ids.txt",
        "happier.yaml",
        "roadmap.yaml",
        "comparison.yaml",
    }
    assert {path.name for path in folder.iterdir()} == {*written, "out"}
    before = times(folder)
    assert compare(folder) is None
    assert times(folder) == before
    assert compare(folder, methods=["happier"]) is not None
    assert not (folder / "out" / "strips.html").exists()  # it shows two methods
    assert len(trained) == 2


def test_a_missing_hierarchy_is_reported_before_training(folder: Path, trained: list[str]) -> None:
    path = write_comparison(folder)
    settings = yaml.safe_load(path.read_text())
    settings["pictures"]["hierarchy"] = str(folder / "train_hierarchy.csv")
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    with pytest.raises(InputError, match="train_hierarchy.csv"):
        compare(folder)
    assert not trained
    assert compare(folder, sweeps=["lambda"]) is not None  # it shows no landmarks


@pytest.mark.parametrize("name", ["manifest.parquet", "features.npy"])
def test_missing_images_are_reported_before_any_run_starts(folder: Path, trained: list[str], name: str) -> None:
    write_comparison(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=rf"no run was started.*\n.*{name}: no such file"):
        compare(folder)
    assert trained == []


def test_missing_or_outdated_results_are_rewritten(folder: Path, trained: list[str]) -> None:
    first = not_none(compare(folder))
    (folder / "out" / "results.tex").unlink()
    again = not_none(compare(folder))
    assert format_comparison(again).startswith(format_results(first))
    assert "2 runs, 2 of them done before" in format_comparison(again)
    text = (folder / "comparison.yaml").read_text()
    (folder / "comparison.yaml").write_text(text.replace("title: Noise", "title: Nothing but noise"))
    assert compare(folder) is not None
    assert "Nothing but noise" in (folder / "out" / "results.md").read_text()
    assert compare(folder, force=True) is not None
    assert len(trained) == 2


def test_sweep_reuses_runs_of_the_table(folder: Path, trained: list[str]) -> None:
    compare(folder)
    del trained[:]
    summary = not_none(compare(folder, sweeps=["all"]))
    assert trained == ["happier/loss.lambda=0.5/seed0"]
    assert "2 runs, 1 of them done before" in format_comparison(summary)
    assert {"lambda.parquet", "lambda.md"} <= {path.name for path in summary.files}
    assert compare(folder, sweeps=["lambda"]) is None


def test_methods_and_seeds_are_selected(folder: Path, trained: list[str]) -> None:
    compare(folder, methods=["happier"], seeds=[4, 1])
    assert trained == ["happier/seed4", "happier/seed1"]
    assert "ROADMAP" not in (folder / "out" / "results.md").read_text()
    runs = read_comparison(folder / "comparison.yaml", folder / "out", seeds=[0, 1]).runs
    assert [str(run) for run in runs] == [
        "roadmap, seed 0", "happier, seed 0", "roadmap, seed 1", "happier, seed 1"
    ]  # fmt: skip


@pytest.mark.slow
def test_splits_are_compared_and_selected(folder: Path, trained: list[str]) -> None:
    write_comparison(folder, splits=(0, 1), seeds=(0, 1))
    summary = compare(folder)
    assert trained == [
        f"{method}/split{split}/seed{seed}"
        for seed in (0, 1) for split in (0, 1) for method in ("roadmap", "happier")
    ]  # fmt: skip
    assert summary is not None
    assert "mean over 2 random splits and their seeds" in " ".join(format_comparison(summary).split())
    assert compare(folder) is None
    text = (folder / "out" / "results.md").read_text()
    for split in (0, 1):
        assert f"- Split {split}: Trained on 16 images of 4 classes (landmark), evaluated on 16 images" in text
    assert "split 0, seed 0: largest differences" in (folder / "out" / "strips.html").read_text()
    assert compare(folder, splits=[1], sweeps=["lambda"]) is not None
    assert trained[8:] == ["happier/loss.lambda=0.5/split1/seed0", "happier/loss.lambda=0.5/split1/seed1"]
    assert compare(folder, splits=[1, 7], seeds=[1], methods=["happier"]) is not None
    assert trained[10:] == ["happier/split7/seed1"]


def test_force_retrains_only_runs_with_other_settings(folder: Path, trained: list[str]) -> None:
    compare(folder)
    del trained[:]
    write_comparison(folder, pictures=False, happier={"steps": N_STEPS + 2})
    with pytest.raises(ConfigurationError, match="1 of 2 runs were begun with other settings or data") as error:
        compare(folder)
    assert "happier/seed0" in str(error.value)
    assert f"steps: {N_STEPS} then, {N_STEPS + 2} now" in str(error.value)
    assert not trained
    before = times(folder / "out" / "runs" / "roadmap")
    assert compare(folder, force=True) is not None
    assert trained == ["happier/seed0"]
    assert times(folder / "out" / "runs" / "roadmap") == before
    assert compare(folder) is None


def test_folder_is_locked(folder: Path) -> None:
    with exclusive_lock(folder / "out"), pytest.raises(BusyError):
        compare(folder)


def test_parts_do_every_other_run_and_a_last_call_the_rest(folder: Path, trained: list[str]) -> None:
    second = not_none(compare(folder, part=Part(2, 2), seeds=[0, 1]))
    assert trained == ["happier/seed0", "happier/seed1"]
    assert (second.n_runs, second.n_new, second.files) == (2, 2, ())
    assert compare(folder, part=Part(2, 2), seeds=[0, 1]) is None
    with exclusive_lock(folder / "out" / "1-of-2"):
        for part, message in (
            (Part(1, 2), "another run is writing part 1/2 of"),
            (None, "part 1/2 is still running"),
        ):
            with pytest.raises(BusyError, match=message):
                compare(folder, part=part, seeds=[0, 1])
    first = run_hgld(
        *("benchmark", folder / "comparison.yaml", "-o", folder / "out", "--seeds", "0,1"),
        *("--part", "1/4", "--device", "cpu"),
    )
    assert first.stdout == f"1 runs, 0 of them done before\n{folder / 'out'}\n"
    assert not (folder / "out" / "results.md").exists()
    whole = not_none(compare(folder, seeds=[0, 1]))
    assert (whole.n_runs, whole.n_new) == (4, 1)
    assert trained[2:] == ["roadmap/seed0", "roadmap/seed1"]
    assert (folder / "out" / "results.md").is_file()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConfigurationError("the loss is not finite\n  at step 3"), "the loss is not finite\n  at step 3"),
        (RuntimeError("CUDA out of memory"), "RuntimeError: CUDA out of memory"),
    ],
)
def test_a_failed_run_does_not_stop_the_others(
    error: Exception, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(settings: BenchmarkSettings, run: Run, **options: Any) -> None:
        if run.method == "roadmap":
            raise error
        train_and_evaluate(settings, run, **options)

    with monkeypatch.context() as patch:
        patch.setattr(comparison, "train_and_evaluate", fail)
        with pytest.raises(ConfigurationError) as failed:
            compare(folder)
    message = str(failed.value)
    assert message.startswith(
        "1 of 2 runs failed, the others are done; fix the errors below and run the same command"
    )
    assert f"roadmap, seed 0: {reason}" in message
    assert not (folder / "out" / "results.md").exists()
    assert not_none(compare(folder)).n_new == 1


def test_unknown_methods_sweeps_and_seeds_are_errors(folder: Path) -> None:
    for chosen, message in [
        ({"methods": ["csl"]}, 'no method "csl"; expected one of roadmap, happier'),
        ({"sweeps": ["rho"]}, 'no sweep "rho"; expected one of lambda'),
        ({"sweeps": ["lambda"], "methods": ["happier"]}, "the curves of a sweep have their own"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            read_comparison(folder / "comparison.yaml", folder / "out", **chosen)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the images of gldv2-retrieval are not split at random; omit them"):
        read_comparison(PRESETS / "h-gldv2.yaml", folder / "out", splits=[0])
    with pytest.raises(ConfigurationError, match='the splits are "0,0"'):
        parse_seeds("0,0", "splits")
    assert parse_seeds("2,0") == (2, 0)
    for wrong in ("", "0,0", "-1", "1;2"):
        with pytest.raises(ConfigurationError, match="expected different numbers from 0"):
            parse_seeds(wrong)


@pytest.mark.slow
def test_interrupted_command_resumes(tmp_path: Path) -> None:
    """The second call resumes, and the third has nothing to do."""
    n_steps = 200
    write_data(tmp_path)
    config = write_comparison(tmp_path, pictures=False, happier={"steps": n_steps, "checkpoint_steps": n_steps})
    out = tmp_path / "out"
    command = ["benchmark", str(config), "-o", str(out), "--device", "cpu", "--method", "happier"]
    run = out / "runs" / "happier" / "seed0"
    history = run / "history.jsonl"

    def stop() -> None:
        while not (history.exists() and history.read_text().count('"step"') > 20):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    assert "run the same command again to resume" in run_hgld(*command, code=130).stderr
    assert not (out / "results.md").exists()
    step = read_checkpoint(run / "last.pt")["step"]
    assert 0 < step < n_steps
    saved = history.read_text().splitlines()[: step + 1]  # with the evaluation before the first step

    assert "HAPPIER" in run_hgld(*command).stdout
    lines = history.read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines if '"kind": "step"' in line] == list(range(1, n_steps + 1))
    assert lines[: step + 1] == saved  # including the seconds of each step: it was not restarted

    assert run_hgld(*command).stdout == f"{out}: up to date\n"


def test_plan_trains_nothing(folder: Path) -> None:
    command = ["benchmark", str(folder / "comparison.yaml"), "-o", str(folder / "out"), "--plan"]
    assert "happier" in run_hgld(*command).stdout
    assert not (folder / "out").exists()


def test_error_messages_of_the_command(folder: Path) -> None:
    def error(*options: str) -> str:
        return run_hgld("benchmark", folder / "comparison.yaml", "-o", "out", *options, code=1).stderr

    assert "there is no such setting; did you mean steps?" in error("--set", "stepz=3")
    assert 'the seeds are "0,x"' in error("--seeds", "0,x")
    assert 'the splits are "a"' in error("--splits", "a")
    assert "--device is tpu; expected cpu, cuda or cuda:N" in error("--device", "tpu")
    (folder / "roadmap.yaml").write_text(yaml.safe_dump({"base": "nowhere.yaml"}))
    assert "no such file" in error()
