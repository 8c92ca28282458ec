"""How well a surrogate of the step approximates AP, and which pairs it gives a gradient.

Both are measured on batches: AP_e is Fig. 4 of Smooth-AP (Brown et al., ECCV 2020), the operating region Fig. S7 of
its supplementary material.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from hgld.errors import ConfigurationError, InputError
from hgld.losses.average_precision import SmoothAP, SupAP
from hgld.losses.base import pair_levels
from hgld.losses.kernels.batches import Labels, checked_batch
from hgld.losses.kernels.rank_loss import BLOCK_SCORES
from hgld.losses.kernels.steps import HEAVISIDE, Sigmoid, Step, SupRankStep

#: Slope from which on a gradient is not negligible (Brown et al., supplementary material, section 3).
NEGLIGIBLE_SLOPE = 0.005


@dataclass(frozen=True)
class OperatingShares:
    """Shares of score differences at which a step has a gradient that is not negligible.

    Args:
        pairs: Share of all elements of the difference matrices of Brown et al. (Eq. 4), those of an item with itself
            among them: P of Fig. S7.
        ranked_negatives: Share of the pairs of a positive and a negative.
        wrong_negatives: Share of those pairs whose negative is ranked before the positive; NaN where there are none.
    """

    pairs: float
    ranked_negatives: float
    wrong_negatives: float


def ap_errors(embeddings: torch.Tensor, labels: Labels, step: Step) -> torch.Tensor:
    """Return AP_e = |AP with a surrogate step - AP| of each query of a batch (Brown et al., Eq. 8).

    A sigmoid replaces all steps of the rank, as in Smooth-AP; H^- those of negatives only, as in Sup-AP. The query is
    not its own positive; ties count against the ranking.

    Args:
        embeddings: Float tensor of shape (B, d), unit vectors.
        labels: Integers of shape (B, L), finest level first, or (B,).
        step: The surrogate.

    Returns:
        Tensor of shape (n,), for the n queries that have a positive.

    Raises:
        InputError: The input is malformed, see :meth:`hgld.losses.Loss.forward`.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> ap_errors(embeddings, torch.tensor([0, 0, 1]), Sigmoid(tau=1.0))
    tensor([0.1452, 0.1293])
    """
    scores, levels, n_levels = _scores_and_levels(embeddings, labels)
    surrogate = SmoothAP(step=step) if isinstance(step, Sigmoid) else SupAP(step=step)
    exact = SupAP(step=HEAVISIDE)
    rows = max(1, BLOCK_SCORES // len(scores))
    errors = []
    with torch.no_grad():
        for block in zip(torch.split(scores, rows), torch.split(levels, rows), strict=True):
            values, true_values = (loss.query_losses(*block, n_levels) for loss in (surrogate, exact))
            errors.append((values - true_values).abs()[exact.has_positive(block[1], n_levels)])
    return torch.cat(errors)


def operating_shares(
    embeddings: torch.Tensor, labels: Labels, step: Step, *, threshold: float = NEGLIGIBLE_SLOPE
) -> OperatingShares:
    """Return the shares of score differences in the operating region of a step, |h'(t)| > ``threshold``.

    Differences of scores with each query are counted by sorting, in O(B^2 log B) time for a batch of B.

    Args:
        embeddings: Float tensor of shape (B, d), unit vectors.
        labels: Integers of shape (B, L), finest level first, or (B,).
        step: The step, a sigmoid or H^-.
        threshold: Slope from which on a gradient is not negligible, above 0.

    Raises:
        ConfigurationError: The threshold is not above 0, or the step is another.
        InputError: No query has a positive and a negative, or the input is malformed, see
            :meth:`hgld.losses.Loss.forward`.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> operating_shares(embeddings, torch.tensor([0, 0, 1]), Sigmoid(tau=0.01)).wrong_negatives
    0.0
    >>> operating_shares(embeddings, torch.tensor([0, 0, 1]), SupRankStep(tau=0.01)).wrong_negatives
    1.0
    """
    intervals = operating_intervals(step, threshold)
    scores, levels, n_levels = _scores_and_levels(embeddings, labels)
    scores = scores.double()
    positives, negatives = levels == n_levels, (levels >= 0) & (levels < n_levels)
    everything = torch.ones_like(positives)
    wrong = (0.0, math.inf)
    counts = [
        sum(_pairs_between(scores, everything, everything, each) for each in intervals),
        sum(_pairs_between(scores, positives, negatives, each) for each in intervals),
        sum(_pairs_between(scores, positives, negatives, _intersection(each, wrong)) for each in intervals),
    ]
    n_ranked = int((positives.sum(1) * negatives.sum(1)).sum())
    n_wrong = _pairs_between(scores, positives, negatives, wrong)
    if not n_ranked:
        raise InputError(f"none of {len(scores)} queries has both a positive and a negative in its batch")
    return OperatingShares(
        counts[0] / len(scores) ** 3, counts[1] / n_ranked, counts[2] / n_wrong if n_wrong else math.nan
    )


def operating_intervals(step: Step, threshold: float = NEGLIGIBLE_SLOPE) -> list[tuple[float, float]]:
    """Return the open intervals of score differences at which the slope of a step exceeds a threshold.

    Args:
        step: A sigmoid or H^-.
        threshold: Slope, above 0.

    Raises:
        ConfigurationError: The threshold is not above 0, or the step is another.

    >>> [(round(low, 3), round(high, 3)) for low, high in operating_intervals(Sigmoid(0.01))]
    [(-0.099, 0.099)]
    >>> [(round(low, 3), round(high, 3)) for low, high in operating_intervals(SupRankStep())]
    [(-0.099, 0.05), (0.05, inf)]
    """
    if not threshold > 0:
        raise ConfigurationError(f"`threshold` is {threshold}; expected more than 0")
    if not isinstance(step, Sigmoid | SupRankStep):
        raise ConfigurationError(f"{step} has no operating region; expected a sigmoid or H^-")
    # sigma'(t / tau) / tau > threshold for |t| < t*, where sigma (1 - sigma) = threshold tau
    discriminant = 1 - 4 * threshold * step.tau
    reach = 0.0
    if discriminant > 0:
        high = 2 * threshold * step.tau / (1 + math.sqrt(discriminant))  # the smaller root, without cancellation
        reach = step.tau * math.log((1 - high) / high)
    intervals = [(-reach, reach)]
    if isinstance(step, SupRankStep):
        intervals = [(-reach, min(reach, step.delta))]
        intervals += [(step.delta, math.inf)] * (step.rho > threshold)
    return [(low, high) for low, high in intervals if low < high]


def _scores_and_levels(embeddings: torch.Tensor, labels: Labels) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return the scores of all pairs of a batch, their levels, -1 for the query itself, and the number of levels."""
    x, label_matrix, _, _ = checked_batch(embeddings.detach(), labels)
    levels = pair_levels(label_matrix, label_matrix).fill_diagonal_(-1)
    return x @ x.T, levels, label_matrix.shape[-1]


def _intersection(interval: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    low, high = max(interval[0], other[0]), min(interval[1], other[1])
    return low, max(low, high)


def _pairs_between(
    scores: torch.Tensor, first: torch.Tensor, second: torch.Tensor, interval: tuple[float, float]
) -> int:
    """Count the triples of a query, an item k of ``first`` and a j of ``second`` with low < s_j - s_k < high."""
    low, high = interval
    if low >= high:
        return 0
    ordered = scores.masked_fill(~second, math.inf).sort(dim=1).values
    above = torch.searchsorted(ordered, (scores + low).contiguous(), right=True)
    n_second = second.sum(dim=1, keepdim=True)
    below = n_second if math.isinf(high) else torch.searchsorted(ordered, (scores + high).contiguous())
    return int(torch.where(first, (below - above.minimum(n_second)).clamp(min=0), 0).sum())
