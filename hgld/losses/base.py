"""The interface of all losses, and the checks of their input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import nn

from hgld.errors import InputError


class Loss(nn.Module):
    """Base class of losses of embeddings and their hierarchical labels.

    ``loss(embeddings, labels)`` compares each item of the batch, as a query, with the whole batch.
    ``loss(embeddings, labels, reference_embeddings, reference_labels)`` compares the queries with the references
    only, for example with those of a :class:`~hgld.losses.CrossBatchMemory`; references that show the query itself
    are not excluded. Scores are dot products. Models end in an L2 normalisation, so scores are cosines.

    Losses compute in float32, or in float64 for float64 embeddings, even under autocast: 16-bit scores are spaced
    5e-4 apart, a twentieth of the temperature of the rank surrogates.

    Learnt proxies are parameters of the loss; they usually need a learning rate of their own.
    """

    #: Terms of the last value by name, before weights are applied: detached scalars for logs.
    parts: Mapping[str, torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.parts = {}

    @abstractmethod
    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the loss of a batch.

        Args:
            embeddings: Float tensor of shape (B, d), L2-normalised by the caller.
            labels: int64 tensor of shape (B, L), finest level first, nested. Losses with proxies need labels that
                are numbered from 0 within each column.
            reference_embeddings: Float tensor of shape (N, d). Default: the batch itself.
            reference_labels: int64 tensor of shape (N, L).

        Returns:
            Scalar, float32 or float64.

        Raises:
            InputError: Shapes do not fit, or the labels are not nested.
        """

    def reference_part(self) -> Loss | None:
        """Return the part of the loss that depends on references, or None for a loss of proxies only."""
        return self


def check_batch(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    reference_embeddings: torch.Tensor | None,
    reference_labels: torch.Tensor | None,
) -> None:
    """Raise an :class:`InputError` unless shapes are as :meth:`Loss.forward` documents them."""
    if embeddings.ndim != 2 or labels.ndim != 2 or len(embeddings) != len(labels) or not labels.numel():
        raise InputError(
            f"`embeddings` have shape {tuple(embeddings.shape)} and `labels` {tuple(labels.shape)}; expected "
            "(B, d) and (B, L), B and L at least 1"
        )
    if (reference_embeddings is None) != (reference_labels is None):
        raise InputError("`reference_embeddings` and `reference_labels` go together; give both or neither")
    if reference_embeddings is None or reference_labels is None:
        return
    expected = ((len(reference_embeddings), embeddings.shape[1]), (len(reference_embeddings), labels.shape[1]))
    if (tuple(reference_embeddings.shape), tuple(reference_labels.shape)) != expected:
        raise InputError(
            f"`reference_embeddings` have shape {tuple(reference_embeddings.shape)} and `reference_labels` "
            f"{tuple(reference_labels.shape)}; expected (N, {embeddings.shape[1]}) and (N, {labels.shape[1]})"
        )


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
