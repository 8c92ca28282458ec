"""Entropy of the softmax."""

from __future__ import annotations

import torch

from hgld.rejection.classifier_detector import LogitDetector


class Entropy(LogitDetector):
    """The entropy of the softmax, in nats: ``- sum_c p_c log p_c``.

    Args:
        classifier: See :class:`~hgld.rejection.classifier_detector.LogitDetector`.
    """

    name = "entropy"

    def __init__(self, classifier: str = "softmax") -> None:
        self.classifier = classifier

    def _score_logits(self, logits: torch.Tensor) -> torch.Tensor:
        entropies: torch.Tensor = torch.special.entr(logits.softmax(dim=1)).sum(dim=1)
        return entropies
