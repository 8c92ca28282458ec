"""Look into an evaluation: worst queries, differences between methods, curves, score distributions, photo pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.inspection.curves import precision_recall
    from hgld.inspection.mean_embeddings import class_means, neighbour_agreement
    from hgld.inspection.method_differences import find_method_differences
    from hgld.inspection.photos import Photo, PhotoSource
    from hgld.inspection.query_pages import write_method_differences_page, write_worst_queries_page
    from hgld.inspection.score_distributions import count_scores
    from hgld.inspection.worst_queries import find_worst_queries

__all__ = [
    "Photo",
    "PhotoSource",
    "class_means",
    "count_scores",
    "find_method_differences",
    "find_worst_queries",
    "neighbour_agreement",
    "precision_recall",
    "write_method_differences_page",
    "write_worst_queries_page",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Photo": "photos",
        "PhotoSource": "photos",
        "class_means": "mean_embeddings",
        "count_scores": "score_distributions",
        "find_method_differences": "method_differences",
        "find_worst_queries": "worst_queries",
        "neighbour_agreement": "mean_embeddings",
        "precision_recall": "curves",
        "write_method_differences_page": "query_pages",
        "write_worst_queries_page": "query_pages",
    },
)
