"""Units of metrics in tables and figures.

Most metrics are shares from 0 to 1, shown in percent, and higher is better. Distances are numbers of levels of a
tree, shown as they are, and lower is better.
"""

from __future__ import annotations

import math

#: Metrics in levels, without their cutoff.
DISTANCES = ("mistake_severity", "avg_hdist", "min_hdist")


def is_distance(metric: str) -> bool:
    """Return whether a metric is a number of levels, where lower is better, and not a share.

    The name of a test set may precede the name of the metric, as in comparisons on several sets.

    >>> is_distance("avg_hdist@5"), is_distance("small avg_hdist@5"), is_distance("H-AP")
    (True, True, False)
    """
    return metric.rpartition(" ")[2].partition("@")[0] in DISTANCES


def shown_value(metric: str, value: float) -> float:
    """Return a value in the unit of tables: levels for a distance, percent for other metrics.

    >>> shown_value("mistake_severity", 1.5), shown_value("H-AP", 0.5)
    (1.5, 50.0)
    """
    if is_distance(metric):
        return value
    return 100 * value


def goodness(metric: str, value: float) -> float:
    """Return a number that is higher for a better value of the metric, and lowest for NaN."""
    if math.isnan(value):
        return -math.inf
    if is_distance(metric):
        return -value
    return value


def with_unit(metric: str) -> str:
    """Return the name of a metric with its unit, for the axis of a figure.

    >>> with_unit("avg_hdist@5"), with_unit("H-AP")
    ('avg_hdist@5 in levels', 'H-AP in %')
    """
    unit = "levels" if is_distance(metric) else "%"
    return f"{metric} in {unit}"


def percent_title(metric: str) -> str:
    """Return the title of a metric in a table of percentages, with the unit of a distance.

    >>> percent_title("avg_hdist@5"), percent_title("H-AP")
    ('avg_hdist@5 in levels', 'H-AP')
    """
    if is_distance(metric):
        return with_unit(metric)
    return metric
