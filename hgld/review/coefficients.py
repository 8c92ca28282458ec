"""Coefficients of agreement between annotators who put units into categories.

- Raw agreement: the share of units that two annotators put into the same category.
- Cohen's kappa: agreement of two beyond what their own shares of the categories would give by chance (J. Cohen,
  "A Coefficient of Agreement for Nominal Scales", Educational and Psychological Measurement 20, 1960).
- Krippendorff's alpha for nominal data: of any number of annotators, some of whom may be missing on a unit
  (K. Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011).

All take weights of units, of which a whole number means the same as so many equal units; and many weightings at
once, as a bootstrap needs them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Categories, numbered from 0.
Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

#: In place of a category, where an annotator did not decide.
MISSING = -1


def raw_agreement(first: Codes, second: Codes, weights: Floats) -> Floats:
    """The weighted share of units with the same category, ``sum(w[a == b]) / sum(w)``.

    Args:
        first: categories by one annotator, shape (n,), or ``MISSING``.
        second: by the other, shape (n,); only units that both decided count.
        weights: shape (..., n), each row a weighting.

    Returns:
        Shape (...,); NaN where the units decided by both weigh nothing.
    """
    first, second, weights = _decided_by_both(first, second, weights)
    with np.errstate(invalid="ignore"):
        return np.asarray((weights @ (first == second)) / weights.sum(axis=-1))


def cohen_kappa(first: Codes, second: Codes, weights: Floats) -> Floats:
    """Cohen's kappa, ``(p_o - p_e) / (1 - p_e)``.

    ``p_o`` is the raw agreement and ``p_e = sum_c p_c q_c`` with the weighted shares ``p_c`` and ``q_c`` of
    category c in the decisions of either.

    Args:
        first: as in :func:`raw_agreement`.
        second: likewise.
        weights: likewise.

    Returns:
        Shape (...,); NaN where both use one and the same category only.
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
    """Krippendorff's alpha for nominal data, ``1 - D_o / D_e``.

    With ``n_uc`` the number of annotators who put unit u into category c, ``m_u = sum_c n_uc``, and all sums over
    the units with ``m_u >= 2``::

        D_o = sum_u w_u (m_u^2 - sum_c n_uc^2) / (m_u - 1)
        D_e = (n^2 - sum_c n_c^2) / (n - 1),    n_c = sum_u w_u n_uc,    n = sum_c n_c

    These are the sums off the diagonal of the paper's coincidence matrix and of what it would be by chance, with
    each unit standing in it ``w_u`` times.

    Args:
        codes: categories, shape (n, n_annotators), or ``MISSING``.
        weights: shape (..., n), each row a weighting.

    Returns:
        Shape (...,); NaN where one category only is used.
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
