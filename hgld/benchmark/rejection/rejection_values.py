"""Values of a comparison: metrics by embedding, score and unknown images, and their differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.benchmark.rejection.comparison_settings import ALL_UNKNOWN, RejectionSettings
from hgld.benchmark.rejection.landmark_bootstrap import METRICS, Floats, LandmarkDraws, ScoredQueries
from hgld.benchmark.rejection.score_parts import ScorePart

#: Shares of known and of unknown queries that the threshold of the calibration queries accepts.
ACCEPTED = ("accepted_known", "accepted_unknown")
_CONFIDENCE = 0.95
#: Number of resamples whose metrics are computed at once.
_BLOCK = 125
#: Embedding, score, unknown images, metric.
Key = tuple[str, str, str, str]


@dataclass(frozen=True, eq=False)
class RejectionValues:
    """Values of a comparison.

    Args:
        values: Columns ``embedding``, ``score``, ``unknown`` (name of a set of unknown images, or ``all``),
            ``metric``, ``split`` (seed, or null for the mean over the splits), ``value``, ``low``, ``high``. The
            interval of 95 % is that of the mean over splits, and null for a single split.
        differences: Columns ``embedding``, ``score``, ``unknown``, ``metric``, ``from_embedding``, ``from_score``,
            ``value``, ``low``, ``high``: the mean of the first two minus that of the others, on the same queries.
        counts: Columns ``split``, ``set``, ``kind``, ``queries``, ``classes``; a row per set of queries.
        right: Share of the known queries whose nearest image shows their landmark, by embedding and seed of the
            split.
    """

    values: pd.DataFrame
    differences: pd.DataFrame
    counts: pd.DataFrame
    right: Mapping[str, Mapping[int, float]]

    def sets(self) -> list[str]:
        """Return the names of the sets of queries."""
        return list(dict.fromkeys(self.counts["set"]))

    def mean(self, key: Key) -> pd.Series[Any] | None:
        """Return the row of a mean over the splits; None if it was not computed."""
        rows = self.values[self.values["split"].isna()]
        for column, value in zip(("embedding", "score", "unknown", "metric"), key, strict=True):
            rows = rows[rows[column] == value]
        return rows.iloc[0] if len(rows) else None


def compare_parts(settings: RejectionSettings, parts: Iterable[ScorePart]) -> RejectionValues:
    """Return the metrics of all scores, with intervals by a bootstrap over landmarks (:mod:`.landmark_bootstrap`).

    Args:
        settings: Settings of the comparison.
        parts: Scores of all splits; those of scores that failed on a split are ignored.
    """
    finished = list(parts)
    queries = pd.concat([part.queries[["source", "class"]] for part in finished])
    draws = LandmarkDraws(queries, settings.n_resamples)
    rows, means = [], dict[Key, Floats]()
    for embedding, score in dict.fromkeys((part.embedding, part.score) for part in finished):
        splits = [part for part in finished if (part.embedding, part.score) == (embedding, score)]
        if len(splits) < len(settings.splits):
            continue
        for unknown in unknown_names(splits[0].queries):
            by_split = [_values(part, unknown, settings, draws) for part in splits]
            for metric in (*METRICS, *ACCEPTED):
                key = {"embedding": embedding, "score": score, "unknown": unknown, "metric": metric}
                values = [point[metric] for point, _ in by_split if metric in point]
                rows += [
                    {**key, "split": part.split, "value": value} for part, value in zip(splits, values, strict=False)
                ]
                resampled = np.mean([drawn[metric] for _, drawn in by_split], axis=0) if metric in METRICS else None
                if values:
                    rows.append({**key, "split": None, "value": np.mean(values), **_interval(resampled)})
                if resampled is not None:
                    means[embedding, score, unknown, metric] = resampled
    table = pd.DataFrame(rows).astype({"split": "Int64"})
    return RejectionValues(table, _differences(settings, table, means), _counts(finished), _right(finished))


def unknown_names(queries: pd.DataFrame) -> list[str]:
    """Return the names of the sets of unknown queries, and ``all`` where there are several."""
    names = list(dict.fromkeys(queries.loc[queries["kind"].isin(["near", "far"]), "set"]))
    return [*names, ALL_UNKNOWN] if len(names) > 1 else names


def _values(
    part: ScorePart, unknown: str, settings: RejectionSettings, draws: LandmarkDraws
) -> tuple[dict[str, float], dict[str, Floats]]:
    """Return the metrics of a part and those of its resamples."""
    table = part.queries
    is_unknown = table["kind"].isin(["near", "far"]) if unknown == ALL_UNKNOWN else table["set"] == unknown
    known, others = table[table["kind"] == "known"], table[is_unknown]
    scored = ScoredQueries(
        known["score"].to_numpy(np.float64), known["right"].to_numpy(bool), others["score"].to_numpy(np.float64)
    )
    known_counts, other_counts = draws.counts(known), draws.counts(others)
    blocks = [
        scored.resampled_metrics(known_counts[start : start + _BLOCK], other_counts[start : start + _BLOCK])
        for start in range(0, len(known_counts), _BLOCK)
    ]
    resampled = {metric: np.concatenate([block[metric] for block in blocks]) for metric in METRICS}
    calibration = table.loc[table["kind"] == "calibration", "score"].to_numpy(np.float64)
    accepted = {}
    if len(calibration):
        threshold = np.quantile(calibration, settings.accepted, method="higher")
        shares = (float((scores <= threshold).mean()) for scores in (scored.known, scored.unknown))
        accepted = dict(zip(ACCEPTED, shares, strict=True))
    return scored.metrics() | accepted, resampled


def _differences(settings: RejectionSettings, table: pd.DataFrame, resampled: Mapping[Key, Floats]) -> pd.DataFrame:
    """Return the differences from the baseline embeddings with each score, and from the first score of each."""
    baseline = next((name for name, embedding in settings.embeddings.items() if embedding.baseline), None)
    first = next(iter(settings.score_settings()))
    means = table[table["split"].isna()].set_index(["embedding", "score", "unknown", "metric"])["value"]
    rows = []
    for key in resampled:
        embedding, score, unknown, metric = key
        references: Sequence[Key] = [(embedding, first, unknown, metric)]
        if baseline is not None:
            references = [*references, (baseline, score, unknown, metric)]
        rows += [
            {
                **dict(zip(("embedding", "score", "unknown", "metric"), key, strict=True)),
                "from_embedding": reference[0],
                "from_score": reference[1],
                "value": means[key] - means[reference],
                **_interval(resampled[key] - resampled[reference]),
            }
            for reference in references
            if reference != key and reference in resampled
        ]
    columns = ["embedding", "score", "unknown", "metric", "from_embedding", "from_score", "value", "low", "high"]
    table_of_differences: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    return table_of_differences


def _interval(resampled: npt.NDArray[np.float64] | None) -> dict[str, float | None]:
    known = resampled[~np.isnan(resampled)] if resampled is not None else np.empty(0)
    if not len(known):
        return {"low": None, "high": None}
    low, high = np.quantile(known, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return {"low": float(low), "high": float(high)}


def _counts(parts: Sequence[ScorePart]) -> pd.DataFrame:
    by_split = {part.split: part.queries for part in parts}
    groups = [
        queries.groupby(["set", "kind"], sort=False)["class"]
        .agg(["size", "nunique"])
        .reset_index()
        .assign(split=split)
        for split, queries in by_split.items()
    ]
    table = pd.concat(groups).rename(columns={"size": "queries", "nunique": "classes"})
    counts: pd.DataFrame = table[["split", "set", "kind", "queries", "classes"]].reset_index(drop=True)
    return counts


def _right(parts: Sequence[ScorePart]) -> dict[str, dict[int, float]]:
    right: dict[str, dict[int, float]] = {}
    for part in parts:
        known = part.queries[part.queries["kind"] == "known"]
        right.setdefault(part.embedding, {})[part.split] = float((known["nearest_class"] == known["class"]).mean())
    return right
