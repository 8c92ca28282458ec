"""SiMix, similarity mixup: virtual items within classes (Patel et al., Eqs. 8 to 10)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hgld.losses.base import Loss


class SiMix(Loss):
    """A loss of the batch extended by virtual items (Patel et al., Algorithm 1).

    Each pair x, z of the same class gives a virtual item with the labels of both and the embedding
    (Eq. 8) ::

        alpha x + (1 - alpha) z,   alpha uniform between 0 and 1

    Virtual items are queries as well as items of the retrieval sets. The embedding is not
    normalised again, so its dot products are the mixed similarities of Eqs. 9 and 10. A class of m
    items gives m (m - 1) / 2 virtual items: with four images per class, a batch of 4,000 grows to
    10,000. With references, virtual items are queries only; losses of proxies compare them with the
    proxies.

    Args:
        loss: Loss of the extended batch, such as :class:`~hgld.losses.SmoothRecall`. It has to
            compute with the dot products of embeddings as they are.
        generator: Generator of the mixing coefficients. Default: torch's global generator.

    >>> from hgld.losses import SupAP
    >>> loss = SiMix(SupAP(), generator=torch.Generator().manual_seed(0))
    >>> loss(torch.tensor([[1.0, 0.0], [0.8, 0.6], [-1.0, 0.0]]), torch.tensor([[0], [0], [1]]))
    tensor(0.)
    """

    def __init__(self, loss: Loss, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.loss = loss
        self.generator = generator

    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        pairs = same_class_pairs(labels)
        alphas = _uniform((len(pairs),), embeddings, self.generator)
        embeddings, labels = with_virtual_items(embeddings, labels, pairs, alphas)
        value = self.loss.forward_batch(embeddings, labels, reference_embeddings, reference_labels)
        self.parts = self.loss.parts
        return value

    def _part(self, uses_references: bool) -> Loss | None:
        part = self.loss._part(uses_references)
        return None if part is None else SiMix(part, generator=self.generator)


def same_class_pairs(labels: Tensor) -> Tensor:
    """Return the pairs of different items of the same finest class.

    Args:
        labels: int64 tensor of shape (B, L), finest level first.

    Returns:
        int64 tensor of shape (n_pairs, 2) with indices of items.

    >>> same_class_pairs(torch.tensor([[4, 0], [7, 0], [4, 0], [4, 0]]))
    tensor([[0, 2],
            [0, 3],
            [2, 3]])
    """
    return (labels[:, 0].unsqueeze(1) == labels[:, 0]).triu(1).nonzero()


def with_virtual_items(
    embeddings: Tensor, labels: Tensor, pairs: Tensor, alphas: Tensor
) -> tuple[Tensor, Tensor]:
    """Append a virtual item for each pair to the batch (Patel et al., Eq. 8).

    Args:
        embeddings: Float tensor of shape (B, d).
        labels: int64 tensor of shape (B, L).
        pairs: int64 tensor of shape (n_pairs, 2) with indices of items that have the same labels.
        alphas: Float tensor of shape (n_pairs,), the mixing coefficients.

    Returns:
        Embeddings of shape (B + n_pairs, d) and labels of shape (B + n_pairs, L).
    """
    first, second = pairs.unbind(1)
    coefficients = alphas.to(embeddings.dtype).unsqueeze(1)
    virtual = torch.lerp(embeddings[second], embeddings[first], coefficients)
    return torch.cat([embeddings, virtual]), torch.cat([labels, labels[first]])


@dataclass(frozen=True, eq=False)
class MixedPositives:
    """SiMix in the published code of SupRank: virtual items are retrieved, but are not queries.

    Each pair of positives of a query gives a virtual positive, mixed with a coefficient drawn for
    that query. A query with P positives has P (P - 1) / 2 virtual positives, so this suits batches
    rather than large sets of references.

    Args:
        generator: Generator of the mixing coefficients. Default: torch's global generator.

    >>> from hgld.losses import SupAP
    >>> loss = SupAP(mixup=MixedPositives(torch.Generator().manual_seed(0)))
    >>> loss(torch.tensor([[1.0, 0.0], [0.8, 0.6], [-1.0, 0.0]]), torch.tensor([[0], [0], [1]]))
    tensor(0.)
    """

    generator: torch.Generator | None = None

    def __call__(self, scores: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Append virtual positives to the retrieval set of each query.

        Args:
            scores: Float tensor of shape (n_query, n_items).
            levels: int64 tensor of the same shape, 1 for positives.

        Returns:
            Scores and levels with a further column per pair; the level is -1 where a query has
            fewer positives than another.
        """
        most_positives = int((levels > 0).sum(1).max())
        n_pairs = most_positives * (most_positives - 1) // 2
        alphas = _uniform((len(scores), n_pairs), scores, self.generator)
        return with_mixed_positives(scores, levels, alphas)


def with_mixed_positives(scores: Tensor, levels: Tensor, alphas: Tensor) -> tuple[Tensor, Tensor]:
    """Append virtual positives with given mixing coefficients, see :class:`MixedPositives`.

    Args:
        scores: Float tensor of shape (n_query, n_items).
        levels: int64 tensor of the same shape, 1 for positives.
        alphas: Float tensor of shape (n_query, n_pairs), pairs in the order of their items.

    Returns:
        Scores and levels of shape (n_query, n_items + n_pairs).
    """
    n_positives = (levels > 0).sum(1)
    positives = (levels <= 0).to(torch.int8).sort(dim=1, stable=True).indices
    places = torch.arange(int(n_positives.max()), device=scores.device)
    first, second = torch.combinations(places).unbind(1)
    first_scores = scores.gather(1, positives[:, first])
    second_scores = scores.gather(1, positives[:, second])
    mixed_scores = torch.lerp(second_scores, first_scores, alphas)
    mixed_levels = torch.where(second < n_positives.unsqueeze(1), 1, -1)
    return torch.cat([scores, mixed_scores], 1), torch.cat([levels, mixed_levels], 1)


def _uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    device = like.device if generator is None else generator.device
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.rand(shape, generator=generator, device=device, dtype=dtype).to(like.device)
