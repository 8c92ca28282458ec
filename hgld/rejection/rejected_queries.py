"""Evaluate files with a rejection score: the library side of ``hgld evaluate --reject``.

The answer to a query is the first gallery image of its ranking, and right at the levels that it shares with the
query: R@1 at each level. Scores that answer by vote (:meth:`hgld.rejection.detector.NeighbourDetector.answers`) are
judged by the label that they answer, where queries have labels. A query is known at a level if a positive of that
level is left in its ranking.

Rankings that leave out images, such as the query itself, need scores of nearest neighbours. All others are fitted on
the whole gallery, where they would have seen the query.

:func:`rejection_report` computes the figures: risk over coverage, GAP, thresholds, and how well a score detects
unknown images. Those of the queries are of a protocol's own queries. Sets of unknown images are reported apart, each
together with the known queries: near images are far harder than far ones, and a figure over both says nothing of
either. Thresholds are chosen on the queries that they are reported on, and promise nothing for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.resampling import Interval
from hgld.compute.scoring import ScoringConfig
from hgld.datasets.image_labels import labels_from_landmarks
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import Evaluation, EvaluationConfig, EvaluationFiles, RetrievalTask
from hgld.evaluation.evaluation_files import EvaluationInputs, choose_protocol, evaluate_inputs
from hgld.evaluation.recognition import RecognitionResult
from hgld.evaluation.results import LatexRow, RetrievalResult, escape_latex, latex_table
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.rejection.detection_metrics import DETECTION_METRICS, detection_intervals, detection_metrics
from hgld.rejection.detector import Detector, NeighbourDetector
from hgld.rejection.open_set import (
    ScoredAnswers,
    answer_queries,
    check_gallery,
    known_labels,
    open_set_answers,
    score_queries,
)
from hgld.rejection.registry import build_detector
from hgld.rejection.risk_coverage import Threshold, area_interval, risk_coverage, threshold_for_precision
from hgld.tables.embeddings import Embeddings

#: Shares of the queries that are accepted, at which metrics are reported.
COVERAGES = (1.0, 0.9, 0.75, 0.5, 0.25)
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


@dataclass(frozen=True, eq=False)
class RejectionConfig:
    """Choice of a rejection score for the queries of an evaluation.

    Args:
        score: Name of the score, one of :data:`hgld.rejection.DETECTORS`, which is fitted on each gallery.
        options: Its options; texts are converted.
        detector: A fitted score instead.
        precision: Share of right answers among the accepted ones for which a threshold is reported.
        coverages: Shares of the queries that are accepted, at which metrics are reported.
        unknown: Embeddings of images that show no landmark of the gallery, by name, such as near and far ones.

    Raises:
        ConfigurationError: There is no such score or option, there are options beside a fitted score, or the
            precision or a coverage is not above 0 and at most 1.
    """

    score: str = "top1_cosine"
    options: Mapping[str, Any] = field(default_factory=dict)
    detector: Detector | None = None
    precision: float = 0.9
    coverages: tuple[float, ...] = COVERAGES
    unknown: Mapping[str, Embeddings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.detector is None:
            build_detector(self.score, self.options)
        elif self.options:
            raise ConfigurationError(
                f"`options` are those of a score to fit, and this {self.detector.name} is fitted; leave them out"
            )
        for share, name in ((self.precision, "precision"), *((coverage, "coverage") for coverage in self.coverages)):
            if not 0 < share <= 1:
                raise ConfigurationError(f"the wanted {name} is {share}; expected more than 0 and at most 1")

    def description(self) -> dict[str, Any]:
        """Return the name of the score, and its options, defaults included."""
        detector = self.detector or build_detector(self.score, self.options)
        return {"name": detector.name, "options": detector.options()}

    def fitted(
        self,
        gallery: torch.Tensor,
        labels: LabelMatrix | None,
        gallery_mask: npt.NDArray[np.bool_] | None = None,
    ) -> Detector:
        """Return the score, fitted on a gallery; one that is fitted already is checked against it.

        Raises:
            ConfigurationError: The score needs labels or other inputs that there are not.
            InputError: A fitted score does not fit the embeddings, or the score cannot be fitted on them.
        """
        if self.detector is not None:
            _check_fitted(self.detector, gallery, labels)
            return self.detector
        detector = build_detector(self.score, self.options)
        if further := sorted(detector.requires - {"labels"}):
            raise ConfigurationError(
                f"the score {detector.name} needs {' and '.join(further)}, which an evaluation of embeddings lacks; "
                "choose another `reject` here, or use hgld reject fit and hgld reject score"
            )
        if "labels" in detector.requires and labels is None:
            raise ConfigurationError(
                f"the score {detector.name} needs one label per image and level, which this gallery lacks; choose "
                "another `reject`, such as top1_cosine"
            )
        # Scores of neighbours keep the whole gallery, as neighbours are positions in it.
        if gallery_mask is not None and not gallery_mask.all() and not isinstance(detector, NeighbourDetector):
            rows = np.flatnonzero(gallery_mask)
            gallery, labels = gallery[torch.from_numpy(rows)], None if labels is None else labels[rows]
        return detector.fit(gallery, labels)

    def answer(
        self,
        gallery: torch.Tensor,
        labels: LabelMatrix,
        queries: torch.Tensor,
        gallery_mask: npt.NDArray[np.bool_],
        config: ScoringConfig,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Answer queries at the finest level, with minus the score as confidence; see ``EvaluationConfig.answer``."""
        detector = self.fitted(gallery, labels, gallery_mask)
        answers, scores = answer_queries(detector, gallery, labels, queries, gallery_mask, config)
        return answers[:, 0], -scores[:, 0]


