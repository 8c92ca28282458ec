"""Sample results for the tests of tables and files."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hgld.evaluation.results import RetrievalResult

SETTINGS = {
    "relevance": "(l/L)^1 / |Omega^(l)|",
    "gain": "2^l - 1",
    "level_weights": "equal",
    "ties": "pessimistic",
    "precision": "float32",
    "distance": "cosine",
    "query_counted": "H-AP_selfcount only",
}


def result(
    name: str = "all",
    means: Mapping[str, float] | None = None,
    counts: Mapping[str, int] | None = None,
    settings: Mapping[str, Any] | None = None,
    n_levels: int = 3,
) -> RetrievalResult:
    """Return a result of two queries, both with these values."""
    means = means or {"H-AP": 0.5}
    positives = {f"positives_l{level}": 2 for level in range(1, n_levels + 1)}
    without = {f"without_{column}": 0 for column in positives}
    return RetrievalResult(
        name=name,
        per_query=pd.DataFrame(dict(means) | positives, index=pd.Index(["a", "b"], name="query")),
        metrics=tuple(means),
        counts={"queries": 2, "gallery": 1234567} | without | dict(counts or {}),
        settings=SETTINGS | dict(settings or {}),
    )
