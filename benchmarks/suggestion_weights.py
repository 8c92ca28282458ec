"""Fit the weights of suggestions, ``WEIGHTS`` of hgld/labels/suggestion_scores.py, to half of the development set.

Every label counts under each condition of :func:`conditions`, so that one set of weights serves them all. A dropped
label belongs to no group. The quality of such weights on labels that they were not fitted to is measured by
cross-validation within the half, and printed, too::

    python benchmarks/suggestion_weights.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from development_set import DevelopmentSet, read_development_set
from numpy.typing import NDArray
from report import table
from scipy.optimize import minimize

from hgld.figures.suggestions import SuggestionOutcomes
from hgld.labels.suggestion_scores import WEIGHTS, features

N_FOLDS = 5


def main() -> None:
    """Fit, cross-validate, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--encoder", default="minilm", help="text encoder, as in hgld embed")
    parser.add_argument("--l2", type=float, default=0.003, help="penalty on the squares of the weights")
    options = parser.parse_args()
    development = read_development_set("fit", options.encoder)
    parts = dict(conditions(development))
    truth = development.truth
    print(cross_validate(parts, truth, options.l2))
    weights = fit(np.concatenate(list(parts.values())), np.tile(truth, len(parts)), options.l2)
    print("\nWEIGHTS = {")
    for name, weight in zip(WEIGHTS, weights, strict=True):
        print(f'    "{name}": {weight:.2f},')
    print("}")


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
                        by_weight = features(inputs.evidence(decisions))
                        values[rows] = np.stack([by_weight[weight] for weight in WEIGHTS], axis=-1)[rows]
                yield f"{superclasses}, {decided}{vocabulary}", values


def cross_validate(parts: Mapping[str, NDArray[np.float64]], truth: NDArray[np.int64], l2: float) -> str:
    """Return a table of the quality under each condition, each label scored by weights fitted to other labels."""
    folds = np.random.default_rng(1).permutation(len(truth)) % N_FOLDS
    scores = {name: np.zeros(values.shape[:2]) for name, values in parts.items()}
    for fold in range(N_FOLDS):
        rest = folds != fold
        weights = fit(
            np.concatenate([values[rest] for values in parts.values()]), np.tile(truth[rest], len(parts)), l2
        )
        for name, values in parts.items():
            scores[name][~rest] = probabilities(values[~rest], weights)
    lines = []
    for name, values in scores.items():
        ranking = np.argsort(-values[:, :-1], axis=1, kind="stable")
        hits = ranking[:, :3] == truth[:, None]
        in_group = truth < ranking.shape[1]
        first = values[np.arange(len(truth)), ranking[:, 0]]
        error = SuggestionOutcomes(name, first, hits[:, 0], ~in_group).calibration_error()
        lines.append(
            [name, f"{hits[in_group, 0].mean():.1%}", f"{hits[in_group].any(axis=1).mean():.1%}", f"{error:.3f}"]
        )
    return table(["cross-validation in the half", "first choice", "among three", "calibration error"], lines)


def probabilities(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the softmax over groups and none: float64, shape (n_labels, n_groups + 1)."""
    logits = values @ weights
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def fit(values: NDArray[np.float64], truth: NDArray[np.int64], l2: float) -> NDArray[np.float64]:
    """Return the weights of the largest penalised likelihood; those of evidence are not negative.

    Args:
        values: float64, shape (n_labels, n_groups + 1, n_weights).
        truth: int64, shape (n_labels,); the column of each label.
        l2: Penalty on half of the sum of the squared weights.
    """
    rows = np.arange(len(truth))

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        error = probabilities(values, weights)
        likelihood = np.log(np.maximum(error[rows, truth], 1e-12)).mean()
        error[rows, truth] -= 1
        slope = np.tensordot(error, values, axes=2) / len(rows)
        return float(l2 / 2 * weights @ weights - likelihood), slope + l2 * weights

    n_weights = values.shape[-1]
    bounds = [(0, None)] * (n_weights - 2) + [(None, None)] * 2
    result = minimize(loss, np.zeros(n_weights), jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(result.x)


if __name__ == "__main__":
    main()
