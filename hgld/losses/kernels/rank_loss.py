"""Surrogate ranks of the items of a retrieval set, and the base class of losses of rankings.

For a query with scores s_j and levels lv_j, 0 to L, and a weight w for each pair of levels,

    S_k = sum over j != k of w[lv_k, lv_j] h(s_j - s_k)

is rank^+(k) - 1 with w = [lv_j >= lv_k] and Heaviside's step, rank^-(k) with w = [lv_j < lv_k] and
a smooth step (paper, Eqs. 3 and 5), and H-rank^+(k) - rel(k) with w = min(rel_k, rel_j) among
positives (Eq. 18). Levels are compared, never relevances: two levels may have the same relevance.

The losses process queries in blocks, for retrieval sets of any size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hgld.compute.compiled import is_compiled, not_traced
from hgld.compute.machine import parallel_map, thread_count
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.retrieval_task import check_level_count
from hgld.losses.base import Loss, pair_levels, warn_without_positives
from hgld.losses.kernels.batches import (
    Labels,
    checked_batch,
    combined_references,
    first_derivative_only,
    inner_products,
)
from hgld.losses.kernels.interpolation import Grid, grid_over, interpolated_sums
from hgld.losses.kernels.pair_sums import pair_sums
from hgld.losses.kernels.ranking import Ranking, heaviside_sums
from hgld.losses.kernels.steps import HEAVISIDE, SUPRANK_STEP, Sigmoid, Step, SupRankStep

#: Interpolation time of an item and of a grid point, in pairs that the compiled loops sum in this
#: time. On a core, forward and backward, a pair takes some 0.4 ns, and an item and a point 0.2 us
#: each with three levels.
PAIRS_PER_ITEM = 512
PAIRS_PER_POINT = 1024
#: Number of levels above which the interpolation time of an item grows with the number of levels.
MANY_LEVELS = 16
#: Approximate speed-up of sums over pairs by the compiled loops.
COMPILED_PAIRS = 8
#: Maps scores and levels, both (n_query, n_items), to the same with further columns of virtual
#: positives.
Mixup = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
#: Number of scores in memory at once, in the blocks of all threads. A loss over all levels takes
#: 200 bytes a score.
BLOCK_SCORES = 2**21
#: Largest number of distinct relevances per query: sums over pairs hold a weight for every two
#: relevances.
MAX_RELEVANCES = 1024


def step_sums(ranking: Ranking, *terms: tuple[Tensor, Step]) -> Tensor:
    """Return the sum of S_k over several terms for every positive item k of every query.

    Args:
        *terms: Weights of pairs by the levels of k and j, of shape (n_query or 1, L + 1, L + 1) and
            the dtype of the scores; and the step h.

    Returns:
        Tensor of the shape and dtype of the scores; 0 where the level of k is below 1.
    """
    jump_weights: list[Tensor] = []
    sums = torch.zeros_like(ranking.scores)
    for weights, step in terms:
        jump, rest = step.split()
        if jump:
            jump_weights.append(weights * jump)
        if rest is not None:
            sums = sums + _smooth_sums(ranking, weights, rest)
    if jump_weights:
        sums = sums + heaviside_sums(ranking, torch.stack(jump_weights).sum(0))
    return sums


def _smooth_sums(ranking: Ranking, weights: Tensor, step: Step) -> Tensor:
    if isinstance(step, (Sigmoid, SupRankStep)):
        grid = _grid_if_faster(ranking, weights, step)
        if grid is not None:
            return interpolated_sums(ranking, weights, step, grid)
    return pair_sums(ranking, weights, step)


def _grid_if_faster(ranking: Ranking, weights: Tensor, step: Sigmoid | SupRankStep) -> Grid | None:
    """Return the grid for interpolation if it is faster than sums over pairs, otherwise None."""
    has_weight = (weights != 0).any(0).to(torch.float64)
    has_weight[0] = 0
    pairs_time = ((ranking.counts @ has_weight.T) * ranking.counts).sum(1).mean().item()
    if not is_compiled(weights.device):
        pairs_time *= COMPILED_PAIRS
    slowdown = max(1, ranking.n_levels / MANY_LEVELS)
    items_time = PAIRS_PER_ITEM * ranking.scores.shape[1] * slowdown
    if pairs_time <= items_time:
        return None
    grid = grid_over(ranking.scores, step)
    if grid is None or pairs_time <= items_time + PAIRS_PER_POINT * grid.n_points:
        return None
    return grid


def rank(ranking: Ranking, *, plus: Step, minus: Step) -> Tensor:
    """Return rank^+(k) + rank^-(k) of every positive k, and 1 for other items.

    Args:
        plus: Step h^+, for items of at least the level of k.
        minus: Step h^-, for items of coarser levels.

    >>> from hgld.losses import Heaviside
    >>> ranking = Ranking(torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[1, 1, 0]]), 1)
    >>> rank(ranking, plus=Heaviside(), minus=Heaviside())
    tensor([[1., 3., 1.]])
    """
    ones = ranking.scores.new_ones(1, ranking.n_levels + 1, ranking.n_levels + 1)
    if plus == minus:
        return 1 + step_sums(ranking, (ones, plus))
    return 1 + step_sums(ranking, (ones.triu(), plus), (ones.tril(-1), minus))


def h_rank_plus(
    ranking: Ranking, relevance: Tensor, *, plus: Step, finer: Step | None = None
) -> Tensor:
    """Return H-rank^+(k) of every positive k, and 0 for other items.

    Args:
        relevance: Relevance of each level, of shape (n_query, L + 1) and the dtype of the scores; 0
            for level 0.
        finer: Step for items of a finer level than k. Default: ``plus``.
    """
    pair_relevance = torch.minimum(relevance.unsqueeze(1), relevance.unsqueeze(2))
    item_relevance = relevance.gather(1, ranking.levels.clamp(min=0))
    if finer is None:
        return item_relevance + step_sums(ranking, (pair_relevance, plus))
    not_finer_term = pair_relevance.tril(), plus
    finer_term = pair_relevance.triu(1), finer
    return item_relevance + step_sums(ranking, not_finer_term, finer_term)


class Pairs(NamedTuple):
    """Levels of all pairs of a query and an item.

    Args:
        levels: Function from a block of queries to the levels of their items, int64, 0 to L,
            (n_query, n_items).
        n_levels: Number of levels L.
        relevance: float64 tensor of shape (B, L + 1): relevance of each level for each query,
            ascending from 0. None: the loss computes the relevance.
    """

    levels: Callable[[slice], Tensor]
    n_levels: int
    relevance: Tensor | None = None


class RankLoss(Loss):
    """1 minus a metric of each query's ranking, averaged over the queries that have a positive.

    Queries are processed in blocks, and the gradient of a block is computed together with its
    value. So memory is O(block x N) for N items in the retrieval set, not O(B x N). Where a query
    has too many pairs to evaluate each pair, ranks have a relative error of about 1e-6
    (:mod:`~hgld.losses.kernels.interpolation`).

    The losses called Sup use Heaviside's step for h^+, which has no gradient, and an upper bound of
    Heaviside's step for h^-. So they bound 1 minus the metric from above, with ties counted against
    the ranking. The losses called Smooth use sigmoids for both steps.

    Args:
        step: Step h^-, a surrogate of Heaviside's step for items of a coarser level than k.
        plus: Step h^+, for the other items.
        include_query: Whether each query counts as one of its own positives, as in the authors'
            published code, or is excluded from its retrieval set. It has no effect with references,
            where nothing is excluded.

    Raises:
        InputError: (when called) No query has a positive, or the labels have more than 254 levels.
    """

    takes_label_sets = True

    def __init__(
        self, *, step: Step = SUPRANK_STEP, plus: Step = HEAVISIDE, include_query: bool = True
    ) -> None:
        super().__init__()
        self.step = step
        self.plus = plus
        self.include_query = include_query

    @abstractmethod
    def query_losses(
        self, scores: Tensor, levels: Tensor, n_levels: int, relevance: Tensor | None = None
    ) -> Tensor:
        """Return the loss of each query.

        Args:
            scores: float32 or float64 tensor of shape (n_query, n_items).
            levels: int64 tensor of the same shape: 0 to L, or -1 for items excluded from the
                query's retrieval set.
            n_levels: Number of levels L.
            relevance: Relevance of each level for each query, float64, ascending from 0, of shape
                (n_query, L + 1). Default: the loss computes the relevance.

        Returns:
            Tensor of shape (n_query,) and the dtype of ``scores``; NaN without positives.
        """

    @property
    def is_random(self) -> bool:
        """Whether :meth:`query_losses` draws random numbers, which requires a fixed order."""
        return False

    @property
    def query_level(self) -> int | None:
        """Level of a query in its own retrieval set, -1 to exclude the query; None for level L."""
        return None if self.include_query else -1

    def lowest_positive_level(self, n_levels: int) -> int:
        """Return the lowest level of a positive, 1 (the coarsest) to L."""
        return 1

    def has_positive(self, levels: Tensor, n_levels: int) -> Tensor:
        """Return which queries have a positive: Boolean tensor of shape (n_query,)."""
        return (levels > 0).any(1)

    def pairs_of_labels(self, labels: Tensor, reference_labels: Tensor) -> Pairs:
        """Return the levels of pairs of labels of shapes (B, L) and (N, L), or of label sets."""
        return Pairs(lambda block: pair_levels(labels[block], reference_labels), labels.shape[-1])

    def pairs_of_relevance(self, relevance: Tensor) -> Pairs:
        """Return levels that number the distinct relevances of each query.

        Args:
            relevance: float64 tensor of shape (B, N), 0 or more.
        """
        ordered, order = relevance.sort(1)
        numbers = (ordered > functional.pad(ordered[:, :-1], (1, 0))).cumsum(1)
        n_levels = int(numbers.max())
        if n_levels > MAX_RELEVANCES:
            raise InputError(
                f"a row of `relevance` has {n_levels} distinct values above 0; round them to {MAX_RELEVANCES} at most"
            )
        level_relevance = relevance.new_zeros(len(relevance), n_levels + 1)
        level_relevance.scatter_(1, numbers, ordered)
        levels = torch.zeros_like(order).scatter_(1, order, numbers)
        return Pairs(lambda block: levels[block].clone(), n_levels, level_relevance)

    def forward(
        self,
        embeddings: Tensor,
        labels: Labels | None = None,
        reference_embeddings: Tensor | None = None,
        reference_labels: Labels | None = None,
        *,
        relevance: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch with labels or with the relevance of each pair.

        Args:
            embeddings: Float tensor of shape (B, d), unit vectors.
            labels: Labels as in :meth:`hgld.losses.Loss.forward`; None with ``relevance``.
            reference_embeddings: Float tensor of shape (N, d), unit vectors, N at least 1. Default:
                the batch itself.
            reference_labels: Labels of the references; None with ``relevance``.
            relevance: Tensor of shape (B, N), or (B, B) without references: relevance, 0 or more,
                of each item for each query, a row per query. H-AP takes it as the relevance of
                items, NDCG as their gain, and losses of a single level take all items above 0 as
                positives. It need not be symmetric, and has no gradient.

        Returns:
            Scalar, float32 or float64.

        Raises:
            InputError: See :meth:`hgld.losses.Loss.forward`; or both labels and relevances are
                given, or neither; or relevances have another shape, are negative or not finite, or
                have too many distinct values.
        """
        if labels is not None and relevance is None:
            return super().forward(embeddings, labels, reference_embeddings, reference_labels)
        if relevance is None or labels is not None or reference_labels is not None:
            given = "neither" if relevance is None else "both"
            raise InputError(
                f"expected either labels or the `relevance` of pairs, found {given}; give one of them"
            )
        labels = torch.zeros(len(embeddings), dtype=torch.int64)  # ignored
        if reference_embeddings is not None:
            reference_labels = labels.new_zeros(len(reference_embeddings))
        queries, _, references, _ = checked_batch(
            embeddings, labels, reference_embeddings, reference_labels
        )
        pairs = self.pairs_of_relevance(_checked_pair_relevance(relevance, queries, references))
        with torch.autocast(embeddings.device.type, enabled=False):
            return self._mean(queries, references, pairs)

    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        if reference_labels is None:
            pairs = self.pairs_of_labels(labels, labels)
        else:
            pairs = self.pairs_of_labels(labels, reference_labels)
        check_level_count(pairs.n_levels)
        value = self._mean(embeddings, reference_embeddings, pairs)
        if reference_embeddings is None and self.query_level is None:
            # The check for queries without positives has passed, as each query is its own positive.
            n_levels = labels.shape[-1]
            warn_without_positives(labels[..., n_levels - self.lowest_positive_level(n_levels)])
        return value

    @not_traced
    def _mean(self, embeddings: Tensor, references: Tensor | None, pairs: Pairs) -> Tensor:
        query_level = None
        if references is None:
            references = embeddings
            query_level = self.query_level
        value: Tensor = _MeanOverQueries.apply(embeddings, references, pairs, self, query_level)
        return value


