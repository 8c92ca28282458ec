"""Measure the suggestions of ``hgld suggest`` by decisions, each left out of the evidence for its own label.

Needs the label embeddings and the tables of classes beside the clusters, as ``hgld suggest`` does::

    python benchmarks/suggestion_quality.py clusters.parquet annotations/decisions/final.csv

With ``--lists``, measures lists with trees of their own instead: before any decision, and on the undecided labels
after a few. A list is a CSV file with the columns label and path, and superclasses if they are known. No constant of
the suggestions was fitted to those in ``benchmarks/suggestion_lists``::

    python benchmarks/suggestion_quality.py --lists benchmarks/suggestion_lists/*.csv
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from development_set import Embed, class_table
from numpy.typing import NDArray
from report import table

from hgld.completion.quality import calibration_error
from hgld.labels.evidence import EVIDENCE_KINDS, EmbedTexts
from hgld.labels.group_examples import EmbeddedLabels
from hgld.labels.group_levels import level_nodes, pool_scores
from hgld.labels.group_scores import score_groups, strongest_kinds
from hgld.labels.suggest import (
    OTHER_TEMPLATES,
    SuggestionInputs,
    find_suggestion_files,
    rank_scores,
    read_suggestion_inputs,
)
from hgld.taxonomy import Decision, DecisionIndex, label_id
from hgld.taxonomy.decisions import read_surviving_decisions
from hgld.taxonomy.groups import Group
from hgld.taxonomy.trees import SEPARATOR, Node, tree_groups

N_FOLDS = 10
#: Numbers of decisions that lists are measured after, and of random choices of the decided labels.
N_DECIDED, N_DRAWS = (0, 10, 30), 5
_TIME = datetime(2026, 1, 1, tzinfo=timezone.utc)


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
    parser.add_argument("clusters", type=Path, nargs="?", help="clusters from hgld cluster")
    parser.add_argument("decisions", type=Path, nargs="?", help="CSV file of decisions")
    parser.add_argument(
        "--lists", type=Path, nargs="+", help="CSV files (label, path, superclasses)"
    )
    parser.add_argument(
        "--encoder", nargs="+", default=["minilm", "ngrams"], help="text encoders for lists"
    )
    options = parser.parse_args()
    if options.lists:
        print(lists_table([read_list(path) for path in options.lists], options.encoder))
        return
    if options.decisions is None:
        parser.error("give clusters and decisions, or lists (--lists)")
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
    ranking = rank_scores(scored.scores[rows], inputs.groups)
    first = ranking[:, 0]
    return Agreement(
        score=scored.scores[rows, first],
        right=first == target,
        among_three=(ranking[:, :3] == target[:, None]).any(axis=1),
        dropped=target < 0,
        kinds=scored.kinds[rows],
        landmarks=inputs.landmarks[rows],
    )


@dataclass(frozen=True)
class LabelList:
    """A list of n labels with a tree of its own.

    Args:
        truth: int64, shape (n,); index of the group of each label.
        superclasses: Names of the direct superclasses by name; empty if they are not known.
    """

    name: str
    labels: Sequence[str]
    groups: Sequence[Group]
    truth: NDArray[np.int64]
    superclasses: Mapping[str, Sequence[str]]

    def inputs(self, embed: EmbedTexts, *, with_superclasses: bool) -> SuggestionInputs:
        """Return what suggestions for the list are based on."""
        classes = []
        if with_superclasses:
            classes = [class_table(self.superclasses, self.labels)]
        ids = [label_id(label, None) for label in self.labels]
        return SuggestionInputs(
            labels=EmbeddedLabels(ids, self.labels, embed(self.labels)),
            landmarks=np.ones(len(ids), np.int64),
            groups=self.groups,
            vocabulary=[],
            classes=classes,
            embed=embed,
        )

    def decisions(self, rows: Sequence[int]) -> list[Decision]:
        """Return the right decisions on some labels."""
        decisions = []
        for row in rows:
            label = self.labels[row]
            group = self.groups[self.truth[row]].key
            decisions.append(Decision(label_id(label, None), label, "group", group, "list", _TIME))
        return decisions


def read_list(path: Path) -> LabelList:
    """Read the labels of a list, their paths, coarsest level first, and their superclasses, if they have any.

    A label that a column ``canonical`` calls a spelling of another one is left out.
    """
    path_of: dict[str, tuple[str, ...]] = {}
    superclasses: dict[str, list[str]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            label = row.get("canonical") or row["label"]
            path_of[label] = tuple(row["path"].split(SEPARATOR))
            if row.get("superclasses"):
                superclasses[label] = row["superclasses"].split(";")
    tree: dict[tuple[str, ...], Node] = {}
    for names in path_of.values():
        for depth in range(1, len(names) + 1):
            tree.setdefault(names[:depth], Node(names[depth - 1], names[: depth - 1] or None))
    position = {node: number for number, node in enumerate(tree)}

    def place(names: tuple[str, ...]) -> list[int]:
        return [position[names[:depth]] for depth in range(1, len(names) + 1)]

    leaves = sorted({*path_of.values()}, key=place)  # the order of tree_groups
    column = {leaf: number for number, leaf in enumerate(leaves)}
    truth = np.array([column[names] for names in path_of.values()], np.int64)
    return LabelList(path.stem, [*path_of], tree_groups(tree), truth, superclasses)


def lists_table(lists: Sequence[LabelList], encoders: Sequence[str]) -> str:
    """Return a table of how many first suggestions are right at each level, beside the nearest name of a group.

    Shares of the group and of each level above it are separated by slashes. Those after decisions are of the labels
    that are not decided. The last column has the share of labels for which a group or a level above has a score of
    0.5 or more, and how many of these are right at the finest such level.
    """
    rows = []
    for encoder in encoders:
        embed = Embed(encoder, OTHER_TEMPLATES)
        for labels in lists:
            for with_superclasses in (False, True):
                if with_superclasses and not labels.superclasses:
                    continue
                inputs = labels.inputs(embed, with_superclasses=with_superclasses)
                rows.append(
                    [
                        f"{labels.name}: {len(labels.labels)} in {len(labels.groups)}",
                        encoder,
                        "yes" if with_superclasses else "no",
                        _shares(nearest_name_accuracy(labels, inputs)),
                        *(_shares(accuracy_after(labels, inputs, n)) for n in N_DECIDED),
                        "{:.0%}, {:.0%} right".format(*coverage(labels, inputs)),
                    ]
                )
    header = ["list", "encoder", "superclasses", "nearest name", "hgld"]
    header += [f"after {n} decisions" for n in N_DECIDED[1:]]
    return table([*header, "score of 0.5 or more"], rows)


def _shares(shares: NDArray[np.float64]) -> str:
    """Return shares in percent, separated by slashes."""
    return " / ".join(f"{share:.0%}".rstrip("%") for share in shares)


def level_accuracy(
    labels: LabelList, first: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the share of some labels for which a group is right at each level: float64, shape (n_levels,).

    Args:
        first: int64, shape (n_labels,); index of the group that is suggested first.
        rows: int64, indices of the labels that count.
    """
    nodes = level_nodes(labels.groups)
    return np.asarray((nodes[:, first[rows]] == nodes[:, labels.truth[rows]]).mean(axis=1))


