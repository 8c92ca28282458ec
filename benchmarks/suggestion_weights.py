"""Fit the weights of suggestions to decisions: the constants ``WEIGHTS`` and ``NO_GROUP`` of hgld/labels/suggest.py.

Each folder holds the outputs of ``hgld demo`` (clusters, label embeddings, classes). Every label counts four times:
with and without the classes, before any decision and with the decisions on all other labels. A dropped label belongs
to no group; an undecided label is excluded::

    hgld demo -o data/demo
    python benchmarks/suggestion_weights.py data/demo
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from hgld.labels.evidence import EVIDENCE_KINDS
from hgld.labels.suggest import SuggestionInputs, find_suggestion_files, read_suggestion_inputs
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import Decision, DecisionIndex, read_decisions


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--decisions", type=Path, default=annotation_file("decisions/final.csv"))
    parser.add_argument("--l2", type=float, default=0.003, help="penalty on the squares of the weights")
    options = parser.parse_args()
    parts = []
    for folder in options.folders:
        inputs = read_suggestion_inputs(find_suggestion_files(folder / "clusters.parquet", None, None, None))
        decisions = read_decisions(options.decisions, [group.name for group in inputs.groups])
        for variant in (inputs, replace(inputs, classes=[])):
            parts += [examples(variant, decisions, given) for given in ([], decisions)]
    values, truth = (np.concatenate(column) for column in zip(*parts, strict=True))
    *weights, no_group = fit(values, truth, options.l2)
    print(f"{len(truth)} examples")
    print("WEIGHTS =", {kind: round(weight, 1) for kind, weight in zip(EVIDENCE_KINDS, weights, strict=True)})
    print("NO_GROUP =", round(no_group, 1))


def examples(
    inputs: SuggestionInputs, decisions: list[Decision], given: list[Decision]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the evidence, shape (labels, groups, kinds), and the group of each decided label; n_groups for none."""
    column = {group.name: place for place, group in enumerate(inputs.groups)}
    index = DecisionIndex(decisions)
    matches = [index.find(*label) for label in zip(inputs.labels.ids, inputs.labels.texts, strict=True)]
    truth = np.array(
        [column.get(row.group, len(column)) if row and row.decision != "unsure" else -1 for row in matches]
    )
    values = np.stack([evidence.values for evidence in inputs.evidence(given)], axis=-1)
    return values[truth >= 0], truth[truth >= 0]


def fit(values: NDArray[np.float64], truth: NDArray[np.int64], l2: float) -> list[float]:
    """Return the maximum-likelihood weights of each kind of evidence, and of no group."""
    rows = np.arange(len(truth))

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logits = np.hstack([values @ weights[:-1], np.full((len(rows), 1), weights[-1])])
        logits -= logits.max(axis=1, keepdims=True)
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        error = probabilities.copy()
        error[rows, truth] -= 1
        slope = np.append(np.einsum("lg,lgk->k", error[:, :-1], values), error[:, -1].sum()) / len(rows)
        likelihood = np.log(np.maximum(probabilities[rows, truth], 1e-12)).mean()
        return float(l2 / 2 * weights @ weights - likelihood), slope + l2 * weights

    result = minimize(loss, np.zeros(values.shape[-1] + 1), jac=True, method="L-BFGS-B")
    return [float(weight) for weight in result.x]


if __name__ == "__main__":
    main()
