"""Values of a comparison: metrics by embedding, score and unknown images, and their differences.

Intervals are those of a bootstrap over landmarks, where every image counts as often as its landmark is drawn:
photographs of one landmark resemble one another, so that drawing single photographs would give intervals that are too
narrow. A draw gives each landmark, or other class, of a source of images a number; it is the same for all splits,
scores and embeddings, so that differences are paired and images that several splits share are drawn together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.arrays import Booleans, Floats, Integers
from hgld.benchmark.rejection.settings import ALL_UNKNOWN, RejectionSettings
from hgld.benchmark.rejection.split_scores import ScoreResults
from hgld.compute.resampling import percentile_interval
from hgld.rejection.detection_metrics import metrics_of_counts

#: Metrics of telling known from unknown queries that have intervals.
DETECTION = ("auroc", "fpr95_known", "fpr95_unknown", "aupr_known", "aupr_unknown")
#: All metrics that have intervals, global average precision (GAP) first.
METRICS = ("gap", *DETECTION)
#: Shares of known and of unknown queries that the threshold of the calibration queries accepts.
ACCEPTED = ("accepted_known", "accepted_unknown")
_CONFIDENCE = 0.95
#: Number of resamples whose metrics are computed at once.
_BLOCK = 125
#: Embedding, score, unknown images, metric.
Key = tuple[str, str, str, str]
_KEY = ("embedding", "score", "unknown", "metric")


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
        right: Share of the known queries whose nearest image shows their landmark, by embedding: its mean over the
            splits.
    """

    values: pd.DataFrame
    differences: pd.DataFrame
    counts: pd.DataFrame
    right: Mapping[str, float]

    def unknown(self) -> list[str]:
        """Return the names of unknown queries, those of all last."""
        return list(dict.fromkeys(self.values["unknown"]))

    def mean(self, key: Key) -> pd.Series[Any] | None:
        """Return the row of a mean over the splits; None if it was not computed."""
        rows = self.values.set_index(list(_KEY)).loc[lambda table: table["split"].isna()]
        return rows.loc[key] if key in rows.index else None


@dataclass(frozen=True, eq=False)
class ScoredQueries:
    """Known and unknown queries with their scores.

    Args:
        known: Scores of known queries, float64, shape (n,).
        right: Whether their answers are right, bool, shape (n,).
        unknown: Scores of unknown queries, float64, shape (m,).
    """

    known: Floats
    right: Booleans
    unknown: Floats

    def metrics(self) -> dict[str, float]:
        """Return the values of :data:`METRICS`."""
        each_once = (np.ones((1, len(scores)), np.int64) for scores in (self.known, self.unknown))
        return {
            name: float(values[0]) for name, values in self.resampled_metrics(*each_once).items()
        }

    def resampled_metrics(
        self, known_counts: Integers, unknown_counts: Integers
    ) -> dict[str, Floats]:
        """Return the values of :data:`METRICS` in each resample, float64, shape (n_resamples,); NaN without images.

        Args:
            known_counts: How often each known query counts, int64, shape (n_resamples, n).
            unknown_counts: How often each unknown query counts, int64, shape (n_resamples, m).
        """
        values, codes = np.unique(np.concatenate([self.known, self.unknown]), return_inverse=True)
        known = _counts_by_value(known_counts, codes[: len(self.known)], len(values))
        unknown = _counts_by_value(unknown_counts, codes[len(self.known) :], len(values))
        detection = metrics_of_counts(values, known, unknown)
        gap = _gap(self, known_counts, unknown_counts)
        return {"gap": gap} | {name: detection[name] for name in DETECTION}


