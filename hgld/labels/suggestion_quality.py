"""How well suggestions agree with decisions: before any of these, and from the decisions on other labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.errors import InputError
from hgld.figures.suggestions import Judged, draw_reliability
from hgld.labels.encoders import load_encoder
from hgld.labels.suggest import MOST_SUGGESTIONS, Known, LoadEncoder, find_sources, read_known, score
from hgld.progress import Progress
from hgld.taxonomy.decisions import Decision, DecisionIndex, read_decisions

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
class Agreement:
    """How well suggestions agree with decisions; all arrays have one entry per label that was decided.

    Args:
        judged: the first suggestions.
        among: bool, shape (n,), whether one of the first three is the group that was chosen.
        landmarks: int64, shape (n,); how many landmarks have each label.
        misses: labels in a group that is not the first suggestion, those of most landmarks first.
    """

    judged: Judged
    among: NDArray[np.bool_]
    landmarks: NDArray[np.int64]
    misses: Sequence[Miss]

    def shares(self) -> dict[str, tuple[float, float]]:
        """Of labels in a group, and of their landmarks: those whose group comes first, and among the first three."""
        in_group = ~self.judged.dropped
        right = np.stack([self.judged.right[in_group], self.among[in_group]])
        landmarks = self.landmarks[in_group]
        weights = {"labels": np.ones_like(landmarks), "landmarks": landmarks}
        return {
            name: (float(first), float(three))
            for name, weight in weights.items()
            for first, three in [right @ weight / weight.sum()]
        }


@dataclass(frozen=True)
class Evaluation:
    """Suggestions before any decision, and from decisions on other labels, compared with the same decisions."""

    runs: Sequence[Agreement]


def evaluate_file(
    clusters: Path,
    decisions: Path,
    picture: Path,
    *,
    embeddings: Path | None = None,
    classes: Sequence[Path] | None = None,
    taxonomy: Path | None = None,
    progress: Progress | None = None,
    load: LoadEncoder = load_encoder,
) -> Evaluation:
    """Compare suggestions with decisions, and draw how far their scores can be trusted.

    Args:
        clusters: the ``clusters`` table.
        decisions: a file of decisions; those of ``unsure`` are left out.
        picture: the reliability plot to write.
        embeddings: see :func:`hgld.labels.suggest.suggest_file`, as the others.
        classes: likewise.
        taxonomy: likewise.
        progress: likewise.
        load: likewise.

    Raises:
        InputError: see there; or none of the labels is decided for a group.
    """
    known = read_known(find_sources(clusters, embeddings, classes, taxonomy), progress=progress, load=load)
    given = read_decisions(decisions, [group.name for group in known.groups])
    sure = DecisionIndex(row for row in given if row.decision != "unsure")
    found = [sure.find(*label) for label in zip(known.labels.ids, known.labels.texts, strict=True)]
    if not any(row is not None and row.group for row in found):
        raise InputError(f"{decisions}: decides on none of the labels of {clusters} for a group")
    runs = {
        "before any decision": score(known.evidence()),
        f"{N_FOLDS}-fold cross-validation": cross_validate(known, given, found),
    }
    agreements = [compare(title, known, scores, found) for title, scores in runs.items()]
    draw_reliability(picture, [agreement.judged for agreement in agreements])
    return Evaluation(agreements)


def cross_validate(
    known: Known, decisions: Sequence[Decision], found: Sequence[Decision | None], n_folds: int = N_FOLDS
) -> NDArray[np.float64]:
    """Scores, shape (labels, groups), of decided labels from the decisions of the other folds; 0 for other labels.

    Args:
        known: the labels.
        decisions: all decisions.
        found: the decision on every label, or None.
        n_folds: folds that the decisions on these labels are divided into by chance, always in the same way.
    """
    ids = sorted({row.label_id for row in found if row is not None})
    fold_of = dict(zip(ids, np.random.default_rng(0).permutation(len(ids)) % n_folds, strict=True))
    scores = np.zeros((len(found), len(known.groups)))
    for fold in range(min(n_folds, len(ids))):
        rows = [place for place, row in enumerate(found) if row is not None and fold_of[row.label_id] == fold]
        others = [row for row in decisions if fold_of.get(row.label_id) != fold]
        scores[rows] = score(known.evidence(others))[rows]
    return scores


def compare(title: str, known: Known, scores: NDArray[np.float64], found: Sequence[Decision | None]) -> Agreement:
    """How well scores, shape (labels, groups), agree with the decisions on labels (group, drop, or None)."""
    number = {group.name: place for place, group in enumerate(known.groups)}
    decided = [(row, decision) for row, decision in enumerate(found) if decision is not None]
    rows = np.array([row for row, _ in decided], np.int64)
    truth = np.array([number[decision.group] if decision.group else -1 for _, decision in decided], np.int64)
    order = np.argsort(-scores[rows], axis=1, kind="stable")
    first = order[:, 0]
    judged = Judged(title, scores[rows, first], right=first == truth, dropped=truth < 0)
    among = (order[:, :MOST_SUGGESTIONS] == truth[:, None]).any(axis=1)
    in_group, landmarks = ~judged.dropped, known.landmarks[rows]
    misses = [
        Miss(
            label=known.labels.texts[rows[place]],
            landmarks=int(landmarks[place]),
            decided=known.groups[truth[place]].name,
            suggested=known.groups[first[place]].name,
            score=float(judged.score[place]),
        )
        for place in np.flatnonzero(in_group & ~judged.right).tolist()
    ]
    return Agreement(
        judged=judged,
        landmarks=landmarks,
        among=among,
        misses=sorted(misses, key=lambda miss: (-miss.landmarks, miss.label)),
    )
