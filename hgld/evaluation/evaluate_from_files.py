"""Evaluate embeddings in files by a protocol: the library side of ``hgld evaluate``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.evaluation_files import EvaluationFiles
from hgld.evaluation.protocols import get_protocol
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.hierarchy import Hierarchy


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of a protocol.

    Args:
        results: Results of its parts, in the order of the tasks.
        tasks: Tasks that were evaluated; none where predictions were scored.
        mean: Mean of each metric over the results, for protocols that report it.
        hierarchy: Levels above landmarks, if given.
    """

    results: tuple[RetrievalResult, ...]
    tasks: tuple[RetrievalTask, ...]
    mean: dict[str, float] | None = None
    hierarchy: Hierarchy | None = None


def evaluate_files(
    files: EvaluationFiles, protocol: str | None = None, config: EvaluationConfig | None = None
) -> Evaluation:
    """Evaluate embeddings in files.

    Args:
        files: Input files.
        protocol: Name of the protocol, one of :data:`hgld.evaluation.protocols.PROTOCOL_NAMES`; by default
            ``leave-one-out`` for one set of images, ``retrieval`` for queries and a gallery, and ``gldv2-retrieval``
            for predictions.
        config: Metrics, and how to rank.

    Raises:
        ConfigurationError: Files do not suit the protocol, or a setting is wrong.
        InputError: A file is missing or malformed, or does not fit another.
    """
    chosen = get_protocol(protocol or _default_protocol(files))
    config = config or EvaluationConfig()
    chosen.check(files, config)
    if files.predictions is not None:
        assert chosen.score_predictions is not None
        return Evaluation(tuple(chosen.score_predictions(files, config)), ())
    inputs = files.read()
    tasks = chosen.build_tasks(inputs)
    results = evaluate_tasks(tasks, config)
    mean = None
    if chosen.reports_mean:
        mean = {name: float(np.mean([result.means[name] for result in results])) for name in results[0].metrics}
    return Evaluation(tuple(results), tuple(tasks), mean, inputs.hierarchy)


def _default_protocol(files: EvaluationFiles) -> str:
    if files.predictions is not None:
        return "gldv2-retrieval"
    return "leave-one-out" if files.embeddings is not None else "retrieval"