class LandmarkDraws:
    """Draws with replacement of the classes of each source of images.

    Args:
        classes: Columns ``source`` and ``class`` of all images that occur; repeated rows count once.
    """

    def __init__(self, classes: pd.DataFrame, n_resamples: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        distinct = classes[["source", "class"]].drop_duplicates().sort_values(["source", "class"])
        sizes = distinct.groupby("source").size()
        self._columns = pd.MultiIndex.from_frame(distinct)
        self._draws = np.concatenate(
            [rng.multinomial(n, np.full(n, 1 / n), size=n_resamples) for n in sizes], axis=1
        )

    def counts(self, queries: pd.DataFrame) -> Integers:
        """Return how often each query counts, int64, shape (n_resamples, n)."""
        columns = self._columns.get_indexer(pd.MultiIndex.from_frame(queries[["source", "class"]]))
        return self._draws[:, columns]


def compare_scores(settings: RejectionSettings, results: ScoreResults) -> RejectionValues:
    """Return the metrics of all scores, with intervals by a bootstrap over landmarks (:class:`LandmarkDraws`)."""
    queries = pd.concat([table[["source", "class"]] for table in results.values()])
    draws = LandmarkDraws(queries, settings.n_resamples)
    rows: list[dict[str, Any]] = []
    resampled: dict[Key, Floats] = {}
    by_score: dict[tuple[str, str], dict[int, pd.DataFrame]] = {}
    for run, table in results.items():
        by_score.setdefault((run.embedding, run.score), {})[run.split] = table
    for (embedding, score), splits in by_score.items():
        if len(splits) < len(
            settings.splits
        ):  # its mean over some of the splits could not be compared
            continue
        for unknown in unknown_names(splits[settings.splits[0]]):
            by_split = [_values(table, unknown, settings, draws) for table in splits.values()]
            for metric in by_split[0][0]:
                key = (embedding, score, unknown, metric)
                row: dict[str, Any] = dict(zip(_KEY, key, strict=True))
                values = [own[metric] for own, _ in by_split]
                for split, value in zip(splits, values, strict=True):
                    rows.append(row | {"split": split, "value": value})
                row |= {"split": None, "value": np.mean(values)}
                if metric in METRICS:
                    resampled[key] = np.mean([drawn[metric] for _, drawn in by_split], axis=0)
                    row |= _interval(resampled[key])
                rows.append(row)
    means = pd.DataFrame(rows, columns=[*_KEY, "split", "value", "low", "high"]).astype(
        {"split": "Int64"}
    )
    return RejectionValues(
        means, _differences(settings, means, resampled), _counts(results), _right(results)
    )


def unknown_names(queries: pd.DataFrame) -> list[str]:
    """Return the names of the sets of unknown queries, and ``all`` where there are several."""
    names = list(dict.fromkeys(queries.loc[queries["kind"].isin(["near", "far"]), "set"]))
    return [*names, ALL_UNKNOWN] if len(names) > 1 else names


def _values(
    table: pd.DataFrame, unknown: str, settings: RejectionSettings, draws: LandmarkDraws
) -> tuple[dict[str, float], dict[str, Floats]]:
    """Return the metrics of a result by name, and their values in all resamples."""
    is_unknown = (
        table["kind"].isin(["near", "far"]) if unknown == ALL_UNKNOWN else table["set"] == unknown
    )
    known, others = table[table["kind"] == "known"], table[is_unknown]
    scored = ScoredQueries(
        known["score"].to_numpy(np.float64),
        known["right"].to_numpy(bool),
        others["score"].to_numpy(np.float64),
    )
    counts = draws.counts(known), draws.counts(others)
    starts = range(0, len(counts[0]), _BLOCK)
    blocks = [
        scored.resampled_metrics(*(each[start : start + _BLOCK] for each in counts))
        for start in starts
    ]
    resampled = {metric: np.concatenate([block[metric] for block in blocks]) for metric in METRICS}
    values = scored.metrics()
    calibration = table.loc[table["kind"] == "calibration", "score"].to_numpy(np.float64)
    if len(calibration):
        threshold = np.quantile(calibration, settings.accepted, method="higher")
        shares = (float((scores <= threshold).mean()) for scores in (scored.known, scored.unknown))
        values |= zip(ACCEPTED, shares, strict=True)
    return values, resampled


def _differences(
    settings: RejectionSettings, table: pd.DataFrame, resampled: Mapping[Key, Floats]
) -> pd.DataFrame:
    """Return the differences from the baseline embeddings with each score, and from the first score of each."""
    baseline = next(
        (name for name, embedding in settings.embeddings.items() if embedding.baseline), None
    )
    first = next(iter(settings.score_settings()))
    means = table[table["split"].isna()].set_index(list(_KEY))["value"]
    rows = []
    for key, drawn in resampled.items():
        embedding, score, unknown, metric = key
        references = [(embedding, first, unknown, metric)]
        if baseline is not None:
            references.append((baseline, score, unknown, metric))
        rows += [
            {
                **dict(zip(_KEY, key, strict=True)),
                "from_embedding": reference[0],
                "from_score": reference[1],
                "value": means[key] - means[reference],
                **_interval(drawn - resampled[reference]),
            }
            for reference in references
            if reference != key and reference in resampled
        ]
    columns = [*_KEY, "from_embedding", "from_score", "value", "low", "high"]
    table_of_differences: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    return table_of_differences


def _interval(resampled: Floats) -> dict[str, float]:
    low, high = percentile_interval(resampled, _CONFIDENCE)
    return {"low": low, "high": high}


def _counts(results: ScoreResults) -> pd.DataFrame:
    queries = pd.concat({run.split: table for run, table in results.items()}, names=["split"])
    classes = queries.groupby(["split", "set", "kind"], sort=False)["class"]
    return classes.agg(queries="size", classes="nunique").reset_index()


def _right(results: ScoreResults) -> dict[str, float]:
    shares: dict[tuple[str, int], float] = {}
    for run, queries in results.items():
        known = queries[queries["kind"] == "known"]
        shares[run.embedding, run.split] = float((known["nearest_class"] == known["class"]).mean())
    means: dict[str, float] = pd.Series(shares).groupby(level=0).mean().to_dict()
    return means


def _counts_by_value(counts: Integers, codes: npt.NDArray[np.intp], n_values: int) -> Integers:
    """Add up the counts of queries with the same score, shape (n_resamples, n) -> (n_resamples, n_values)."""
    by_value = np.zeros((len(counts), n_values), np.int64)
    order = np.argsort(codes, kind="stable")
    distinct, first = np.unique(codes[order], return_index=True)
    by_value[:, distinct] = np.add.reduceat(counts[:, order], first, axis=1)
    return by_value


def _gap(queries: ScoredQueries, known_counts: Integers, unknown_counts: Integers) -> Floats:
    """Return GAP where every query is answered; equal scores in random order, copies at their mean rank."""
    scores = np.concatenate([queries.known, queries.unknown])
    order = np.lexsort((np.random.default_rng(0).permutation(len(scores)), scores))
    counts = np.concatenate([known_counts, unknown_counts], axis=1)[:, order]
    right = np.concatenate([queries.right, np.zeros(len(queries.unknown), bool)])[order]
    hits = counts * right
    mean_rank = (counts + 1) / 2
    precision = (hits.cumsum(1) - hits + mean_rank) / (counts.cumsum(1) - counts + mean_rank)
    with np.errstate(invalid="ignore"):
        gap: Floats = (hits * precision).sum(1) / known_counts.sum(1)
    return gap
