"""ViM: virtual-logit matching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import torch

from hgld.errors import InputError
from hgld.rejection.classifier_detector import ClassifierDetector
from hgld.rejection.linear_classifier import row_blocks
from hgld.rejection.option_checks import check_choice
from hgld.rejection.residual_space import ResidualSpace, fit_residual_space

Variant = Literal["paper", "code"]


class Vim(ClassifierDetector):
    """Virtual-logit matching, ViM (Wang et al., CVPR 2022, Eq. 7): ``alpha r - log sum_c exp(l_c)``.

    r is the length of the residual (see :class:`~hgld.rejection.scores.residual.Residual`), and alpha, the mean of
    the largest logits of the index over the mean of its residuals, gives it the size of a logit. It sees near images
    by their logits and far ones by their residuals.

    Args:
        n_principal: Number D of principal directions. Default: half the dimensions, and half the images at most.
        variant: ``paper``; or ``code`` for what heatood computes, which takes logits of ``z - u`` in place of z, and
            the residual space of the centred covariance, and rejects worse.
        classifier: See :class:`~hgld.rejection.classifier_detector.ClassifierDetector`.

    Raises:
        ConfigurationError: There is no such variant.
    """

    name = "vim"
    space: ResidualSpace
    alpha: torch.Tensor

    def __init__(
        self,
        n_principal: int | None = None,
        variant: Variant = "paper",
        classifier: str = "softmax",
    ) -> None:
        check_choice(get_args(Variant), variant=variant)
        self.n_principal = n_principal
        self.variant = variant
        self.classifier = classifier

    def state(self) -> dict[str, torch.Tensor]:
        """Return the classifier, the residual space and alpha."""
        return super().state() | self.space.tensors() | {"alpha": self.alpha}

    def _fit_to_index(self, embeddings: torch.Tensor) -> None:
        self.space = fit_residual_space(embeddings, self.head, self.n_principal, centred=self.variant == "code")
        dtype = self.head.weight.dtype
        logits, residuals = 0.0, 0.0
        for rows in row_blocks(len(embeddings), self.head.n_classes):
            block = embeddings[rows].to(dtype)
            logits += self.head.logits(block).amax(dim=1).sum(dtype=torch.float64).item()
            residuals += self.space.norms(block).sum(dtype=torch.float64).item()
        if logits <= 0:
            raise InputError(
                f"the mean of the largest logits of the index is {logits / len(embeddings):.3g}; ViM expects "
                "positive logits, so shift the biases of the classifier"
            )
        self.alpha = torch.tensor(logits / residuals, dtype=dtype)

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        shifted = embeddings - self.space.origin if self.variant == "code" else embeddings
        return self.alpha * self.space.norms(embeddings) - self.head.logits(shifted).logsumexp(dim=1)

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        super()._restore(state)
        self.space = ResidualSpace.from_tensors(state)
        self.alpha = state["alpha"]
