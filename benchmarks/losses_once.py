"""One measurement of ``losses.py`` in a process of its own; prints the cost of forward and backward as JSON.

``python losses_once.py JOB N_QUERIES N_REFERENCES DEVICE``; with 0 references, the queries are a batch.
Embeddings are synthetic: the sum of a direction for each root, group and landmark, and noise. The cosine of two
images is about 0.33 for the same landmark, 0.17 for the same group, 0.06 for the same root, and 0 otherwise, with a
standard deviation of 0.04.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise

import torch
from measuring import print_cost

from hgld.evaluation.relevance import hierarchical_relevance
from hgld.losses import SmoothAP, SupHAP

DIMENSION = 512
#: Groups and roots of H-GLDv2; images per landmark in a batch and among references.
N_GROUPS, N_ROOTS, PER_BATCH, PER_SET = 78, 2, 4, 20
#: Norms of the directions of a root, a group and a landmark; the noise has norm 1.
LENGTHS = (0.3, 0.4, 0.5)


class Work:
    """The jobs that can be measured, one per method, forward and backward."""

    def __init__(self, n_queries: int, n_references: int, device: str) -> None:
        rng = torch.Generator(device).manual_seed(0)
        n_landmarks = max(n_queries // PER_BATCH, n_references // PER_SET)
        sizes = (n_landmarks, N_GROUPS, N_ROOTS)
        parents = [
            torch.randint(0, size, (n_parents,), generator=rng, device=device)
            for n_parents, size in pairwise(sizes)
        ]

        def directions(n: int, length: float) -> torch.Tensor:
            return torch.randn(n, DIMENSION, generator=rng, device=device) * (
                length / DIMENSION**0.5
            )

        centres = [
            directions(size, length) for size, length in zip(sizes, reversed(LENGTHS), strict=True)
        ]

        def images(landmarks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            labels = torch.stack(
                [landmarks, parents[0][landmarks], parents[1][parents[0][landmarks]]], 1
            )
            embeddings = torch.empty(len(labels), DIMENSION, device=device)
            for some, columns in zip(embeddings.split(2**13), labels.split(2**13), strict=True):
                around = sum(
                    centre[column] for centre, column in zip(centres, columns.T, strict=True)
                )
                some.copy_(torch.nn.functional.normalize(around + directions(len(some), 1.0)))
            return embeddings, labels

        self.embeddings, self.labels = images(torch.arange(n_queries, device=device) // PER_BATCH)
        self.references, self.reference_labels = images(
            torch.arange(n_references, device=device) % n_landmarks
        )
        self.embeddings.requires_grad_()

    def sup_h_ap(self) -> None:
        """Run Sup-H-AP with hgld."""
        self._step(SupHAP())

    def smooth_ap(self) -> None:
        """Run Smooth-AP with hgld."""
        self._step(SmoothAP())

    def suprank_sup_h_ap(self) -> None:
        """Run Sup-H-AP with the authors' code and its settings."""
        from suprank.losses import SupHAPLoss

        sup_rank = {"tau": 0.01, "rho": 100.0, "delta": 0.05, "start": 0.5, "offset": 1.44}
        loss = SupHAPLoss(hierarchy_level="MULTI", **sup_rank)
        self._step(lambda x, labels: loss(x, labels, _relevance))

    def suprank_smooth_ap(self) -> None:
        """Run Smooth-AP with the authors' code and its settings."""
        from suprank.losses import SmoothAPLoss

        loss = SmoothAPLoss(hierarchy_level=0, tau=0.01)
        self._step(lambda x, labels: loss(x, labels, _relevance))

    def _step(self, loss: Callable[..., torch.Tensor]) -> None:
        references = (self.references, self.reference_labels) if len(self.references) else ()
        value = loss(self.embeddings, self.labels, *references)
        value.backward()


def _relevance(levels: torch.Tensor) -> torch.Tensor:
    """Return the relevances of Eq. 20 for the levels of pairs, as float32."""
    counts = torch.stack([(levels == level).sum(1) for level in range(4)], 1).double()
    return hierarchical_relevance(counts).gather(1, levels).float()


def main() -> None:
    """Measure and print."""
    name, n_queries, n_references, device = sys.argv[1:]
    # warm-up: libraries load, threads start, and with as many items for each query, the same loops are compiled
    # (the authors' code compiles none, and takes no references)
    n_items = (
        0 if name.startswith("suprank") else min(max(int(n_queries), int(n_references)), 10_000)
    )
    getattr(Work(min(int(n_queries), 16), n_items, device), name)()
    print_cost(getattr(Work(int(n_queries), int(n_references), device), name), device)


if __name__ == "__main__":
    main()
