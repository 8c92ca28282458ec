"""The interface of all losses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import nn

from hgld.errors import InputError
from hgld.losses.kernels.batches import Labels, checked_batch


class Loss(nn.Module):
    """Base class of losses of embeddings and their hierarchical labels.

    ``loss(embeddings, labels)`` compares each item of the batch, as a query, with the whole batch.
    ``loss(embeddings, labels, reference_embeddings, reference_labels)`` compares the queries with the references
    only, for example with those of a :class:`~hgld.losses.CrossBatchMemory`; references that show the query itself
    are not excluded.

    Scores are cosines, as in the papers, whose temperatures and margins are made for them. Losses compute them as dot
    products, and refuse embeddings whose length differs from 1 by more than 1 %: normalise embeddings with
    ``torch.nn.functional.normalize``, as the last layer of hgld's models does.

    Embeddings may be float16 or bfloat16, whose rounding is within that 1 %. Losses compute in float32, or in float64
    for float64 embeddings, even under autocast: 16-bit scores are spaced 5e-4 apart, a twentieth of the temperature
    of the rank surrogates.

    Learnt proxies are parameters of the loss; they usually need a learning rate of their own. For the batch of
    several processes, see :func:`~hgld.losses.gather_embeddings`.

    Subclasses implement :meth:`forward_batch`; a loss that consists of others calls theirs.
    """

    #: Terms of the last value by name, before weights are applied: detached scalars for logs.
    parts: Mapping[str, torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.parts = {}

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: Labels,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: Labels | None = None,
    ) -> torch.Tensor:
        """Return the loss of a batch.

        Args:
            embeddings: Float tensor of shape (B, d), unit vectors.
            labels: Tensor or numpy array of integers of shape (B, L), finest level first, nested; or (B,) for a
                single level. Losses with proxies need labels that are numbered from 0 within each column.
            reference_embeddings: Float tensor of shape (N, d), unit vectors, N at least 1. Default: the batch itself.
            reference_labels: Integers of shape (N, L), or (N,) for a single level.

        Returns:
            Scalar, float32 or float64.

        Raises:
            InputError: Shapes or types do not fit, embeddings are not finite or not of length 1, or the labels are
                not nested.
        """
        batch = checked_batch(embeddings, labels, reference_embeddings, reference_labels)
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.forward_batch(*batch)

    @abstractmethod
    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the loss of checked input, without autocast.

        Args:
            embeddings: float32 or float64 tensor of shape (B, d).
            labels: int64 tensor of shape (B, L).
            reference_embeddings: Tensor of shape (N, d) and the dtype of ``embeddings``, or None.
            reference_labels: int64 tensor of shape (N, L), or None.

        Returns:
            Scalar of the dtype of ``embeddings``.
        """

    def reference_part(self) -> Loss | None:
        """Return the part of the loss that depends on references, or None for a loss of proxies only."""
        return self

    def proxy_part(self) -> Loss | None:
        """Return the rest of the loss, which ignores references, or None if there is none."""
        return self if self.reference_part() is None else None


def pair_levels(labels: torch.Tensor, reference_labels: torch.Tensor) -> torch.Tensor:
    """Return the level of each reference for each query: the number of equal columns, as labels are nested.

    Args:
        labels: int64 tensor of shape (B, L), finest level first.
        reference_labels: int64 tensor of shape (N, L).

    Returns:
        int64 tensor of shape (B, N): L for the same class, 0 for nothing in common.

    Raises:
        InputError: Two items agree at a level, but not at a coarser one.

    >>> pair_levels(torch.tensor([[0, 0, 0]]), torch.tensor([[0, 0, 0], [1, 0, 0], [2, 1, 1]]))
    tensor([[3, 2, 0]])
    """
    levels = torch.zeros(len(labels), len(reference_labels), dtype=torch.int64, device=labels.device)
    equal_finer = None
    for column in range(labels.shape[1]):
        equal = labels[:, column, None] == reference_labels[None, :, column]
        if equal_finer is not None and (violations := equal_finer & ~equal).any():
            query, reference = violations.nonzero()[0].tolist()
            raise InputError(
                f"the labels are not nested: {labels[query].tolist()} and {reference_labels[reference].tolist()} "
                f"agree in column {column - 1}, but not in the coarser column {column}"
            )
        levels += equal
        equal_finer = equal
    return levels
