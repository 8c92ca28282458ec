"""Agreement of suggestions with decisions, before any decision and from the decisions on other labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hgld.arrays import Booleans, Floats, Integers
from hgld.compute.conformal import SetQuality, check_coverage, measure_sets
from hgld.errors import InputError
from hgld.figures.coverage import SuggestionOutcomes, draw_reliability
from hgld.labels.encoders import LoadEncoder, load_cached_encoder
from hgld.labels.evidence import EVIDENCE_KINDS
from hgld.labels.suggest import (
    MAX_SUGGESTIONS,
    SuggestionFiles,
    SuggestionInputs,
    decided_items,
    level_names,
    read_suggestion_inputs,
    score_groups,
    scores_with_drop,
    strongest_kinds,
)
from hgld.progress import Progress
from hgld.taxonomy.decisions import Decision, read_surviving_decisions

N_FOLDS = 10


@dataclass(frozen=True)
class Miss:
    """A label whose first suggestion is not the group that was decided."""

    label: str
    landmarks: int
    decided: str
    suggested: str
    score: float


@dataclass(frozen=True)
class ScoredLabels:
    """Scores of n labels.

    Args:
        kinds: int64, shape (n,); the kind of evidence behind the first suggestion, as an index into
            ``EVIDENCE_KINDS``.
    """

    scores: Floats
    kinds: Integers


class KindQuality(NamedTuple):
    """Quality of the first suggestions that have the same kind of evidence."""

    kind: str
    labels: int
    precision: float
    mean_score: float


@dataclass(frozen=True)
class SuggestionAgreement:
    """Agreement of suggestions with the decisions on n labels.

    Args:
        in_top_3: bool, shape (n,); whether one of the first three suggestions is the group decided.
        landmarks: int64, shape (n,); number of landmarks with each label.
        misses: Labels decided for another group than the first suggestion, those of most landmarks first.
    """

    outcomes: SuggestionOutcomes
    in_top_3: Booleans
    kinds: Integers
    landmarks: Integers
    misses: Sequence[Miss]
    sets: Sequence[SetQuality] = ()

    def quality_by_kind(self) -> list[KindQuality]:
        """Return the quality of the first suggestions by kind of evidence, without kinds that stand behind none."""
        quality = []
        for number, kind in enumerate(EVIDENCE_KINDS):
            rows = self.kinds == number
            if rows.any():
                right, score = self.outcomes.right[rows].mean(), self.outcomes.score[rows].mean()
                quality.append(KindQuality(kind, int(rows.sum()), float(right), float(score)))
        return quality

    def accuracy(self) -> dict[str, tuple[float, float]]:
        """Return top-1 and top-3 accuracy over the labels decided for a group, and over their landmarks."""
        in_group = ~self.outcomes.dropped
        hits = np.stack([self.outcomes.right[in_group], self.in_top_3[in_group]])
        landmarks = self.landmarks[in_group]
        weights = {"labels": np.ones_like(landmarks), "landmarks": landmarks}
        return {
            name: (float(top_1), float(top_3))
            for name, weight in weights.items()
            for top_1, top_3 in [hits @ weight / weight.sum()]
        }


def evaluate_suggestions(
    files: SuggestionFiles,
    decisions: Path,
    picture: Path,
    *,
    coverage: float | None = None,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> list[SuggestionAgreement]:
    """Compare suggestions with decisions, and draw a reliability diagram of their scores.

    Args:
        decisions: File of decisions; those that are ``unsure`` are ignored.
        coverage: Probability that sets hold the group decided, as for ``suggest_file``; None to measure no sets.

    Returns:
        Agreement of suggestions made before any decision, and of those made from decisions on other labels.
    """
    check_coverage(coverage)
    inputs = read_suggestion_inputs(files, progress=progress, load=load)
    all_decisions = read_surviving_decisions(decisions, inputs.groups)
    truth = inputs.decided(all_decisions)
    if not any(row is not None and row.group for row in truth):
        raise InputError(f"{decisions}: decides on none of the labels of {files.clusters} for a group")
    scored = {
        "before any decision": score_labels(inputs),
        f"{N_FOLDS}-fold cross-validation": cross_validate(inputs, all_decisions, truth),
    }
    runs = [measure_agreement(title, inputs, run, truth, coverage) for title, run in scored.items()]
    draw_reliability(picture, [run.outcomes for run in runs])
    return runs


def score_labels(inputs: SuggestionInputs, decisions: Sequence[Decision] = ()) -> ScoredLabels:
    """Score the groups of all labels, with decisions on other labels as evidence."""
    evidence = inputs.evidence(decisions)
    scores = score_groups(evidence)
    first = scores.argmax(axis=1)
    return ScoredLabels(scores, strongest_kinds(evidence)[np.arange(len(first)), first])


def cross_validate(
    inputs: SuggestionInputs,
    decisions: Sequence[Decision],
    truth: Sequence[Decision | None],
    n_folds: int = N_FOLDS,
) -> ScoredLabels:
    """Score the groups of each decided label from the decisions in the other folds."""
    ids = sorted({row.label_id for row in truth if row is not None})
    folds = dict(zip(ids, np.random.default_rng(0).permutation(len(ids)) % n_folds, strict=True))
    result = ScoredLabels(np.zeros((len(truth), len(inputs.groups))), np.zeros(len(truth), np.int64))
    for fold in range(min(n_folds, len(ids))):
        held_out = [number for number, row in enumerate(truth) if row is not None and folds[row.label_id] == fold]
        others = [row for row in decisions if folds.get(row.label_id) != fold]
        scored = score_labels(inputs, others)
        result.scores[held_out] = scored.scores[held_out]
        result.kinds[held_out] = scored.kinds[held_out]
    return result


def measure_agreement(
    title: str,
    inputs: SuggestionInputs,
    scored: ScoredLabels,
    truth: Sequence[Decision | None],
    coverage: float | None = None,
) -> SuggestionAgreement:
    """Compare scores with decisions, and sets with a coverage that are calibrated on the decisions in other folds."""
    group_numbers = {group.key: number for number, group in enumerate(inputs.groups)}
    decided = [(row, decision) for row, decision in enumerate(truth) if decision is not None]
    rows = np.array([row for row, _ in decided], np.int64)
    target = np.array([group_numbers[decision.group] if decision.group else -1 for _, decision in decided], np.int64)
    ranking = np.argsort(-scored.scores[rows], axis=1, kind="stable")
    first = ranking[:, 0]
    outcomes = SuggestionOutcomes(title, scored.scores[rows, first], right=first == target, dropped=target < 0)
    in_top_3 = (ranking[:, :MAX_SUGGESTIONS] == target[:, None]).any(axis=1)
    landmarks = inputs.landmarks[rows]
    misses = [
        Miss(
            label=inputs.labels.texts[rows[number]],
            landmarks=int(landmarks[number]),
            decided=inputs.groups[target[number]].name,
            suggested=inputs.groups[first[number]].name,
            score=float(outcomes.score[number]),
        )
        for number in np.flatnonzero(~outcomes.dropped & ~outcomes.right).tolist()
    ]
    return SuggestionAgreement(
        outcomes=outcomes,
        in_top_3=in_top_3,
        kinds=scored.kinds[rows],
        landmarks=landmarks,
        misses=sorted(misses, key=lambda miss: (-miss.landmarks, miss.label)),
        sets=[] if coverage is None else _measure_sets(inputs, scored.scores, truth, coverage),
    )


def _measure_sets(
    inputs: SuggestionInputs, scores: Floats, truth: Sequence[Decision | None], coverage: float
) -> list[SetQuality]:
    items = decided_items(inputs, scores_with_drop(scores), truth)
    folds = np.random.default_rng(0).permutation(len(items.classes)) % N_FOLDS
    parts = [(items.select(folds == fold), items.select(folds != fold)) for fold in range(N_FOLDS)]
    return measure_sets(parts, coverage, level_names(inputs.groups))
