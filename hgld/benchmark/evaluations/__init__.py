"""Evaluations of a trained model that a comparison can ask for, one file per kind."""

from __future__ import annotations

from hgld.benchmark.benchmark_settings import (
    BenchmarkSettings,
    DymlEvaluation,
    Gldv2Evaluation,
    ManifestsEvaluation,
    RevisitedEvaluation,
)
from hgld.benchmark.evaluations.base import EvaluationContext, RunEvaluation, embedding_file, evaluation_folder
from hgld.benchmark.evaluations.dyml import DymlRunEvaluation
from hgld.benchmark.evaluations.gldv2 import Gldv2RunEvaluation
from hgld.benchmark.evaluations.revisited import RevisitedRunEvaluation
from hgld.benchmark.evaluations.splits import ManifestsRunEvaluation, SplitRunEvaluation

__all__ = ["EvaluationContext", "RunEvaluation", "embedding_file", "evaluation_folder", "evaluation_kind"]


def evaluation_kind(settings: BenchmarkSettings) -> RunEvaluation:
    """Return the evaluation that the settings of a comparison describe."""
    evaluation = settings.evaluation
    if isinstance(evaluation, Gldv2Evaluation):
        return Gldv2RunEvaluation(evaluation)
    if isinstance(evaluation, DymlEvaluation):
        return DymlRunEvaluation(evaluation)
    if isinstance(evaluation, ManifestsEvaluation):
        return ManifestsRunEvaluation(evaluation)
    if isinstance(evaluation, RevisitedEvaluation):
        return RevisitedRunEvaluation(evaluation)
    return SplitRunEvaluation()
