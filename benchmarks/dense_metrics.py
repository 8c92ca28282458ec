"""All metrics the plain way: sort the scores, gather the levels, then arrays of queries x levels x gallery.

It is what the equations say, in float32 and without a thought of memory: the other side of ``evaluate.py``. Every
query must have a positive at the finest level.
"""

from __future__ import annotations

import torch


def dense_metrics(
    queries: torch.Tensor, query_labels: torch.Tensor, gallery: torch.Tensor, gallery_labels: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The metrics of :func:`hgld.evaluate_retrieval`, by the same names, of each query: shape (n_query,).

    Args:
        queries: embeddings of any float type, shape (n_query, d).
        query_labels: int64, shape (n_query, L), finest first.
        gallery: like ``queries``, shape (n_gallery, d).
        gallery_labels: like ``query_labels``, shape (n_gallery, L).
    """
    n_gallery, depth = gallery_labels.shape
    queries, gallery = queries.float(), gallery.float()
    scores = queries @ gallery.T / queries.norm(dim=1, keepdim=True) / gallery.norm(dim=1)
    order = scores.argsort(dim=1, descending=True)
    levels = (query_labels[:, None] == gallery_labels).sum(2).gather(1, order)

    rank = torch.arange(1, n_gallery + 1, device=levels.device)
    of_level = torch.arange(1, depth + 1, device=levels.device)[:, None]
    exact = (levels[:, None] == of_level).float()  # (n_query, L, n_gallery), as all that follows
    member = (levels[:, None] >= of_level).float()
    exact_seen, member_seen = exact.cumsum(2), member.cumsum(2)
    exact_counts, counts = exact_seen[..., -1:], member_seen[..., -1:]

    # Eqs. 9 and 34: precision at the ranks of positives.
    precision = member * member_seen / rank
    ap = precision.sum(2) / counts[..., 0]
    finest, positives = precision[:, -1], counts[:, -1]
    at_r = (finest * (rank <= positives)).sum(1) / positives[:, 0]
    at_100 = finest[:, :100].sum(1) / positives[:, 0].clamp(max=100)

    # Eqs. 18 to 20: of two items the less relevant one counts.
    relevance = of_level / depth / exact_counts.clamp(min=1)
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
