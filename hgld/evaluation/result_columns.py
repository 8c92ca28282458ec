"""Columns of result tables: which metrics there are, and the cells of one metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hgld.errors import ConfigurationError
from hgld.evaluation.metric_units import goodness, shown_value
from hgld.evaluation.results import RetrievalResult


def metric_names(results: Iterable[RetrievalResult]) -> list[str]:
    """Return the metrics of all results, without repetition, in their order."""
    return list(dict.fromkeys(name for result in results for name in result.metrics))


def select_metrics(wanted: Sequence[str], available: Sequence[str]) -> list[str]:
    """Return those of the wanted metrics that are available.

    Raises:
        ConfigurationError: None of them is.
    """
    columns = [name for name in wanted if name in available]
    if not columns:
        raise ConfigurationError(f"no result has {', '.join(wanted)}; the metrics are {', '.join(available)}")
    return columns


def mark_best(metric: str, means: Sequence[float], best: str, second: str, *, decimals: int = 1) -> list[str]:
    """Format the cells of a column in the unit of its metric, the best and the second in formats of their own.

    Means are compared after rounding: several can be best, and then none is second; a single one is neither.

    Args:
        metric: Metric of the column: shares are shown in percent, distances in levels, of which fewer are better.
        means: Values; the cell of NaN is empty.
        best: Format of the best cells, with ``{}`` for the number.
        second: Format of the second-best cells.
        decimals: Number of decimals.

    >>> mark_best("H-AP", [0.1234, 0.25, math.nan, 0.1], "**{}**", "_{}_")
    ['_12.3_', '**25.0**', '', '10.0']
    """
    shown = [round(shown_value(metric, mean), decimals) for mean in means]
    known = (value for value in shown if not math.isnan(value))
    order = sorted(known, key=lambda value: goodness(metric, value), reverse=True)
    formats = {order[1]: second, order[0]: best} if len(order) > 1 else {}  # the same value twice: both are best
    return ["" if math.isnan(value) else formats.get(value, "{}").format(f"{value:.{decimals}f}") for value in shown]
