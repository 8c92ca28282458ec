"""Measure suggestions on labels from all over the world: one half of the development set of ``annotations``.

Weights are fitted to the half ``fit`` (``suggestion_weights.py``); the half ``final`` is for the final measurement,
and nothing may be fitted to it. Released landmarks (see ``released_groups.py`` for the file) are divided in the same
way. The tables are printed, and those of the final half written to the README::

    python benchmarks/suggestions.py released_labels.csv --half final
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from development_set import DevelopmentSet, read_development_set, read_released_set
from numpy.typing import NDArray
from report import table, write_section
from suggestion_quality import Agreement, ScoredLabels, measure_agreement, score_labels

from hgld.labels.suggest import SuggestionInputs
from hgld.taxonomy import Decision

#: Random halves of the labels that the learning curve is measured on, and the shares of all labels decided in it.
N_SPLITS, DECIDED = 3, (0.0, 0.25, 0.5)
#: Limits of the scores in the table of reliability.
SCORES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.99, 1.0)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "released", type=Path, help="CSV file with the columns category and hierarchical_label"
    )
    parser.add_argument("--half", choices=["fit", "final"], default="fit")
    parser.add_argument("--encoder", default="minilm", help="text encoder, as in hgld embed")
    options = parser.parse_args()
    development = read_development_set(options.half, options.encoder)
    tables = [
        evidence_table(development),
        reliability_table(
            development, read_released_set(options.released, options.half, options.encoder)
        ),
        learning_table(development),
        evidence_kind_table(development),
    ]
    body = "\n\n".join(tables)
    print(body)
    if options.half == "final":
        write_section("suggestions", body)


def variants(inputs: SuggestionInputs) -> Iterator[tuple[str, SuggestionInputs]]:
    """Iterate over the inputs with and without the superclasses."""
    yield "with P279", inputs
    yield "without P279", replace(inputs, classes=[])


def score_with_own_term_hidden(
    development: DevelopmentSet, decisions: Sequence[Decision] = ()
) -> ScoredLabels:
    """Score each label with a vocabulary that lacks it."""
    n_labels = len(development.decisions)
    result = ScoredLabels(
        np.zeros((n_labels, len(development.inputs.groups))), np.zeros(n_labels, np.int64)
    )
    for rows, inputs in development.own_term_hidden():
        scored = score_labels(inputs, decisions)
        result.scores[rows], result.kinds[rows] = scored.scores[rows], scored.kinds[rows]
    return result


def agreement(
    development: DevelopmentSet, scored: ScoredLabels, rows: NDArray[np.bool_] | None = None
) -> Agreement:
    """Compare the scores of some labels, by default all, with their groups."""
    counted = [
        row if rows is None or rows[number] else None
        for number, row in enumerate(development.decisions)
    ]
    return measure_agreement(development.inputs, scored, counted)


def evidence_table(development: DevelopmentSet) -> str:
    """Return the quality of suggestions before any decision, by what they are based on."""
    unlisted = ~development.in_vocabulary
    lines = []
    for title, inputs in variants(development.inputs):
        variant = replace(development, inputs=inputs)
        scored = {
            "": score_labels(inputs),
            ", own term hidden": score_with_own_term_hidden(variant),
            ", no vocabulary": score_labels(replace(inputs, vocabulary=[])),
        }
        for suffix, scores in scored.items():
            everything, others = agreement(variant, scores), agreement(variant, scores, unlisted)
            lines.append(
                [
                    title + suffix,
                    f"{everything.accuracy():.1%}",
                    f"{everything.accuracy_among_three():.1%}",
                    f"{everything.calibration_error():.3f}",
                    f"{others.accuracy():.1%}",
                ]
            )
    in_group = development.truth < len(development.inputs.groups)
    head = (
        f"{len(in_group)} labels, {in_group.sum()} of them in a group; {(~unlisted).mean():.1%} are literally in the "
        f"vocabulary ({(unlisted & in_group).sum()} labels in a group are not)."
    )
    header = [
        "before any decision",
        "first choice",
        "among three",
        "calibration error",
        "first choice, not listed",
    ]
    return f"{head}\n\n{table(header, lines)}"


def reliability_table(development: DevelopmentSet, released: DevelopmentSet) -> str:
    """Return how many first suggestions are right before any decision, by score."""
    runs = {"released landmarks": agreement(released, score_labels(released.inputs))}
    for title, inputs in variants(development.inputs):
        variant = replace(development, inputs=inputs)
        runs[title] = agreement(variant, score_labels(inputs))
        runs[f"{title}, own term hidden"] = agreement(variant, score_with_own_term_hidden(variant))
    lines = []
    for title, run in runs.items():
        cells = []
        for low, high in pairwise(SCORES):
            right = run.right[(run.score >= low) & (run.score < high)]
            cells.append(f"{right.mean():.1%} of {len(right)}" if len(right) else "")
        lines.append([title, f"{run.calibration_error():.3f}", *cells])
    header = [f"{low} to {high}" for low, high in pairwise(SCORES)]
    return table(["right, by score", "calibration error", *header], lines)


def learning_table(development: DevelopmentSet) -> str:
    """Return the quality on random halves of the labels, after decisions on none, some or all of the others."""
    n_labels = len(development.decisions)
    orders = [np.random.default_rng(seed).permutation(n_labels) for seed in range(N_SPLITS)]
    lines = []
    for title, inputs in variants(development.inputs):
        variant = replace(development, inputs=inputs)
        for suffix, hidden in (("", False), (", own term hidden", True)):
            cells = []
            for share in DECIDED:
                runs = []
                for order in orders:
                    decided = [
                        development.decisions[row] for row in order[: round(share * n_labels)]
                    ]
                    scored = (
                        score_with_own_term_hidden(variant, decided)
                        if hidden
                        else score_labels(inputs, decided)
                    )
                    runs.append(
                        agreement(
                            variant, scored, np.isin(np.arange(n_labels), order[n_labels // 2 :])
                        )
                    )
                accuracy = np.mean([run.accuracy() for run in runs])
                error = np.mean([run.calibration_error() for run in runs])
                cells.append(f"{accuracy:.1%} ({error:.3f})")
            lines.append([title + suffix, *cells])
    return table(
        ["first choice (calibration error)", *(f"{share:.0%} decided" for share in DECIDED)], lines
    )


def evidence_kind_table(development: DevelopmentSet) -> str:
    """Return labels, precision and mean score of the first suggestion by kind of evidence, own terms hidden."""
    lines = []
    for title, inputs in variants(development.inputs):
        variant = replace(development, inputs=inputs)
        for suffix, decisions in (("", ()), (", others decided", development.decisions)):
            run = agreement(variant, score_with_own_term_hidden(variant, decisions))
            lines += [[title + suffix, *row] for row in run.rows_by_kind()]
    return table(["own term hidden", "evidence", "labels", "right", "mean score"], lines)


if __name__ == "__main__":
    main()
