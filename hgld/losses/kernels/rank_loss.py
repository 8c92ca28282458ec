"""Base class of losses of a ranking: queries in blocks, for retrieval sets of any size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from hgld.compute.threads import parallel_map, thread_count
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.relevance import check_level_count
from hgld.losses.base import Loss, pair_levels, warn_without_positives
from hgld.losses.kernels.autograd import combined_references, first_derivative_only, inner_products
from hgld.losses.kernels.steps import HEAVISIDE, SUPRANK_STEP, Step

#: Maps scores and levels, both (n_query, n_items), to the same with further columns of virtual positives.
Mixup = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

#: Scores held at once, in the blocks of all threads. A loss over all levels takes 200 bytes for each.
BLOCK_SCORES = 2**21


class RankLoss(Loss):
    """1 minus a metric of each query's ranking, averaged over the queries that have a positive.

    Queries are processed in blocks, and the gradient of a block is computed together with its value. So memory is
    O(block x N) for N items in the retrieval set, not O(B x N). Ranks of queries with too many pairs to evaluate each
    have a relative error of about 1e-6 (:mod:`~hgld.losses.kernels.interpolation`).

    The losses called Sup use Heaviside's step for h^+, which has no gradient, and an upper bound of it for h^-. So
    they bound 1 minus the metric from above, with ties counted against the ranking. The losses called Smooth use
    sigmoids for both.

    Args:
        step: Step h^-, a surrogate of Heaviside's step for items of lower levels than that of k.
        plus: Step h^+, for the other items.
        include_query: Without references, count each query as one of its own positives, as the authors' published
            code does; else exclude it from its retrieval set. With references, nothing is excluded.

    Raises:
        InputError: (when called) No query has a positive, or the labels have more than 254 levels.
    """

    takes_label_sets = True

    def __init__(self, *, step: Step = SUPRANK_STEP, plus: Step = HEAVISIDE, include_query: bool = True) -> None:
        super().__init__()
        self.step = step
        self.plus = plus
        self.include_query = include_query

    @abstractmethod
    def query_losses(self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """Return the loss of each query.

        Args:
            scores: float32 or float64 tensor of shape (n_query, n_items).
            levels: int64 tensor of the same shape: 0 to L, or -1 for items excluded from the query's retrieval set.
            n_levels: Number of levels L.

        Returns:
            Tensor of shape (n_query,) and the dtype of ``scores``; NaN without positives.
        """

    @property
    def is_random(self) -> bool:
        """Whether :meth:`query_losses` draws random numbers, so that queries must be processed in their order."""
        return False

    @property
    def query_level(self) -> int | None:
        """Level of a query in its own retrieval set, -1 to exclude it; None for that of its labels, L."""
        return None if self.include_query else -1

    def lowest_positive_level(self, n_levels: int) -> int:
        """Return the lowest level of a positive, 1 (the coarsest) to L."""
        return 1

    def has_positive(self, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """Return which queries have a positive: Boolean tensor of shape (n_query,).

        Args:
            levels: See :meth:`query_losses`.
            n_levels: Number of levels L.
        """
        return (levels > 0).any(1)

    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`hgld.losses.Loss.forward_batch`."""
        check_level_count(labels.shape[-1])
        query_level = self.query_level if reference_embeddings is None else None
        references = embeddings if reference_embeddings is None else reference_embeddings
        labels_of_references = labels if reference_labels is None else reference_labels
        value: torch.Tensor = _MeanOverQueries.apply(
            embeddings, references, labels, labels_of_references, self, query_level
        )
        if reference_embeddings is None and query_level is None:  # each query is a positive of its own
            n_levels = labels.shape[-1]
            warn_without_positives(labels[..., n_levels - self.lowest_positive_level(n_levels)])
        return value


