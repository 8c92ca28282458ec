"""Sums of steps over the items of a retrieval set: every rank of every rank loss is one of them.

For a query with scores s_j and levels lv_j, and a weight w for each pair of levels,

    S_k = sum over j != k of w[lv_k, lv_j] h(s_j - s_k)

is rank^+(k) - 1 with w = [lv_j >= lv_k] and Heaviside's step, rank^-(k) with w = [lv_j < lv_k] and a smooth one
(paper, Eq. 3), and H-rank^+(k) - rel(k) with w = min(rel_k, rel_j) among positives (Eq. 18).
"""

from __future__ import annotations

import torch

from hgld.retrieval.losses.steps import Step


def step_sums(scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step) -> torch.Tensor:
    """S_k of every positive item k of every query; see the module for the formula.

    Args:
        scores: float32 or float64, shape (n_query, n_items); the only argument that has a gradient.
        levels: int64, the same shape; 0 to L, or -1 for an item that is not in the query's retrieval set.
        weights: the dtype of ``scores``, shape (n_query or 1, L + 1, L + 1): of a pair by the levels of k and j.
        step: h.

    Returns:
        The dtype and shape of ``scores``; 0 where the level of k is below 1.
    """
    raise NotImplementedError
