"""ASH: energy of features of which only the largest are kept."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from hgld.rejection.classifier_detector import ClassifierDetector
from hgld.rejection.option_checks import check_choice, check_share

Variant = Literal["p", "b", "s"]


class Ash(ClassifierDetector):
    """The energy of the logits of pruned features, ASH (Djurisic et al., ICLR 2023).

    Of each image the ``d - round(d pruned)`` largest features are kept. It expects features after a ReLU: negative
    ones are set to 0 first, so it says little of embeddings that are centred or projected.

    Args:
        variant: What becomes of the kept features: ``p`` leaves them as they are; ``b`` sets all to the sum of the
            features divided by the number of kept ones; ``s`` multiplies them by ``exp(sum / sum of the kept)``.
        pruned: Share of the features that are set to 0, 0.65 as OpenOOD and pytorch-ood have it by default.
        classifier: See :class:`~hgld.rejection.classifier_detector.ClassifierDetector`.

    Raises:
        ConfigurationError: The share is out of range, or there is no such variant.
    """

    name = "ash"

    def __init__(self, variant: Variant = "s", pruned: float = 0.65, classifier: str = "softmax") -> None:
        check_choice(get_args(Variant), variant=variant)
        check_share(pruned=pruned)
        self.variant = variant
        self.pruned = pruned
        self.classifier = classifier

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        features = embeddings.clamp(min=0)
        dim = features.shape[1]
        values, columns = features.topk(max(dim - round(dim * self.pruned), 1), dim=1)
        sums = features.sum(dim=1, keepdim=True)
        if self.variant == "b":
            values = (sums / values.shape[1]).expand_as(values)
        elif self.variant == "s":
            kept = values.sum(dim=1, keepdim=True)
            values = values * torch.where(kept > 0, sums / kept, 1.0).exp()
        shaped = torch.zeros_like(features).scatter_(1, columns, values)
        return -self.head.logits(shaped).logsumexp(dim=1)
