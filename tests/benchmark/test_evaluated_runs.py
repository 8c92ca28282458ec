from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Barrier
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.benchmark.comparison_figures import read_evaluated_images
from hgld.benchmark.evaluations import ManifestsEvaluation
from hgld.benchmark.runs import (
    BenchmarkSettings,
    Run,
    is_done,
    read_benchmark,
    read_evaluated,
    table_runs,
    train_and_evaluate,
)
from hgld.compute.processes import Processes
from hgld.datasets.manifest import read_manifest, write_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import EvaluationFiles, RetrievalResult, evaluate_files, evaluate_retrieval
from hgld.io.text_array import TextArray
from hgld.models.model_loading import load_checkpoint_model, read_checkpoint
from hgld.tables import Provenance
from hgld.tables.embeddings import read_embeddings, write_embeddings
from hgld.training.run import train
from hgld.training.run_folder import RunFolder
from hgld.training.trainer import Trainer
from tests.assertions import not_none
from tests.benchmark.comparisons import METRICS, N_STEPS, write_comparison, write_data
from tests.benchmark.test_gldv2_pictures import UNLABELLED, generated, write_gldv2
from tests.datasets.pictures import manifest_of

Trained = tuple[BenchmarkSettings, Run]


def happier_run(folder: Path, **training: Any) -> Trained:
    """Return a run of HAPPIER with changed settings."""
    if not (folder / "manifest.parquet").exists():
        write_data(folder)
    settings = read_benchmark(write_comparison(folder, happier=training))
    return settings, table_runs(settings, folder / "out")["happier"][0]


def times(run: Run) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in run.folder.rglob("*") if path.is_file()}


def test_run_is_trained_and_evaluated_once(tmp_path: Path) -> None:
    settings, run = happier_run(tmp_path)
    assert not is_done(settings, run)
    train_and_evaluate(settings, run)
    assert is_done(settings, run)
    evaluated = not_none(read_evaluated(settings, run))
    (*_, last) = RunFolder(run.folder).history("test")
    assert last["step"] == N_STEPS
    assert evaluated.result.means["H-AP"] == pytest.approx(last["H-AP"])
    before = times(run)
    evaluation = {path.name for path in before if path.parent.name == "evaluation"}
    assert evaluation == {"embeddings.npy", "embeddings.ids.txt", "per_query.parquet"}
    train_and_evaluate(settings, run)
    assert times(run) == before


def test_trained_run_is_evaluated_without_training(tmp_path: Path) -> None:
    settings, run = happier_run(tmp_path)
    train_and_evaluate(settings, run)
    (run.folder / "evaluation" / "per_query.parquet").unlink()
    assert not is_done(settings, run)
    before = (run.folder / "last.pt").stat().st_mtime_ns
    train_and_evaluate(settings, run)
    assert is_done(settings, run)
    assert (run.folder / "last.pt").stat().st_mtime_ns == before


