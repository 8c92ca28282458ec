"""Straightforward implementation of all metrics, the reference of ``evaluate.py``.

It sorts the scores, gathers the levels, and follows the equations with float32 arrays of queries x levels x gallery,
regardless of memory. Every query must have a positive at the finest level.
"""

from __future__ import annotations

import torch


def dense_metrics(
    queries: torch.Tensor, query_labels: torch.Tensor, gallery: torch.Tensor, gallery_labels: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the metrics of :func:`hgld.evaluate_retrieval`, by the same names, per query: shape (n_query,).

    Args:
        queries: Embeddings of any float type, shape (n_query, d).
        query_labels: int64, shape (n_query, L), finest first.
        gallery: Like ``queries``, shape (n_gallery, d).
        gallery_labels: Like ``query_labels``, shape (n_gallery, L).
    """
    n_gallery, depth = gallery_labels.shape
    queries, gallery = queries.float(), gallery.float()
    scores = queries @ gallery.T / queries.norm(dim=1, keepdim=True) / gallery.norm(dim=1)
    order = scores.argsort(dim=1, descending=True)
    levels = (query_labels[:, None] == gallery_labels).sum(2).gather(1, order)

    rank = torch.arange(1, n_gallery + 1, device=levels.device)
    level_numbers = torch.arange(1, depth + 1, device=levels.device)[:, None]
    exact = (levels[:, None] == level_numbers).float()  # (n_query, L, n_gallery), like the arrays below
    member = (levels[:, None] >= level_numbers).float()
    exact_seen, member_seen = exact.cumsum(2), member.cumsum(2)
    exact_counts, counts = exact_seen[..., -1:], member_seen[..., -1:]

    # Eqs. 9 and 34: precision at the ranks of positives.
    precision = member * member_seen / rank
    ap = precision.sum(2) / counts[..., 0]
    finest, positives = precision[:, -1], counts[:, -1]
    at_r = (finest * (rank <= positives)).sum(1) / positives[:, 0]
    at_100 = finest[:, :100].sum(1) / positives[:, 0].clamp(max=100)

    # Eqs. 18 to 20: a pair of items counts with the smaller of both relevances.
    relevance = level_numbers / depth / exact_counts.clamp(min=1)
    own = (exact * relevance).sum(1, keepdim=True)
    h_rank = (exact_seen * torch.minimum(relevance, own)).sum(1)
    h_ap = (h_rank / rank).sum(1) / own.sum((1, 2))

    # Eq. 23.
    discount = 1 / torch.log2(1 + rank)
    gains, ideal = (2.0**levels - 1), (2.0 ** levels.sort(dim=1, descending=True).values - 1)
    ndcg = (gains * discount).sum(1) / (ideal * discount).sum(1)

    # App. C-A1: a perfect ranking has the levels in order, the finest first.
    before = counts - exact_counts
    ideal_seen = (rank - before).clamp(min=0).minimum(exact_counts)
    overlap = torch.minimum(exact_seen, ideal_seen).sum(1) / rank
    asi = (overlap * (rank <= counts[:, 0])).sum(1) / counts[:, 0, 0]

    aps = {f"AP_l{level}": ap[:, level - 1] for level in range(depth, 0, -1)}
    first = member[:, -1, 0]
    return {"mAP@100": at_100, "mAP@R": at_r, "R@1": first, "H-AP": h_ap, "NDCG": ndcg, "ASI": asi, **aps}
