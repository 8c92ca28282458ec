"""Every comparison, sweep and method that comes with hgld, in miniature: from files of a data set to the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from hgld.benchmark import comparison as comparison_module
from hgld.benchmark.runs import read_benchmark
from hgld.io.preset_files import comparison_presets, training_presets
from tests.benchmark.miniatures import (
    DATASETS,
    MiniatureFolder,
    datasets_of,
    invoke,
    run_in_process,
    settings_file,
    small_settings,
    small_sweeps,
)

COMPARISONS = list(comparison_presets())
WITH_SWEEPS = [name for name in COMPARISONS if read_benchmark(name).sweeps]
COMPARED = {method.training for name in COMPARISONS for method in read_benchmark(name).methods.values()}
#: Methods that no comparison has.
ALONE = [name for name, path in training_presets().items() if path not in COMPARED]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> MiniatureFolder:
    return MiniatureFolder(tmp_path_factory.mktemp("miniatures"))


@pytest.fixture(autouse=True)
def _in_process(datasets: MiniatureFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(datasets.root)
    monkeypatch.setattr(comparison_module, "launch", run_in_process)


def changes(comparison: str) -> list[str]:
    settings = read_benchmark(comparison)
    small = small_settings([method.training for method in settings.methods.values()])
    return [word for change in small for word in ("--set", change)]


def of_one_draw(comparison: str) -> list[str]:
    return ["--seeds", "0", *(["--splits", "0"] if read_benchmark(comparison).splits else []), "--devices", "cpu"]


def test_every_data_set_has_a_miniature() -> None:
    folders = {path.parent.name for path in training_presets().values()}
    assert folders <= set(DATASETS)
    assert all(settings_file(name).is_file() for name in DATASETS)


def test_a_comparison_is_planned_without_its_data(tmp_path: Path) -> None:
    plan = invoke("benchmark", "h-gldv2", "-o", tmp_path, "--plan", "--method", "happier", *changes("h-gldv2"))
    assert plan.startswith(read_benchmark("h-gldv2").title)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison_is_planned_and_run(name: str, datasets: MiniatureFolder, tmp_path: Path) -> None:
    for dataset in datasets_of(name):
        datasets.add(dataset)
    settings, command = read_benchmark(name), ["benchmark", name, "-o", tmp_path, *changes(name), *of_one_draw(name)]
    assert invoke(*command, "--plan").startswith(settings.title)
    assert not (tmp_path / "results.md").exists()
    invoke(*command)
    results = pd.read_parquet(tmp_path / "results.parquet")
    assert set(results["method"]) == set(settings.methods)
    assert set(settings.columns) <= set(results["metric"])
    values = results[results["metric"].isin(settings.columns)]["value"]
    assert values.between(0, 1).all()
    assert "up to date" in invoke(*command)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_SWEEPS)
def test_sweeps_are_run(name: str, datasets: MiniatureFolder, tmp_path: Path) -> None:
    for dataset in datasets_of(name):
        datasets.add(dataset)
    config = small_sweeps(comparison_presets()[name], tmp_path / "small.yaml")
    out = tmp_path / "out"
    invoke("benchmark", config, "-o", out, "--sweep", "all", *changes(name), *of_one_draw(name))
    for sweep, settings in read_benchmark(config).sweeps.items():
        rows = pd.read_parquet(out / "sweeps" / f"{sweep}.parquet")
        assert set(rows["curve"]) == set(settings.curves)
        assert set(rows["setting"]) == set(map(str, settings.values))
        assert set(settings.metrics) <= set(rows["metric"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_method_without_comparison_is_trained(name: str, datasets: MiniatureFolder, tmp_path: Path) -> None:
    datasets.add(training_presets()[name].parent.name)
    small = [word for change in small_settings([name]) for word in ("--set", change)]
    invoke("train", name, "-o", tmp_path / "run", *small)
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert history