def _check_fitted(detector: Detector, gallery: torch.Tensor, labels: LabelMatrix | None) -> None:
    if detector.dim != gallery.shape[1]:
        raise InputError(
            f"the embeddings have {gallery.shape[1]} dimensions, and the score {detector.name} was fitted on "
            f"{detector.dim}; embed both with the same model, or fit the score on this gallery"
        )
    own = detector.labels if isinstance(detector, NeighbourDetector) else None
    if own is not None and labels is not None and not np.array_equal(own, labels):
        raise InputError(
            f"the score {detector.name} was fitted with other labels of its {len(own):,} images than those of this "
            "gallery; fit it with the same labels and hierarchy"
        )


def evaluate_with_rejection(
    files: EvaluationFiles,
    protocol: str | None,
    config: EvaluationConfig,
    rejection: RejectionConfig,
    *,
    intervals: bool = True,
) -> tuple[Evaluation, list[RejectionReport]]:
    """Evaluate embeddings in files, and return the figures of rejected queries of each result that has any.

    Scores are fitted, and unknown images checked, before queries are ranked, which may take hours. Of several
    processes, the first scores the queries; others have no reports.

    Raises:
        ConfigurationError: See :func:`~hgld.evaluation.evaluation_files.evaluate_files`; or the score needs inputs
            that there are not.
        InputError: Likewise, or the score cannot leave out images that are not ranked, or unknown images do not fit
            a gallery, or show landmarks of it.
    """
    chosen = choose_protocol(files, protocol, config)
    if files.predictions is not None:
        raise ConfigurationError(
            "`reject` scores queries by their embeddings, and `predictions` have scores of their own; give "
            "`query_embeddings` and `gallery_embeddings` instead"
        )
    if config.ranking.reranking.rerank is not None:
        raise ConfigurationError("`reject` scores cosines, which `rerank` replaces; leave out one of them")
    if config.ranking.distance != "cosine":
        raise ConfigurationError(
            f"`reject` scores cosines, but `distance` is {config.ranking.distance}; leave out one of them"
        )
    inputs = EvaluationInputs.read(files)
    if chosen.answer_queries is not None:
        if rejection.unknown:
            raise ConfigurationError(
                f"the ground truth of {chosen.name} says which test images show no landmark; leave out `unknown`"
            )
        evaluation = evaluate_inputs(chosen, inputs, [], replace(config, answer=rejection.answer))
        reports = [rejection_report(result, rejection, {}, intervals=intervals) for result in evaluation.results]
        return evaluation, [report for report in reports if report is not None]
    tasks = chosen.build_tasks(inputs)
    rejected = [RejectedQueries(task, rejection, inputs.hierarchy, files.split) for task in tasks]
    n_neighbours = max(each.detector.n_neighbours for each in rejected)
    evaluation = evaluate_inputs(chosen, inputs, tasks, replace(config, n_neighbours=n_neighbours))
    if config.processes.rank:
        return evaluation, []
    results, reports, remaining = [], [], iter(evaluation.results)
    for each in rejected:
        unknown = each.unknown_answers(config.ranking)
        for rows in each.query_rows():
            results.append(each.scored(next(remaining), rows))
            reports.append(rejection_report(results[-1], rejection, unknown, intervals=intervals))
    return replace(evaluation, results=tuple(results)), [report for report in reports if report is not None]


