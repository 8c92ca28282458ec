"""Comparisons, sweeps and methods that come with hgld, in miniature: from files of a data set to its tables."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.benchmark.runs import read_benchmark, sweep_runs, table_runs
from hgld.io.presets import comparison_presets, training_presets
from hgld.losses.registry import LabelSpace
from hgld.training.run import read_training_settings, training_loss
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


def trained_methods() -> dict[str, list[str]]:
    """Return the methods of each comparison whose data or loss no earlier comparison has trained with.

    The other methods differ from these by values of their settings, which planning reads.
    """
    covered: set[tuple[str, str]] = set()
    methods: dict[str, list[str]] = {}
    for name in COMPARISONS:
        for method, settings in read_benchmark(name).methods.items():
            assert settings.training is not None
            training = read_training_settings(settings.training, ["data.manifest=given.parquet"])
            brings = {("data", settings.training.parent.stem), ("loss", training.loss.name)}
            if not brings <= covered:
                covered |= brings
                methods.setdefault(name, []).append(method)
    return methods


TRAINED = trained_methods()
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


@pytest.mark.parametrize("name", COMPARISONS)
def test_losses_of_a_comparison_can_be_built(name: str, tmp_path: Path) -> None:
    settings = read_benchmark(name)
    settings = settings.model_copy(update={"seeds": settings.seeds[:1], "splits": settings.splits[:1]})
    data = ("data.manifest=given.parquet",)
    runs = [run for of_method in table_runs(settings, tmp_path, data).values() for run in of_method]
    for sweep in settings.sweeps:
        runs += [run for point in sweep_runs(settings, sweep, tmp_path, data) for run in point.runs]
    labels = np.array([[0, 0, 0], [1, 0, 0], [2, 1, 1], [3, 1, 1]])
    for training in {str(run.settings.loss): run.settings for run in runs}.values():
        training_loss(training, LabelSpace.from_labels(8, labels), 16, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_comparison_is_planned_and_run(name: str, datasets: MiniatureFolder, tmp_path: Path) -> None:
    datasets.add_comparison(name)
    title, out = read_benchmark(name).title, tmp_path / "out"
    assert invoke("benchmark", name, "-o", out, "--plan", *options(name)).startswith(title)
    assert not out.exists()
    command = ["benchmark", small_comparison(name, tmp_path / "small.yaml"), "-o", out, *options(name)]
    command += [word for method in TRAINED[name] for word in ("--method", method)]
    invoke(*command)
    results = pd.read_parquet(out / "results.parquet")
    assert set(results["method"]) == set(TRAINED[name])
    columns = read_benchmark(tmp_path / "small.yaml").columns
    assert columns
    assert set(columns) <= set(results["metric"])
    assert results[results["metric"].isin(columns)]["value"].between(0, 1).all()
    assert "up to date" in invoke(*command)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_SWEEPS[:1])
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
