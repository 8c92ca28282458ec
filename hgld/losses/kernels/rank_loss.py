"""The base of all losses of a ranking: queries in blocks, whatever the size of the retrieval set."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch

from hgld.compute.dtypes import at_least_float32
from hgld.compute.threads import parallel_map, thread_count
from hgld.errors import InputError
from hgld.losses.base import Loss, check_batch, pair_levels
from hgld.losses.kernels.steps import Step

#: Scores that are worked on at once, in the blocks of all threads. In a loss over all levels each takes 200 bytes.
BLOCK_SCORES = 2**21


class RankLoss(Loss):
    """1 minus a metric of each query's ranking, averaged over the queries that have a positive.

    Queries are worked on in blocks, a few at once, and the gradient of a block is computed together with its value:
    so memory is O(block x N) for N items in the retrieval set, and not O(B x N). Where a query has too many pairs to
    look at each, ranks have a relative error of up to 1e-6 (:mod:`~hgld.losses.kernels.interpolated_sums`).

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

    @property
    def draws(self) -> bool:
        """Whether :meth:`per_query` draws random numbers, so that queries have to be worked on in their order."""
        return False

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
        """See :class:`~hgld.losses.base.Loss`."""
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
        wants = any(ctx.needs_input_grad)

        def work(block: slice) -> tuple[torch.Tensor, int, torch.Tensor | None]:
            """The sum of the losses of a block, how many they are, and the gradient of the sum by the scores."""
            with torch.no_grad():
                levels = pair_levels(labels[block], reference_labels)
                if leave_out:
                    levels.diagonal(block.start).fill_(-1)
                valid = loss.has_positive(levels, labels.shape[1])
                scores = (embeddings[block] @ references.T).requires_grad_(wants)
            with torch.set_grad_enabled(wants):
                total = loss.per_query(scores, levels, labels.shape[1])[valid].sum()
            gradient = None
            if total.requires_grad:
                (gradient,) = torch.autograd.grad(total, scores)
                gradient.masked_fill_(~valid.unsqueeze(1), 0)  # 0 times infinity
            return total.detach(), int(valid.sum()), gradient

        of_embeddings, of_references = (
            torch.zeros_like(tensor) if wanted else None
            for tensor, wanted in zip((embeddings, references), ctx.needs_input_grad[:2], strict=True)
        )
        total, n_valid = embeddings.new_zeros((), dtype=torch.float64), 0
        n_threads = 1 if loss.draws else thread_count(embeddings.device)
        size = max(1, min(BLOCK_SCORES // len(references), len(embeddings)) // n_threads)
        blocks = [slice(begin, begin + size) for begin in range(0, len(embeddings), size)]
        for first in range(0, len(blocks), n_threads):
            at_once = blocks[first : first + n_threads]
            for block, (of_block, n, of_scores) in zip(
                at_once, parallel_map(work, at_once, embeddings.device), strict=True
            ):
                total += of_block
                n_valid += n
                if of_embeddings is not None and of_scores is not None:
                    torch.mm(of_scores, references, out=of_embeddings[block])
                if of_references is not None and of_scores is not None:
                    of_references.addmm_(of_scores.T, embeddings[block])
        if not n_valid:
            raise InputError(
                f"none of {len(embeddings)} queries has a positive among {len(references)} items; batches for a rank "
                "loss want two or more images of a class, and labels of references that match those of queries"
            )
        gradients = (of_embeddings, of_references)
        ctx.save_for_backward(*(None if gradient is None else gradient.div_(n_valid) for gradient in gradients))
        return (total / n_valid).to(embeddings.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        scaled = (None if gradient is None else gradient * upstream for gradient in ctx.saved_tensors)
        return *scaled, None, None, None, None
