"""What all losses have in common: how they are called, and what they check."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import nn

from hgld.errors import InputError


class Loss(nn.Module):
    """A scalar from embeddings and their hierarchical labels, the smaller the better.

    A loss is called as ``loss(embeddings, labels)``, each item of the batch being a query against all of it, or with
    references, as ``loss(embeddings, labels, reference_embeddings, reference_labels)``: then the queries are ranked
    against the references alone, which a memory holds (:mod:`hgld.losses.cross_batch_memory`). References are taken as they
    are: whether one of them is the query itself, nobody asks. Scores are dot products; models end in an
    L2 normalisation, so they are cosines.

    Losses work in float32, or in float64 where the embeddings are, autocast or not: a score of 16 bits has steps of
    5e-4, a twentieth of the rank surrogates' temperature.

    Parameters of a loss, such as proxies, are found by :meth:`parameters` and want a learning rate of their own.
    """

    #: What the last call was made of, by name and before weights are applied; for logs. Detached scalars.
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
        """The loss.

        Args:
            embeddings: float, shape (B, d); L2-normalised by whoever made them.
            labels: int64, shape (B, L), finest first and nested. Losses with proxies want them numbered from 0 to
                the number of classes within each column.
            reference_embeddings: float, shape (N, d); None for the batch itself.
            reference_labels: int64, shape (N, L).

        Returns:
            float32 or float64, a scalar.

        Raises:
            InputError: shapes do not fit, or the labels are not nested.
        """

    def reference_part(self) -> Loss | None:
        """What of this loss depends on references; None where nothing does, as proxies are compared with instead."""
        return self


def check_batch(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    reference_embeddings: torch.Tensor | None,
    reference_labels: torch.Tensor | None,
) -> None:
    """Raise an :class:`InputError` unless the shapes are those that :meth:`Loss.forward` names."""
    if embeddings.ndim != 2 or labels.ndim != 2 or len(embeddings) != len(labels) or not labels.numel():
        raise InputError(
            f"embeddings of shape {tuple(embeddings.shape)} and labels of shape {tuple(labels.shape)}; expected "
            "(B, d) and (B, L), B and L at least 1"
        )
    if (reference_embeddings is None) != (reference_labels is None):
        raise InputError("references came without labels, or labels without references; give both or neither")
    if reference_embeddings is None or reference_labels is None:
        return
    expected = ((len(reference_embeddings), embeddings.shape[1]), (len(reference_embeddings), labels.shape[1]))
    if (tuple(reference_embeddings.shape), tuple(reference_labels.shape)) != expected:
        raise InputError(
            f"references of shape {tuple(reference_embeddings.shape)} with labels of shape "
            f"{tuple(reference_labels.shape)}; expected (N, {embeddings.shape[1]}) and (N, {labels.shape[1]})"
        )


def pair_levels(labels: torch.Tensor, reference_labels: torch.Tensor) -> torch.Tensor:
    """The level of each reference for each query: how many columns are equal, as labels are nested.

    Args:
        labels: int64, shape (B, L), finest first.
        reference_labels: int64, shape (N, L).

    Returns:
        int64, shape (B, N); L for the same class, 0 where nothing is shared.

    Raises:
        InputError: two items agree at a level, but not at a coarser one.

    >>> pair_levels(torch.tensor([[0, 0, 0]]), torch.tensor([[0, 0, 0], [1, 0, 0], [2, 1, 1]]))
    tensor([[3, 2, 0]])
    """
    levels = torch.zeros(len(labels), len(reference_labels), dtype=torch.int64, device=labels.device)
    finer = None
    for column in range(labels.shape[1]):
        equal = labels[:, column, None] == reference_labels[None, :, column]
        if finer is not None and (wrong := finer & ~equal).any():
            query, reference = wrong.nonzero()[0].tolist()
            raise InputError(
                f"the labels are not nested: {labels[query].tolist()} and {reference_labels[reference].tolist()} "
                f"agree in column {column - 1}, but not in the coarser column {column}"
            )
        levels += equal
        finer = equal
    return levels
