"""Searches of settings: which trials there are, what they train on, and that they continue."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hgld.benchmark import comparison
from hgld.benchmark.worker import WorkerTask, work
from hgld.datasets.manifest import read_manifest
from hgld.errors import ConfigurationError
from hgld.io.settings import to_dict
from hgld.training import read_training_settings, train
from hgld.training.training_images import TrainingImages
from hgld.tuning import Dimension, SearchSummary, parse_dimension, tune, tune_methods
from hgld.tuning.search import sample
from tests.commands import run_hgld
from tests.training import test_heads

SPACE = [parse_dimension("optimiser.head.lr=log:1e-4..1e-1"), parse_dimension("loss.lambda=0..0.9")]


class Trials:
    """Stands for the child processes; counts trials, and may be killed before one."""

    def __init__(self, killed_before: int | None = None) -> None:
        self.started: list[str] = []
        self._killed_before = killed_before

    def __call__(self, executor: object, tasks: Sequence[WorkerTask], *_: object) -> None:
        failed = []
        for task in tasks:
            if len(self.started) == self._killed_before:
                raise KeyboardInterrupt
            self.started.append(task.run.method)
            try:
                work(task)
            except ConfigurationError as error:
                failed.append(str(error))
        if failed:
            raise ConfigurationError(f"{len(failed)} runs failed: {failed}")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_heads, "N_CLASSES", 60)
        settings = to_dict(test_heads.head_settings(test_heads.write_files(folder), steps=10, loggers=[]))
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    return folder / "settings.yaml"


@pytest.fixture
def search(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, list[str]]]:
    """Return a function that searches, and returns the summary with the trials that were started."""

    def search(name: str = "out", killed_before: int | None = None, **options: Any) -> tuple[Any, list[str]]:
        trials = Trials(killed_before)
        monkeypatch.setattr(comparison, "launch", trials)
        try:
            options = {"trials": 5, "space": SPACE, "devices": "cpu", **options}
            return tune(config, out=tmp_path / name, **options), trials.started
        except KeyboardInterrupt:
            return None, trials.started

    return search


def test_points_are_spread_and_the_same_every_time() -> None:
    points = sample(SPACE, 64)
    assert points == sample(SPACE, 64)
    assert points[:7] == sample(SPACE, 7)
    rates = np.log10([float(rate.partition("=")[2]) for rate, _ in points])
    weights = np.array([float(weight.partition("=")[2]) for _, weight in points])
    for values, ends in ((rates, (-4, -1)), (weights, (0, 0.9))):
        counts, _ = np.histogram(values, bins=8, range=ends)
        assert counts.sum() == 64
        assert counts.min() >= 6  # independent draws would have 8 on average, with a deviation of 2.6


@given(st.floats(1e-9, 1e9), st.floats(1.1, 1e9), st.floats(0, 1, exclude_max=True), st.sampled_from(["", "log:"]))
def test_numbers_are_between_the_ends(low: float, factor: float, position: float, scale: str) -> None:
    high = low * factor
    value = float(parse_dimension(f"a.b={scale}{low}..{high}").change(position).removeprefix("a.b="))
    assert low * 0.99 <= value <= high * 1.01  # three digits


def test_values_are_chosen() -> None:
    dimension = parse_dimension("loss.name=happier,roadmap")
    assert dimension == Dimension("loss.name", "values", ("happier", "roadmap"))
    assert [dimension.change(each / 4) for each in range(4)] == ["loss.name=happier"] * 2 + ["loss.name=roadmap"] * 2


@pytest.mark.parametrize("text", ["", "a", "a=", "=1..2", "a=2..1", "a=log:0..1", "a=log:1,2", "a=1..2..3", "a=x..y"])
def test_other_spaces_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="`space` is .*expected KEY=LOW..HIGH"):
        parse_dimension(text)


def test_best_settings_are_those_of_the_best_trial_on_held_out_training_classes(
    search: Any, config: Path, tmp_path: Path
) -> None:
    summary: SearchSummary
    summary, started = search()
    assert sorted(started) == [f"trial_{n:03}" for n in range(5)]
    values = [trial.value for trial in summary.trials]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == 5
    assert (summary.unchanged.name, summary.unchanged.changes) == ("trial_000", ())
    assert summary.unchanged in summary.trials

    every, searched = (
        read_manifest(read_training_settings(config).data.manifest),
        read_manifest(tmp_path / "out/images.parquet"),
    )
    assert set(searched.ids) == set(every.ids[every.splits == "train"])
    trial = read_training_settings(tmp_path / "out/runs/trial_000/seed0/settings.yaml")
    images = TrainingImages(trial)
    trained, held_out = (set(each.manifest.class_names[0]) for each in (images.train, images.test))
    assert trained
    assert held_out
    assert not trained & held_out
    assert trained | held_out == set(searched.class_names[0])

    best = read_training_settings(summary.best)
    assert best == read_training_settings(config, summary.trials[0].changes)
    train(best, tmp_path / "run")


@pytest.mark.slow
def test_killed_search_continues_and_can_be_extended(search: Any) -> None:
    whole, _ = search("whole")
    _, first = search("killed", killed_before=2)
    continued, second = search("killed")
    assert len(first) == 2
    assert sorted(first + second) == sorted(trial.name for trial in whole.trials)
    assert [(trial.name, trial.value) for trial in continued.trials] == [
        (trial.name, trial.value) for trial in whole.trials
    ]
    assert search("killed")[1] == []
    extended, new = search("killed", trials=6)
    assert new == ["trial_005"]
    assert len(extended.trials) == 6
    with pytest.raises(ConfigurationError, match="started with other settings"):
        search("killed", space=SPACE[:1])
    assert len(search("killed", space=SPACE[:1], force=True)[1]) == 4


def test_trials_that_fail_are_the_worst(search: Any) -> None:
    summary, _ = search(space=[parse_dimension("optimiser.head.lr=0.01,1e30")], trials=4)
    assert {trial.changes for trial in summary.trials if trial.value != trial.value} == {("optimiser.head.lr=1e30",)}
    assert summary.trials[-1].value != summary.trials[-1].value
    assert summary.trials[0].value == summary.unchanged.value
    with pytest.raises(ConfigurationError, match="runs failed"):
        search("none", overrides=["optimiser.head.lr=1e30"], space=SPACE[1:], trials=2)


def test_methods_of_a_comparison_have_as_many_trials(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "launch", Trials())
    methods = {
        "happier": {"space": ["loss.lambda=0..0.9"]},
        "fast": {"space": ["loss.lambda=0.2,0.8", "batch_size=16,32"]},
        "as_it_is": {},
    }
    rows = {name: {"title": name, "training": str(config), **row} for name, row in methods.items()}
    path = tmp_path / "comparison.yaml"
    path.write_text(yaml.safe_dump({"title": "Heads", "set": ["steps=3"], "methods": rows}))
    searches = tune_methods(path, tmp_path / "out", trials=2, devices="cpu")
    assert {name: len(search.trials) for name, search in searches.items()} == {"happier": 2, "fast": 2}
    best = read_training_settings(searches["fast"].best)
    assert (best.steps, best) == (3, read_training_settings(config, ["steps=3", *searches["fast"].trials[0].changes]))
    printed = run_hgld("tune", path, "-o", tmp_path / "out", "--trials", 2)
    assert {"happier", "fast"} < set(printed.stdout.splitlines())
    path.write_text(yaml.safe_dump({"title": "Heads", "methods": {"as_it_is": rows["as_it_is"]}}))
    with pytest.raises(ConfigurationError, match="no method names a `space`"):
        tune_methods(path, tmp_path / "none")


def test_command_prints_the_trials(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "launch", Trials())
    command = ["tune", str(config), "-o", str(tmp_path / "out"), "--trials", "2", "--devices", "cpu"]
    result = run_hgld(*command, "--space", "loss.lambda=0..0.9", "--set", "steps=3")
    assert "unchanged" in result.stdout
    assert "on held-out training classes" in result.stdout
    assert str(tmp_path / "out" / "best.yaml") in result.stdout
    wrong = run_hgld(*command, "--space", "loss.lamda=0..0.9", code=1)
    assert "loss.lamda: there is no such setting; did you mean lambda?" in wrong.stderr
    wrong = run_hgld(*command, *["--space", "loss.lambda=0..0.9"] * 2, code=1)
    assert "--space has 2 settings; expected" in wrong.stderr
