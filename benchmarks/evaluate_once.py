"""One measurement of ``evaluate.py`` in a process of its own; prints its cost as JSON.

``python evaluate_once.py FOLDER JOB N_QUERIES N_GALLERY DEVICE``: the folder holds ``embeddings.npy`` and
``labels.npy``. The first N_GALLERY rows are the gallery, the last N_QUERIES the queries.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from measuring import print_cost

from hgld import evaluate_retrieval
from hgld.compute.scoring import as_tensor


class Work:
    """The jobs that can be measured, one per method."""

    def __init__(self, folder: Path, n_queries: int, n_gallery: int, device: str) -> None:
        self.device = device
        embeddings = np.load(folder / "embeddings.npy", mmap_mode="r")
        labels = np.load(folder / "labels.npy")
        first_query = len(labels) - n_queries
        self.gallery, self.gallery_labels = embeddings[:n_gallery], labels[:n_gallery]
        self.queries, self.query_labels = embeddings[first_query:], labels[first_query:]

    def metrics(self) -> None:
        """Compute all metrics."""
        evaluate_retrieval(
            self.queries, self.query_labels, self.gallery, self.gallery_labels, device=self.device
        )

    def scores(self) -> None:
        """Compute only the matrix product, on blocks of the gallery converted to float32."""
        queries = as_tensor(self.queries).to(self.device, torch.float32)
        gallery = as_tensor(self.gallery)
        width = min(2**17 if queries.is_cuda else 2**13, len(gallery))
        scores = torch.empty(len(queries), width, device=self.device)
        widened = torch.empty(width, queries.shape[1], device=self.device)
        for part in gallery.split(width):
            torch.mm(queries, widened[: len(part)].copy_(part).T, out=scores[:, : len(part)])


def main() -> None:
    """Measure and print."""
    folder, name, n_queries, n_gallery, device = sys.argv[1:]
    few = Work(Path(folder), min(int(n_queries), 8), min(int(n_gallery), 1000), device)
    getattr(few, name)()  # warm-up: libraries load, loops are compiled
    work = getattr(Work(Path(folder), int(n_queries), int(n_gallery), device), name)
    print_cost(work, device)


if __name__ == "__main__":
    main()
