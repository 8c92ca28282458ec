"""Give images and classes wrong labels, and measure how often hgld audit labels ranks them first.

Usage: python benchmarks/planted_labels.py MANIFEST EMBEDDINGS [--seeds 20] [--share 0.05] [--similar]

Some images get the finest label of another image; apart from that, some classes get the label of another class at a
coarser level. The lift is the share of wrong ones among as many of the first as there are, divided by their share
among all. "Nearest neighbour" ranks those first whose nearest image has another label, the most similar first. Labels
that are wrong in the data set itself count as right, which lowers all lifts. "Bound" is the largest share of wrong
labels of :meth:`hgld.audit.LevelErrors.highest_error_rate`, in percent, and "holds" is the share of seeds in which it
is at least the planted share. --similar plants labels that look right: an image gets the label of its
nearest image with another one, and a class that of the nearest image of a class with another one.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.audit import LabelErrorsConfig, LevelErrors, find_label_errors
from hgld.audit.nearest_images import centred, mean_direction
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.io.markdown import markdown_table
from hgld.tables.embeddings import read_embeddings, rows_of


def with_wrong_labels(
    manifest: Manifest,
    level: int,
    share: float,
    rng: np.random.Generator,
    similarity: NDArray[np.float32] | None = None,
) -> tuple[Manifest, NDArray[np.bool_]]:
    """Return the manifest with wrong labels of images (level 0) or classes, and which images have them.

    Labels are drawn at random or, with the similarity of all images, (N, N), are those of the most similar ones.
    """
    labels = manifest.labels.copy()
    units = np.arange(len(labels)) if level == 0 else labels[:, 0]
    n_wrong = max(round(share * len(np.unique(units))), 1) if share else 0
    wrong = np.isin(units, rng.permutation(np.unique(units))[:n_wrong])
    for unit in np.unique(units[wrong]):
        rows = np.flatnonzero(units == unit)
        others = np.flatnonzero(manifest.labels[:, level] != manifest.labels[rows[0], level])
        other = (
            rng.choice(others)
            if similarity is None
            else others[similarity[rows[0], others].argmax()]
        )
        labels[rows, level:] = manifest.labels[other, level:]
    return replace(manifest, labelling=labels), wrong


def lift(order: NDArray[np.int64], wrong: NDArray[np.bool_], judged: NDArray[np.int64]) -> float:
    """Return the lift of the first of some rows, as many as are wrong among the judged ones."""
    n_wrong = int(wrong[judged].sum())
    return float(wrong[order[:n_wrong]].mean() / wrong[judged].mean()) if n_wrong else float("nan")


def by_nearest_neighbour(errors: LevelErrors, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of images, those whose nearest image has another label first."""
    differs = labels[errors.neighbours[:, 0]] != errors.labels
    return errors.rows[np.argsort(-np.where(differs, errors.cosines[:, 0], -1), kind="stable")]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    parser.add_argument("embeddings", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--similar", action="store_true")
    arguments = parser.parse_args()
    manifest, embedded = read_manifest(arguments.manifest), read_embeddings(arguments.embeddings)
    vectors = embedded.vectors[torch.from_numpy(rows_of(embedded, manifest.ids.tolist(), "images"))]
    units = centred(vectors, mean_direction(vectors))
    similarity = (units @ units.T).numpy() if arguments.similar else None
    rows = []
    for level, name in enumerate(manifest.level_names):
        lifts, baseline, bounds, holds = [], [], [], []
        for seed in range(arguments.seeds):
            rng = np.random.default_rng(seed)
            planted, wrong = with_wrong_labels(manifest, level, arguments.share, rng, similarity)
            errors = find_label_errors(planted, vectors, LabelErrorsConfig())[level]
            lifts.append(lift(errors.rows, wrong, errors.rows))
            if level == 0:
                bound = errors.highest_error_rate()
                bounds.append(100 * bound)
                holds.append(float(bound >= wrong[errors.rows].mean()))
                baseline.append(
                    lift(by_nearest_neighbour(errors, planted.labels[:, 0]), wrong, errors.rows)
                )
        cells = [
            f"{np.nanmean(values):.1f} ({np.nanmin(values):.1f} to {np.nanmax(values):.1f})"
            if values
            else ""
            for values in (lifts, baseline, bounds)
        ]
        share_held = f"{100 * np.mean(holds):.0f}%" if holds else ""
        rows.append([f"{name}, {'classes' if level else 'images'}", *cells, share_held])
    print(
        markdown_table(
            ["wrong labels", "lift", "nearest neighbour", "bound", "holds"], rows, n_numeric=4
        )
    )


if __name__ == "__main__":
    main()
