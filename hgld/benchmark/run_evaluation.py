"""What a trained model is worth: the last checkpoint of a run, evaluated as the comparison says.

Beside the run, in ``evaluation``::

    embeddings.npy                the test images, with their ids in embeddings.ids.txt; or
    queries.npy, gallery.npy      likewise, of GLDv2's protocol
    per_query.parquet             a row per query, see hgld.evaluation.report; written last

It is the last checkpoint, and not the best: that one was chosen by these images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from hgld.benchmark.benchmark_settings import BenchmarkSettings, Gldv2Evaluation
from hgld.benchmark.runs import Run
from hgld.compute.processes import Processes
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.errors import ConfigurationError
from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
from hgld.evaluation.protocols.gldv2_retrieval import LANDMARKS, SOLUTION
from hgld.evaluation.report import read_per_query, write_per_query
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask, split_task
from hgld.gldv2.ground_truth import query_landmarks, read_image_to_landmark, read_retrieval_solution
from hgld.io.settings import to_dict
from hgld.models.embed_images import EmbedImagesConfig, embed_images
from hgld.models.embedding_model import MEMORY_FORMAT
from hgld.models.model_loading import load_checkpoint_model
from hgld.progress import Progress
from hgld.tables import Provenance, digests_of_files, is_up_to_date
from hgld.tables.embeddings import read_embeddings, write_embeddings
from hgld.training.run import is_finished
from hgld.training.run_folder import RunFolder
from hgld.training.training_checkpoints import result_affecting
from hgld.training.training_images import TrainingImages, data_digests, evaluation_manifest
from hgld.training.validation import embed_test_images, rank_test_images

_OFFICIAL = "map100_official"


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """A run and what its model is worth.

    Args:
        run: of the comparison.
        result: of the queries. Their column ``class`` is the name of the landmark.
    """

    run: Run
    result: RetrievalResult


@dataclass(frozen=True, eq=False)
class TestImages:
    """The images that a run was evaluated with, as far as they could be read.

    Args:
        embeddings: float32, shape (n, d).
        manifest: of these n images, in the same order.
        is_query: bool, shape (n,): which of them are queries; None where all are, and are ranked for each other.
    """

    __test__ = False  # for pytest, which goes by names

    embeddings: npt.NDArray[np.float32]
    manifest: Manifest
    is_query: npt.NDArray[np.bool_] | None

    def rows(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Of queries and gallery."""
        if self.is_query is None:
            everyone = np.arange(len(self.manifest))
            return everyone, everyone
        return np.flatnonzero(self.is_query), np.flatnonzero(~self.is_query)

    def task(self) -> RetrievalTask:
        """Return the task that was evaluated."""
        return split_task(
            torch.from_numpy(self.embeddings),
            self.manifest.labels,
            self.is_query,
            ids=self.manifest.ids.astype(str),
            name="split",
            level_names=self.manifest.level_names,
        )


