"""The stage ``complete``: propose groups for landmarks without one, from their photographs.

A third of GLDv2 has no "instance of" label. As in the paper's published code (``suprank/gldv2_labels.py`` of
https://github.com/elias-ramzi/SupRank), every photograph votes, and a landmark gets the group with the most votes.
There a photograph votes for the groups of the label texts that are nearest to it in the space of CLIP: the method
``zero-shot``. With ``neighbours`` it votes for the groups of the nearest photographs of labelled landmarks, for which
any image model will do. Scores are calibrated on labelled landmarks, each classified without its own photographs. The
accuracy of proposals over their coverage is measured by hiding the groups of labelled landmarks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hgld import tables
from hgld.arrays import Booleans, Floats, Integers
from hgld.completion.classifier import GroupVotes, LandmarkClassifier, References
from hgld.completion.inputs import CompletionFiles, CompletionInputs, read_completion_inputs
from hgld.completion.settings import CompleteConfig
from hgld.compute.resampling import wilson
from hgld.errors import InputError
from hgld.figures.coverage import CoverageCurve, draw_coverage
from hgld.labels.encoders import LoadEncoder, load_cached_encoder, local_checkpoint
from hgld.progress import NoProgress, Progress
from hgld.stage import Stage

STAGE = Stage(
    "complete",
    (tables.COMPLETED,),
    inputs={"hierarchy": tables.HIERARCHY, "clean": tables.CLEAN, "removed": tables.REMOVED},
)
#: Scores that the summary counts proposals by.
_THRESHOLDS = (0.9, 0.8, 0.7, 0.6, 0.5)

N_FOLDS = 10
#: Number of bins of the calibration error.
_N_BINS = 10
#: Scores from which proposals are taken, in tables and pictures.
THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class CompleteSummary:
    """Numbers of landmarks without a group, of those with a proposal, and of their photographs.

    Args:
        above: Number of proposals by the score that they reach, highest first.
        calibrated_on: Number of those that the scores are calibrated on.
        accuracy: Share of those whose group the photographs of the others find.
    """

    landmarks: int
    proposed: int
    photographs: int
    above: Mapping[float, int]
    labelled: int
    calibrated_on: int
    accuracy: float


def complete_file(
    files: CompletionFiles,
    out: Path,
    config: CompleteConfig | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> CompleteSummary | None:
    """Write the table ``completed``, sorted by its key: a row for every landmark without a group.

    Besides the embeddings, memory is that of blocks (see :mod:`hgld.completion.classifier`) and 12 bytes for each
    photograph and reference that it is compared with.
    """
    config = config or CompleteConfig()
    checkpoint = local_checkpoint(config.encoder) if config.method == "zero-shot" else None

    def compute() -> tuple[Sequence[pa.Table], CompleteSummary]:
        inputs = read_completion_inputs(files, config.reasons)
        if inputs.n_labelled == len(inputs.landmarks):
            raise InputError(
                f"{files.hierarchy}: no landmark lacks a group for the reason {' or '.join(config.reasons)}, so "
                "there is nothing to propose"
            )
        table, summary = propose(inputs, config, progress=progress, load=load)
        return [table], summary

    return STAGE.run(
        {"out": out},
        compute,
        inputs=files.by_role(checkpoint),
        parameters=config.parameters() | {"image_splits": files.image_splits()},
        force=force,
    )


def propose(
    inputs: CompletionInputs,
    config: CompleteConfig,
    *,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> tuple[pa.Table, CompleteSummary]:
    """Propose a group for each landmark without one; see :func:`complete_file`."""
    labelled = inputs.labelled_with_photographs()
    sample = _sample(labelled, config)
    unknown = np.arange(inputs.n_labelled, len(inputs.landmarks))
    classified = np.intersect1d(unknown, inputs.photographs.item)
    progress = progress or NoProgress()
    progress.start(inputs.count_photographs(sample) + inputs.count_photographs(classified))
    classifier = LandmarkClassifier(inputs, config, progress=progress, load=load)
    right = classifier.calibrate(sample)
    votes = classifier.vote(classified) if len(classified) else None
    scores = classifier.scores(votes) if votes is not None else np.zeros(0)
    table = _completed_table(inputs, classifier.references, votes, scores)
    return table, CompleteSummary(
        landmarks=len(unknown),
        proposed=len(scores),
        photographs=int(votes.photographs.sum()) if votes is not None else 0,
        above={threshold: int(np.sum(scores >= threshold)) for threshold in _THRESHOLDS},
        labelled=len(labelled),
        calibrated_on=len(right),
        accuracy=float(right.mean()),
    )


def _completed_table(
    inputs: CompletionInputs, references: References, votes: GroupVotes | None, scores: Floats
) -> pa.Table:
    """Return the table ``completed`` of all landmarks without a group."""
    missing = inputs.landmarks.slice(inputs.n_labelled)
    rows: list[dict[str, Any]] = [
        {"photographs": 0, "votes": 0.0, "second_votes": 0.0, "nearest": []}
        for _ in range(len(missing))
    ]
    if votes is not None:
        choices = votes.choices()
        for number, landmark in enumerate(votes.landmark.tolist()):
            row = rows[landmark - inputs.n_labelled]
            first = choices[number, 0]
            row["photographs"] = int(votes.photographs[number])
            row["group"] = inputs.group_names[first]
            row["score"] = float(scores[number])
            row["votes"] = votes.votes[number, first]
            if choices.shape[1] > 1 and votes.votes[number, choices[number, 1]] > 0:
                second = choices[number, 1]
                row["second_group"] = inputs.group_names[second]
                row["second_votes"] = votes.votes[number, second]
        nearest = (votes.nearest[name].tolist() for name in ("row", "item", "similarity"))
        for number, item, similarity in zip(*nearest, strict=True):
            rows[int(votes.landmark[number]) - inputs.n_labelled]["nearest"].append(
                {
                    "name": references.names[item],
                    "group": inputs.group_names[references.groups[item]],
                    "similarity": similarity,
                }
            )
    added = [field for field in tables.COMPLETED.schema if field.name not in missing.column_names]
    values = pa.Table.from_pylist(rows, schema=pa.schema(added))
    for name in values.column_names:
        missing = missing.append_column(name, values[name])
    return missing


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

    score: Floats
    group_right: Booleans
    root_right: Booleans
    baseline: tuple[float, float]
    misses: Sequence[tuple[str, str, int]]

    def calibration_error(self) -> float:
        """Return the expected calibration error of the scores."""
        return calibration_error(self.score, self.group_right)

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
    measured = np.random.default_rng(config.seed).permutation(labelled)[
        : config.calibration_landmarks
    ]
    quality = hide_and_propose(
        inputs, config, np.array_split(measured, N_FOLDS), progress=progress, load=load
    )
    levels = zip(
        ("group", "root"), (quality.group_right, quality.root_right), quality.baseline, strict=True
    )
    draw_coverage(
        picture,
        [CoverageCurve(name, quality.score, right, baseline) for name, right, baseline in levels],
    )
    return quality


def hide_and_propose(
    inputs: CompletionInputs,
    config: CompleteConfig,
    parts: Sequence[Integers],
    *,
    progress: Progress | None = None,
    load: LoadEncoder = load_cached_encoder,
) -> CompletionQuality:
    """Propose groups for labelled landmarks, a part of them at a time, from all others.

    The hidden landmarks are neither compared with nor part of the calibration, so nothing is fitted to them.
    """
    labelled = inputs.labelled_with_photographs()
    roots = np.unique(np.array(inputs.roots), return_inverse=True)[1]
    landmarks, choices, scores, frequent = [], [], [], []
    samples = [_sample(np.setdiff1d(labelled, hidden), config) for hidden in parts]
    progress, load = progress or NoProgress(), cache(load)
    progress.start(sum(map(inputs.count_photographs, [*parts, *samples])))
    for hidden, sample in zip(parts, samples, strict=True):
        visible = np.ones(inputs.n_labelled, bool)
        visible[hidden] = False
        classifier = LandmarkClassifier(
            inputs, config, visible=visible, progress=progress, load=load
        )
        classifier.calibrate(sample)
        votes = classifier.vote(hidden)
        landmarks.append(votes.landmark)
        choices.append(votes.choices()[:, 0])
        scores.append(classifier.scores(votes))
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
        baseline=tuple(
            (np.concatenate(frequent) == np.stack([truth, roots[truth]], axis=1))
            .mean(axis=0)
            .tolist()
        ),
        misses=[
            (*pair, count)
            for pair, count in sorted(wrong.items(), key=lambda item: (-item[1], item[0]))
        ],
    )


def calibration_error(score: Floats, right: Booleans) -> float:
    """Return the expected calibration error: the gap between mean score and accuracy, averaged over bins of scores.

    The bins have equal width, and count as often as they have scores.

    Args:
        score: float64, shape (n,); 0 to 1.
        right: bool, shape (n,); whether the answer with the score is right.

    >>> calibration_error(np.array([1.0, 1.0]), np.array([True, False]))
    0.5
    """
    bins = np.minimum((score * _N_BINS).astype(np.int64), _N_BINS - 1)
    score_sums, right_sums = np.zeros(_N_BINS), np.zeros(_N_BINS)
    np.add.at(score_sums, bins, score)
    np.add.at(right_sums, bins, right)
    return float(np.abs(score_sums - right_sums).sum() / len(bins))


def _share_and_interval(right: Booleans) -> tuple[float, float, float]:
    if not len(right):
        return (float("nan"),) * 3
    share = np.array([right.mean()])
    low, high = wilson(share, np.array([len(right)]))
    return float(share[0]), float(low[0]), float(high[0])


def _sample(labelled: Integers, config: CompleteConfig) -> Integers:
    """Return at most ``calibration_landmarks`` of the labelled landmarks, chosen at random."""
    if len(labelled) <= config.calibration_landmarks:
        return labelled
    return np.random.default_rng(config.seed).choice(
        labelled, config.calibration_landmarks, replace=False
    )
