"""Coefficients of inter-annotator agreement on nominal categories.

- Raw agreement: share of units that two annotators put into the same category.
- Cohen's kappa: agreement of two annotators beyond chance, given how often each uses every category (J. Cohen,
  "A Coefficient of Agreement for Nominal Scales", Educational and Psychological Measurement 20, 1960).
- Krippendorff's alpha for nominal data: agreement of any number of annotators with missing values (K. Krippendorff,
  "Computing Krippendorff's Alpha-Reliability", 2011).

All take weights of the units; an integer weight w is equivalent to w equal units. Several weightings can be passed at
once, as a bootstrap needs them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Categories, numbered from 0; ``MISSING`` where there is no decision.
Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Code of a unit that an annotator did not decide.
MISSING = -1


def raw_agreement(first: Codes, second: Codes, weights: Floats) -> Floats:
    """Return the weighted share of units with the same category, ``sum(w[a == b]) / sum(w)``.

    Only units that both annotators decided count.

    Args:
        first: Categories chosen by one annotator, int64, shape (n,).
        second: Categories chosen by the other annotator, int64, shape (n,).
        weights: Weights of the units, shape (..., n); each row is one weighting.

    Returns:
        Agreement for each weighting, shape (...,); NaN where the total weight is 0.

    >>> float(raw_agreement(np.array([0, 1, 1]), np.array([0, 1, 0]), np.array([1.0, 1.0, 2.0])))
    0.5
    """
    first, second, weights = _decided_by_both(first, second, weights)
    with np.errstate(invalid="ignore"):
        return np.asarray((weights @ (first == second)) / weights.sum(axis=-1))


def cohen_kappa(first: Codes, second: Codes, weights: Floats) -> Floats:
    """Return Cohen's kappa, ``(p_o - p_e) / (1 - p_e)``.

    ``p_o`` is the raw agreement and ``p_e = sum_c p_c q_c``, where ``p_c`` and ``q_c`` are the weighted shares of
    category c in the decisions of the two annotators.

    Returns:
        Kappa for each weighting, shape (...,); NaN where both annotators use only one category, the same.

    >>> float(cohen_kappa(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]), np.ones(4)))
    0.5
    """
    first, second, weights = _decided_by_both(first, second, weights)
    observed = raw_agreement(first, second, weights)
    n_categories = 1 + int(max(first.max(initial=0), second.max(initial=0)))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = [
            weights @ np.eye(n_categories)[codes] / weights.sum(axis=-1, keepdims=True) for codes in (first, second)
        ]
        expected = (shares[0] * shares[1]).sum(axis=-1)
        return np.asarray((observed - expected) / (1 - expected))


def krippendorff_alpha(codes: Codes, weights: Floats) -> Floats:
    """Return Krippendorff's alpha for nominal data, ``1 - D_o / D_e``.

    Let ``n_uc`` be the number of annotators who put unit u into category c and ``m_u = sum_c n_uc``. All sums are
    over the units with ``m_u >= 2``::

        D_o = sum_u w_u (m_u^2 - sum_c n_uc^2) / (m_u - 1)
        D_e = (n^2 - sum_c n_c^2) / (n - 1),    n_c = sum_u w_u n_uc,    n = sum_c n_c

    These are the off-diagonal sums of the paper's matrices of observed and expected coincidences, in which each unit
    counts ``w_u`` times.

    Args:
        codes: Categories chosen by the annotators, int64, shape (n, n_annotators).

    Returns:
        Alpha for each weighting, shape (...,); NaN where only one category is used.

    >>> round(float(krippendorff_alpha(np.array([[0, 0], [1, 1], [0, 1], [0, MISSING]]), np.ones(4))), 3)
    0.444
    """
    counts = (codes[:, :, None] == np.arange(codes.max(initial=0) + 1)).sum(axis=1)
    pairable = counts.sum(axis=1) >= 2
    counts, weights = counts[pairable], weights[..., pairable]
    decided = counts.sum(axis=1)
    totals = weights @ counts
    n = totals.sum(axis=-1)
    observed = weights @ ((decided**2 - (counts**2).sum(axis=1)) / (decided - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - observed * (n - 1) / (n**2 - (totals**2).sum(axis=-1)))


def _decided_by_both(first: Codes, second: Codes, weights: Floats) -> tuple[Codes, Codes, Floats]:
    both = (first != MISSING) & (second != MISSING)
    return first[both], second[both], weights[..., both]
