"""Quality of proposals: accuracy over coverage for labelled landmarks whose groups are hidden."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from hgld.arrays import Booleans, Floats, Integers
from hgld.completion.classifier import LandmarkClassifier
from hgld.completion.inputs import (
    CompletionFiles,
    CompletionInputs,
    calibration_sample,
    read_completion_inputs,
)
from hgld.completion.settings import CompleteConfig
from hgld.compute.resampling import wilson
from hgld.figures.coverage import CoverageCurve, draw_coverage
from hgld.labels.encoders import LoadEncoder, load_cached_encoder
from hgld.progress import NoProgress, Progress

#: Number of parts that are hidden in turn.
N_FOLDS = 10
#: Number of bins of the calibration error.
_N_BINS = 10
#: Lowest accepted scores in tables and pictures.
THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class AcceptedProposals:
    """Quality of the proposals with at least a given score; shares are from 0 to 1.

    Args:
        threshold: Lowest accepted score.
        n_landmarks: Number of landmarks with an accepted proposal.
        coverage: Share of landmarks with an accepted proposal.
        mean_score: Mean score of the accepted proposals; NaN without proposals.
        group_accuracy: Share of proposals whose group is right, with the ends of its 95 % interval;
            NaN without proposals.
        root_accuracy: Share of proposals whose root is right, with the ends of its 95 % interval; NaN
            without proposals.
    """

    threshold: float
    n_landmarks: int
    coverage: float
    mean_score: float
    group_accuracy: tuple[float, float, float]
    root_accuracy: tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class CompletionQuality:
    """Proposals for n landmarks whose groups were hidden.

    Args:
        score: float64, shape (n,); scores of the proposals.
        group_right: bool, shape (n,); whether the proposed group is the hidden group.
        root_right: bool, shape (n,); whether both groups have the same root.
        baseline: Accuracy of the groups and of the roots if each landmark got the most frequent group
            and the most frequent root of the landmarks that were visible while it was hidden.
        misses: Hidden group, wrong proposed group and number of such landmarks, most frequent
            first.
    """

    score: Floats
    group_right: Booleans
    root_right: Booleans
    baseline: tuple[float, float]
    misses: Sequence[tuple[str, str, int]]

    def calibration_error(self) -> float:
        """Return the expected calibration error of the scores."""
        return calibration_error(self.score, self.group_right)

    def accepted(self, threshold: float) -> AcceptedProposals:
        """Return the quality of the proposals with at least this score."""
        is_accepted = self.score >= threshold
        n_accepted = int(is_accepted.sum())
        mean_score = float("nan")
        if n_accepted:
            mean_score = float(self.score[is_accepted].mean())
        return AcceptedProposals(
            threshold=threshold,
            n_landmarks=n_accepted,
            coverage=n_accepted / len(is_accepted),
            mean_score=mean_score,
            group_accuracy=_share_and_interval(self.group_right[is_accepted]),
            root_accuracy=_share_and_interval(self.root_right[is_accepted]),
        )


def evaluate_completion(
    files: CompletionFiles,
    picture: Path,
    config: CompleteConfig | None = None,
    *,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> CompletionQuality:
    """Measure proposals for landmarks with a known group, and draw accuracy over coverage.

    Labelled landmarks are hidden a tenth at a time. If there are more than
    ``config.calibration_landmarks``, only a random sample of this size is hidden.

    Args:
        files: Input files.
        picture: Image file to write.
        config: Settings of proposals.
        progress: Progress of the photographs.
        load: Function that loads the text encoder.
    """
    config = config or CompleteConfig()
    inputs = read_completion_inputs(files, config.reasons)
    labelled = inputs.labelled_with_photographs()
    order = np.random.default_rng(config.seed).permutation(labelled)
    parts = np.array_split(order[: config.calibration_landmarks], N_FOLDS)
    quality = hide_and_propose(inputs, config, parts, progress=progress, load=load)
    group_baseline, root_baseline = quality.baseline
    group_curve = CoverageCurve("group", quality.score, quality.group_right, group_baseline)
    root_curve = CoverageCurve("root", quality.score, quality.root_right, root_baseline)
    draw_coverage(picture, [group_curve, root_curve])
    return quality


def hide_and_propose(
    inputs: CompletionInputs,
    config: CompleteConfig,
    parts: Sequence[Integers],
    *,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> CompletionQuality:
    """Hide labelled landmarks, a part at a time, and propose groups for them.

    Hidden landmarks are excluded from references and from the calibration, so nothing is fitted to
    them.

    Args:
        inputs: Landmarks and photographs.
        config: Settings of proposals.
        parts: Numbers of the landmarks of each part.
        progress: Progress of the photographs.
        load: Function that loads the text encoder.
    """
    labelled = inputs.labelled_with_photographs()
    _, root_of_group = np.unique(np.array(inputs.roots), return_inverse=True)
    samples = [calibration_sample(np.setdiff1d(labelled, hidden), config) for hidden in parts]
    progress = progress or NoProgress()
    progress.start(sum(map(inputs.count_photographs, [*parts, *samples])))
    cached_load = cache(load)
    part_truths = []
    part_choices = []
    part_scores = []
    group_baselines = []
    root_baselines = []
    for hidden, sample in zip(parts, samples, strict=True):
        visible = np.ones(inputs.n_labelled, bool)
        visible[hidden] = False
        classifier = LandmarkClassifier(
            inputs, config, visible=visible, progress=progress, load=cached_load
        )
        classifier.calibrate(sample)
        votes = classifier.vote(hidden)
        truths = inputs.groups[votes.landmark]
        part_truths.append(truths)
        part_choices.append(votes.choices()[:, 0])
        part_scores.append(classifier.scores(votes))
        visible_groups = inputs.groups[np.setdiff1d(labelled, hidden)]
        frequent_group = np.bincount(visible_groups).argmax()
        frequent_root = np.bincount(root_of_group[visible_groups]).argmax()
        group_baselines.append(truths == frequent_group)
        root_baselines.append(root_of_group[truths] == frequent_root)
    truth = np.concatenate(part_truths)
    choice = np.concatenate(part_choices)
    group_baseline = np.concatenate(group_baselines).mean()
    root_baseline = np.concatenate(root_baselines).mean()
    return CompletionQuality(
        score=np.concatenate(part_scores),
        group_right=choice == truth,
        root_right=root_of_group[choice] == root_of_group[truth],
        baseline=(float(group_baseline), float(root_baseline)),
        misses=_count_misses(truth, choice, inputs.group_names),
    )


def _count_misses(
    truth: Integers, choice: Integers, names: Sequence[str]
) -> list[tuple[str, str, int]]:
    """Return hidden groups, wrong groups proposed for them, and their number, most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for number in np.flatnonzero(choice != truth):
        counts[names[truth[number]], names[choice[number]]] += 1
    misses = [(hidden, proposed, count) for (hidden, proposed), count in counts.items()]
    return sorted(misses, key=lambda miss: (-miss[2], miss))


def calibration_error(score: Floats, right: Booleans) -> float:
    """Return the expected calibration error of scores.

    It is the mean over bins of the difference between mean score and accuracy, weighted by the
    number of scores. Bins have equal width.

    Args:
        score: float64, shape (n,); 0 to 1.
        right: bool, shape (n,); whether the answer with the score is right.

    >>> calibration_error(np.array([1.0, 1.0]), np.array([True, False]))
    0.5
    """
    bins = np.minimum((score * _N_BINS).astype(np.int64), _N_BINS - 1)
    differences = np.bincount(bins, weights=score - right, minlength=_N_BINS)
    return float(np.abs(differences).sum() / len(bins))


def _share_and_interval(right: Booleans) -> tuple[float, float, float]:
    """Return the share of right answers with the ends of its 95 % interval; NaN without answers."""
    if not len(right):
        return (float("nan"),) * 3
    share = np.array([right.mean()])
    low, high = wilson(share, np.array([len(right)]))
    return float(share[0]), float(low[0]), float(high[0])
