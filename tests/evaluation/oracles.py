"""Every metric as its equation says, for one ranking: slow, plain loops.

``levels`` are those of the ranked items, best rank first, from 0 (nothing in common) to L. Equations and appendices
are those of the paper unless said. NaN where a metric has no positive that it could be about.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

Levels = Sequence[int]


def is_positive(levels: Levels, level: int) -> list[bool]:
    """Which items are in Omega^(+,l), the union of Omega^(q) for q >= l."""
    return [item >= level for item in levels]


def average_precision(levels: Levels, level: int) -> float:
    """Eq. 34 (Eq. 9 at the finest level): mean over positives k of rank^+(k) / rank(k)."""
    positive = is_positive(levels, level)
    if not any(positive):
        return math.nan
    total = 0.0
    for k in range(len(levels)):
        if positive[k]:
            rank_plus = 1 + sum(positive[j] for j in range(k))
            total += rank_plus / (k + 1)
    return total / sum(positive)


def map_at_r(levels: Levels, level: int) -> float:
    """Musgrave et al.: (1/R) sum over the first R ranks of precision at the rank, if its item is positive."""
    positive = is_positive(levels, level)
    n_positive = sum(positive)
    if not n_positive:
        return math.nan
    return sum(sum(positive[:k]) / k for k in range(1, n_positive + 1) if positive[k - 1]) / n_positive


def map_at_k(levels: Levels, level: int, k: int) -> float:
    """Weyand et al.: (1/min(R, k)) sum over the first k ranks of precision at the rank, if its item is positive."""
    positive = is_positive(levels, level)
    if not any(positive):
        return math.nan
    return sum(sum(positive[:n]) / n for n in range(1, k + 1) if positive[n - 1]) / min(sum(positive), k)


def recall_at_k(levels: Levels, level: int, k: int) -> float:
    """Eq. 13; NaN, not 0, without positives."""
    positive = is_positive(levels, level)
    return float(any(positive[:k])) if any(positive) else math.nan


def true_recall_at_k(levels: Levels, level: int, k: int) -> float:
    """Eq. 14."""
    positive = is_positive(levels, level)
    return sum(positive[:k]) / min(k, sum(positive)) if any(positive) else math.nan


def precision_at_k(levels: Levels, level: int, k: int) -> float:
    positive = is_positive(levels, level)
    return sum(positive[:k]) / k if any(positive) else math.nan


def weighted_average_precision(levels: Levels, weights: Sequence[float]) -> float:
    """Property 1: sum over l of w_l AP^(l), coarsest first, over the levels that have positives."""
    known = [
        (weight, average_precision(levels, level))
        for level, weight in enumerate(weights, start=1)
        if any(is_positive(levels, level))
    ]
    return sum(weight * ap for weight, ap in known) / sum(weight for weight, _ in known) if known else math.nan


def equation_20(levels: Levels, n_levels: int, alpha: float = 1.0, count_query: bool = False) -> list[float]:
    """Eq. 20 for l = 0, ..., L: (l/L)^alpha / |Omega^(l)|, the query counted in Omega^(L) or not."""
    table = [0.0]
    for level in range(1, n_levels + 1):
        size = sum(item == level for item in levels)
        counted = size + (count_query and level == n_levels)
        table.append((level / n_levels) ** alpha / counted if size else 0.0)
    return table


def property_1(levels: Levels, weights: Sequence[float]) -> list[float]:
    """Property 1 for l = 0, ..., L: sum over p <= l of w_p / |Omega^(+,p)|, weights coarsest first."""
    table = [0.0]
    for level in range(1, len(weights) + 1):
        sizes = [sum(is_positive(levels, p)) for p in range(1, level + 1)]
        table.append(sum(weight / size for weight, size in zip(weights, sizes, strict=False) if size))
    return table


def h_rank_plus(levels: Levels, table: Sequence[float], k: int) -> float:
    """Eq. 18 for the item at position k: rel(k) + sum over the items j before it of min(rel(k), rel(j))."""
    return table[levels[k]] + sum(min(table[levels[k]], table[levels[j]]) for j in range(k) if levels[j] > 0)


def h_ap(levels: Levels, table: Sequence[float]) -> float:
    """Eq. 19, with the relevance table[l] of an item of level l."""
    positives = [k for k in range(len(levels)) if levels[k] > 0]
    total = sum(table[levels[k]] for k in positives)
    return sum(h_rank_plus(levels, table, k) / (k + 1) for k in positives) / total if total else math.nan


def h_recall_at_k(levels: Levels, table: Sequence[float], k: int) -> float:
    """Eq. 30."""
    total = sum(table[level] for level in levels)
    return sum(table[level] for level in levels[:k]) / total if total else math.nan


def h_precision_at_k(levels: Levels, table: Sequence[float], k: int) -> float:
    """Eq. 31; NaN where rel(k) = 0."""
    own = table[levels[k - 1]]
    return sum(min(table[level], own) for level in levels[:k]) / (k * own) if own else math.nan


def ndcg(levels: Levels, gain: Sequence[float], k: int | None = None) -> float:
    """Eq. 23, over the first k ranks where k is given."""
    gains = [gain[level] for level in levels]
    ideal = sorted(gains, reverse=True)

    def dcg(values: Sequence[float]) -> float:
        return sum(value / math.log2(1 + rank) for rank, value in enumerate(values[:k], start=1))

    return dcg(gains) / dcg(ideal) if any(gains) else math.nan


def asi(levels: Levels) -> float:
    """App. C-A1: items of one level may stand for each other, so the intersection of multisets of levels."""
    n_positive = sum(is_positive(levels, 1))
    if not n_positive:
        return math.nan
    return sum(set_intersection(levels, n) for n in range(1, n_positive + 1)) / n_positive


def set_intersection(levels: Levels, n: int) -> float:
    """SI(n) of App. C-A1, which is defined for n up to the number of positives."""
    if n > sum(is_positive(levels, 1)):
        return math.nan
    first, best = list(levels[:n]), sorted(levels, reverse=True)[:n]
    return sum(min(first.count(level), best.count(level)) for level in set(best)) / n


def tree_similarities(levels: Levels, n_levels: int, wu_palmer: bool) -> list[float]:
    """Similarity of each item: 1 - height(lca) / L, or 2 D(lca) / (D(a) + D(b)) with D(root) = 1."""
    depth = n_levels + 1
    return [2 * (level + 1) / (depth + depth) if wu_palmer else 1 - (n_levels - level) / n_levels for level in levels]


def hierarchical_precisions(levels: Levels, n_levels: int, wu_palmer: bool) -> list[float]:
    """HP@1, ..., HP@N: similarity of the first k, divided by that of the k most similar items."""
    similarities = tree_similarities(levels, n_levels, wu_palmer)
    best = sorted(similarities, reverse=True)
    if not any(levels):
        return [math.nan] * len(levels)
    return [sum(similarities[:k]) / sum(best[:k]) for k in range(1, len(levels) + 1)]


def area(precisions: Sequence[float]) -> float:
    """Trapezoids between neighbours, 1/k wide; NaN where the precisions are."""
    return sum(((a + b) / 2 / len(precisions) for a, b in pairwise(precisions)), 0 * precisions[0])


def lca_heights(levels: Levels, n_levels: int) -> list[int]:
    """Height of the lowest common ancestor of the query's class and that of each item."""
    return [n_levels - level for level in levels]


