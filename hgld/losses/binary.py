"""What losses have in common that ask of two items only whether they are of one class."""

from __future__ import annotations

from abc import abstractmethod

import torch

from hgld.compute.dtypes import at_least_float32
from hgld.errors import ConfigurationError, InputError
from hgld.losses.base import Loss, check_batch


class BinaryLoss(Loss):
    """A loss of the finest labels, column 0; :class:`~hgld.losses.SumOverLevels` shows it the others."""

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`hgld.losses.base.Loss.forward`."""
        check_batch(embeddings, labels, reference_embeddings, reference_labels)
        queries = at_least_float32(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            if reference_embeddings is None or reference_labels is None:
                return self.of_classes(queries, labels[:, 0])
            references = reference_embeddings.to(queries.dtype)
            return self.of_classes(queries, labels[:, 0], references, reference_labels[:, 0])

    @abstractmethod
    def of_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The loss of checked input in full precision; classes are int64, shapes (B,) and (N,)."""


class PairLoss(BinaryLoss):
    """A binary loss of the scores of all pairs of a query and a reference, O(B N) in memory.

    Args:
        include_query: without references, count the query as one of its own positives.
    """

    def __init__(self, include_query: bool = True) -> None:
        super().__init__()
        self.include_query = include_query

    def of_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :class:`BinaryLoss`."""
        if reference_embeddings is None or reference_classes is None:
            same = classes[:, None] == classes
            negatives = ~same
            if not self.include_query:
                same.fill_diagonal_(False)
            return self.of_pairs(embeddings @ embeddings.T, same, negatives)
        same = classes[:, None] == reference_classes
        return self.of_pairs(embeddings @ reference_embeddings.T, same, ~same)

    @abstractmethod
    def of_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """The loss of scores; bool masks say which pairs are positive and negative, and what is neither is left out.

        All have the shape (B, N).
        """


class ProxyBasedLoss(BinaryLoss):
    """A binary loss that compares with a learnt proxy of each class; references do not matter to it.

    Args:
        n_classes: how many; classes are numbered 0 to ``n_classes - 1``.
        dim: d, the dimension of embeddings.

    Raises:
        ConfigurationError: a number is below 1.
    """

    def __init__(self, n_classes: int, dim: int) -> None:
        super().__init__()
        if n_classes < 1 or dim < 1:
            raise ConfigurationError(f"{n_classes} proxies of dimension {dim}; expected at least 1 of each")
        self.n_classes = n_classes
        self.dim = dim

    def reference_part(self) -> Loss | None:
        """See :class:`~hgld.losses.base.Loss`."""
        return None

    def of_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :class:`BinaryLoss`."""
        check_proxies(embeddings, classes, self.n_classes, self.dim)
        return self.of_proxies(embeddings, classes)

    @abstractmethod
    def of_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """The loss of embeddings (B, d) whose classes (B,) all have a proxy."""


def new_proxies(n_classes: int, dim: int) -> torch.nn.Parameter:
    """Proxies as those of NormSoftMax begin: uniform between -1 / sqrt(d) and 1 / sqrt(d)."""
    bound = dim**-0.5
    return torch.nn.Parameter(torch.empty(n_classes, dim).uniform_(-bound, bound))


def check_proxies(embeddings: torch.Tensor, classes: torch.Tensor, n_classes: int, dim: int) -> None:
    """Raise an :class:`InputError` where embeddings have another dimension than proxies, or a class has no proxy."""
    if embeddings.shape[1] != dim:
        raise InputError(
            f"embeddings of dimension {embeddings.shape[1]}, but the loss has proxies of dimension {dim}"
        )
    low, high = int(classes.min()), int(classes.max())
    if low < 0 or high >= n_classes:
        raise InputError(
            f"classes from {low} to {high}, but the loss has proxies for 0 to {n_classes - 1}; number the labels "
            "from 0 within each column, and build the loss for as many classes"
        )


def mean_over_queries(losses: torch.Tensor, n_positives: torch.Tensor) -> torch.Tensor:
    """The mean over queries with positives; an :class:`InputError` where none has any, as in rank losses."""
    answered = n_positives > 0
    if not answered.any():
        raise InputError(
            f"none of {len(losses)} queries has a positive; batches for a loss of average precision want two or more "
            "images of a class"
        )
    return losses[answered].mean()
