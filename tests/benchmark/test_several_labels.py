from __future__ import annotations

import numpy as np
import torch

from hgld.benchmark.evaluated_images import EvaluatedImages
from hgld.evaluation.retrieval_task import leave_one_out_task
from hgld.hierarchy import LabelSets


def test_figures_take_the_first_of_several_labels() -> None:
    labels = LabelSets.from_lists([[[5, 1], [2, 0]], [[2, 0]]])
    images = EvaluatedImages(leave_one_out_task(torch.eye(2), labels), (("a",), ("b",)))
    ((embeddings, matrix),) = images.embeddings_and_labels()
    assert torch.equal(embeddings, torch.eye(2))
    assert np.array_equal(matrix, [[5, 1], [2, 0]])