def algorithm_1(query: Sequence[Sequence[int]], item: Sequence[Sequence[int]], n_levels: int) -> float:
    """The thesis's Algorithm 1: each label of the query adds l* / (n L), L - l* the least LCA distance to a label."""
    relevance = 0.0
    for own in query:
        distances = []
        for other in item:
            shared = sum(a == b for a, b in zip(own, other, strict=True))
            distances.append(n_levels - shared)
        relevance += (n_levels - min(distances)) / (len(query) * n_levels)
    return relevance


def best_level(query: Sequence[Sequence[int]], item: Sequence[Sequence[int]]) -> int:
    """The finest level (1: coarsest) at which any label of the query equals any label of the item; 0 if none does."""
    levels = [0]
    for own in query:
        for other in item:
            levels += [len(own) - column for column in range(len(own)) if own[column] == other[column]]
    return max(levels)


def by_name(levels: Levels, n_levels: int, alpha: float = 1.0, cutoffs: Sequence[int] = ()) -> dict[str, float]:
    """All metrics that have a name in :mod:`hgld.evaluation.metrics`, with the relevances of the paper."""
    table = equation_20(levels, n_levels, alpha)
    gain = [2.0**level - 1 for level in range(n_levels + 1)]
    values = {
        "wAP": weighted_average_precision(levels, [1.0] * n_levels),
        "H-AP": h_ap(levels, table),
        "H-AP_selfcount": h_ap(levels, equation_20(levels, n_levels, alpha, count_query=True)),
        "NDCG": ndcg(levels, gain),
        "ASI": asi(levels),
    }
    at_k: dict[str, Callable[[Levels, int, int], float]] = {
        "mAP@": map_at_k,
        "R@": recall_at_k,
        "TR@": true_recall_at_k,
        "P@": precision_at_k,
    }
    for level in range(1, n_levels + 1):
        values[f"AP_l{level}"] = average_precision(levels, level)
        values[f"mAP@R_l{level}"] = map_at_r(levels, level)
        values |= {
            f"{name}{k}_l{level}": function(levels, level, k) for k in cutoffs for name, function in at_k.items()
        }
    for k in cutoffs:
        values[f"H-R@{k}"] = h_recall_at_k(levels, table, k)
        values[f"H-P@{k}"] = h_precision_at_k(levels, table, k)
        values[f"NDCG@{k}"] = ndcg(levels, gain, k)
        values[f"SI@{k}"] = set_intersection(levels, k)
    return values | on_trees(levels, n_levels, cutoffs)


def on_trees(levels: Levels, n_levels: int, cutoffs: Sequence[int]) -> dict[str, float]:
    values: dict[str, float] = {}
    heights, similarities = lca_heights(levels, n_levels), tree_similarities(levels, n_levels, wu_palmer=True)
    answerable = n_levels in levels
    for suffix, wu_palmer in (("", False), ("_WUP", True)):
        precisions = hierarchical_precisions(levels, n_levels, wu_palmer)
        for end, k in [("", len(levels)), *((f"@{k}", k) for k in cutoffs)]:
            values[f"AHP{suffix}{end}"] = sum(precisions[:k]) / k
            values[f"AHP{suffix}_trapezoid{end}"] = area(precisions[:k])
        for k in cutoffs:
            values[f"HP{suffix}@{k}"] = precisions[k - 1]
    for k in cutoffs:
        values[f"WUP@{k}"] = sum(similarities[:k]) / k if any(levels) else math.nan
        values[f"avg_hdist@{k}"] = sum(heights[:k]) / k if answerable else math.nan
        values[f"min_hdist@{k}"] = min(heights[:k]) if answerable else math.nan
    values["hF"] = levels[0] / n_levels if any(levels) else math.nan  # {ancestors} of both: L, of which l are shared
    values["mistake_severity"] = heights[0] if answerable and levels[0] < n_levels else math.nan
    return values
