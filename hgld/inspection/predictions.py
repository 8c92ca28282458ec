"""Write the first items of an evaluation's rankings, or its answers, in the form of the public challenges."""

from __future__ import annotations

from pathlib import Path

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate_from_files import Evaluation
from hgld.evaluation.ranking import RankingConfig
from hgld.gldv2.ground_truth import write_retrieval_predictions
from hgld.gldv2.recognition import write_recognition_predictions


def write_predictions(
    evaluation: Evaluation, path: Path, *, k: int = 100, config: RankingConfig | None = None
) -> None:
    """Write the first k gallery items of every query, or the answers to them, see :mod:`hgld.gldv2.ground_truth`.

    Of GLDv2's protocol these are the rankings of all index images, not of those with labels only. Items with equal
    scores are in the order of the gallery, whatever their levels.

    Of protocols that score an answer to each query, the answers are written, see :mod:`hgld.gldv2.recognition`.

    Args:
        evaluation: The evaluation; of several tasks, the official one or else the first is written.
        path: CSV file to write or replace.
        k: Number of items per query.
        config: Ranking configuration of the evaluation.

    Raises:
        ConfigurationError: The images have no ids.
        InputError: An id has whitespace in it.
    """
    if evaluation.answers is not None:
        write_recognition_predictions(path, evaluation.answers.image_ids, evaluation.answers.predictions)
        return
    task = next((task for task in evaluation.tasks if task.name == "official"), evaluation.tasks[0])
    if task.query_ids is None or task.gallery_ids is None:
        raise ConfigurationError(
            "predictions name images by their ids, which these embeddings lack; add a file of ids beside them"
        )
    _, positions = nearest_neighbours(
        task.queries, task.gallery, k, excluded=task.excluded, gallery_mask=task.gallery_mask, config=config
    )
    gallery_ids = task.gallery_ids
    rankings = ([str(gallery_ids[position]) for position in row if position >= 0] for row in positions.tolist())
    write_retrieval_predictions(path, [str(query) for query in task.query_ids], rankings)
