"""Training and evaluation of one run of a comparison.

Beside the run, in ``evaluation``::

    embeddings.npy                the evaluation images, with their ids in embeddings.ids.txt; or
    small.npy, ...                those of each test set, likewise with ids; or
    queries.npy, gallery.npy      the images of GLDv2's protocol
    per_query.parquet             a row per query, see hgld.evaluation.results; written last

The last checkpoint is evaluated, or the best one on the validation images of the training if there are some.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hgld.benchmark.evaluations import EvaluationContext, embedding_file, evaluation_folder
from hgld.benchmark.runs import BenchmarkSettings, Run
from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError
from hgld.evaluation.results import RetrievalResult, read_per_query, write_per_query
from hgld.io.settings import to_dict
from hgld.tables import Provenance, input_digests, is_up_to_date
from hgld.training.run import is_finished, train
from hgld.training.run_folder import RunFolder, require_same_run, result_affecting
from hgld.training.training_images import data_digests


def is_done(settings: BenchmarkSettings, run: Run, *, n_processes: int = 1) -> bool:
    """Return whether a run is trained and evaluated.

    Raises:
        ConfigurationError: The run in the folder has other settings, data, or another number of processes.
        InputError: The data cannot be read.
    """
    if is_finished(run.settings, run.folder):
        return read_evaluated(settings, run) is not None
    folder = RunFolder(run.folder)
    recorded = folder.recorded_run()
    if recorded is not None and folder.last.exists():
        require_same_run(run.folder, {"processes": recorded[1]["processes"]}, {"processes": n_processes})
    return False


def train_and_evaluate(
    settings: BenchmarkSettings,
    run: Run,
    *,
    retrain: bool = False,
    device: str = "cpu",
    processes: Processes | None = None,
) -> None:
    """Train and evaluate a run; a run that was interrupted is resumed.

    Args:
        retrain: Whether to train again, whatever is in the folder of the run.
        processes: Processes that train and evaluate together.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop; the last step is saved.
        HgldError: See :func:`~hgld.training.run.train` and :func:`evaluate_run`.
    """
    processes = processes or Processes()
    if retrain or not processes.gather(is_finished(run.settings, run.folder))[0]:
        train(run.settings, run.folder, resume=not retrain, force=retrain, device=device, processes=processes)
    evaluate_run(settings, run, device=device, processes=processes)


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """A run and the result of its model."""

    run: Run
    result: RetrievalResult


def evaluate_run(
    settings: BenchmarkSettings, run: Run, *, device: str = "cpu", processes: Processes | None = None
) -> None:
    """Evaluate the model of a run, unless its evaluation is up to date.

    Raises:
        ConfigurationError: The training is not finished or has other settings, or a metric is unknown.
        InputError: Images or labels cannot be read.
    """
    processes = processes or Processes()
    if not is_finished(run.settings, run.folder):
        raise ConfigurationError(f"{run.folder}: the training is not finished; resume it, then evaluate")
    provenance = _provenance(settings, run)
    # The first process, which writes the file, decides for all: others may see an older state of the file system.
    if processes.gather(_is_evaluated(settings, run, provenance))[0]:
        return
    context = EvaluationContext(run.folder, run.settings, settings.metrics, device, processes)
    results = settings.evaluation.evaluate(context)
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
    if not RunFolder(run.folder).result.is_file() or not _is_evaluated(settings, run, _provenance(settings, run)):
        return None
    return EvaluatedRun(run, settings.evaluation.join(read_per_query(per_query_file(run))))


def per_query_file(run: Run) -> Path:
    """Return the file of a run's result; its digest identifies the result."""
    return evaluation_folder(run.folder) / "per_query.parquet"


def _provenance(settings: BenchmarkSettings, run: Run) -> Provenance:
    files = {"checkpoint": RunFolder(run.folder).result, **settings.evaluation.files}
    parameters = {
        "training": result_affecting(to_dict(run.settings)),
        "protocol": settings.evaluation.name,
        "metrics": list(settings.metrics),
    }
    return Provenance("benchmark", parameters, data_digests(run.settings.data) | input_digests(**files))


def _is_evaluated(settings: BenchmarkSettings, run: Run, provenance: Provenance) -> bool:
    embeddings = [embedding_file(run.folder, name) for name in settings.evaluation.embedding_sets]
    files = [path.with_suffix(suffix) for path in embeddings for suffix in (".npy", ".ids.txt")]
    return all(path.is_file() for path in files) and is_up_to_date(per_query_file(run), provenance)
