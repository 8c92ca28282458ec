"""ODIN: softmax at a high temperature of perturbed embeddings."""

from __future__ import annotations

import torch

from hgld.rejection.classifier_detector import ClassifierDetector
from hgld.rejection.option_checks import check_above_0, check_at_least_0


class Odin(ClassifierDetector):
    """ODIN (Liang et al., ICLR 2018) on embeddings: ``- max_c softmax(l(z') / T)_c``, z' being the perturbed z.

    ``z' = z - eps sign(grad_z CE(l(z) / T, argmax_c l_c))``. The network is the linear classifier, so embeddings are
    perturbed and **not pixels**, as the papers and heatood do, which takes a backward pass through the whole network
    for each image: figures differ from theirs. The gradient has a closed form. With a perturbation of 0 this is MSP
    at a temperature.

    Args:
        temperature: Temperature T, 1000 as in the paper.
        perturbation: Step eps in units of a feature, 0.0014 as in the paper, which is for pixels from 0 to 1.
        classifier: See :class:`~hgld.rejection.classifier_detector.ClassifierDetector`.

    Raises:
        ConfigurationError: The temperature is not above 0, or the perturbation is negative or not finite.
    """

    name = "odin"

    def __init__(
        self, temperature: float = 1000.0, perturbation: float = 0.0014, classifier: str = "softmax"
    ) -> None:
        check_above_0(temperature=temperature)
        check_at_least_0(perturbation=perturbation)
        self.temperature = temperature
        self.perturbation = perturbation
        self.classifier = classifier

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        logits = self.head.logits(embeddings)
        errors = (logits / self.temperature).softmax(dim=1)
        rows = torch.arange(len(errors))
        # The gradient of the cross-entropy up to the factor 1 / T, which its sign does not have.
        errors[rows, logits.argmax(dim=1)] -= 1
        perturbed = embeddings - self.perturbation * (errors @ self.head.weight).sign()
        return -(self.head.logits(perturbed) / self.temperature).softmax(dim=1).amax(dim=1)
