"""Evaluation of retrieval: tasks, ranking, relevance, metrics, protocols and result files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
    from hgld.evaluation.evaluate_arrays import evaluate_retrieval
    from hgld.evaluation.evaluate_from_files import Evaluation, evaluate_files
    from hgld.evaluation.evaluation_files import EvaluationFiles
    from hgld.evaluation.ranking import RankingConfig
    from hgld.evaluation.results import RetrievalResult
    from hgld.evaluation.retrieval_task import RetrievalTask

__all__ = [
    "Evaluation",
    "EvaluationConfig",
    "EvaluationFiles",
    "RankingConfig",
    "RetrievalResult",
    "RetrievalTask",
    "evaluate_files",
    "evaluate_retrieval",
    "evaluate_tasks",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Evaluation": "evaluate_from_files",
        "EvaluationConfig": "evaluate",
        "EvaluationFiles": "evaluation_files",
        "RankingConfig": "ranking",
        "RetrievalResult": "results",
        "RetrievalTask": "retrieval_task",
        "evaluate_files": "evaluate_from_files",
        "evaluate_retrieval": "evaluate_arrays",
        "evaluate_tasks": "evaluate",
    },
)