class SingleLevelLoss(RankLoss):
    """A rank loss whose items are positive from a given level on, and negative below it.

    Args:
        step: Step h^-.
        plus: Step h^+, used among positives.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query.
        include_query: Whether each query counts as one of its own positives, see :class:`RankLoss`.

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

    def pairs_of_relevance(self, relevance: Tensor) -> Pairs:
        """Return level 1 for items of any relevance above 0, and level 0 for others."""
        return Pairs(lambda block: (relevance[block] > 0).long(), 1)

    def query_losses(
        self, scores: Tensor, levels: Tensor, n_levels: int, relevance: Tensor | None = None
    ) -> Tensor:
        # All positives have the same relevance, so `relevance` is ignored.
        levels = self._binary(levels, n_levels)
        if self.mixup is not None:
            scores, levels = self.mixup(scores, levels)
        return self.binary_query_losses(scores, levels)

    @abstractmethod
    def binary_query_losses(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Return the loss of each query from levels 1 (positive), 0 (negative), -1 (excluded)."""

    @property
    def is_random(self) -> bool:
        return self.mixup is not None

    def lowest_positive_level(self, n_levels: int) -> int:
        return n_levels if self.level is None else self.level

    def has_positive(self, levels: Tensor, n_levels: int) -> Tensor:
        return (self._binary(levels, n_levels) > 0).any(1)

    def _binary(self, levels: Tensor, n_levels: int) -> Tensor:
        level = self.lowest_positive_level(n_levels)
        if not 1 <= level <= n_levels:
            raise ConfigurationError(
                f"`level` is {level}; the labels have levels 1 (the coarsest) to {n_levels}"
            )
        return (levels >= level).long() - (levels < 0).long()


