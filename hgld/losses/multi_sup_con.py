"""MultiSupCon, the supervised contrastive loss of images that share some of their labels."""

from __future__ import annotations

from typing import ClassVar

import torch

from hgld.errors import ConfigurationError
from hgld.losses.base import Loss, pair_levels, warn_without_positives
from hgld.losses.kernels.batches import inner_products
from hgld.losses.kernels.steps import check_temperature


class MultiSupCon(Loss):
    """Supervised contrastive loss, positives weighted by the overlap of their labels.

    With s the cosines of an anchor i, and P(i) the images whose labels overlap with its own by w_p >= ``threshold``,
    the loss is the mean over anchors that have positives of ::

        - 1/|P(i)| sum over p in P(i) of w_p log( exp(s_p / tau) / sum over a != i of exp(s_a / tau) )

    The overlap w is the Jaccard index of the classes of two images at all levels: l / (2 L - l) for a pair of level
    l, and for label sets the number of classes in common over the number in either. With one level it is the loss of
    Khosla et al. (NeurIPS 2020).

    The formula is that of https://github.com/KevinMusgrave/pytorch-metric-learning/issues/658, after paper 8 of the
    workshop on self-supervised learning of NeurIPS 2022; threshold and means are those of the authors' code,
    https://github.com/WolodjaZ/MultiSupContrast, whose value is NaN where an anchor has no positive.

    Args:
        tau: Temperature, at least 1e-8; 0.1 in the authors' training.
        threshold: Smallest overlap of a positive, above 0 and at most 1; 0.2 in the authors' training.

    Raises:
        ConfigurationError: A value is out of range.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> MultiSupCon(tau=0.1)(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(1.0769)
    """

    takes_label_sets: ClassVar[bool] = True

    def __init__(self, tau: float = 0.07, threshold: float = 0.3) -> None:
        super().__init__()
        check_temperature("tau", tau)
        if not 0 < threshold <= 1:
            raise ConfigurationError(f"`threshold` is {threshold}; expected more than 0 and at most 1")
        self.tau, self.threshold = tau, threshold

    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`hgld.losses.Loss.forward_batch`."""
        if reference_embeddings is None or reference_labels is None:
            is_self = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
            logits = inner_products(embeddings, embeddings) / self.tau
            logits = logits.masked_fill(is_self, torch.finfo(logits.dtype).min)
            overlaps = label_overlaps(labels, labels).masked_fill(is_self, 0)
        else:
            logits = inner_products(embeddings, reference_embeddings) / self.tau
            overlaps = label_overlaps(labels, reference_labels)
        is_positive = overlaps >= self.threshold
        n_positives = is_positive.sum(1)
        terms = torch.where(is_positive, -overlaps.to(logits.dtype) * logits.log_softmax(1), 0)
        warn_without_positives(labels[..., 0], None if reference_labels is None else reference_labels[..., 0])
        return (terms.sum(1) / n_positives.clamp(min=1)).sum() / (n_positives > 0).sum().clamp(min=1)


def label_overlaps(labels: torch.Tensor, reference_labels: torch.Tensor) -> torch.Tensor:
    """Return the Jaccard indices of the classes of queries and references at all levels.

    Args:
        labels: int64 tensor of shape (B, L), finest level first; or (B, K, L) for label sets, -1 as padding.
        reference_labels: int64 tensor of shape (N, L), or (N, K', L).

    Returns:
        float64 tensor of shape (B, N), 0 to 1.

    >>> label_overlaps(torch.tensor([[[0, 0], [2, 1]]]), torch.tensor([[[1, 0], [-1, -1]], [[0, 0], [3, 1]]]))
    tensor([[0.2000, 0.6000]], dtype=torch.float64)
    """
    if labels.ndim == 2:
        levels = pair_levels(labels, reference_labels).double()
        return levels / (2 * labels.shape[1] - levels)
    shared = labels.new_zeros(len(labels), len(reference_labels), dtype=torch.float64)
    either = shared.clone()
    for column in range(labels.shape[2]):
        numbers = torch.cat([labels[:, :, column].flatten(), reference_labels[:, :, column].flatten()])
        classes, numbers = torch.unique(numbers, return_inverse=True)
        has = numbers.new_zeros(len(labels) + len(reference_labels), len(classes), dtype=torch.float64)
        of_queries = numbers[: labels.shape[0] * labels.shape[1]].view(labels.shape[:2])
        of_references = numbers[of_queries.numel() :].view(reference_labels.shape[:2])
        has[: len(labels)].scatter_(1, of_queries, 1)
        has[len(labels) :].scatter_(1, of_references, 1)
        has = has[:, classes >= 0]
        queries, references = has[: len(labels)], has[len(labels) :]
        common = queries @ references.T
        shared += common
        either += queries.sum(1, keepdim=True) + references.sum(1) - common
    return shared / either
