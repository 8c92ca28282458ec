from dataclasses import replace

from hgld.evaluation import EvaluationConfig, RetrievalResult, RetrievalTask, evaluate_tasks
from hgld.hierarchy import Hierarchy
from hgld.rejection.open_set import ScoredAnswers
from hgld.rejection.rejected_queries import RejectedQueries, RejectionConfig


def rejected_results(
    task: RetrievalTask, rejection: RejectionConfig, config: EvaluationConfig | None = None
) -> list[RetrievalResult]:
    """Evaluate a task, with the scores of its queries."""
    queries = RejectedQueries(task, rejection)
    config = replace(config or EvaluationConfig(), n_neighbours=queries.detector.n_neighbours)
    results = evaluate_tasks([task], config)
    return [queries.scored(result, rows) for result, rows in zip(results, queries.query_rows(), strict=True)]


def evaluate_rejected(
    task: RetrievalTask, rejection: RejectionConfig, config: EvaluationConfig | None = None
) -> RetrievalResult:
    """Evaluate a task of a single result."""
    (result,) = rejected_results(task, rejection, config)
    return result


def unknown_answers(
    task: RetrievalTask,
    rejection: RejectionConfig,
    hierarchy: Hierarchy | None = None,
    config: EvaluationConfig | None = None,
) -> dict[str, ScoredAnswers]:
    """Answer the sets of unknown images."""
    ranking = (config or EvaluationConfig()).ranking
    return RejectedQueries(task, rejection, hierarchy).unknown_answers(ranking)
