"""Evaluation of trained runs by the protocol of the comparison, with their last checkpoint.

Beside the run, in ``evaluation``::

    embeddings.npy                the evaluation images, with their ids in embeddings.ids.txt; or
    queries.npy, gallery.npy      the images of GLDv2's protocol, likewise with ids
    per_query.parquet             a row per query, see hgld.evaluation.per_query_table; written last

The last checkpoint is evaluated, not the best one, which was selected on these images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from hgld.benchmark.benchmark_settings import BenchmarkSettings, Gldv2Evaluation
from hgld.benchmark.runs import Run
from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError
from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
from hgld.evaluation.per_query_table import read_per_query, write_per_query
from hgld.evaluation.protocols.gldv2_retrieval import LANDMARKS, SOLUTION
from hgld.evaluation.results import RetrievalResult
from hgld.gldv2.ground_truth import query_landmarks, read_image_to_landmark, read_retrieval_solution
from hgld.io.settings import to_dict
from hgld.models.embed_images import EmbedImagesConfig, embed_images
from hgld.models.embedding_model import MEMORY_FORMAT
from hgld.models.model_loading import load_checkpoint_model
from hgld.progress import Progress
from hgld.tables import Provenance, input_digests, is_up_to_date
from hgld.tables.embeddings import write_embeddings
from hgld.training.run import is_finished
from hgld.training.run_folder import RunFolder
from hgld.training.run_identity import result_affecting
from hgld.training.training_images import TrainingImages, data_digests
from hgld.training.validation import embed_test_images, rank_test_images

_OFFICIAL = "map100_official"


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """A run and the result of its model.

    Args:
        run: Run of the comparison.
        result: Values per query; the column ``class`` names the landmark of the query.
    """

    run: Run
    result: RetrievalResult


def evaluate_run(
    settings: BenchmarkSettings,
    run: Run,
    *,
    device: str = "cpu",
    processes: Processes | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> None:
    """Evaluate the last checkpoint of a run, unless its evaluation is up to date.

    Args:
        settings: Settings of the comparison.
        run: Finished run.
        device: Device of this process.
        processes: Processes that share the images and the queries; all call this function.
        force: Evaluate again.
        progress: Progress in images of this process.

    Raises:
        ConfigurationError: The training is not finished or has other settings, or a metric is unknown.
        InputError: Images or labels cannot be read.
    """
    processes = processes or Processes()
    if not is_finished(run.settings, run.folder):
        raise ConfigurationError(f"{run.folder}: the training is not finished; resume it, then evaluate")
    provenance = _provenance(settings, run)
    # Whether the evaluation is up to date is decided by the first process, which writes it.
    if processes.gather(not force and _is_evaluated(settings, run, provenance))[0]:
        return
    if isinstance(settings.evaluation, Gldv2Evaluation):
        results = _evaluate_gldv2(settings.evaluation, settings.metrics, run, device, processes, force, progress)
    else:
        results = [_evaluate_split(settings.metrics, run, device, processes, progress)]
    if processes.rank == 0:
        write_per_query(results, per_query_file(run), provenance)
    processes.gather(None)  # the other processes wait for the file


def read_evaluated(settings: BenchmarkSettings, run: Run) -> EvaluatedRun | None:
    """Read the result of :func:`evaluate_run`; None if there is none, or something has changed since.

    The result of GLDv2's protocol covers the queries with hierarchical labels; its column ``map100_official`` covers
    all queries, Public and Private together, for which the other metrics are NaN.

    Raises:
        InputError: A file that the run was made from is missing.
    """
    if not RunFolder(run.folder).last.is_file() or not _is_evaluated(settings, run, _provenance(settings, run)):
        return None
    results = read_per_query(per_query_file(run))
    return EvaluatedRun(run, results[0] if len(results) == 1 else _join(results))


def evaluation_folder(run: Run) -> Path:
    """Return the folder of a run's evaluation."""
    return run.folder / "evaluation"


def per_query_file(run: Run) -> Path:
    """Return the file of a run's result; its digest identifies the result."""
    return evaluation_folder(run) / "per_query.parquet"


def _evaluate_split(
    metrics: tuple[str, ...], run: Run, device: str, processes: Processes, progress: Progress | None
) -> RetrievalResult:
    """Evaluate on the evaluation images of the training."""
    model = load_checkpoint_model(RunFolder(run.folder).last).network
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
        path = evaluation_folder(run) / "embeddings.npy"
        write_embeddings(path, torch.from_numpy(embedded.vectors), manifest.ids.tolist())
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
    """Evaluate by GLDv2's retrieval protocol."""
    model = load_checkpoint_model(RunFolder(run.folder).last)
    embed_config = EmbedImagesConfig(
        device=device, batch_size=run.settings.evaluation.batch_size, workers=run.settings.workers
    )
    queries, gallery = (evaluation_folder(run) / f"{name}.npy" for name in ("queries", "gallery"))
    for images, out in ((evaluation.queries, queries), (evaluation.gallery, gallery)):
        embed_images(images, out, model, embed_config, force=force, processes=processes, progress=progress)
    files = EvaluationFiles(
        query_embeddings=queries,
        gallery_embeddings=gallery,
        hierarchy=evaluation.hierarchy,
        ground_truth=evaluation.ground_truth,
    )
    config = EvaluationConfig(metrics=metrics or None, ranking=RankingConfig(device=device), processes=processes)
    results = evaluate_files(files, "gldv2-retrieval", config).results
    solution = read_retrieval_solution(evaluation.ground_truth / SOLUTION)
    landmarks = query_landmarks(solution, read_image_to_landmark(evaluation.ground_truth / LANDMARKS))
    names = pd.Series(landmarks.landmark_ids.astype(str), index=list(solution.query_ids))
    return [
        replace(result, per_query=result.per_query.assign(**{"class": names[result.per_query.index]}))
        for result in results
    ]


def _join(results: list[RetrievalResult]) -> RetrievalResult:
    """Add the official values of all queries to the result of the queries with hierarchical labels."""
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
    return Provenance("benchmark", parameters, data_digests(run.settings.data) | input_digests(**files))


def _is_evaluated(settings: BenchmarkSettings, run: Run, provenance: Provenance) -> bool:
    names = ("queries", "gallery") if isinstance(settings.evaluation, Gldv2Evaluation) else ("embeddings",)
    files = [evaluation_folder(run) / f"{name}.{suffix}" for name in names for suffix in ("npy", "ids.txt")]
    return all(path.is_file() for path in files) and is_up_to_date(per_query_file(run), provenance)