class _BlockLoss(NamedTuple):
    """Sum of the losses of a block of queries, number of valid queries, gradient by the scores."""

    total: Tensor
    n_valid: int
    grad_scores: Tensor | None


def _block_loss(
    scores: Tensor, block: slice, pairs: Pairs, loss: RankLoss, query_level: int | None
) -> _BlockLoss:
    """Return the loss of a block of queries, with its gradient if the scores require one."""
    with torch.no_grad():
        levels = pairs.levels(block)
        if query_level is not None:
            levels.diagonal(block.start).fill_(query_level)
        valid = loss.has_positive(levels, pairs.n_levels)
    relevance = None if pairs.relevance is None else pairs.relevance[block]
    with torch.set_grad_enabled(scores.requires_grad):
        losses = loss.query_losses(scores, levels, pairs.n_levels, relevance)
        total = losses[valid].sum()
    grad_scores = None
    if total.requires_grad:
        (grad_scores,) = torch.autograd.grad(total, scores)
        grad_scores.masked_fill_(~valid.unsqueeze(1), 0)  # 0 times infinity
    return _BlockLoss(total.detach(), int(valid.sum()), grad_scores)


class _MeanOverQueries(torch.autograd.Function):
    """The mean loss. Its gradient is computed with the value; the backward pass only scales it."""

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: Tensor,
        references: Tensor,
        pairs: Pairs,
        loss: RankLoss,
        query_level: int | None,
    ) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad)

        def block_loss(block: slice) -> _BlockLoss:
            with torch.no_grad():  # threads of parallel_map record gradients by default
                scores = inner_products(embeddings[block], references)
            scores.requires_grad_(needs_gradient)
            return _block_loss(scores, block, pairs, loss, query_level)

        needs_grad_embeddings, needs_grad_references = ctx.needs_input_grad[:2]
        grad_embeddings = torch.zeros_like(embeddings) if needs_grad_embeddings else None
        grad_references = torch.zeros_like(references) if needs_grad_references else None
        total = embeddings.new_zeros((), dtype=torch.float64)
        n_valid = 0
        n_threads = 1 if loss.is_random else thread_count(embeddings.device)
        blocks = _query_blocks(embeddings, references, pairs, n_threads)
        for first in range(0, len(blocks), n_threads):
            concurrent = blocks[first : first + n_threads]
            results = parallel_map(block_loss, concurrent, embeddings.device)
            for block, result in zip(concurrent, results, strict=True):
                total += result.total
                n_valid += result.n_valid
                if result.grad_scores is None:
                    continue
                if grad_embeddings is not None:
                    grad_embeddings[block] = combined_references(result.grad_scores, references)
                if grad_references is not None:
                    grad_references.addmm_(result.grad_scores.T, embeddings[block])
        if not n_valid:
            raise InputError(
                f"none of {len(embeddings)} queries has a positive among {len(references)} items; batches for a rank "
                "loss need two or more images of a class, and references need labels that match those of queries"
            )
        ctx.n_valid = n_valid
        ctx.save_for_backward(grad_embeddings, grad_references)
        return (total / n_valid).to(embeddings.dtype)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        grad_embeddings, grad_references = ctx.saved_tensors
        if grad_embeddings is not None:
            grad_embeddings = grad_embeddings / ctx.n_valid * upstream
        if grad_references is not None:
            grad_references = grad_references / ctx.n_valid * upstream
        return grad_embeddings, grad_references, None, None, None


