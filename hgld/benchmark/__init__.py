"""Comparison of retrieval methods over several seeds and splits: runs, evaluation, statistics, result files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.benchmark.benchmark_settings import BenchmarkSettings
    from hgld.benchmark.comparison import Comparison, ComparisonSummary, compare_methods, read_comparison
    from hgld.benchmark.cost_estimate import CostEstimate, estimate_cost
    from hgld.benchmark.launcher import LocalLauncher, Slot, parse_slots
    from hgld.benchmark.slurm_launcher import SlurmLauncher

__all__ = [
    "BenchmarkSettings",
    "Comparison",
    "ComparisonSummary",
    "CostEstimate",
    "LocalLauncher",
    "Slot",
    "SlurmLauncher",
    "compare_methods",
    "estimate_cost",
    "parse_slots",
    "read_comparison",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "BenchmarkSettings": "benchmark_settings",
        "Comparison": "comparison",
        "ComparisonSummary": "comparison",
        "CostEstimate": "cost_estimate",
        "LocalLauncher": "launcher",
        "SlurmLauncher": "slurm_launcher",
        "Slot": "launcher",
        "compare_methods": "comparison",
        "estimate_cost": "cost_estimate",
        "parse_slots": "launcher",
        "read_comparison": "comparison",
    },
)
