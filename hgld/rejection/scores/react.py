"""ReAct: energy of clipped features."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from hgld.rejection.classifier_detector import ClassifierDetector
from hgld.rejection.option_checks import check_share

_ENTRIES = 2**24


class React(ClassifierDetector):
    """The energy of the logits of clipped features, ReAct (Sun et al., NeurIPS 2021): of ``min(z, q)``.

    The threshold q is a quantile of all features of all images of the index, by NumPy's linear interpolation; of
    evenly spaced images where there are more than 16.8 million numbers. It expects features after a ReLU, of which
    unknown images have a few very large ones.

    Args:
        quantile: The quantile, 0.9 as in the paper.
        classifier: See :class:`~hgld.rejection.classifier_detector.ClassifierDetector`.

    Raises:
        ConfigurationError: The quantile is out of range.
    """

    name = "react"
    threshold: torch.Tensor

    def __init__(self, quantile: float = 0.9, classifier: str = "softmax") -> None:
        check_share(quantile=quantile)
        self.quantile = quantile
        self.classifier = classifier

    def state(self) -> dict[str, torch.Tensor]:
        """Return the classifier and the threshold."""
        return super().state() | {"threshold": self.threshold}

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        step = -(-embeddings.numel() // _ENTRIES)
        value = float(np.quantile(embeddings[::step].to(torch.float64).numpy(), self.quantile))
        self.threshold = torch.tensor(value, dtype=self.head.weight.dtype)

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return -self.head.logits(embeddings.minimum(self.threshold)).logsumexp(dim=1)

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        super()._restore(state)
        self.threshold = state["threshold"]
