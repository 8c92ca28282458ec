"""Embeddings and labels of the images that a run was evaluated on, for figures and pages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hgld.benchmark.evaluations import embedding_file
from hgld.benchmark.runs import Run
from hgld.datasets.manifest import Manifest
from hgld.evaluation.retrieval_task import RetrievalTask, split_task
from hgld.tables.embeddings import read_embeddings
from hgld.training.training_images import evaluation_manifest, read_training_manifest


@dataclass(frozen=True, eq=False)
class EvaluatedImages:
    """Images that a run was evaluated on, without those that could not be read.

    Args:
        embeddings: Embeddings of the n images, float32, shape (n, d).
        manifest: Manifest of the images, in the same order.
        is_query: Which images are queries, bool, shape (n,); None where each image is ranked against all others.
    """

    embeddings: torch.Tensor
    manifest: Manifest
    is_query: npt.NDArray[np.bool_] | None

    def rows(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the rows of the queries and of the gallery."""
        if self.is_query is None:
            return np.arange(len(self.manifest)), np.arange(len(self.manifest))
        return np.flatnonzero(self.is_query), np.flatnonzero(~self.is_query)

    def task(self) -> RetrievalTask:
        """Return the retrieval task that the run was evaluated on."""
        return split_task(
            self.embeddings,
            self.manifest.labels,
            self.is_query,
            ids=self.manifest.ids.astype(str),
            name="split",
            level_names=self.manifest.level_names,
        )


def read_evaluated_images(run: Run) -> EvaluatedImages:
    """Read the embeddings that a run was evaluated with on the evaluation images of its training.

    Raises:
        InputError: There are none: the run was not evaluated, or by GLDv2's protocol.
    """
    data = run.settings.data
    embeddings = read_embeddings(embedding_file(run, "embeddings"))
    assert embeddings.ids is not None
    manifest = evaluation_manifest(read_training_manifest(data, data.root or data.manifest.parent), data)
    row_of = {name: row for row, name in enumerate(manifest.ids.tolist())}
    manifest = manifest.take(np.array([row_of[name] for name in embeddings.ids.tolist()]))
    return EvaluatedImages(
        embeddings.vectors, manifest, None if data.queries is None else manifest.splits == data.queries
    )
