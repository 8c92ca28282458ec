"""Which trainings a comparison consists of."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hgld.benchmark.runs import read_benchmark, sweep_runs, table_runs
from hgld.errors import ConfigurationError, InputError

PRESETS = Path(__file__).parents[2] / "pipelines" / "benchmarks"
TRAINING = {
    "model": {"backbone": "features", "n_features": 4},
    "data": {"manifest": "manifest.parquet", "features": "features.npy", "test": "test"},
    "steps": 5,
}
METHODS = {
    "plain": {"title": "Plain", "training": "trainings/plain.yaml", "baseline": True},
    "happier": {"title": "HAPPIER", "training": "trainings/happier.yaml"},
}


def benchmark(folder: Path, **changes: Any) -> Path:
    """Write the settings of a comparison of two methods."""
    (folder / "trainings").mkdir(exist_ok=True)
    for name, loss in (("plain", "smooth_ap"), ("happier", "happier")):
        training = yaml.safe_dump({**TRAINING, "loss": {"name": loss}})
        (folder / "trainings" / f"{name}.yaml").write_text(training)
    (folder / "benchmark.yaml").write_text(
        yaml.safe_dump({"title": "Two", "methods": METHODS, **changes}, sort_keys=False)
    )
    return folder / "benchmark.yaml"


def test_each_method_has_a_run_per_seed(tmp_path: Path) -> None:
    settings = read_benchmark(benchmark(tmp_path, seeds=[3, 5]))
    runs = table_runs(settings, tmp_path / "out", ["data.manifest=other.parquet"])
    assert list(runs) == ["plain", "happier"]
    assert [run.folder.relative_to(tmp_path / "out").as_posix() for run in runs["happier"]] == [
        "runs/happier/seed3",
        "runs/happier/seed5",
    ]
    for run in runs["happier"]:
        assert run.settings.seed == run.seed
        assert run.settings.loss.name == "happier"
        assert run.settings.data.manifest == Path("other.parquet")
        assert run.overrides == ("data.manifest=other.parquet",)


def test_settings_change_all_trainings(tmp_path: Path) -> None:
    settings = read_benchmark(benchmark(tmp_path, set=["steps=7", "batch_size=8"]))
    for runs in table_runs(settings, tmp_path / "out", ["batch_size=12"]).values():
        assert {(run.settings.steps, run.settings.batch_size) for run in runs} == {(7, 12)}


def test_each_split_has_all_seeds(tmp_path: Path) -> None:
    settings = read_benchmark(benchmark(tmp_path, seeds=[3, 5], splits=[0, 2]))
    runs = table_runs(settings, tmp_path / "out")["happier"]
    assert [run.folder.relative_to(tmp_path / "out/runs/happier").as_posix() for run in runs] == [
        "split0/seed3", "split2/seed3", "split0/seed5", "split2/seed5"
    ]  # fmt: skip
    for run in runs:
        split = run.settings.data.random_split
        assert split is not None
        assert (split.seed, split.level, split.test_share) == (run.split, None, 0.5)
        assert run.settings.seed == run.seed
    assert str(runs[1]) == "happier, split 2, seed 3"


def test_untrained_model_is_evaluated_once_per_split(tmp_path: Path) -> None:
    settings = read_benchmark(benchmark(tmp_path, seeds=[3, 5], splits=[0, 2]))
    runs = table_runs(settings, tmp_path / "out", ["steps=0"])["plain"]
    assert [(run.split, run.seed) for run in runs] == [(0, 3), (2, 3)]


def test_sweep_shares_runs_with_the_table(tmp_path: Path) -> None:
    study = {
        "title": "Weight",
        "key": "loss.lambda",
        "label": "λ",
        "values": [0, 0.1, 0.5],
        "curves": {"α 1": {"method": "happier"}, "α 5": {"method": "happier", "set": ["loss.alpha=5"]}},
    }
    settings = read_benchmark(benchmark(tmp_path, seeds=[0], sweeps={"weight": study}))
    points = sweep_runs(settings, "weight", tmp_path)
    assert [(point.curve, point.value) for point in points] == [
        (curve, value) for curve in ("α 1", "α 5") for value in (0, 0.1, 0.5)
    ]
    assert [point.runs[0].folder.relative_to(tmp_path / "runs").as_posix() for point in points] == [
        "happier/loss.lambda=0/seed0",
        "happier/seed0",
        "happier/loss.lambda=0.5/seed0",
        "happier/loss.alpha=5,loss.lambda=0/seed0",
        "happier/loss.alpha=5/seed0",
        "happier/loss.alpha=5,loss.lambda=0.5/seed0",
    ]
    assert points[1].runs == table_runs(settings, tmp_path)["happier"]
    options = points[3].runs[0].settings.loss.options()
    assert (options["alpha"], options["lambda_"]) == (5, 0)
    with pytest.raises(ConfigurationError, match=r'no sweep "height"; expected one of weight'):
        sweep_runs(settings, "height", tmp_path)


def test_invalid_sweep_values_are_errors(tmp_path: Path) -> None:
    study = {"title": "?", "key": "loss.lamda", "label": "?", "values": [1], "curves": {"?": {"method": "happier"}}}
    settings = read_benchmark(benchmark(tmp_path, sweeps={"weight": study}))
    with pytest.raises(ConfigurationError, match=r"loss.lamda: there is no such setting; did you mean lambda\?"):
        sweep_runs(settings, "weight", tmp_path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"methods": {"../up": METHODS["plain"]}}, r'"../up" names a folder'),
        ({"seeds": [1, 1]}, r"the seeds are 1, 1; expected different seeds"),
        ({"splits": [0, 0]}, r"the seeds are 0, 0; expected different seeds"),
        ({"pictures": {"baseline": "plane", "method": "happier"}}, r'pictures: there is no method "plane"'),
        ({"evaluation": {"name": "gldv2"}}, r'evaluation.name: found "gldv2"; expected one of split'),
        ({"colums": ["H-AP"]}, r"there is no such setting; did you mean columns\?"),
    ],
)
def test_invalid_settings_are_errors(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read_benchmark(benchmark(tmp_path, **changes))


def test_missing_training_file_is_an_error(tmp_path: Path) -> None:
    settings = read_benchmark(benchmark(tmp_path))
    (tmp_path / "trainings" / "happier.yaml").unlink()
    with pytest.raises(InputError, match=r"happier.yaml: no such file"):
        table_runs(settings, tmp_path)


@pytest.mark.parametrize("name", ["washington", "washington_fine_tuned", "grocery"])
def test_comparisons_have_the_methods_of_table_vii(name: str, tmp_path: Path) -> None:
    settings = read_benchmark(PRESETS / f"{name}.yaml")
    runs = table_runs(settings, tmp_path)
    named = {
        *("softbin_ap", "smooth_ap", "recall", "roadmap", "csl", "norm_softmax", "happier", "happier_f"),
        "rod_ndcg",
    }
    assert set(runs) >= {"untrained", *named}
    untrained = runs["untrained"]
    assert {(run.settings.steps, run.seed) for run in untrained} == {(0, settings.seeds[0])}  # seeds do nothing to it
    assert [run.split for run in untrained] == list(settings.splits or [None])
    trained = [run.settings for of_method in runs.values() if of_method != untrained for run in of_method]
    assert len({(settings.steps, settings.epochs) for settings in trained}) == 1  # the same budget
    assert len({run.settings.batch_size for runs in runs.values() for run in runs}) == 1
    once = settings.model_copy(update={"seeds": settings.seeds[:1], "splits": settings.splits[:1]})
    for sweep in settings.sweeps:
        assert sweep_runs(once, sweep, tmp_path)


def test_groceries_are_compared_with_the_settings_of_washington(tmp_path: Path) -> None:
    pairs = (("grocery", "washington"), ("grocery_fine_tuned", "washington_fine_tuned"))
    for runs, others in (
        [table_runs(read_benchmark(PRESETS / f"{name}.yaml"), tmp_path) for name in pair] for pair in pairs
    ):
        for method, (run, *_) in runs.items():
            settings, other = run.settings, others[method][0].settings
            assert settings.data.manifest == Path("data/grocery/manifest.parquet")
            changed = {"image": other.image, "data": other.data}
            assert settings.model_copy(update=changed) == other
