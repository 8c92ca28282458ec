"""Every comparison, sweep and method that comes with hgld, in miniature: from files of a data set to its tables."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch

from hgld.benchmark.runs import read_benchmark
from hgld.io.settings import comparison_presets, training_presets
from tests.benchmark.miniatures import (
    FILES,
    MiniatureFolder,
    dataset_of,
    documented_commands,
    invoke,
    small_comparison,
    small_settings,
)

COMPARISONS = list(comparison_presets())
WITH_SWEEPS = [name for name in COMPARISONS if read_benchmark(name).sweeps]
COMPARED = {method.training for name in COMPARISONS for method in read_benchmark(name).methods.values()}
#: Methods that no comparison has.
ALONE = [name for name, path in training_presets().items() if path not in COMPARED]
#: Images for settings that name none, as the documented commands make them.
OWN_IMAGES = ("--manifest", "products.parquet", "--images", "photographs")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> MiniatureFolder:
    return MiniatureFolder(tmp_path_factory.mktemp("miniatures"))


@pytest.fixture(autouse=True)
def _in_process(datasets: MiniatureFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(datasets.root)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would mostly wait for each other on inputs as small as these
    yield
    torch.set_num_threads(threads)


def options(comparison: str) -> list[str]:
    """Return the options that make a comparison small."""
    method = next(iter(read_benchmark(comparison).methods.values()))
    own_images = OWN_IMAGES if method.training == training_presets()["own_images/untrained"] else ()
    assert method.training is not None
    return [*small_settings(method.training), "--device", "cpu", *own_images]


def test_every_method_has_a_miniature_data_set() -> None:
    for file in FILES:
        dataset_of(file)  # raises where there is none
        assert documented_commands(file), f"{file}.yaml names no command that makes a manifest"


def test_a_comparison_is_planned_without_its_data(tmp_path: Path) -> None:
    plan = invoke("benchmark", "h-gldv2", "-o", tmp_path, "--plan", "--method", "happier", *options("h-gldv2"))
    assert plan.startswith(read_benchmark("h-gldv2").title)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison_is_planned_and_run(name: str, datasets: MiniatureFolder, tmp_path: Path) -> None:
    datasets.add_comparison(name)
    settings, out = read_benchmark(name), tmp_path / "out"
    assert invoke("benchmark", name, "-o", out, "--plan", *options(name)).startswith(settings.title)
    assert not out.exists()
    command = ["benchmark", small_comparison(name, tmp_path / "small.yaml"), "-o", out, *options(name)]
    invoke(*command)
    results = pd.read_parquet(out / "results.parquet")
    assert set(results["method"]) == set(settings.methods)
    columns = read_benchmark(tmp_path / "small.yaml").columns
    assert columns
    assert set(columns) <= set(results["metric"])
    assert results[results["metric"].isin(columns)]["value"].between(0, 1).all()
    assert "up to date" in invoke(*command)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_SWEEPS)
def test_sweeps_are_run(name: str, datasets: MiniatureFolder, tmp_path: Path) -> None:
    datasets.add_comparison(name)
    config, out = small_comparison(name, tmp_path / "small.yaml"), tmp_path / "out"
    invoke("benchmark", config, "-o", out, "--sweep", "all", *options(name))
    for sweep, settings in read_benchmark(config).sweeps.items():
        rows = pd.read_parquet(out / "sweeps" / f"{sweep}.parquet")
        assert set(rows["curve"]) == set(settings.curves)
        assert set(rows["setting"]) == set(map(str, settings.values))
        assert set(settings.metrics) <= set(rows["metric"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_method_without_comparison_is_trained(name: str, datasets: MiniatureFolder, tmp_path: Path) -> None:
    datasets.add(training_presets()[name].parent.stem)
    own_images = OWN_IMAGES if name.startswith("own_images/") else ()
    invoke("train", name, "-o", tmp_path / "run", *small_settings(name), *own_images)
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert history
