"""Weights & Biases offline, and MLflow with a store of files: what they have is what the history has."""

import importlib.util
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgld.errors import ConfigurationError
from hgld.training import loggers, run
from hgld.training.loggers import MlflowLogger, TensorBoardLogger, scalars
from tests.training import toy
from tests.training.test_trainer import ActionAfterStep, Killed, kill

# Imported by the tests: each process that collects them would wait for seconds.
pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("mlflow", "wandb"))), reason="mlflow or wandb is not installed"
)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the toy model, log to files in the folder of the test, and stop the process of Weights & Biases."""
    monkeypatch.setattr(run, "build_model", toy.build)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setattr(loggers, "_SECONDS_BETWEEN_REQUESTS", 0.0)
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


def mlflow_steps(run_id: str) -> dict[int, dict[str, float]]:
    """Return what MLflow has, each value of a step once."""
    import mlflow

    client = mlflow.MlflowClient()
    steps: dict[int, dict[str, float]] = {}
    for name in client.get_run(run_id).data.metrics:
        for metric in client.get_metric_history(run_id, name):
            values = steps.setdefault(metric.step, {})
            assert name not in values
            values[name.replace("_at_", "@")] = metric.value
    return steps


def test_loggers_have_the_history_and_the_settings(manifest: Path, tmp_path: Path) -> None:
    import mlflow

    from tests.training.wandb_files import read_offline_runs

    out = tmp_path / "runs" / "happier"
    run.train(toy.settings(manifest, loggers=["wandb", "mlflow"]), out)
    expected = expected_steps(out)
    assert list(expected) == list(range(9))
    ids = json.loads((out / "run.json").read_text())["loggers"]
    (logged,) = read_offline_runs(out / "wandb")
    assert (logged.run_id, logged.exit_code) == (ids["wandb"], 0)
    assert logged.config["loss.lambda"] == 0.1
    assert without_clock(logged.steps) == without_clock(expected)
    in_mlflow = mlflow.MlflowClient().get_run(ids["mlflow"])
    assert (in_mlflow.info.status, in_mlflow.info.run_name) == ("FINISHED", str(out))
    assert in_mlflow.data.params["loss.lambda"] == "0.1"
    assert mlflow_steps(ids["mlflow"]) == expected
    assert not (out / "tensorboard").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 1000.0])  # MLflow has more steps than the checkpoint when killed, or fewer
def test_resumed_run_continues_the_runs_of_its_loggers(
    manifest: Path, tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    from tests.training.wandb_files import read_offline_runs

    monkeypatch.setattr(loggers, "_SECONDS_BETWEEN_REQUESTS", seconds)
    out, settings = tmp_path / "run", toy.settings(manifest, loggers=["wandb", "mlflow"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MlflowLogger, "close", lambda self, finished: None)  # a killed process sends nothing
        with pytest.raises(Killed):
            run.train(settings, out, progress=ActionAfterStep(3, kill))
    ids = json.loads((out / "run.json").read_text())["loggers"]
    run.train(settings, out, resume=True)
    assert json.loads((out / "run.json").read_text())["loggers"] == ids
    expected = expected_steps(out)
    assert without_clock(mlflow_steps(ids["mlflow"])) == without_clock(expected)
    assert mlflow.MlflowClient().get_run(ids["mlflow"]).info.status == "FINISHED"
    parts = read_offline_runs(out / "wandb")
    assert [(part.run_id, part.exit_code) for part in parts] == [(ids["wandb"], 1), (ids["wandb"], 0)]
    merged = {**parts[0].steps, **parts[1].steps}
    assert without_clock(merged) == without_clock(expected)


def test_failing_logger_is_dropped_and_the_training_goes_on(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = TensorBoardLogger.log

    def fail_at_step_3(self: TensorBoardLogger, kind: str, step: int, values: dict[str, float]) -> None:
        if step == 3:
            raise ConnectionError("the server is gone\nwith details")
        log(self, kind, step, values)

    monkeypatch.setattr(TensorBoardLogger, "log", fail_at_step_3)
    with caplog.at_level(logging.WARNING):
        summary = run.train(toy.settings(manifest, loggers=["tensorboard", "mlflow"]), tmp_path / "run")
    assert summary.n_steps == 8
    warnings = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    assert warnings == [
        "tensorboard failed, and is dropped: the server is gone; the training goes on, and history.jsonl has all "
        "values"
    ]
    ids = json.loads((tmp_path / "run" / "run.json").read_text())["loggers"]
    assert set(mlflow_steps(ids["mlflow"])) == set(range(9))


def test_logger_that_cannot_start_is_an_error_that_leaves_no_run(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="wandb cannot log: .*; log in with `wandb login`, or .* WANDB_MODE"):
        run.train(toy.settings(manifest, loggers=["tensorboard", "wandb"]), out)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://host")
    with pytest.raises(ConfigurationError, match="mlflow cannot log: .*; name a tracking server .* MLFLOW_TRACKING_"):
        run.train(toy.settings(manifest, loggers=["mlflow"]), out)
    assert not [path.name for path in out.iterdir()]
    run.train(toy.settings(manifest), out)  # no leftover run is in the way


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_missing_package_names_the_extra(
    manifest: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(ConfigurationError, match=rf"pip install '\.\[{name}\]' in a clone of hgld$"):
        run.train(toy.settings(manifest, loggers=[name]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
