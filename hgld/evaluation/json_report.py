"""Results as JSON, without the values of single queries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hgld.compute.resampling import Interval
from hgld.evaluation.rejection_report import RejectionReport, reports_to_json_values
from hgld.evaluation.results import RetrievalResult
from hgld.version import __version__


def results_to_json(
    results: Sequence[RetrievalResult],
    *,
    intervals: Sequence[Mapping[str, Interval]] | None = None,
    mean: Mapping[str, float] | None = None,
    rejection: Sequence[RejectionReport] | None = None,
) -> str:
    """Format results as JSON.

    ``{"hgld": version, "results": [...], "mean": over the results, by metric, or null}`` with, for each result,
    ``name``; ``means``, from 0 to 1, by metric; ``intervals``, [low, high] of 95 % by metric, or null where they are
    not given; ``counts``; ``settings``. NaN is null. With a rejection score ``rejection`` is the list of
    :func:`~hgld.evaluation.rejection_report.reports_to_json_values`.

    Args:
        results: Results of the parts.
        intervals: Confidence intervals of each result, from :meth:`RetrievalResult.intervals`.
        mean: Mean of each metric over the results, for protocols that report it.
        rejection: Figures of rejected queries, where there is a rejection score.
    """
    entries = [
        {
            "name": result.name,
            "means": result.means,
            "intervals": intervals[row] if intervals is not None else None,
            "counts": result.counts,
            "settings": result.settings,
        }
        for row, result in enumerate(results)
    ]
    values: dict[str, Any] = {"hgld": __version__, "results": entries, "mean": mean}
    if rejection is not None:
        values["rejection"] = reports_to_json_values(rejection)
    return json.dumps(to_json_values(values), indent=2, ensure_ascii=False, allow_nan=False)


def to_json_values(value: Any) -> Any:
    """Return a value as JSON can hold it: NaN as null, NumPy's numbers as numbers, anything unknown as text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
