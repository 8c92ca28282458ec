from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.scoring import Vectors, as_tensor
from hgld.evaluation import ranking
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.metrics import Metric, NeededRanks
from hgld.evaluation.ranking import Ranked, RankingConfig
from hgld.evaluation.ranking_statistics import ranking_statistics
from hgld.evaluation.relevance import LevelWeights, Relevance
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RelevanceJudgements, RetrievalTask
from hgld.progress import Progress
from hgld.ragged import RaggedIndices


class Given(RelevanceJudgements):
    """Judgements with given levels of each gallery item for each query."""

    def __init__(self, levels: npt.ArrayLike, n_levels: int = 3) -> None:
        self._levels = torch.from_numpy(np.array(levels, np.uint8))
        (self.n_queries, self.n_gallery), self.n_levels = self._levels.shape, n_levels

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        return self._levels[queries, gallery]


def rank(
    queries: torch.Tensor,
    gallery: torch.Tensor,
    judgements: RelevanceJudgements,
    *,
    ids: tuple[Any, Any] = (None, None),
    config: RankingConfig | None = None,
    needed: NeededRanks | None = None,
    part: tuple[int, int] = (0, 1),
    progress: Progress | None = None,
    **exclusions: Any,
) -> Iterator[Ranked]:
    """Rank a task of these arrays, with its fields ``excluded``, ``itself`` and ``gallery_mask``."""
    task = RetrievalTask("ranked", queries, gallery, judgements, query_ids=ids[0], gallery_ids=ids[1], **exclusions)
    settings = {"needed": needed, "part": part, "progress": progress}
    return ranking.rank(task, config, **settings)  # type: ignore[arg-type]


def evaluate_judged(
    queries: Vectors,
    gallery: Vectors,
    judgements: RelevanceJudgements,
    *,
    metrics: Sequence[str] | None = None,
    excluded: RaggedIndices | None = None,
    gallery_mask: npt.NDArray[np.bool_] | None = None,
    query_ids: npt.NDArray[Any] | None = None,
    config: RankingConfig | None = None,
) -> RetrievalResult:
    task = RetrievalTask(
        "judged",
        as_tensor(queries),
        as_tensor(gallery),
        judgements,
        query_ids=query_ids,
        excluded=excluded,
        gallery_mask=gallery_mask,
    )
    (result,) = evaluate_tasks(
        [task], EvaluationConfig(None if metrics is None else tuple(metrics), ranking=config or RankingConfig())
    )
    return result


def metric_values(
    levels: torch.Tensor,
    n_levels: int,
    names: Sequence[str],
    *,
    cutoffs: Sequence[int] = (),
    n_ranked: torch.Tensor | None = None,
    alpha: float = 1.0,
    relevance: Relevance | npt.ArrayLike | None = None,
) -> dict[str, npt.NDArray[np.float64]]:
    """Return metrics by name of rankings given as levels, uint8, shape (n, N)."""
    weights = LevelWeights((len(levels), n_levels + 1), relevance_alpha=alpha, relevance=relevance)
    statistics = ranking_statistics(levels, n_levels, cutoffs, n_ranked=n_ranked)
    of_block = weights.block(slice(0, len(levels)))
    return {
        name: Metric.from_name(name, n_levels).values(levels, statistics, of_block).cpu().numpy() for name in names
    }
