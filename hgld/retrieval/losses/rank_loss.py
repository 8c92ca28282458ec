"""The base of all losses of a ranking: queries in blocks, whatever the size of the retrieval set."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch

from hgld.errors import InputError
from hgld.retrieval.losses.base import Loss, at_least_float32, check_batch, pair_levels
from hgld.retrieval.losses.steps import Step

#: Scores that are worked on at once: a block of queries has about as many. Each takes some 60 bytes.
BLOCK_SCORES = 2**22


class RankLoss(Loss):
    """1 minus a metric of each query's ranking, averaged over the queries that have a positive.

    Queries are worked on in blocks, and the gradient of a block is computed together with its value, so that memory
    is O(block x N) for N items in the retrieval set, and not O(B x N).

    Args:
        step: h, what stands for Heaviside's step.
        include_query: in a batch alone, whether a query is one of its own positives, as it is in the authors'
            published code; else it is left out of its retrieval set. With references, nothing is left out.

    Raises:
        InputError: (when called) no query has a positive.
    """

    def __init__(self, *, step: Step, include_query: bool = True) -> None:
        super().__init__()
        self.step = step
        self.include_query = include_query

    @abstractmethod
    def per_query(self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """The loss of each query.

        Args:
            scores: float32 or float64, shape (n_query, n_items).
            levels: int64, the same shape; 0 to L, or -1 for an item that is not in the query's retrieval set.
            n_levels: L.

        Returns:
            The dtype of ``scores``, shape (n_query,); NaN without positives.
        """

    def has_positive(self, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """Which queries have one: bool, shape (n_query,). Arguments are those of :meth:`per_query`."""
        return (levels > 0).any(1)

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :class:`~hgld.retrieval.losses.base.Loss`."""
        check_batch(embeddings, labels, reference_embeddings, reference_labels)
        leave_out = reference_embeddings is None and not self.include_query
        references = embeddings if reference_embeddings is None else reference_embeddings
        of_references = labels if reference_labels is None else reference_labels
        with torch.autocast(embeddings.device.type, enabled=False):
            return _MeanOverQueries.apply(  # type: ignore[no-any-return]
                at_least_float32(embeddings),
                at_least_float32(references),
                labels,
                of_references,
                self,
                leave_out,
            )


class _MeanOverQueries(torch.autograd.Function):
    """The mean loss; its gradient is ready when the value is, and backward only scales it."""

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: torch.Tensor,
        references: torch.Tensor,
        labels: torch.Tensor,
        reference_labels: torch.Tensor,
        loss: RankLoss,
        leave_out: bool,
    ) -> torch.Tensor:
        wants = ctx.needs_input_grad[:2]
        gradients = [
            torch.zeros_like(tensor) if wanted else None
            for tensor, wanted in zip((embeddings, references), wants, strict=True)
        ]
        total, n_valid = embeddings.new_zeros((), dtype=torch.float64), 0
        size = max(1, BLOCK_SCORES // len(references))
        for begin in range(0, len(embeddings), size):
            block = slice(begin, begin + size)
            levels = pair_levels(labels[block], reference_labels)
            if leave_out:
                levels.diagonal(begin).fill_(-1)
            scores = (embeddings[block] @ references.T).requires_grad_(any(wants))
            valid = loss.has_positive(levels, labels.shape[1])
            with torch.set_grad_enabled(any(wants)):
                sum_of_block = loss.per_query(scores, levels, labels.shape[1])[valid].sum()
            total += sum_of_block.detach()
            n_valid += int(valid.sum())
            if any(wants) and sum_of_block.requires_grad:
                (of_scores,) = torch.autograd.grad(sum_of_block, scores)
                of_scores.masked_fill_(~valid.unsqueeze(1), 0)  # 0 times infinity
                if gradients[0] is not None:
                    torch.mm(of_scores, references, out=gradients[0][block])
                if gradients[1] is not None:
                    gradients[1].addmm_(of_scores.T, embeddings[block])
        if not n_valid:
            raise InputError(
                f"none of {len(embeddings)} queries has a positive among {len(references)} items; batches for a rank "
                "loss want two or more images of a class, and labels of references that match those of queries"
            )
        ctx.save_for_backward(*(None if gradient is None else gradient.div_(n_valid) for gradient in gradients))
        return (total / n_valid).to(embeddings.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        scaled = (None if gradient is None else gradient * upstream for gradient in ctx.saved_tensors)
        return *scaled, None, None, None, None
