"""DICE: energy of a classifier with few weights."""

from __future__ import annotations

import numpy as np
import torch

from hgld.rejection.classifier_detector import ClassifierDetector
from hgld.rejection.linear_classifier import LinearClassifier, row_blocks
from hgld.rejection.option_checks import check_share


class Dice(ClassifierDetector):
    """The energy of the logits of a sparsified classifier, DICE (Sun and Li, ECCV 2022).

    A weight stays where its contribution, ``W_cj`` times the mean of feature j over the index, is above the given
    percentile of all contributions (NumPy's linear interpolation). It expects features after a ReLU; for embeddings
    with a mean near 0, such as whitened ones, contributions say little.

    Args:
        sparsity: Share of the weights that are set to 0, 0.7 as in the paper's ImageNet experiments; heatood's
            ``p_dice`` is the same number in percent.
        classifier: See :class:`~hgld.rejection.classifier_detector.ClassifierDetector`.

    Raises:
        ConfigurationError: The sparsity is out of range.
    """

    name = "dice"

    def __init__(self, sparsity: float = 0.7, classifier: str = "softmax") -> None:
        check_share(sparsity=sparsity)
        self.sparsity = sparsity
        self.classifier = classifier

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        blocks = (embeddings[rows].double().sum(dim=0) for rows in row_blocks(len(embeddings), 1))
        mean = torch.stack(list(blocks)).sum(dim=0) / len(embeddings)
        contributions = self.head.weight.double() * mean
        threshold = float(np.quantile(contributions.numpy(), self.sparsity))
        self.head = LinearClassifier(self.head.weight * (contributions > threshold), self.head.bias)

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.head.logits(embeddings).logsumexp(dim=1)
