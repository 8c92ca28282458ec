"""Base class of losses that only compare classes at one level."""

from __future__ import annotations

from abc import abstractmethod

import torch

from hgld.losses.base import Loss, warn_without_positives


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
        classes = labels[..., 0]
        reference_classes = None if reference_labels is None else reference_labels[..., 0]
        value = self.forward_classes(embeddings, classes, reference_embeddings, reference_classes)
        if self.reference_part() is not None:
            warn_without_positives(classes, reference_classes)
        return value

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