def evaluate_run(
    settings: BenchmarkSettings,
    run: Run,
    *,
    device: str = "cpu",
    processes: Processes | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> None:
    """Evaluate the last checkpoint of a run, unless that is done.

    Args:
        settings: of the comparison.
        run: that has come to its end.
        device: of this process.
        processes: that share the images and the queries; all call this.
        force: do it again.
        progress: told of this process's images.

    Raises:
        ConfigurationError: the run has not come to its end, or has other settings; a metric is unknown.
        InputError: images or labels cannot be read.
    """
    processes = processes or Processes()
    if not is_finished(run.settings, run.folder):
        raise ConfigurationError(f"{run.folder}: the training has not come to its end; go on with it, then evaluate")
    provenance = _provenance(settings, run)
    # As the first one sees it, which is the one that writes.
    if processes.gather(not force and _is_done(settings, run, provenance))[0]:
        return
    if isinstance(settings.evaluation, Gldv2Evaluation):
        results = _evaluate_gldv2(settings.evaluation, settings.metrics, run, device, processes, force, progress)
    else:
        results = [_evaluate_split(settings.metrics, run, device, processes, progress)]
    if processes.rank == 0:
        write_per_query(results, per_query_file(run), provenance)
    processes.gather(None)  # it is there now


def read_evaluated(settings: BenchmarkSettings, run: Run) -> EvaluatedRun | None:
    """What :func:`evaluate_run` found; None where it has not been called, or something has changed since.

    Of GLDv2's protocol the result is that of the queries with hierarchical labels, and beside it ``map100_official``
    of all queries, Public and Private together: the others have no value of the other metrics.

    Raises:
        InputError: a file that the run was made from is missing.
    """
    if not RunFolder(run.folder).last.is_file() or not _is_done(settings, run, _provenance(settings, run)):
        return None
    results = read_per_query(per_query_file(run))
    return EvaluatedRun(run, results[0] if len(results) == 1 else _joined(results))


def per_query_file(run: Run) -> Path:
    """Where :func:`evaluate_run` writes what it found; what a result is made from is known by its digest."""
    return _folder(run) / "per_query.parquet"


def test_images(run: Run) -> TestImages:
    """The embeddings that a run was evaluated with, where the trainings' test images are what is evaluated.

    Raises:
        InputError: there are none; it was not evaluated, or by another protocol.
    """
    data = run.settings.data
    found = read_embeddings(_folder(run) / "embeddings.npy")
    assert found.ids is not None
    manifest = evaluation_manifest(read_manifest(data.manifest), data)
    row_of = {name: row for row, name in enumerate(manifest.ids.tolist())}
    manifest = manifest.take(np.array([row_of[name] for name in found.ids.tolist()]))
    return TestImages(
        found.vectors.numpy(), manifest, None if data.queries is None else manifest.splits == data.queries
    )


def _evaluate_split(
    metrics: tuple[str, ...], run: Run, device: str, processes: Processes, progress: Progress | None
) -> RetrievalResult:
    model, _ = load_checkpoint_model(RunFolder(run.folder).last)
    images = TrainingImages(run.settings)
    embedded = embed_test_images(
        model.to(device).to(memory_format=MEMORY_FORMAT),
        images,
        batch_size=run.settings.evaluation.batch_size,
        workers=run.settings.workers,
        processes=processes,
        progress=progress,
    )
    manifest = images.test.manifest.take(embedded.rows)
    if processes.rank == 0:
        write_embeddings(_folder(run) / "embeddings.npy", torch.from_numpy(embedded.vectors), manifest.ids.tolist())
    result = rank_test_images(embedded, images, metrics=metrics, device=device, processes=processes)
    queries = np.arange(len(manifest)) if images.is_query is None else np.flatnonzero(images.is_query[embedded.rows])
    names = np.array(manifest.class_names[0], object)[manifest.labels[queries, 0]]
    per_query = result.per_query.set_axis(pd.Index(manifest.ids[queries], name="query")).assign(**{"class": names})
    return replace(result, per_query=per_query, counts=result.counts | {"images_not_read": len(embedded.skipped)})


def _evaluate_gldv2(
    evaluation: Gldv2Evaluation,
    metrics: tuple[str, ...],
    run: Run,
    device: str,
    processes: Processes,
    force: bool,
    progress: Progress | None,
) -> list[RetrievalResult]:
    model, image_settings = load_checkpoint_model(RunFolder(run.folder).last)
    config = EmbedImagesConfig(
        device=device, batch_size=run.settings.evaluation.batch_size, workers=run.settings.workers
    )
    queries, gallery = (_folder(run) / f"{name}.npy" for name in ("queries", "gallery"))
    for images, out in ((evaluation.queries, queries), (evaluation.gallery, gallery)):
        embed_images(images, out, model, image_settings, config, force=force, processes=processes, progress=progress)
    files = EvaluationFiles(
        query_embeddings=queries,
        gallery_embeddings=gallery,
        hierarchy=evaluation.hierarchy,
        ground_truth=evaluation.ground_truth,
    )
    results = evaluate_files(
        files,
        "gldv2-retrieval",
        EvaluationConfig(metrics=metrics or None, ranking=RankingConfig(device=device), processes=processes),
    ).results
    solution = read_retrieval_solution(evaluation.ground_truth / SOLUTION)
    landmarks = query_landmarks(solution, read_image_to_landmark(evaluation.ground_truth / LANDMARKS))
    names = pd.Series(landmarks.landmark_ids.astype(str), index=list(solution.query_ids))
    return [
        replace(result, per_query=result.per_query.assign(**{"class": names[result.per_query.index]}))
        for result in results
    ]


def _joined(results: list[RetrievalResult]) -> RetrievalResult:
    """The labelled part of GLDv2's protocol, and the official values of all queries beside its own."""
    labelled, *official = results
    values = pd.concat([part.per_query[[_OFFICIAL, "class"]] for part in official])
    per_query = values.join(labelled.per_query.drop(columns="class"))
    return replace(labelled, per_query=per_query, metrics=(*labelled.metrics, _OFFICIAL))


def _provenance(settings: BenchmarkSettings, run: Run) -> Provenance:
    evaluation = settings.evaluation
    files = {"checkpoint": RunFolder(run.folder).last}
    if isinstance(evaluation, Gldv2Evaluation):
        files |= {
            "queries": evaluation.queries,
            "gallery": evaluation.gallery,
            "solution": evaluation.ground_truth / SOLUTION,
            "landmarks": evaluation.ground_truth / LANDMARKS,
            "hierarchy": evaluation.hierarchy,
        }
    parameters = {
        "training": result_affecting(to_dict(run.settings)),
        "protocol": evaluation.name,
        "metrics": list(settings.metrics),
    }
    return Provenance("benchmark", parameters, data_digests(run.settings.data) | digests_of_files(files))


def _is_done(settings: BenchmarkSettings, run: Run, provenance: Provenance) -> bool:
    names = ("queries", "gallery") if isinstance(settings.evaluation, Gldv2Evaluation) else ("embeddings",)
    beside = [_folder(run) / f"{name}.{suffix}" for name in names for suffix in ("npy", "ids.txt")]
    return all(path.is_file() for path in beside) and is_up_to_date(per_query_file(run), provenance)


def _folder(run: Run) -> Path:
    return run.folder / "evaluation"
