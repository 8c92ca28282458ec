"""Measure the suggestions of ``hgld suggest`` by decisions, each left out of the evidence for its own label.

Needs the label embeddings and the tables of classes beside the clusters, as ``hgld suggest`` does::

    python benchmarks/suggestion_quality.py clusters.parquet annotations/decisions/final.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from report import table

from hgld.completion.complete import calibration_error
from hgld.labels.evidence import EVIDENCE_KINDS
from hgld.labels.suggest import (
    SuggestionInputs,
    find_suggestion_files,
    read_suggestion_inputs,
    score_groups,
    strongest_kinds,
)
from hgld.taxonomy import Decision, DecisionIndex
from hgld.taxonomy.decisions import read_surviving_decisions

N_FOLDS = 10


@dataclass(frozen=True)
class ScoredLabels:
    """Scores of the groups for n labels.

    Args:
        scores: float64, shape (n, n_groups).
        kinds: int64, shape (n,); kind of evidence behind the first suggestion, as an index into ``EVIDENCE_KINDS``.
    """

    scores: NDArray[np.float64]
    kinds: NDArray[np.int64]


@dataclass(frozen=True)
class Agreement:
    """Suggestions for n decided labels; all arrays have the shape (n,).

    Args:
        score: float64; score of the first suggestion.
        right: bool; whether the first suggestion is the group decided.
        among_three: bool; whether one of the first three suggestions is.
        dropped: bool; whether the label was dropped.
        kinds: int64; kind of evidence behind the first suggestion, as an index into ``EVIDENCE_KINDS``.
        landmarks: int64; number of landmarks with the label.
    """

    score: NDArray[np.float64]
    right: NDArray[np.bool_]
    among_three: NDArray[np.bool_]
    dropped: NDArray[np.bool_]
    kinds: NDArray[np.int64]
    landmarks: NDArray[np.int64]

    def accuracy(self) -> float:
        """Return the share of labels in a group whose first suggestion is right."""
        return float(self.right[~self.dropped].mean())

    def accuracy_among_three(self) -> float:
        """Return the share of labels in a group that one of the first three suggestions is right for."""
        return float(self.among_three[~self.dropped].mean())

    def accuracy_of_landmarks(self) -> float:
        """Return the share of landmarks with a label in a group whose first suggestion is right."""
        in_group = ~self.dropped
        return float(np.average(self.right[in_group], weights=self.landmarks[in_group]))

    def calibration_error(self) -> float:
        """Return the expected calibration error of the scores."""
        return calibration_error(self.score, self.right)

    def rows_by_kind(self) -> list[list[str]]:
        """Return labels, accuracy and mean score of first suggestions for each kind of evidence behind any."""
        rows = []
        for number, kind in enumerate(EVIDENCE_KINDS):
            chosen = self.kinds == number
            if chosen.any():
                right, score = self.right[chosen].mean(), self.score[chosen].mean()
                rows.append(
                    [kind.replace("_", " "), str(chosen.sum()), f"{right:.1%}", f"{score:.3f}"]
                )
        return rows


def main() -> None:
    """Print how often suggestions agree with decisions, and their calibration."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clusters", type=Path, help="clusters from hgld cluster")
    parser.add_argument("decisions", type=Path, help="CSV file of decisions")
    options = parser.parse_args()
    inputs = read_suggestion_inputs(find_suggestion_files(options.clusters))
    decisions = read_surviving_decisions(options.decisions, inputs.groups)
    truth = decided(inputs, decisions)
    runs = {
        "before any decision": measure_agreement(inputs, score_labels(inputs), truth),
        "from decisions on other labels": measure_agreement(
            inputs, score_from_other_decisions(inputs, decisions, truth), truth
        ),
    }
    lines = []
    for title, run in runs.items():
        shares = (run.accuracy(), run.accuracy_of_landmarks(), run.accuracy_among_three())
        lines.append(
            [title, *(f"{share:.1%}" for share in shares), f"{run.calibration_error():.3f}"]
        )
    print(
        table(
            ["suggestions", "first choice", "of landmarks", "among three", "calibration error"],
            lines,
        )
    )
    kinds = []
    for title, run in runs.items():
        kinds += [[title, *row] for row in run.rows_by_kind()]
    print(f"\n{table(['suggestions', 'evidence', 'labels', 'right', 'mean score'], kinds)}")


def decided(inputs: SuggestionInputs, decisions: Sequence[Decision]) -> list[Decision | None]:
    """Return the decision on each label; None for undecided labels and those that annotators are unsure of."""
    index = DecisionIndex(row for row in decisions if row.decision != "unsure")
    return [
        index.find(*label) for label in zip(inputs.labels.ids, inputs.labels.texts, strict=True)
    ]


def score_labels(inputs: SuggestionInputs, decisions: Sequence[Decision] = ()) -> ScoredLabels:
    """Score the groups of all labels, with decisions on other labels as evidence."""
    evidence = inputs.evidence(decisions)
    scores = score_groups(evidence)
    first = scores.argmax(axis=1)
    return ScoredLabels(scores, strongest_kinds(evidence)[np.arange(len(first)), first])


def score_from_other_decisions(
    inputs: SuggestionInputs,
    decisions: Sequence[Decision],
    truth: Sequence[Decision | None],
    n_folds: int = N_FOLDS,
) -> ScoredLabels:
    """Score the groups of each decided label from the decisions in the other folds."""
    ids = sorted({row.label_id for row in truth if row is not None})
    folds = dict(zip(ids, np.random.default_rng(0).permutation(len(ids)) % n_folds, strict=True))
    result = ScoredLabels(
        np.zeros((len(truth), len(inputs.groups))), np.zeros(len(truth), np.int64)
    )
    for fold in range(min(n_folds, len(ids))):
        held_out = [
            number
            for number, row in enumerate(truth)
            if row is not None and folds[row.label_id] == fold
        ]
        scored = score_labels(inputs, [row for row in decisions if folds.get(row.label_id) != fold])
        result.scores[held_out] = scored.scores[held_out]
        result.kinds[held_out] = scored.kinds[held_out]
    return result


def measure_agreement(
    inputs: SuggestionInputs, scored: ScoredLabels, truth: Sequence[Decision | None]
) -> Agreement:
    """Compare the scores of the decided labels with the decisions."""
    columns = {group.key: number for number, group in enumerate(inputs.groups)}
    rows, groups = [], []
    for row, decision in enumerate(truth):
        if decision is not None:
            rows.append(row)
            groups.append(columns[decision.group] if decision.group else -1)
    target = np.array(groups, np.int64)
    ranking = np.argsort(-scored.scores[rows], axis=1, kind="stable")
    first = ranking[:, 0]
    return Agreement(
        score=scored.scores[rows, first],
        right=first == target,
        among_three=(ranking[:, :3] == target[:, None]).any(axis=1),
        dropped=target < 0,
        kinds=scored.kinds[rows],
        landmarks=inputs.landmarks[rows],
    )


if __name__ == "__main__":
    main()
