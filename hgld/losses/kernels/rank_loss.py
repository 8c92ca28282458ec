"""Base class of losses of a ranking: queries in blocks, for retrieval sets of any size."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch

from hgld.compute.threads import parallel_map, thread_count
from hgld.errors import InputError
from hgld.evaluation.relevance_judgements import check_level_count
from hgld.losses.base import Loss, pair_levels, warn_without_positives
from hgld.losses.kernels.derivatives import first_derivative_only
from hgld.losses.kernels.products import combined_references, inner_products
from hgld.losses.kernels.steps import Step

#: Scores held at once, in the blocks of all threads. A loss over all levels takes 200 bytes for each.
BLOCK_SCORES = 2**21


class RankLoss(Loss):
    """1 minus a metric of each query's ranking, averaged over the queries that have a positive.

    Queries are processed in blocks, and the gradient of a block is computed together with its value. So memory is
    O(block x N) for N items in the retrieval set, not O(B x N). Ranks of queries with too many pairs to evaluate each
    have a relative error of about 1e-6 (:mod:`~hgld.losses.kernels.interpolated_sums`).

    Args:
        step: Surrogate h of Heaviside's step.
        include_query: Without references, count each query as one of its own positives, as the authors' published
            code does; else exclude it from its retrieval set. With references, nothing is excluded.

    Raises:
        InputError: (when called) No query has a positive, or the labels have more than 254 levels.
    """

    takes_label_sets = True

    def __init__(self, *, step: Step, include_query: bool = True) -> None:
        super().__init__()
        self.step = step
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
