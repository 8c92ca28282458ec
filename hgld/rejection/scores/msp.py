"""Maximum softmax probability."""

from __future__ import annotations

import torch

from hgld.rejection.classifier_detector import LogitDetector


class Msp(LogitDetector):
    """The negative largest softmax probability (Hendrycks and Gimpel, ICLR 2017): ``- max_c softmax(l)_c``.

    With many landmarks of few images each, a fitted classifier is unsure of known landmarks, too: prefer
    ``max_logit`` or a score of neighbours.

    Args:
        classifier: See :class:`~hgld.rejection.classifier_detector.LogitDetector`.
    """

    name = "msp"

    def __init__(self, classifier: str = "softmax") -> None:
        self.classifier = classifier

    def _score_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return -logits.softmax(dim=1).amax(dim=1)