class RejectedQueries:
    """The queries of a task with a rejection score, fitted on its gallery, and the sets of unknown images.

    Attributes:
        detector: Fitted score.

    Raises:
        ConfigurationError: See :meth:`RejectionConfig.fitted`.
        InputError: Likewise, or the score cannot leave out images that are not ranked, or unknown images do not fit
            the gallery, or show landmarks of it.
    """

    def __init__(
        self,
        task: RetrievalTask,
        rejection: RejectionConfig,
        hierarchy: Hierarchy | None = None,
        split: str | None = None,
    ) -> None:
        self._task, self._unknown = task, rejection.unknown
        self._unknown_labels: dict[str, LabelMatrix | None] = {}
        for name, images in rejection.unknown.items():
            if images.dim != task.gallery.shape[1]:
                raise InputError(
                    f"{images.path}: has {images.dim:,} dimensions, and the gallery {task.gallery.shape[1]:,}; embed "
                    "both with the same model"
                )
            self._unknown_labels[name] = self._labels_of(images, hierarchy, split)
            self._require_unknown(name, images, self._unknown_labels[name])
        labels = task.gallery_labels if isinstance(task.gallery_labels, np.ndarray) else task.index_labels
        self.detector = rejection.fitted(task.gallery, labels, task.gallery_mask)
        check_gallery(self.detector, task.gallery, task.excluded)

    def query_rows(self) -> list[npt.NDArray[np.int64]]:
        """Return the queries of each result of the task."""
        groups = self._task.query_groups
        if groups is None:
            return [np.arange(len(self._task.queries))]
        return [np.flatnonzero(queries) for queries in groups.values()]

    def scored(self, result: RetrievalResult, rows: npt.NDArray[np.int64]) -> RetrievalResult:
        """Return a result whose table has the scores of the queries and whether their answers are right.

        The column ``rejection_score`` is that of the finest level; coarser levels have columns of their own, such as
        ``rejection_score_l1``, where theirs differ. Columns ``right_l3``, ... are bool.
        """
        task, nearest = self._task, result.nearest
        assert nearest is not None
        n_levels = task.judgements.n_levels
        scores, votes = score_queries(
            self.detector,
            task.queries if len(rows) == len(task.queries) else task.queries[torch.from_numpy(rows)],
            (nearest.cosines, nearest.positions),
            n_levels,
            excluded=None if task.excluded is None else task.excluded.take(rows),
            gallery_mask=task.gallery_mask,
        )
        levels = range(n_levels, 0, -1)
        right = nearest.levels[:, None] >= np.array(levels)
        if votes is not None and isinstance(task.query_labels, np.ndarray):
            right = votes == task.query_labels[rows]
        columns = {SCORE: scores[:, 0]}
        for level, column in zip(levels[1:], scores.T[1:], strict=True):
            if not np.array_equal(column, scores[:, 0]):
                columns[f"{SCORE}_l{level}"] = column
        columns |= {f"right_l{level}": column for level, column in zip(levels, right.T, strict=True)}
        return replace(result, per_query=result.per_query.assign(**columns))

    def unknown_answers(self, config: ScoringConfig | None = None) -> dict[str, ScoredAnswers]:
        """Answer and score the images that show no landmark of the gallery, by name of their set.

        An answer can be right at a coarser level where the images have landmark ids and the hierarchy has these.
        """
        task, config, answers = self._task, config or ScoringConfig(), {}
        for name, images in self._unknown.items():
            own, labels = self._unknown_labels[name], task.gallery_labels
            if own is None or not isinstance(labels, np.ndarray):
                n_levels = task.judgements.n_levels
                own, labels = (np.full((len(some), n_levels), -1) for some in (images, task.gallery))
            vectors, mask = images.vectors, task.gallery_mask
            answers[name] = open_set_answers(
                self.detector, task.gallery, labels, vectors, own, gallery_mask=mask, config=config
            )
        return answers

    def _require_unknown(self, name: str, images: Embeddings, own: LabelMatrix | None) -> None:
        """Raise an :class:`InputError` if images of an unknown set show landmarks of the gallery."""
        task = self._task
        if own is not None and isinstance(task.gallery_labels, np.ndarray):
            landmarks, known = own[:, 0], known_labels(own, task.gallery_labels, task.gallery_mask)[:, 0]
        elif images.landmark_ids is not None and task.index_labels is not None:
            landmarks, known = images.landmark_ids, np.isin(images.landmark_ids, task.index_labels[:, 0])
        else:
            return
        shown = np.flatnonzero(known & (landmarks >= 0))
        if shown.size:
            raise InputError(
                f"{images.path}: {shown.size:,} of {len(images):,} images of the unknown set {name} show landmarks "
                f"of the gallery, the first landmark {landmarks[shown[0]]}; leave these images out"
            )

    def _labels_of(self, images: Embeddings, hierarchy: Hierarchy | None, split: str | None) -> LabelMatrix | None:
        """Return the labels of images that have landmark ids, at the levels of the task; None if they have none."""
        if images.landmark_ids is None or (images.landmark_ids < 0).all():
            return None
        try:
            of_hierarchy = None if hierarchy is None else split or self._task.landmark_split
            labels = labels_from_landmarks(images.landmark_ids, hierarchy, of_hierarchy)
        except InputError:  # none of the landmarks is in the hierarchy
            return None
        known = isinstance(labels.labelling, np.ndarray) and labels.level_names == self._task.level_names
        return labels.labels if known else None


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
    rejection: RejectionConfig,
    unknown: Mapping[str, ScoredAnswers],
    *,
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
    threshold = threshold_for_precision(answers.scores, answers.right[:, 0], rejection.precision)
    return RejectionReport(
        name=result.name,
        score=rejection.description(),
        levels=_level_figures(answers, intervals),
        coverages=tuple(_at_coverage(result, answers, coverage) for coverage in rejection.coverages),
        threshold=threshold,
        means_at_threshold=_means(result, threshold.accepts(answers.scores)),
        unknown={name: _unknown_figures(known, each, intervals) for name, each in sets.items() if len(known)},
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
    n_accepted, threshold, risk = (each[place].item() for each in (curve.n_accepted, curve.thresholds, curve.risk))
    return CoverageFigures(coverage, n_accepted, threshold, risk, _means(result, answers.scores <= threshold))


def _means(result: RetrievalResult, accepted: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Return the mean of each metric over the accepted queries; of recognition, over all images with a landmark."""
    if isinstance(result, RecognitionResult):
        return result.with_answered(accepted).means
    return {name: float(result.per_query.loc[accepted, name].mean()) for name in result.metrics}


def _unknown_figures(known: ScoredAnswers, unknown: ScoredAnswers, intervals: bool) -> UnknownFigures:
    scores = known.scores, unknown.scores
    bounds = detection_intervals(*scores, n_resamples=N_RESAMPLES) if intervals else {}
    levels = _level_figures(known.joined(unknown), intervals)
    return UnknownFigures(len(known), len(unknown), detection_metrics(*scores), bounds, levels)
