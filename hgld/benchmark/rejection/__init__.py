"""Comparison of rejection scores and embeddings on open-set splits: scores, statistics, result files, pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.benchmark.rejection.comparison import RejectionSummary, compare_rejection
    from hgld.benchmark.rejection.comparison_settings import RejectionSettings, read_rejection_settings
    from hgld.benchmark.rejection.plan import RejectionPlan, plan_comparison

__all__ = [
    "RejectionPlan",
    "RejectionSettings",
    "RejectionSummary",
    "compare_rejection",
    "plan_comparison",
    "read_rejection_settings",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "RejectionPlan": "plan",
        "RejectionSettings": "comparison_settings",
        "RejectionSummary": "comparison",
        "compare_rejection": "comparison",
        "plan_comparison": "plan",
        "read_rejection_settings": "comparison_settings",
    },
)
