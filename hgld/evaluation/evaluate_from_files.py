"""Evaluate embeddings in files by a protocol: the library side of ``hgld evaluate``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.evaluation_files import EvaluationFiles
from hgld.evaluation.open_set import ScoredAnswers
from hgld.evaluation.protocols import get_protocol
from hgld.evaluation.protocols.landmark_answers import LandmarkAnswers
from hgld.evaluation.rejected_queries import check_unknown, unknown_answers, with_detector
from hgld.evaluation.rejection_config import RejectionConfig
from hgld.evaluation.rejection_report import RejectionReport, rejection_report
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.hierarchy import Hierarchy


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of a protocol.

    Args:
        results: Results of its parts, in the order of the tasks.
        tasks: Tasks that were evaluated; none where predictions or answers were scored.
        mean: Mean of each metric over the results, for protocols that report it.
        hierarchy: Levels above landmarks, if given.
        answers: Answers to the queries, for protocols that score these.
    """

    results: tuple[RetrievalResult, ...]
    tasks: tuple[RetrievalTask, ...]
    mean: dict[str, float] | None = None
    hierarchy: Hierarchy | None = None
    answers: LandmarkAnswers | None = None


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
        InputError: A file is missing or malformed, or does not fit another, such as that of unknown images, of which
            none may show a landmark of the gallery.
    """
    chosen = get_protocol(protocol or _default_protocol(files))
    config = config or EvaluationConfig()
    chosen.check(files, config)
    if files.predictions is not None:
        if config.rejection is not None:
            raise ConfigurationError(
                "`reject` scores queries by their embeddings, and `predictions` have scores of their own; give "
                "`query_embeddings` and `gallery_embeddings` instead"
            )
        assert chosen.score_predictions is not None
        return Evaluation(tuple(chosen.score_predictions(files, config)), ())
    inputs = files.read()
    if chosen.answer_queries is not None:
        results, answers = chosen.answer_queries(inputs, config)
        return Evaluation(tuple(results), (), hierarchy=inputs.hierarchy, answers=answers)
    tasks = chosen.build_tasks(inputs)
    if config.rejection is not None:
        for task in tasks:
            check_unknown(task, config.rejection, hierarchy=inputs.hierarchy, split=files.split)
        tasks = [with_detector(task, config.rejection) for task in tasks]
    results = evaluate_tasks(tasks, config)
    mean = None
    if chosen.reports_mean:
        mean = {name: float(np.mean([result.means[name] for result in results])) for name in results[0].metrics}
    return Evaluation(tuple(results), tuple(tasks), mean, inputs.hierarchy)


def rejection_reports(
    evaluation: Evaluation, config: EvaluationConfig, *, split: str | None = None, intervals: bool = True
) -> list[RejectionReport]:
    """Return the figures of rejected queries of each result that has any.

    Args:
        evaluation: Evaluation with a rejection score.
        config: Its configuration, with the sets of unknown images.
        split: Split of the landmark ids, where the hierarchy has several.
        intervals: Whether to compute 95 % intervals.

    Raises:
        InputError: Unknown images do not fit a gallery, or show landmarks of it.
    """
    rejection = config.rejection or RejectionConfig()
    unknown: list[dict[str, ScoredAnswers]] = []
    for task in evaluation.tasks:
        answers = unknown_answers(task, rejection, hierarchy=evaluation.hierarchy, split=split, config=config.ranking)
        unknown += [answers] * (1 if task.query_groups is None else len(task.query_groups))
    unknown = unknown or [{} for _ in evaluation.results]
    reports = (
        rejection_report(result, rejection, answers, intervals=intervals)
        for result, answers in zip(evaluation.results, unknown, strict=True)
    )
    return [report for report in reports if report is not None]


def _default_protocol(files: EvaluationFiles) -> str:
    if files.predictions is not None:
        return "gldv2-retrieval"
    return "leave-one-out" if files.embeddings is not None else "retrieval"
