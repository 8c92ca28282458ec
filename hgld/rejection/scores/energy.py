"""Energy of logits."""

from __future__ import annotations

import torch

from hgld.rejection.classifier_detector import LogitDetector
from hgld.rejection.option_checks import check_above_0


class Energy(LogitDetector):
    """The energy of the logits (Liu et al., NeurIPS 2020; the prior EL of thesis Sec. 5.2.2).

    The score is ``- T log sum_c exp(l_c / T)``.

    Args:
        temperature: Temperature T. The default of 1 is that of both papers.
        classifier: See :class:`~hgld.rejection.classifier_detector.LogitDetector`.

    Raises:
        ConfigurationError: The temperature is not above 0.
    """

    name = "energy"

    def __init__(self, temperature: float = 1.0, classifier: str = "softmax") -> None:
        check_above_0(temperature=temperature)
        self.temperature = temperature
        self.classifier = classifier

    def _score_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return -self.temperature * (logits / self.temperature).logsumexp(dim=1)
