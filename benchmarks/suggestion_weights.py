"""Fit ``WEIGHTS`` of hgld/labels/group_scores.py to half of the development set, and measure ``RELIABILITY``.

Every label counts under each condition of :func:`conditions`, so that one set of weights serves them all. A dropped
label belongs to no group. The quality of such weights on labels that they were not fitted to is measured by
cross-validation within the half, and printed, too. So is the reliability of each kind of evidence, on the same labels
and on half of released landmarks (see ``released_groups.py`` for the file)::

    python benchmarks/suggestion_weights.py released_labels.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from development_set import DevelopmentSet, read_development_set, read_released_set
from numpy.typing import NDArray
from report import table
from scipy.optimize import minimize

from hgld.compute.resampling import wilson
from hgld.labels.evidence import EVIDENCE_KINDS
from hgld.labels.group_scores import WEIGHTS, features, strongest_kinds
from hgld.labels.suggest import SuggestionInputs
from hgld.taxonomy import Decision

N_FOLDS = 5
#: Share of labels whose group no evidence tells, as annotators differ: about what ``RELIABILITY`` takes off.
NOISE = 0.05
#: Score from which a suggestion counts for ``RELIABILITY``; of a kind with fewer, no more is expected.
CONFIDENT, MIN_CONFIDENT = 0.9, 10


def main() -> None:
    """Fit, cross-validate, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--encoder", default="minilm", help="text encoder, as in hgld embed")
    parser.add_argument(
        "--l2", type=float, default=0.003, help="penalty on the squares of the weights"
    )
    parser.add_argument(
        "released", type=Path, help="CSV file with the columns category and hierarchical_label"
    )
    options = parser.parse_args()
    development = read_development_set("fit", options.encoder)
    parts, truth = dict(conditions(development)), development.truth
    scores = cross_validate(parts, truth, options.l2)
    print(quality(scores, truth))
    weights = fit(np.concatenate(list(parts.values())), np.tile(truth, len(parts)), options.l2)
    print_constants("WEIGHTS", dict(zip(WEIGHTS, weights, strict=True)), 2)
    released = read_released_set(options.released, "fit", options.encoder)
    held_out = [
        (development, scores["P279, nothing decided"]),
        (released, probabilities(stack_features(released.inputs), weights)),
    ]
    print_constants("RELIABILITY", reliability(held_out), 3)


def print_constants(name: str, values: Mapping[str, float], digits: int) -> None:
    """Print a mapping as it stands in the source."""
    print(f"\n{name} = {{")
    for key, value in values.items():
        print(f'    "{key}": {value:.{digits}f},')
    print("}")


def reliability(held_out: Sequence[tuple[DevelopmentSet, NDArray[np.float64]]]) -> dict[str, float]:
    """Return what confident first suggestions keep of their scores, by kind of evidence.

    It is the share that is right, at the lower end of its 95 % Wilson interval, divided by the mean score.

    Args:
        held_out: Labels with their probabilities by weights that were fitted to others.
    """
    confident = []
    for labels, scores in held_out:
        first = scores[:, :-1].argmax(axis=1)
        score = scores[np.arange(len(first)), first]
        kinds = strongest_kinds(labels.inputs.evidence())[np.arange(len(first)), first]
        confident.append(np.stack([kinds, score, first == labels.truth])[:, score >= CONFIDENT])
    kinds, score, right = np.concatenate(confident, axis=1)
    result = dict.fromkeys(EVIDENCE_KINDS, CONFIDENT)
    for number, kind in enumerate(EVIDENCE_KINDS):
        rows = kinds == number
        if rows.sum() >= MIN_CONFIDENT:
            low, _ = wilson(right[rows].mean(keepdims=True), rows.sum(keepdims=True))
            result[kind] = float(low[0] / score[rows].mean())
            print(
                f"{kind}: {right[rows].mean():.1%} of {rows.sum()} right, mean score {score[rows].mean():.3f}"
            )
    return result


