"""Maximum logit."""

from __future__ import annotations

import torch

from hgld.rejection.classifier_detector import LogitDetector


class MaxLogit(LogitDetector):
    """The negative largest logit (Hendrycks et al., ICML 2022): ``- max_c l_c``.

    Unlike the softmax it does not spread over landmarks that look alike, such as two churches of one town.

    Args:
        classifier: See :class:`~hgld.rejection.classifier_detector.LogitDetector`.
    """

    name = "max_logit"

    def __init__(self, classifier: str = "softmax") -> None:
        self.classifier = classifier

    def _score_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return -logits.amax(dim=1)
