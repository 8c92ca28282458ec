"""Residual: length of an embedding outside of the principal subspace of the index."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hgld.rejection.classifier_detector import ClassifierDetector
from hgld.rejection.residual_space import ResidualSpace, fit_residual_space


class Residual(ClassifierDetector):
    """The length of what an embedding has outside of the principal subspace (Wang et al., CVPR 2022, Sec. 4.1).

    ``|R^T (z - u)|``, with R the eigenvectors of ``(1/n) (X - u)^T (X - u)`` without the largest, and the origin
    ``u = -pinv(W) b`` of the classifier. It sees images of other kinds (far), and no difference between landmarks.

    Args:
        n_principal: Number D of dropped directions. Default: half the dimensions, and half the images at most; the
            paper has 1000 of 2048 or 1500, and 512 of 768.
        classifier: See :class:`~hgld.rejection.classifier_detector.ClassifierDetector`.
    """

    name = "residual"
    space: ResidualSpace

    def __init__(self, n_principal: int | None = None, classifier: str = "softmax") -> None:
        self.n_principal = n_principal
        self.classifier = classifier

    def state(self) -> dict[str, torch.Tensor]:
        """Return the classifier and the residual space."""
        return super().state() | self.space.tensors()

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        self.space = fit_residual_space(embeddings, self.head, self.n_principal)

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return self.space.norms(embeddings)

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        super()._restore(state)
        self.space = ResidualSpace.from_tensors(state)
