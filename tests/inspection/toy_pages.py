"""Selections of queries with given levels, and descriptions and photographs to show them with."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

from hgld.inspection.method_differences import MethodDifferences, MethodRankings
from hgld.inspection.photos import FindImage, Photo, PhotoSource
from hgld.inspection.queries import TopK, WorstQueries

HOSTILE = """</title><img src=x onerror="document.title='broken'">'"&{{ 7 * 7 }}"""


def picture(_: str) -> Image.Image:
    return Image.new("RGB", (200, 100), "teal")


def photo(position: int) -> Photo:
    return Photo(f"id{position}", (f"Landmark {position}", "lakes"), f"https://example.org/{position}.jpg")


def photos(image: FindImage = picture) -> PhotoSource:
    return PhotoSource(photo, photo, image)


def top_k(levels: npt.NDArray[Any]) -> TopK:
    """Return the gallery items 0, 1, ... with these levels for each query; -1 past the end of the gallery."""
    k = levels.shape[1]
    return TopK(
        scores=np.where(levels < 0, np.nan, 0.9 - 0.1 * np.arange(k)).astype(np.float32),
        positions=np.where(levels < 0, -1, np.arange(k)),
        levels=np.maximum(levels, 0),
    )


def per_query(values: npt.NDArray[Any], n_levels: int) -> pd.DataFrame:
    """Return a table with these values of H-AP, a constant AP, and ten times the positives at each coarser level."""
    n = len(values)
    positives = {f"positives_l{level}": np.full(n, 10 ** (n_levels - level)) for level in range(1, n_levels + 1)}
    table: dict[str, npt.NDArray[Any]] = {"H-AP": values, f"AP_l{n_levels}": np.full(n, 0.0123), **positives}
    frame: pd.DataFrame = pd.DataFrame(table)
    return frame


def worst_queries(levels: list[list[int]], n_levels: int = 3) -> WorstQueries:
    """Return the queries 10, 11, ... whose top-k items have these levels."""
    n = len(levels)
    return WorstQueries(
        metric="H-AP",
        n_levels=n_levels,
        per_query=per_query(np.linspace(0.1, 0.2, n), n_levels),
        queries=np.arange(n) + 10,
        top_k=top_k(np.array(levels)),
    )


def method_differences(
    levels: list[list[list[int]]], n_improved: int, names: tuple[str, str] = ("Smooth-AP", "HAPPIER")
) -> MethodDifferences:
    """Return the queries 10, 11, ... whose top-k items have these levels, for the baseline and for the method."""
    n = len(levels)
    gain = np.where(np.arange(n) < n_improved, 0.25, -0.125)
    baseline, method = (
        MethodRankings(name, per_query(0.5 + column * gain, 3), top_k(np.array([row[column] for row in levels])))
        for column, name in enumerate(names)
    )
    return MethodDifferences(
        metric="H-AP",
        level_names=("landmark", "hierarchical_label", "root"),
        n_levels=3,
        queries=np.arange(n) + 10,
        n_improved=n_improved,
        baseline=baseline,
        method=method,
        total_improved=1200,
        total_degraded=34,
        total_equal=0,
        mean_difference=-0.012,
    )
