"""Accuracy of proposals over their coverage, measured by hiding the groups of labelled landmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.completion.classifier import LandmarkClassifier
from hgld.completion.config import CompleteConfig
from hgld.completion.inputs import CompletionFiles, CompletionInputs, read_completion_inputs
from hgld.compute.conformal import Items, SetQuality, measure_sets
from hgld.compute.resampling import wilson
from hgld.figures.coverage import CoverageCurve, SuggestionOutcomes, draw_coverage
from hgld.labels.encoders import LoadEncoder, load_cached_encoder
from hgld.progress import NoProgress, Progress

N_FOLDS = 10
#: Scores from which proposals are taken, in tables and pictures.
THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class AcceptedProposals:
    """Proposals of at least a score.

    Args:
        coverage: Their share in all landmarks; 0 to 1, as all of the following.
        score: Mean of their scores; NaN if there are none, as are accuracies.
        group: Share whose group is right, with the ends of its 95 % interval.
        root: Share whose root is right, with the ends of its 95 % interval.
    """

    threshold: float
    landmarks: int
    coverage: float
    score: float
    group: tuple[float, float, float]
    root: tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class CompletionQuality:
    """Proposals for n landmarks whose groups were hidden.

    Args:
        group_right: bool, shape (n,); whether it is the group that was hidden.
        root_right: bool, shape (n,); whether its root is that of the hidden group.
        baseline: Shares of landmarks whose group and whose root are the most frequent one among the landmarks that
            were not hidden.
        misses: Pairs of a hidden group and the wrong one proposed, with their number, most frequent first.
    """

    score: NDArray[np.float64]
    group_right: NDArray[np.bool_]
    root_right: NDArray[np.bool_]
    baseline: tuple[float, float]
    misses: Sequence[tuple[str, str, int]]
    sets: Sequence[SetQuality] = ()

    def calibration_error(self) -> float:
        """Return the expected calibration error of the scores, as for suggestions."""
        nothing = np.zeros(len(self.score), bool)
        return SuggestionOutcomes("", self.score, self.group_right, dropped=nothing).calibration_error()

    def accepted(self, threshold: float) -> AcceptedProposals:
        """Return the accuracy of the proposals of at least this score."""
        chosen = self.score >= threshold
        n = int(chosen.sum())
        return AcceptedProposals(
            threshold=threshold,
            landmarks=n,
            coverage=n / len(chosen),
            score=float(self.score[chosen].mean()) if n else float("nan"),
            group=_share_and_interval(self.group_right[chosen]),
            root=_share_and_interval(self.root_right[chosen]),
        )


def evaluate_completion(
    files: CompletionFiles,
    picture: Path,
    config: CompleteConfig | None = None,
    *,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> CompletionQuality:
    """Measure proposals for landmarks whose group is known, and draw their accuracy over their coverage.

    The labelled landmarks are hidden a tenth at a time, or a sample of them, if there are more than
    ``config.calibration_landmarks``.
    """
    config = config or CompleteConfig()
    inputs = read_completion_inputs(files, config.reasons)
    labelled = inputs.labelled_with_photographs()
    measured = np.random.default_rng(config.seed).permutation(labelled)[: config.calibration_landmarks]
    quality = hide_and_propose(inputs, config, np.array_split(measured, N_FOLDS), progress=progress, load=load)
    levels = zip(("group", "root"), (quality.group_right, quality.root_right), quality.baseline, strict=True)
    draw_coverage(picture, [CoverageCurve(name, quality.score, right, baseline) for name, right, baseline in levels])
    return quality


def hide_and_propose(
    inputs: CompletionInputs,
    config: CompleteConfig,
    parts: Sequence[NDArray[np.int64]],
    *,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> CompletionQuality:
    """Propose groups for labelled landmarks, a part of them at a time, from all others.

    The hidden landmarks are neither compared with nor part of the calibration, so nothing is fitted to them.
    """
    labelled = inputs.labelled_with_photographs()
    roots = np.unique(np.array(inputs.roots), return_inverse=True)[1]
    landmarks, choices, scores, frequent, folds = [], [], [], [], []
    samples = [config.sample(np.setdiff1d(labelled, hidden)) for hidden in parts]
    progress, load = progress or NoProgress(), cache(load)
    progress.start(sum(map(inputs.count_photographs, [*parts, *samples])))
    for hidden, sample in zip(parts, samples, strict=True):
        visible = np.ones(inputs.n_labelled, bool)
        visible[hidden] = False
        classifier = LandmarkClassifier(inputs, config, visible=visible, progress=progress, load=load)
        classifier.calibrate(sample)
        votes = classifier.vote(hidden)
        landmarks.append(votes.landmark)
        choices.append(votes.choices()[:, 0])
        scores.append(classifier.scores(votes))
        truth = inputs.groups[votes.landmark]
        folds.append((Items(classifier.probabilities(votes), truth), classifier.calibrated_on))
        groups = inputs.groups[np.setdiff1d(labelled, hidden)]
        common = np.bincount(groups).argmax(), np.bincount(roots[groups]).argmax()
        frequent.append(np.tile(common, (len(hidden), 1)))
    truth, choice = inputs.groups[np.concatenate(landmarks)], np.concatenate(choices)
    names = inputs.group_names
    wrong = Counter(
        (names[hidden], names[proposed])
        for hidden, proposed in zip(truth.tolist(), choice.tolist(), strict=True)
        if hidden != proposed
    )
    return CompletionQuality(
        score=np.concatenate(scores),
        group_right=choice == truth,
        root_right=roots[choice] == roots[truth],
        baseline=tuple((np.concatenate(frequent) == np.stack([truth, roots[truth]], axis=1)).mean(axis=0).tolist()),
        misses=[(*pair, count) for pair, count in sorted(wrong.items(), key=lambda item: (-item[1], item[0]))],
        sets=[] if config.coverage is None else measure_sets(folds, config.coverage, inputs.levels),
    )


def _share_and_interval(right: NDArray[np.bool_]) -> tuple[float, float, float]:
    if not len(right):
        return (float("nan"),) * 3
    share = np.array([right.mean()])
    low, high = wilson(share, np.array([len(right)]))
    return float(share[0]), float(low[0]), float(high[0])
