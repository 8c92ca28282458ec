"""Check what sets of groups promise, on labels and landmarks that are kept back, over random halves.

Half of the labels is decided: these decisions are evidence and calibrate, as in ``hgld suggest --coverage``; the sets
of the other half are measured. Labels are those of the half ``final`` of the development set and of released
landmarks (see ``suggestions.py``), to which nothing was fitted. Half of the landmarks with photographs is labelled,
as in ``hgld complete --coverage``; each photograph of groceries is an entity of its own::

    files="hierarchy.parquet embeddings.parquet train.csv"
    python benchmarks/prediction_sets.py released_labels.csv $files --groceries groceries.parquet features.parquet
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from development_set import DevelopmentSet, read_development_set, read_released_set
from numpy.typing import NDArray
from report import table, write_section

from hgld.completion.classifier import LandmarkClassifier
from hgld.completion.inputs import CompleteConfig, CompletionFiles, CompletionInputs, Vectors, read_completion_inputs
from hgld.compute.conformal import Items, SetQuality, measure_sets
from hgld.labels.suggest import decided_items, level_names, score_groups, scores_with_drop
from hgld.tables.embeddings import read_embeddings

COVERAGE, N_SEEDS = 0.95, 20
#: Returns the quality of the sets of some items by level, calibrated on the others: bool, shape (n,).
Measure = Callable[[NDArray[np.bool_]], Sequence[SetQuality]]


def main() -> None:
    """Measure, print the table, and write it to the README."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("released", type=Path, help="CSV file with the columns category and hierarchical_label")
    parser.add_argument("landmarks", type=Path, nargs=3, help="hierarchy, embeddings, and the landmark of each image")
    parser.add_argument("--groceries", type=Path, nargs=2, help="manifest and embeddings")
    options = parser.parse_args()
    rows: list[list[str]] = []
    for title, development in label_cases(options.released):
        rows += case_rows(title, len(development.decisions), measure_labels(development))
    easiest = read_development_set("final")
    rows += case_rows("labels with P279, the most likely half decided", *easiest_first(easiest), n_seeds=1)
    hierarchy, embeddings, images = options.landmarks
    files = CompletionFiles(
        hierarchy, [embeddings], [("train", images)], hierarchy.with_name("removed.parquet"), None
    )
    inputs = read_completion_inputs(files, ["unlabelled"])
    rows += case_rows("landmarks by photographs", *measure_photographs(inputs, inputs.levels))
    if options.groceries:
        rows += case_rows("groceries by photographs", *measure_photographs(*read_groceries(*options.groceries)))
    body = table(["kept back", "level", f"sets of {COVERAGE:.0%} hold the right one", "mean size"], rows)
    print(body)
    write_section("sets", body)


def case_rows(title: str, n_items: int, measure: Measure, n_seeds: int = N_SEEDS) -> list[list[str]]:
    """Return a row per level: mean and standard deviation over random halves."""
    halves = (np.random.default_rng(seed).permutation(n_items) % 2 == 0 for seed in range(n_seeds))
    rows = []
    for number, level in enumerate(zip(*map(measure, halves), strict=True)):
        held, size = (np.array([getattr(each, name) for each in level]) for name in ("held", "size"))
        spread = f" ± {held.std():.1%}" if n_seeds > 1 else ""
        rows.append(["" if number else f"{title}, {n_items:,}", level[0].level, f"{held.mean():.1%}{spread}"])
        rows[-1].append(f"{size.mean():.1f}")
    return rows


def label_cases(released: Path) -> Iterator[tuple[str, DevelopmentSet]]:
    """Iterate over the labels that nothing was fitted to."""
    development = read_development_set("final")
    yield "labels with P279", development
    yield "labels without P279", replace(development, inputs=replace(development.inputs, classes=[]))
    yield "names of released landmarks", read_released_set(released, "final")


def measure_labels(development: DevelopmentSet) -> Measure:
    """Return a function that measures the sets of labels; the others are decided."""
    inputs = development.inputs

    def measure(kept_back: NDArray[np.bool_]) -> Sequence[SetQuality]:
        decided = [row for row, is_kept in zip(development.decisions, kept_back, strict=True) if not is_kept]
        scores = scores_with_drop(score_groups(inputs.evidence(decided)))
        items = decided_items(inputs, scores, development.decisions)
        return measure_sets(
            [(items.select(kept_back), items.select(~kept_back))], COVERAGE, level_names(inputs.groups)
        )

    return measure


def easiest_first(development: DevelopmentSet) -> tuple[int, Measure]:
    """Return the number of labels, and a function that decides on those with the highest scores: no random half."""
    best = score_groups(development.inputs.evidence()).max(axis=1)
    return len(best), lambda _: measure_labels(development)(best < np.median(best))


def measure_photographs(inputs: CompletionInputs, levels: Mapping[str, Sequence[str]]) -> tuple[int, Measure]:
    """Return the number of labelled landmarks, and a function that measures the sets of those that it hides."""
    labelled, config = inputs.labelled_with_photographs(), CompleteConfig()

    def measure(kept_back: NDArray[np.bool_]) -> Sequence[SetQuality]:
        visible = ~np.isin(np.arange(inputs.n_labelled), labelled[kept_back])
        classifier = LandmarkClassifier(inputs, config, visible=visible)
        classifier.calibrate(labelled[~kept_back])
        votes = classifier.vote(labelled[kept_back])
        hidden = Items(classifier.probabilities(votes), inputs.groups[votes.landmark])
        return measure_sets([(hidden, classifier.calibrated_on)], COVERAGE, levels)

    return len(labelled), measure


def read_groceries(manifest: Path, features: Path) -> tuple[CompletionInputs, dict[str, list[str]]]:
    """Return photographs of groceries as landmarks with one photograph each, and the names of products by level."""
    rows = pq.read_table(manifest, columns=["id", "product", "group", "kind"]).to_pandas()
    products, numbers = np.unique(rows["product"].to_numpy(str), return_inverse=True)
    embeddings = read_embeddings(features)
    assert embeddings.ids is not None
    assert embeddings.ids.tolist() == rows["id"].tolist()
    of_product = rows.drop_duplicates("product").set_index("product").loc[products]
    levels = {"product": products.tolist(), **{name: of_product[name].tolist() for name in ("group", "kind")}}
    photographs = Vectors(embeddings.vectors, np.arange(len(rows)), np.arange(len(rows)))
    landmarks = pa.table({"split": ["all"] * len(rows), "landmark_id": np.arange(len(rows))})
    labels = rows["product"].tolist()
    return CompletionInputs(landmarks, levels["product"], levels["kind"], numbers, labels, photographs), levels


if __name__ == "__main__":
    main()