def conditions(development: DevelopmentSet) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Iterate over what suggestions may be based on, with the features of all labels.

    With and without superclasses; before any decision, and with decisions on the other half of the labels; with the
    vocabulary, and with a vocabulary that lacks the label itself.
    """
    n_labels = len(development.decisions)
    everything = np.arange(n_labels)
    halves = np.random.default_rng(0).permutation(n_labels) % 2
    first, second = (np.flatnonzero(halves == half) for half in (0, 1))
    given: dict[str, list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = {
        "nothing decided": [(everything, everything[:0])],
        "half decided": [(first, second), (second, first)],
    }
    for superclasses, classes in (("P279", development.inputs.classes), ("no P279", [])):
        variant = replace(development, inputs=replace(development.inputs, classes=classes))
        for decided, parts in given.items():
            for vocabulary, folds in (
                ("", [(everything, variant.inputs)]),
                (", own term hidden", list(variant.own_term_hidden())),
            ):
                values = np.zeros((n_labels, len(development.inputs.groups) + 1, len(WEIGHTS)))
                for scored, decided_rows in parts:
                    decisions = [development.decisions[row] for row in decided_rows]
                    for fold, inputs in folds:
                        rows = np.intersect1d(scored, fold)
                        values[rows] = stack_features(inputs, decisions)[rows]
                yield f"{superclasses}, {decided}{vocabulary}", values


def stack_features(
    inputs: SuggestionInputs, decisions: Sequence[Decision] = ()
) -> NDArray[np.float64]:
    """Return what the weights multiply: float64, shape (n_labels, n_groups + 1, n_weights)."""
    by_weight = features(inputs.evidence(decisions))
    return np.stack([by_weight[weight] for weight in WEIGHTS], axis=-1)


def cross_validate(
    parts: Mapping[str, NDArray[np.float64]], truth: NDArray[np.int64], l2: float
) -> dict[str, NDArray[np.float64]]:
    """Return the probabilities under each condition, each label scored by weights fitted to other labels."""
    folds = np.random.default_rng(1).permutation(len(truth)) % N_FOLDS
    scores = {name: np.zeros(values.shape[:2]) for name, values in parts.items()}
    for fold in range(N_FOLDS):
        rest = folds != fold
        weights = fit(
            np.concatenate([values[rest] for values in parts.values()]),
            np.tile(truth[rest], len(parts)),
            l2,
        )
        for name, values in parts.items():
            scores[name][~rest] = probabilities(values[~rest], weights)
    return scores


def quality(scores: Mapping[str, NDArray[np.float64]], truth: NDArray[np.int64]) -> str:
    """Return a table of the quality under each condition."""
    lines = []
    for name, values in scores.items():
        ranking = np.argsort(-values[:, :-1], axis=1, kind="stable")
        hits = ranking[:, :3] == truth[:, None]
        in_group = truth < ranking.shape[1]
        lines.append(
            [name, f"{hits[in_group, 0].mean():.1%}", f"{hits[in_group].any(axis=1).mean():.1%}"]
        )
    return table(["cross-validation in the half", "first choice", "among three"], lines)


def probabilities(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the softmax over groups and none: float64, shape (n_labels, n_groups + 1)."""
    logits = values @ weights
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def fit(values: NDArray[np.float64], truth: NDArray[np.int64], l2: float) -> NDArray[np.float64]:
    """Return the weights of the largest penalised likelihood; those of evidence are not negative.

    A label is in any group with the probability ``NOISE``, whatever its evidence.

    Args:
        values: float64, shape (n_labels, n_groups + 1, n_weights).
        truth: int64, shape (n_labels,); the column of each label.
        l2: Penalty on half of the sum of the squared weights.
    """
    rows = np.arange(len(truth))

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        error = probabilities(values, weights)
        right = (1 - NOISE) * error[rows, truth]
        likelihood = np.log(right + NOISE / error.shape[1]).mean()
        error[rows, truth] -= 1
        error *= (right / (right + NOISE / error.shape[1]))[:, None]
        slope = np.tensordot(error, values, axes=2) / len(rows)
        return float(l2 / 2 * weights @ weights - likelihood), slope + l2 * weights

    n_weights = values.shape[-1]
    bounds = [(0, None)] * (n_weights - 2) + [(None, None)] * 2
    result = minimize(loss, np.zeros(n_weights), jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(result.x)


if __name__ == "__main__":
    main()
