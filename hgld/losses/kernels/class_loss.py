"""Base class of losses that only compare classes at one level."""

from __future__ import annotations

from abc import abstractmethod

import torch

from hgld.losses.base import Loss


class ClassLoss(Loss):
    """A loss of the finest labels, column 0; :class:`~hgld.losses.SumOverLevels` applies it to every column."""

    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`hgld.losses.Loss.forward_batch`."""
        if reference_embeddings is None or reference_labels is None:
            return self.forward_classes(embeddings, labels[..., 0])
        return self.forward_classes(embeddings, labels[..., 0], reference_embeddings, reference_labels[..., 0])

    @abstractmethod
    def forward_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the loss of checked input, without autocast.

        Args:
            embeddings: float32 or float64 tensor of shape (B, d).
            classes: int64 tensor of shape (B,); or (B, K), -1 as padding, if the loss takes label sets.
            reference_embeddings: Tensor of shape (N, d) and the dtype of ``embeddings``, or of 16 bits and without
                gradient; see :func:`~hgld.losses.kernels.products.inner_products`.
            reference_classes: int64 tensor of shape (N,) or (N, K').

        Returns:
            Scalar of the dtype of ``embeddings``.
        """
