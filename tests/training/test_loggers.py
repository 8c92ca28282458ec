"""Weights & Biases offline: what it has is what the history has."""

import importlib.util
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgld.errors import ConfigurationError
from hgld.training import run
from hgld.training.loggers import TensorBoardLogger, scalars
from tests.training import toy
from tests.training.test_trainer import ActionAfterStep, Killed, kill

# Imported by the tests: each process that collects them would wait for seconds.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the toy model, log to files, and stop the process of Weights & Biases."""
    monkeypatch.setattr(run, "build_model", toy.build)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    yield
    import wandb

    wandb.teardown()


def lines(folder: Path) -> list[dict[str, Any]]:
    return list(map(json.loads, (folder / "history.jsonl").read_text().splitlines()))


def expected_steps(folder: Path) -> dict[int, dict[str, float]]:
    """Return the values of the history by step, under the names that loggers give them."""
    steps: dict[int, dict[str, float]] = {}
    for line in lines(folder):
        values = {f"{line['kind']}/{name}": value for name, value in scalars(line).items()}
        steps.setdefault(line["step"], {}).update(values)
    return steps


def without_clock(steps: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    """Leave out what depends on the time, and what Weights & Biases adds."""
    clock = ("step/images_per_s", "step/waiting_share")
    return {
        step: {key: value for key, value in values.items() if key not in clock and key[0] != "_"}
        for step, values in steps.items()
    }


def test_loggers_have_the_history_and_the_settings(manifest: Path, tmp_path: Path) -> None:
    from tests.training.wandb_files import read_offline_runs

    out = tmp_path / "runs" / "happier"
    run.train(toy.settings(manifest, loggers=["wandb"]), out)
    expected = expected_steps(out)
    assert list(expected) == list(range(9))
    ids = json.loads((out / "run.json").read_text())["loggers"]
    (logged,) = read_offline_runs(out / "wandb")
    assert (logged.run_id, logged.exit_code) == (ids["wandb"], 0)
    assert logged.config["loss.lambda"] == 0.1
    assert without_clock(logged.steps) == without_clock(expected)
    assert not (out / "tensorboard").exists()


@pytest.mark.slow
def test_resumed_run_continues_the_runs_of_its_loggers(manifest: Path, tmp_path: Path) -> None:
    from tests.training.wandb_files import read_offline_runs

    out, settings = tmp_path / "run", toy.settings(manifest, loggers=["wandb"])
    with pytest.raises(Killed):
        run.train(settings, out, progress=ActionAfterStep(3, kill))
    ids = json.loads((out / "run.json").read_text())["loggers"]
    run.train(settings, out, resume=True)
    assert json.loads((out / "run.json").read_text())["loggers"] == ids
    parts = read_offline_runs(out / "wandb")
    assert [(part.run_id, part.exit_code) for part in parts] == [(ids["wandb"], 1), (ids["wandb"], 0)]
    merged = {**parts[0].steps, **parts[1].steps}
    assert without_clock(merged) == without_clock(expected_steps(out))


def test_failing_logger_is_dropped_and_the_training_goes_on(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.training.wandb_files import read_offline_runs

    log = TensorBoardLogger.log

    def fail_at_step_3(self: TensorBoardLogger, kind: str, step: int, values: dict[str, float]) -> None:
        if step == 3:
            raise ConnectionError("the server is gone\nwith details")
        log(self, kind, step, values)

    monkeypatch.setattr(TensorBoardLogger, "log", fail_at_step_3)
    with caplog.at_level(logging.WARNING):
        summary = run.train(toy.settings(manifest, loggers=["tensorboard", "wandb"]), tmp_path / "run")
    assert summary.n_steps == 8
    warnings = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    assert warnings == [
        "tensorboard failed, and is dropped: the server is gone; the training goes on, and history.jsonl has all "
        "values"
    ]
    (logged,) = read_offline_runs(tmp_path / "run" / "wandb")
    assert set(logged.steps) == set(range(9))


def test_logger_that_cannot_start_is_an_error_that_leaves_no_run(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="wandb cannot log: .*; log in with `wandb login`, or .* WANDB_MODE"):
        run.train(toy.settings(manifest, loggers=["tensorboard", "wandb"]), out)
    assert not [path.name for path in out.iterdir()]
    run.train(toy.settings(manifest), out)  # no leftover run is in the way


def test_missing_package_names_the_extra(manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[wandb\]' in a clone of hgld$"):
        run.train(toy.settings(manifest, loggers=["wandb"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