class SingleLevelLoss(RankLoss):
    """A rank loss whose items are positive from some level on, and negative below it.

    Args:
        step: Step h^-.
        plus: Step h^+, used among positives.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query.
        include_query: Count each query as one of its own positives, as in :class:`RankLoss`.

    Raises:
        ConfigurationError: (when called) The labels have no such level.
    """

    def __init__(
        self,
        *,
        step: Step = SUPRANK_STEP,
        plus: Step = HEAVISIDE,
        level: int | None = None,
        mixup: Mixup | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(step=step, plus=plus, include_query=include_query)
        self.level = level
        self.mixup = mixup

    def query_losses(self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """See :meth:`RankLoss.query_losses`."""
        levels = self._binary(levels, n_levels)
        if self.mixup is not None:
            scores, levels = self.mixup(scores, levels)
        return self.binary_query_losses(scores, levels)

    @abstractmethod
    def binary_query_losses(self, scores: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """Return the loss of each query, as :meth:`query_losses`, from levels 1 (positive), 0 and -1 (excluded)."""

    @property
    def is_random(self) -> bool:
        """See :attr:`RankLoss.is_random`."""
        return self.mixup is not None

    def lowest_positive_level(self, n_levels: int) -> int:
        """See :meth:`RankLoss.lowest_positive_level`."""
        return n_levels if self.level is None else self.level

    def has_positive(self, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """See :meth:`RankLoss.has_positive`."""
        return (self._binary(levels, n_levels) > 0).any(1)

    def _binary(self, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        level = self.lowest_positive_level(n_levels)
        if not 1 <= level <= n_levels:
            raise ConfigurationError(f"`level` is {level}; the labels have levels 1 (the coarsest) to {n_levels}")
        return (levels >= level).long() - (levels < 0).long()


class _MeanOverQueries(torch.autograd.Function):
    """The mean loss. Its gradient is computed with the value; the backward pass only scales it."""

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: torch.Tensor,
        references: torch.Tensor,
        labels: torch.Tensor,
        reference_labels: torch.Tensor,
        loss: RankLoss,
        query_level: int | None,
    ) -> torch.Tensor:
        needs_gradient = any(ctx.needs_input_grad)

        n_levels = labels.shape[-1]

        def work(block: slice) -> tuple[torch.Tensor, int, torch.Tensor | None]:
            """Return the sum of the losses of a block, their number, and the gradient of the sum by the scores."""
            with torch.no_grad():
                levels = pair_levels(labels[block], reference_labels)
                if query_level is not None:
                    levels.diagonal(block.start).fill_(query_level)
                valid = loss.has_positive(levels, n_levels)
                scores = inner_products(embeddings[block], references).requires_grad_(needs_gradient)
            with torch.set_grad_enabled(needs_gradient):
                total = loss.query_losses(scores, levels, n_levels)[valid].sum()
            grad_scores = None
            if total.requires_grad:
                (grad_scores,) = torch.autograd.grad(total, scores)
                grad_scores.masked_fill_(~valid.unsqueeze(1), 0)  # 0 times infinity
            return total.detach(), int(valid.sum()), grad_scores

        grad_embeddings, grad_references = (
            torch.zeros_like(tensor) if needed else None
            for tensor, needed in zip((embeddings, references), ctx.needs_input_grad[:2], strict=True)
        )
        total, n_valid = embeddings.new_zeros((), dtype=torch.float64), 0
        n_threads = 1 if loss.is_random else thread_count(embeddings.device)
        size = max(1, min(BLOCK_SCORES // len(references), len(embeddings)) // n_threads)
        blocks = [slice(begin, begin + size) for begin in range(0, len(embeddings), size)]
        for first in range(0, len(blocks), n_threads):
            concurrent = blocks[first : first + n_threads]
            for block, (block_total, n_block, grad_scores) in zip(
                concurrent, parallel_map(work, concurrent, embeddings.device), strict=True
            ):
                total += block_total
                n_valid += n_block
                if grad_embeddings is not None and grad_scores is not None:
                    grad_embeddings[block] = combined_references(grad_scores, references)
                if grad_references is not None and grad_scores is not None:
                    grad_references.addmm_(grad_scores.T, embeddings[block])
        if not n_valid:
            raise InputError(
                f"none of {len(embeddings)} queries has a positive among {len(references)} items; batches for a rank "
                "loss need two or more images of a class, and references need labels that match those of queries"
            )
        gradients = (grad_embeddings, grad_references)
        ctx.save_for_backward(*(None if gradient is None else gradient.div_(n_valid) for gradient in gradients))
        return (total / n_valid).to(embeddings.dtype)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        scaled = (None if gradient is None else gradient * upstream for gradient in ctx.saved_tensors)
        return *scaled, None, None, None, None