def nearest_name_accuracy(labels: LabelList, inputs: SuggestionInputs) -> NDArray[np.float64]:
    """Return the shares for which the group with the name nearest to the label is right."""
    names = inputs.embed([group.name for group in labels.groups])
    first = (inputs.labels.vectors @ names.T).argmax(axis=1)
    return level_accuracy(labels, first, np.arange(len(first)))


def accuracy_after(
    labels: LabelList, inputs: SuggestionInputs, n_decided: int
) -> NDArray[np.float64]:
    """Return the shares for which the first suggestion is right, after decisions on some labels chosen at random."""
    shares = []
    for seed in range(N_DRAWS):
        order = np.random.default_rng(seed).permutation(len(labels.labels))
        decisions = labels.decisions(order[:n_decided])
        scores = score_groups(inputs.evidence(decisions))
        first = rank_scores(scores, labels.groups)[:, 0]
        shares.append(level_accuracy(labels, first, order[n_decided:]))
        if not n_decided:
            break
    return np.asarray(np.mean(shares, axis=0))


def coverage(labels: LabelList, inputs: SuggestionInputs) -> tuple[float, float]:
    """Return the share of labels with a score of 0.5 or more at some level, and how many are right at the finest."""
    scores = score_groups(inputs.evidence())
    first = rank_scores(scores, labels.groups)[:, 0]
    nodes = level_nodes(labels.groups)
    n_covered = n_right = 0
    levels = pool_scores(scores, labels.groups)
    for row, group in enumerate(first):
        for level, of_level in enumerate(levels):
            if of_level[row, group] >= 0.5:
                n_covered += 1
                n_right += nodes[level, group] == nodes[level, labels.truth[row]]
                break
    return n_covered / len(first), n_right / max(n_covered, 1)


if __name__ == "__main__":
    main()