def _query_blocks(
    embeddings: Tensor, references: Tensor, pairs: Pairs, n_threads: int
) -> list[slice]:
    """Divide the queries into blocks; ``n_threads`` blocks fit into memory at once."""
    n_scores = len(references)
    if pairs.relevance is not None:
        n_scores = max(n_scores, pairs.relevance.shape[1] ** 2)
    size = max(1, min(BLOCK_SCORES // n_scores, len(embeddings)) // n_threads)
    return [slice(begin, begin + size) for begin in range(0, len(embeddings), size)]


def _checked_pair_relevance(
    relevance: Tensor, queries: Tensor, references: Tensor | None
) -> Tensor:
    """Return the relevance of pairs as float64 on the device of the queries."""
    relevance = torch.as_tensor(relevance).detach().to(queries.device, torch.float64)
    shape = len(queries), len(queries if references is None else references)
    if tuple(relevance.shape) != shape:
        raise InputError(
            f"`relevance` has the shape {tuple(relevance.shape)}; expected {shape}, a row per query and a column per "
            "item"
        )
    invalid = ~(relevance.isfinite() & (relevance >= 0))
    if invalid.any():
        row, column = invalid.nonzero()[0].tolist()
        raise InputError(
            f"`relevance` is {float(relevance[row, column]):g} in row {row}, column {column}; expected 0 or more, "
            "and finite"
        )
    return relevance
