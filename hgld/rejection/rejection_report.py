"""Figures of rejected queries: risk over coverage, GAP, thresholds, and how well a score detects unknown images.

Figures of the queries are those of a protocol's own queries. Sets of unknown images are reported apart, each together
with the known queries: near images are far harder than far ones, and a figure over both says nothing of either.
Thresholds are chosen on the queries that they are reported on, and promise nothing for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hgld.compute.resampling import Interval
from hgld.evaluation.recognition import RecognitionResult
from hgld.evaluation.results import LatexRow, RetrievalResult, escape_latex, latex_table
from hgld.rejection.detection_metrics import DETECTION_METRICS, detection_intervals, detection_metrics
from hgld.rejection.open_set import ScoredAnswers
from hgld.rejection.risk_coverage import area_interval, risk_coverage
from hgld.rejection.thresholds import Threshold, threshold_for_precision

#: Names of the unknown queries of a protocol: those without a positive at the finest level, and those of recognition.
QUERIES_WITHOUT_POSITIVES = "queries without positives"
IMAGES_WITHOUT_LANDMARK = "images without a landmark"
N_RESAMPLES = 1000
#: Column of the rejection score in the table of queries; of coarser levels with ``_l1`` where theirs differ.
SCORE = "rejection_score"
#: Metrics of detection that tables show, by name, with their titles; reports as JSON have all.
SHOWN_METRICS = {
    name: DETECTION_METRICS[name] for name in ("auroc", "fpr95_known", "fpr95_unknown", "aupr_known", "aupr_unknown")
}


@dataclass(frozen=True)
class LevelFigures:
    """Figures of the answers at a level.

    Args:
        level: Level, L for the finest.
        gap: GAP; NaN where no query is known.
        aurc: Area under risk over coverage.
        intervals: 95 % intervals of ``gap`` and ``aurc``, if they are asked for.
    """

    level: int
    gap: float
    aurc: float
    intervals: Mapping[str, Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class CoverageFigures:
    """Figures of the queries with the lowest scores.

    Args:
        wanted: Wanted share of the queries.
        n_accepted: Number of queries that are accepted: as many as the share allows without dividing equal scores.
        threshold: Score of the last of these; NaN for none.
        risk: Share of wrong answers at the finest level among these; NaN for none.
        means: Mean of each metric over these, of those that have it.
    """

    wanted: float
    n_accepted: int
    threshold: float
    risk: float
    means: Mapping[str, float]


@dataclass(frozen=True)
class UnknownFigures:
    """Figures of the known queries and a set of unknown images."""

    n_known: int
    n_unknown: int
    detection: Mapping[str, float]
    detection_intervals: Mapping[str, Interval]
    levels: tuple[LevelFigures, ...]


@dataclass(frozen=True, eq=False)
class RejectionReport:
    """Figures of the rejected queries of a result.

    Args:
        name: Name of the result.
        score: ``name`` and ``options`` of the rejection score.
        levels: Figures of the answers to the queries at each level, finest first.
        coverages: Figures of the queries with the lowest scores, for several shares of them.
        threshold: Threshold for the wanted precision at the finest level, chosen on the queries.
        means_at_threshold: Mean of each metric over the queries that it accepts.
        unknown: Figures of each set of unknown images.
    """

    name: str
    score: Mapping[str, Any]
    levels: tuple[LevelFigures, ...]
    coverages: tuple[CoverageFigures, ...]
    threshold: Threshold
    means_at_threshold: Mapping[str, float]
    unknown: Mapping[str, UnknownFigures]


def rejection_report(
    result: RetrievalResult,
    unknown: Mapping[str, ScoredAnswers],
    *,
    score: Mapping[str, Any],
    precision: float,
    coverages: Sequence[float],
    intervals: bool = True,
) -> RejectionReport | None:
    """Return the figures of the rejected queries of a result; None if there is no answer to any."""
    answers = scored_answers(result)
    if not len(answers):
        return None
    is_known = answers.known[:, 0]
    known, sets = answers.take(is_known), dict(unknown)
    if not is_known.all():
        name = IMAGES_WITHOUT_LANDMARK if isinstance(result, RecognitionResult) else QUERIES_WITHOUT_POSITIVES
        sets = {name: answers.take(~is_known), **sets}
    threshold = threshold_for_precision(answers.scores, answers.right[:, 0], precision)
    return RejectionReport(
        name=result.name,
        score=score,
        levels=_level_figures(answers, intervals),
        coverages=tuple(_at_coverage(result, answers, coverage) for coverage in coverages),
        threshold=threshold,
        means_at_threshold=_means(result, threshold.accepts(answers.scores)),
        unknown={name: _unknown_figures(known, images, intervals) for name, images in sets.items()}
        if len(known)
        else {},
    )


def scored_answers(result: RetrievalResult) -> ScoredAnswers:
    """Return the answers in the table of queries of a result, of retrieval with a rejection score or of recognition.

    Images of recognition without a prediction have the score infinity: they are rejected by any threshold, and rank
    behind all predictions, where they change no GAP.
    """
    table = result.per_query
    if isinstance(result, RecognitionResult):
        top1 = table[["top1"]].to_numpy()
        return ScoredAnswers(table[[SCORE]].fillna(np.inf).to_numpy(), top1 == 1, ~np.isnan(top1))
    n_levels = sum(name.startswith("right_l") for name in table.columns)
    levels = range(n_levels, 0, -1)
    score_columns = [name if (name := f"{SCORE}_l{level}") in table else SCORE for level in levels]
    return ScoredAnswers(
        level_scores=table[score_columns].to_numpy(),
        right=table[[f"right_l{level}" for level in levels]].to_numpy(),
        known=table[[f"positives_l{level}" for level in levels]].to_numpy() > 0,
    )


def reports_to_json_values(reports: Sequence[RejectionReport]) -> list[dict[str, Any]]:
    """Return reports as values for JSON, in the form that docs/reference/metrics.md describes."""
    return [asdict(report) for report in reports]


def rejection_to_latex(reports: Sequence[RejectionReport]) -> str:
    """Format figures of rejected queries as a table for the package booktabs, in percent with one decimal.

    The rows of a result are that of its own queries, with GAP and the area under risk over coverage (AURC), and those
    of its sets of unknown images. None is marked as the best, as rows are about different images.
    """
    rows = []
    for report in reports:
        rows.append(_latex_row(report.name, report.levels[0], {}))
        rows += [
            _latex_row(f"{report.name}, {name}", figures.levels[0], figures.detection)
            for name, figures in report.unknown.items()
        ]
    has_sets = any(report.unknown for report in reports)
    return latex_table(rows, ["GAP", "AURC", *(SHOWN_METRICS.values() if has_sets else ())], mark=False)


def _latex_row(name: str, level: LevelFigures, detection: Mapping[str, float]) -> LatexRow:
    shown = {title: detection[key] for key, title in SHOWN_METRICS.items() if key in detection}
    return LatexRow(escape_latex(name), {"GAP": level.gap, "AURC": level.aurc, **shown})


def _level_figures(answers: ScoredAnswers, intervals: bool) -> tuple[LevelFigures, ...]:
    figures = []
    for column in range(answers.n_levels):
        scores, right = answers.level_scores[:, column], answers.right[:, column]
        recognition = answers.recognition(column)
        bounds = {}
        if intervals:
            bounds = {
                "gap": recognition.intervals(n_resamples=N_RESAMPLES)["gap"],
                "aurc": area_interval(scores, right, known=answers.known[:, column], n_resamples=N_RESAMPLES),
            }
        aurc = risk_coverage(scores, right).area
        figures.append(LevelFigures(answers.n_levels - column, recognition.means["gap"], aurc, bounds))
    return tuple(figures)


def _at_coverage(result: RetrievalResult, answers: ScoredAnswers, coverage: float) -> CoverageFigures:
    curve = risk_coverage(answers.scores, answers.right[:, 0])
    # Within rounding: 0.9 of 10 queries are 9.
    place = int(np.searchsorted(curve.n_accepted, coverage * len(answers) * (1 + 1e-12), side="right")) - 1
    if place < 0:
        return CoverageFigures(coverage, 0, np.nan, np.nan, dict.fromkeys(result.metrics, np.nan))
    threshold = float(curve.thresholds[place])
    return CoverageFigures(
        wanted=coverage,
        n_accepted=int(curve.n_accepted[place]),
        threshold=threshold,
        risk=float(curve.risk[place]),
        means=_means(result, answers.scores <= threshold),
    )


def _means(result: RetrievalResult, accepted: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Return the mean of each metric over the accepted queries; of recognition, over all images with a landmark."""
    if isinstance(result, RecognitionResult):
        return result.with_answered(accepted).means
    return {name: float(result.per_query.loc[accepted, name].mean()) for name in result.metrics}


def _unknown_figures(known: ScoredAnswers, unknown: ScoredAnswers, intervals: bool) -> UnknownFigures:
    bounds = {}
    if intervals:
        bounds = detection_intervals(known.scores, unknown.scores, n_resamples=N_RESAMPLES)
    return UnknownFigures(
        n_known=len(known),
        n_unknown=len(unknown),
        detection=detection_metrics(known.scores, unknown.scores),
        detection_intervals=bounds,
        levels=_level_figures(known.joined(unknown), intervals),
    )