def test_interrupted_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, run = happier_run(tmp_path, checkpoint_steps=1)
    step = Trainer.train_step

    def stopped(self: Trainer, *given: Any) -> float | None:
        if self.step == 2:
            raise KeyboardInterrupt
        return step(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_step", stopped)
        with pytest.raises(KeyboardInterrupt):
            train_and_evaluate(settings, run)
    assert read_checkpoint(run.folder / "last.pt")["step"] == 2
    assert not is_done(settings, run)
    with pytest.raises(ConfigurationError, match="processes: 1 then, 2 now"):
        is_done(settings, run, n_processes=2)
    train_and_evaluate(settings, run)
    assert is_done(settings, run)
    assert is_done(settings, run, n_processes=2)  # a finished run is not resumed
    steps = [line["step"] for line in RunFolder(run.folder).history("step")]
    assert steps == list(range(1, N_STEPS + 1))


def test_other_settings_require_retraining(tmp_path: Path) -> None:
    train_and_evaluate(*happier_run(tmp_path))
    settings, run = happier_run(tmp_path, steps=N_STEPS + 1)
    with pytest.raises(ConfigurationError, match=f"steps: {N_STEPS} then, {N_STEPS + 1} now"):
        is_done(settings, run)
    with pytest.raises(ConfigurationError, match="started with other settings or data"):
        train_and_evaluate(settings, run)
    train_and_evaluate(settings, run, retrain=True)
    assert is_done(settings, run)
    assert read_checkpoint(run.folder / "last.pt")["step"] == N_STEPS + 1


def test_other_data_are_an_error(tmp_path: Path) -> None:
    settings, run = happier_run(tmp_path)
    train_and_evaluate(settings, run)
    write_data(tmp_path, n_classes=10)
    with pytest.raises(ConfigurationError, match="digests.manifest"):
        is_done(settings, run)


T = TypeVar("T")


def trained(folder: Path, **training: object) -> Trained:
    """Train HAPPIER on the features in the folder."""
    settings = read_benchmark(write_comparison(folder, happier=training))
    run = table_runs(settings, folder / "out")["happier"][0]
    train(run.settings, run.folder)
    return settings, run


@pytest.fixture
def happier(tmp_path: Path) -> Trained:
    write_data(tmp_path)
    return trained(tmp_path)


def evaluate(settings: BenchmarkSettings, run: Run) -> RetrievalResult:
    train_and_evaluate(settings, run)
    evaluated = not_none(read_evaluated(settings, run))
    return evaluated.result


def test_checkpoint_selected_on_validation_images_is_evaluated(tmp_path: Path) -> None:
    write_data(tmp_path, n_classes=10)
    manifest = read_manifest(tmp_path / "manifest.parquet")
    splits = TextArray.repeated(np.where(manifest.labels[:, 0] == 5, "val", manifest.splits).tolist())
    write_manifest(tmp_path / "manifest.parquet", replace(manifest, splits=splits), Provenance("test"))
    settings, run = trained(tmp_path)
    (run.folder / "last.pt").unlink()
    evaluated = evaluate(settings, run)
    assert evaluated.counts["queries"] == 20
    (*_, tested) = RunFolder(run.folder).history("test")
    assert evaluated.means["H-AP"] == pytest.approx(tested["H-AP"])
    (run.folder / "best.pt").unlink()
    assert read_evaluated(settings, run) is None


def test_last_checkpoint_is_evaluated(happier: Trained, tmp_path: Path) -> None:
    settings, run = happier
    assert read_evaluated(settings, run) is None
    result = evaluate(settings, run)

    model = load_checkpoint_model(run.folder / "last.pt").network
    features = read_embeddings(tmp_path / "features.npy")
    test = read_manifest(tmp_path / "manifest.parquet").select_split("test")
    rows = [features.ids.tolist().index(name) for name in test.ids]  # type: ignore[union-attr]
    with torch.inference_mode():
        embeddings = model(features.vectors[rows])
    again = evaluate_retrieval(embeddings, test.labels, metrics=METRICS)
    assert result.metrics == again.metrics == tuple(METRICS)
    np.testing.assert_allclose(result.per_query[METRICS], again.per_query[METRICS])
    assert result.per_query.index.tolist() == test.ids.tolist()
    assert result.per_query["class"].tolist() == [f"l{name.split('/')[0]}" for name in test.ids]
    assert result.settings == again.settings

    images = read_evaluated_images(settings.evaluation, run)
    np.testing.assert_allclose(images.task.gallery, embeddings, atol=1e-6)
    assert images.task.gallery_ids is not None
    assert images.task.gallery_ids.tolist() == test.ids.tolist()
    assert images.class_names == test.class_names
    ((_, labels),) = images.embeddings_and_labels()
    assert labels.tolist() == test.labels.tolist()


@dataclass(frozen=True)
class Thread(Processes):
    """A thread that plays a process; values are exchanged through a list."""

    values: list[Any] = field(default_factory=list)
    barrier: Barrier = field(default_factory=lambda: Barrier(1))

    def gather(self, value: T) -> list[T]:
        self.values[self.rank] = value
        self.barrier.wait(60)
        gathered = list(self.values)
        self.barrier.wait(60)
        return gathered


def test_several_processes_give_the_same_result(happier: Trained) -> None:
    settings, run = happier
    alone = evaluate(settings, run)
    (run.folder / "evaluation" / "per_query.parquet").unlink()
    values, barrier = [None, None, None], Barrier(3)
    threads = [Thread(rank, 3, values, barrier) for rank in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda thread: train_and_evaluate(settings, run, processes=thread), threads))
    result = not_none(read_evaluated(settings, run))
    pd.testing.assert_frame_equal(result.result.per_query, alone.per_query)


def test_outdated_evaluations_are_ignored(happier: Trained, tmp_path: Path) -> None:
    settings, run = happier
    train_and_evaluate(settings, run)
    assert read_evaluated(settings.model_copy(update={"metrics": ("H-AP",)}), run) is None
    other = table_runs(settings, tmp_path / "out", ["batch_size=4"])["happier"][0]
    assert other.folder == run.folder
    assert read_evaluated(settings, other) is None
    ids = run.folder / "evaluation" / "embeddings.ids.txt"
    ids.rename(tmp_path / "ids.txt")
    assert read_evaluated(settings, run) is None
    (tmp_path / "ids.txt").rename(ids)
    assert read_evaluated(settings, run) is not None
    with (run.folder / "last.pt").open("ab") as stream:
        stream.write(b"\0")
    assert read_evaluated(settings, run) is None
    (run.folder / "last.pt").unlink()
    assert read_evaluated(settings, run) is None


def test_unfinished_training_is_not_evaluated(tmp_path: Path) -> None:
    write_data(tmp_path)
    settings = read_benchmark(write_comparison(tmp_path))
    run = table_runs(settings, tmp_path / "out")["happier"][0]
    with pytest.raises(InputError, match="no such file; expected the embeddings"):
        read_evaluated_images(settings.evaluation, run)


