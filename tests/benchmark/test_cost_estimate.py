"""Cost estimates: against what trainings really did, and against arithmetic by hand."""

import re
from pathlib import Path
from typing import Any

import pytest

from hgld.benchmark.cost_estimate import estimate_cost
from hgld.benchmark.runs import BenchmarkSettings, Run, read_benchmark, table_runs, train_and_evaluate
from hgld.cli.benchmark import format_cost
from hgld.errors import ConfigurationError, InputError
from tests.benchmark.comparisons import N_STEPS, write_comparison, write_data


def comparison(folder: Path, **trainings: Any) -> tuple[BenchmarkSettings, tuple[Run, ...]]:
    """ROADMAP and HAPPIER, two seeds each."""
    write_data(folder)
    settings = read_benchmark(write_comparison(folder, seeds=(0, 1), **trainings))
    return settings, tuple(run for runs in table_runs(settings, folder / "out").values() for run in runs)


def test_plan_counts_and_writes_nothing(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    text = format_cost(estimate_cost(settings, runs))
    assert text.startswith("Noise: 4 runs, 0 of them done\n")
    assert len(re.findall(rf"^(?:roadmap|happier) +2 +{N_STEPS}$", text, re.MULTILINE)) == 2
    assert f"{4 * N_STEPS * 8} training images" in text
    assert "Missing" not in text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"frozen": ["backbone.layer9"]}, 'no module or parameter of the model is called "backbone.layer9"'),
        ({"evaluation": {"metrics": ["H-AP", "mAP@x"]}}, "there is no metric 'mAP@x'"),
    ],
)
def test_plan_finds_settings_that_no_run_survives(wrong: dict[str, Any], message: str, tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path, happier=wrong)
    with pytest.raises(ConfigurationError, match=message):
        estimate_cost(settings, runs)


def test_finished_runs_are_not_counted(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    train_and_evaluate(settings, runs[0])
    text = format_cost(estimate_cost(settings, runs))
    assert text.startswith("Noise: 4 runs, 1 of them done\n")
    assert re.search(r"^roadmap +1 ", text, re.MULTILINE)
    (runs[0].folder / "evaluation" / "per_query.parquet").unlink()
    cost = estimate_cost(settings, runs)
    text = format_cost(cost)
    assert text.startswith("Noise: 4 runs, 0 of them done\n")
    assert f"{3 * N_STEPS * 8} training images" in text  # the run is trained, but has to be evaluated
    assert (cost.runs[0].n_to_train, cost.runs[0].n_to_evaluate) == (1, 1)


def test_full_size_is_estimated_without_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read_benchmark("h-gldv2")
    table = table_runs(settings, tmp_path)
    cost = estimate_cost(settings, [*table["untrained"], *table["happier"]])
    text = format_cost(cost)
    assert "4 runs, 0 of them done" in text
    assert f"{3 * 55_000 * 256:,} training images" in text
    *_, missing = text.partition("Missing files")
    for name in ("train/manifest", "test/images", "index/images", "retrieval_solution", "label_to_hierarchical"):
        assert name in missing


def test_settings_are_checked_without_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read_benchmark("h-gldv2")
    runs = table_runs(settings, tmp_path, ["frozen=[backbone.layer9]"])["happier"]
    with pytest.raises(ConfigurationError, match='no module or parameter of the model is called "backbone.layer9"'):
        estimate_cost(settings, runs)


def test_missing_images_of_other_data_are_an_error(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    (tmp_path / "manifest.parquet").unlink()
    with pytest.raises(InputError, match=r"manifest\.parquet: no such file"):
        estimate_cost(settings, runs)
