"""Sums of smooth steps without pairs: O(N log N) for each query, where pairs take O(N^2).

The sum S_k (see :mod:`~hgld.losses.kernels.step_sums`) depends on k only by its level a and its score: it is the
value at s_k of one of L functions, F_a(x) = sum over j of w[a, lv_j] h(s_j - x). A step, whose line begins at c, is

::

    h(t) = g(t) + [t > c] (height + slope (t - c))

where g is sigma(t / tau) up to c and its tangent beyond. The edge of h is in the other term, which is exact: counts
and sums of the scores above x + c, from cumulative sums over the sorted scores. g is smooth, and interpolated on a
grid of points tau / 10 apart: items are spread to the four points around them with the weights of cubic
interpolation, the points are convolved with g by FFT, and F_a is read from the result, again by cubic interpolation.

The derivative of F_a is computed in the same way with h' for h. So is the gradient: S_k depends on the score of item
j by h'(s_j - s_k), so upstream gradients u_k give it

    sum over k of u_k w[lv_k, lv_j] h'(s_j - s_k)

which is a sum of the same kind, with sources and targets exchanged. Each operation becomes its transpose.

**Error bounds.** For one pair, this is cubic interpolation of g(y - x) in both x and y. In units of tau, with
d = c / tau and points r = 1/10 apart, its error is at most

::

    K4 r^4 max |g''''| + K2 r^2 |jump of g'' at d| + K3 r^3 |jump of g''' at d|

where K4 = (1 + 5/4) 3/128 (the remainder of Lagrange's formula for one variable, plus that for the other times the
Lebesgue constant), and K2 = 0.0467 and K3 = 0.0353 are the largest errors for (t - d)_+^2 / 2 and (t - d)_+^3 / 6 on
a grid of width 1. As g is a tangent beyond d, its derivatives jump by those of sigma at d: sigma'' and sigma'''. For
h', sigma' takes the place of sigma, and sigma''' and sigma'''' jump. Hence, with sums over all items, k included,

::

    |error of S_k| <= e_value (sum over j of |w_kj|)
    |error of the gradient of item j| <= e_slope / tau (sum over k of |u_k w_kj| + |u_j| sum over k of |w_jk|)

============================  =======  =======
step                          e_value  e_slope
============================  =======  =======
sigmoid                       6.8e-7   1.4e-6
d = 5, as in the paper        4.0e-6   4.6e-6
d = 0                         5.1e-6   6.0e-5
any other d                   4.6e-5   6.1e-5
============================  =======  =======

Errors of pairs differ in sign and mostly cancel: with the settings of the papers, ranks have relative errors of about
1e-6. They have the same sign where most scores lie within a few cells: then an error is up to its bound, and that of
the gradient, 6e-6 of its terms. These are large there, 1 / (4 tau) for each pair: for thousands of items, 4e-6 of
them are 1e-1. So where all scores of a call span few cells, cells are narrower (``MIN_CELLS``), and only rounding is
left, for float32 a few times 6e-8 of the terms.
"""

from __future__ import annotations

import torch

from hgld.losses.kernels.interpolation import Interpolation
from hgld.losses.kernels.interpolation_grid import Grid
from hgld.losses.kernels.sorting import Ranking
from hgld.losses.kernels.steps import Sigmoid, SupRankStep

#: Grid cells per tau, at least.
CELLS_PER_TAU = 10
#: Least number of cells that the scores of one call span, unless cells are narrower than tau / 10^5 then.
MIN_CELLS = 256
#: Largest number of cells, which bounds the memory: cosines span 2,000 with a tau of 0.01.
MAX_CELLS = 2**20


def grid_over(scores: torch.Tensor, step: Sigmoid | SupRankStep) -> Grid | None:
    """Return the grid to interpolate a step over a range of scores, or None where it would have too many cells.

    Args:
        scores: Float tensor with at least one element; there is no grid for scores that are not finite.
        step: Step of the sums.
    """
    lowest, highest = (bound.item() for bound in torch.aminmax(scores.detach()))
    if not (highest - lowest) * CELLS_PER_TAU / step.tau <= MAX_CELLS:
        return None
    width = min(step.tau / CELLS_PER_TAU, max((highest - lowest) / MIN_CELLS, step.tau / 1e5))
    return Grid(lowest, highest, width, scores.device)


def interpolated_sums(
    scores: torch.Tensor,
    levels: torch.Tensor,
    weights: torch.Tensor,
    step: Sigmoid | SupRankStep,
    grid: Grid,
    ranking: Ranking | None = None,
) -> torch.Tensor:
    """Return the :func:`~hgld.losses.kernels.step_sums.step_sums` of smooth steps, for many items.

    Arguments and result are the same, up to the error bounds in the module docstring. Between the passes each score
    takes some 40 bytes.

    Args:
        scores: See there.
        levels: See there.
        weights: See there.
        step: Step without a jump at 0, see :meth:`Step.split() <hgld.losses.kernels.steps.Step.split>`.
        grid: Grid over these scores, of :func:`grid_over`.
        ranking: See there.
    """
    ranking = ranking or Ranking(scores, levels)
    return Interpolation.apply(scores, ranking, weights, step, grid)  # type: ignore[no-any-return]