def test_separate_queries_and_gallery_with_unreadable_images(tmp_path: Path) -> None:
    write_data(tmp_path)
    manifest = read_manifest(tmp_path / "manifest.parquet")
    names = [(name, int(name.split("/")[1])) for name in manifest.ids]
    splits = [
        split if split == "train" else "query" if number == 0 else "gallery"
        for split, (_, number) in zip(manifest.splits, names, strict=True)
    ]
    levels = {
        level: [manifest.class_names[column][label] for label in manifest.labels[:, column]]
        for column, level in enumerate(manifest.level_names)
    }
    write_manifest(
        tmp_path / "manifest.parquet", manifest_of(manifest.ids.tolist(), levels, split=splits), Provenance("test")
    )
    features = read_embeddings(tmp_path / "features.npy")
    assert features.ids is not None
    rows = np.flatnonzero(~np.isin(features.ids, ["1/0", "2/2"]))  # a query and one of the gallery
    write_embeddings(tmp_path / "features.npy", features.vectors[torch.from_numpy(rows)], features.ids[rows])
    data = {"manifest": str(tmp_path / "manifest.parquet"), "features": str(tmp_path / "features.npy")}
    settings, run = trained(tmp_path, data=data | {"queries": "query", "gallery": "gallery"})
    result, images = evaluate(settings, run), read_evaluated_images(settings.evaluation, run)
    assert result.name == "retrieval"
    assert result.per_query.index.tolist() == ["0/0", "2/0", "3/0"]
    assert result.per_query["class"].tolist() == ["l0", "l2", "l3"]
    assert result.per_query["positives_l2"].tolist() == [3, 2, 3]
    assert result.counts["images_not_read"] == 2
    assert images.task.query_ids is not None
    assert images.task.query_ids.tolist() == ["0/0", "2/0", "3/0"]
    assert [len(vectors) for vectors, _ in images.embeddings_and_labels()] == [11, 3]


def test_test_sets_of_several_manifests_are_evaluated_apart(tmp_path: Path) -> None:
    """As VehicleID's: its larger sets may contain the images of the smaller ones."""
    write_data(tmp_path)
    manifest = read_manifest(tmp_path / "manifest.parquet")
    small = manifest.take(np.flatnonzero((manifest.splits == "train") | (manifest.labels[:, 0] < 2)))
    write_manifest(tmp_path / "small.parquet", small, Provenance("test"))
    settings, run = trained(tmp_path)
    sets = {"small": tmp_path / "small.parquet", "large": tmp_path / "manifest.parquet"}
    evaluation = ManifestsEvaluation(name="manifests", manifests=sets)
    settings = settings.model_copy(update={"evaluation": evaluation, "metrics": ("R@1", "AP")})
    result = evaluate(settings, run)
    assert result.metrics == ("small R@1", "small AP", "large R@1", "large AP")
    features = read_embeddings(tmp_path / "features.npy")
    model = load_checkpoint_model(run.folder / "last.pt").network
    for name, path in sets.items():
        images = read_manifest(path).select_split("test")
        rows = [not_none(features.ids).tolist().index(image) for image in images.ids]
        with torch.no_grad():
            expected = evaluate_retrieval(model(features.vectors[rows]), images.labels, metrics=("R@1", "AP"))
        assert result.means[f"{name} AP"] == pytest.approx(expected.means["AP"])
        own = result.per_query.index.str.startswith(f"{name}/")
        assert own.sum() == len(images)
        assert result.per_query[f"{name} AP"].notna().tolist() == own.tolist()
    assert result.counts["queries"] == 8 + 16
    drawn = read_evaluated_images(evaluation, run)  # the last set
    assert len(drawn.task.queries) == 16
    assert drawn.class_names == manifest.select_split("test").class_names
    assert read_evaluated(settings, run) is not None
    write_manifest(tmp_path / "small.parquet", manifest, Provenance("test"))
    assert read_evaluated(settings, run) is None


def test_gldv2_reports_labelled_and_official_metrics(tmp_path: Path) -> None:
    photographs, hierarchy = generated()
    settings = write_gldv2(tmp_path, photographs, hierarchy)
    (run,) = table_runs(settings, tmp_path / "out")["narrow"]
    train(run.settings, run.folder)
    result = evaluate(settings, run)

    files = EvaluationFiles(
        query_embeddings=run.folder / "evaluation" / "queries.npy",
        gallery_embeddings=run.folder / "evaluation" / "gallery.npy",
        hierarchy=tmp_path / "index_label_to_hierarchical.csv",
        ground_truth=tmp_path,
    )
    labelled, public, private = evaluate_files(files, "gldv2-retrieval").results
    assert result.means == pytest.approx(
        labelled.means
        | {
            "map100_official": np.average(
                [part.means["map100_official"] for part in (public, private)],
                weights=[part.counts["queries"] for part in (public, private)],
            )
        }
    )
    landmarks = {next(iter(images)): str(landmark) for landmark, images in photographs.items()}
    assert result.per_query["class"].to_dict() == landmarks
    assert result.counts["queries"] == len(landmarks) - 1
    unlabelled = {name: landmark == str(UNLABELLED) for name, landmark in landmarks.items()}
    assert result.per_query["H-AP"].isna().to_dict() == unlabelled
