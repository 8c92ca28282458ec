"""One measurement of ``evaluate.py`` in a process of its own; prints its cost as JSON.

``python evaluate_once.py FOLDER JOB N_QUERIES N_GALLERY DEVICE``: the folder holds ``embeddings.npy`` and
``labels.npy``. The first N_GALLERY rows are the gallery, the last N_QUERIES the queries; for ``leave_one_out`` each
gallery image is a query, and N_QUERIES is 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from dense_metrics import dense_metrics
from measuring import print_cost

from hgld import evaluate_retrieval
from hgld.compute.scoring import as_tensor
from hgld.evaluation.ranking import RankingConfig, rank
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import LabelJudgements, RetrievalTask
from hgld.evaluation.settings import RerankMethod, RerankSettings


class Work:
    """The jobs that can be measured, one per method."""

    def __init__(self, folder: Path, n_queries: int, n_gallery: int, device: str) -> None:
        self.folder, self.device = folder, device
        self.embeddings = np.load(folder / "embeddings.npy", mmap_mode="r")
        self.labels = np.load(folder / "labels.npy")
        self.gallery = slice(0, n_gallery)
        self.queries = slice(len(self.labels) - n_queries, len(self.labels))

    def hgld(self) -> None:
        """Compute all metrics with hgld."""
        result = self._evaluate()
        result.per_query[list(result.metrics)].to_parquet(self.folder / "hgld.parquet")

    def alpha_qe(self) -> None:
        """Compute all metrics after alpha query expansion."""
        self._evaluate("alpha-qe")

    def leave_one_out(self) -> None:
        """Compute all metrics with hgld, each image against all others."""
        evaluate_retrieval(self.embeddings[self.gallery], self.labels[self.gallery], device=self.device)

    def first_items(self) -> None:
        """Compute mAP@R and R@1 with hgld, each image against all others."""
        result = evaluate_retrieval(
            self.embeddings[self.gallery], self.labels[self.gallery], metrics=["mAP@R", "R@1"], device=self.device
        )
        self._write_means("hgld", result.means)

    def faiss_first_items(self) -> None:
        """Compute mAP@R and R@1 with faiss and NumPy, each image against all others."""
        import faiss

        vectors = np.array(self.embeddings[self.gallery], np.float32)
        faiss.normalize_L2(vectors)
        labels = self.labels[self.gallery, 0]
        n_positives = np.bincount(labels)[labels] - 1
        k = int(n_positives.max())
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        found = index.search(vectors, k + 1)[1]
        others = found != np.arange(len(found))[:, None]
        others[others.all(1), -1] = False  # the image itself is not among the first of a tie
        found = found[others].reshape(len(found), k)
        right = labels[found] == labels[:, None]
        precision = right.cumsum(1) / np.arange(1, k + 1)
        within = right & (np.arange(k) < n_positives[:, None])
        counted = n_positives > 0
        at_r = (precision * within).sum(1)[counted] / n_positives[counted]
        self._write_means("faiss", {"mAP@R": at_r.mean(), "R@1": right[counted, 0].mean()})

    def pml_first_items(self) -> None:
        """Compute mAP@R and R@1 with pytorch-metric-learning, each image against all others."""
        from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

        calculator = AccuracyCalculator(
            include=("mean_average_precision_at_r", "precision_at_1"),
            k="max_bin_count",
            device=torch.device(self.device),
        )
        vectors = torch.nn.functional.normalize(as_tensor(self.embeddings[self.gallery]).float())
        means = calculator.get_accuracy(vectors, torch.from_numpy(self.labels[self.gallery, 0]))
        self._write_means("pml", {"mAP@R": means["mean_average_precision_at_r"], "R@1": means["precision_at_1"]})

    def _evaluate(self, method: RerankMethod | None = None) -> RetrievalResult:
        return evaluate_retrieval(
            self.embeddings[self.queries],
            self.labels[self.queries],
            self.embeddings[self.gallery],
            self.labels[self.gallery],
            device=self.device,
            reranking=RerankSettings(method),
        )

    def _write_means(self, name: str, means: Mapping[str, float]) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps({key: float(value) for key, value in means.items()}))

    def dense(self) -> None:
        """Compute all metrics with the dense implementation."""
        rows = (self.queries, self.gallery)
        queries, gallery = (as_tensor(self.embeddings[some]).to(self.device) for some in rows)
        query_labels, gallery_labels = (torch.from_numpy(self.labels[some]).to(self.device) for some in rows)
        values = dense_metrics(queries, query_labels, gallery, gallery_labels)
        np.savez(self.folder / "dense.npz", **{name: value.cpu().numpy() for name, value in values.items()})

    def ranking(self) -> None:
        """Compute scores, keys and one sort, as hgld does before it takes statistics."""
        judgements = LabelJudgements(self.labels[self.queries], self.labels[self.gallery])
        queries, gallery = (as_tensor(self.embeddings[some]) for some in (self.queries, self.gallery))
        for _ in rank(RetrievalTask("all", queries, gallery, judgements), RankingConfig(device=self.device)):
            pass

    def scores(self) -> None:
        """Compute only the matrix product, on blocks of the gallery converted to float32."""
        queries = as_tensor(self.embeddings[self.queries]).to(self.device, torch.float32)
        gallery = as_tensor(self.embeddings[self.gallery])
        width = min(2**17 if queries.is_cuda else 2**13, len(gallery))
        scores = torch.empty(len(queries), width, device=self.device)
        widened = torch.empty(width, queries.shape[1], device=self.device)
        for part in gallery.split(width):
            torch.mm(queries, widened[: len(part)].copy_(part).T, out=scores[:, : len(part)])

    def sort(self) -> None:
        """Only write and sort as many 32-bit keys once, 64 queries at a time."""
        n_queries, n_gallery = (some.stop - some.start for some in (self.queries, self.gallery))
        order = torch.randperm(n_gallery, dtype=torch.int32, device=self.device)
        keys = torch.empty(min(64, n_queries), n_gallery, dtype=torch.int32, device=self.device)
        for start in range(0, n_queries, 64):
            rows = keys[: n_queries - start].copy_(order)
            if rows.is_cuda:
                rows.sort(dim=1)
            else:
                with ThreadPoolExecutor(torch.get_num_threads()) as pool:
                    list(pool.map(np.ndarray.sort, rows.numpy()))


def main() -> None:
    """Measure and print."""
    folder, name, n_queries, n_gallery, device = sys.argv[1:]
    few = Work(Path(folder), min(int(n_queries), 8), min(int(n_gallery), 1000), device)
    getattr(few, name)()  # warm-up: libraries load, threads start
    work = getattr(Work(Path(folder), int(n_queries), int(n_gallery), device), name)
    print_cost(work, device)


if __name__ == "__main__":
    main()
