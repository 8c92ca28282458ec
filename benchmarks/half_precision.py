"""Change of metrics where embeddings are stored in 16 bits: means over queries, in percentage points.

Embeddings are float32 files that ``hgld embed-images`` or a training wrote, of images of one manifest; each image is
ranked against all others::

    python benchmarks/half_precision.py manifest.parquet runs/happier/evaluation/embeddings.npy
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from report import table

import hgld
from hgld.datasets.manifest import read_manifest
from hgld.tables.embeddings import read_embeddings

METRICS = ("mAP@100", "H-AP", "ASI", "NDCG", "R@1")


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("manifest", type=Path, help="manifest with the labels of the images")
    parser.add_argument("embeddings", type=Path, nargs="+", help="embeddings in float32")
    options = parser.parse_args()
    manifest = read_manifest(options.manifest)
    rows_of_ids = {name: row for row, name in enumerate(manifest.ids.tolist())}
    rows = []
    for path in options.embeddings:
        embeddings = read_embeddings(path)
        labels = np.stack([manifest.labels_of(rows_of_ids[name]) for name in embeddings.ids])
        exact = hgld.evaluate_retrieval(embeddings.vectors, labels, metrics=METRICS).per_query
        for dtype in (torch.float16, torch.bfloat16):
            stored = hgld.evaluate_retrieval(embeddings.vectors.to(dtype), labels, metrics=METRICS).per_query
            change = 100 * (stored - exact)[list(METRICS)]
            cells = [f"{change[name].mean():+.4f} ({change[name].abs().mean():.4f})" for name in METRICS]
            rows.append([str(path), str(dtype).removeprefix("torch."), *cells])
    print("change of the mean (mean absolute change of a query)\n")
    print(table(["embeddings", "stored as", *METRICS], rows))


if __name__ == "__main__":
    main()
