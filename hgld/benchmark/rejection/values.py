"""Values of a comparison: metrics by embedding, score and unknown images, and their differences.

Intervals come from a bootstrap over landmarks, where every image counts as often as its landmark is drawn.
Photographs of one landmark resemble one another, so drawing single photographs would give intervals that are too
narrow. A draw gives each landmark, or other class, of a source of images a number. It is the same for all splits,
scores and embeddings, so differences are paired, and images that several splits share are drawn together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Key(NamedTuple):
    """Names of the embedding, the score, the unknown images and the metric of a value."""

    embedding: str
    score: str
    unknown: str
    metric: str


_KEY = list(Key._fields)


@dataclass(frozen=True, eq=False)
class RejectionValues:
    """Values of a comparison.

    Args:
        values: Columns ``embedding``, ``score``, ``unknown`` (name of a set of unknown images, or ``all``),
            ``metric``, ``split`` (seed, or null for the mean over the splits), ``value``, ``low``, ``high``. The
            95 % interval belongs to the mean over the splits; it is null for a single split.
        differences: Columns ``embedding``, ``score``, ``unknown``, ``metric``, ``from_embedding``, ``from_score``,
            ``value``, ``low``, ``high``: the mean of ``score`` on ``embedding`` minus the mean of ``from_score`` on
            ``from_embedding``, for the same queries.
        counts: Columns ``split``, ``set``, ``kind``, ``queries``, ``classes``; a row per set of queries.
        right: Share of the known queries whose nearest image shows their landmark, by embedding: its mean over the
            splits.
    """

    values: pd.DataFrame
    differences: pd.DataFrame
    counts: pd.DataFrame
    right: Mapping[str, float]

    def unknown(self) -> list[str]:
        """Return the names of the sets of unknown queries, with ``all`` as the last one."""
        return list(dict.fromkeys(self.values["unknown"]))

    def mean(self, key: tuple[str, str, str, str]) -> pd.Series[Any] | None:
        """Return the row of a mean over the splits; None if it was not computed."""
        means = self.values[self.values["split"].isna()].set_index(_KEY)
        if key not in means.index:
            return None
        mean: pd.Series[Any] = means.loc[key]
        return mean


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
        known_once = np.ones((1, len(self.known)), np.int64)
        unknown_once = np.ones((1, len(self.unknown)), np.int64)
        metrics = self.resampled_metrics(known_once, unknown_once)
        return {name: float(values[0]) for name, values in metrics.items()}

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
        metrics = {"gap": _gap(self, known_counts, unknown_counts)}
        for name in DETECTION:
            metrics[name] = detection[name]
        return metrics


class LandmarkDraws:
    """Draws with replacement of the classes of each source of images.

    Args:
        classes: Columns ``source`` and ``class`` of all images that occur; repeated rows count once.
    """

    def __init__(self, classes: pd.DataFrame, n_resamples: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        distinct = classes[["source", "class"]].drop_duplicates().sort_values(["source", "class"])
        self._columns = pd.MultiIndex.from_frame(distinct)
        draws = []
        for n_classes in distinct.groupby("source").size():
            shares = np.full(n_classes, 1 / n_classes)
            draws.append(rng.multinomial(n_classes, shares, size=n_resamples))
        self._draws = np.concatenate(draws, axis=1)

    def counts(self, queries: pd.DataFrame) -> Integers:
        """Return how often each query counts, int64, shape (n_resamples, n)."""
        columns = self._columns.get_indexer(pd.MultiIndex.from_frame(queries[["source", "class"]]))
        return self._draws[:, columns]


def compare_scores(settings: RejectionSettings, results: ScoreResults) -> RejectionValues:
    """Return the metrics of all scores, with intervals by a bootstrap over landmarks (:class:`LandmarkDraws`)."""
    queries = pd.concat([table[["source", "class"]] for table in results.values()])
    draws = LandmarkDraws(queries, settings.n_resamples)
    rows = []
    resampled = {}
    by_score: dict[tuple[str, str], dict[int, pd.DataFrame]] = {}
    for run, table in results.items():
        by_score.setdefault((run.embedding, run.score), {})[run.split] = table
    for (embedding, score), splits in by_score.items():
        if len(splits) < len(settings.splits):
            continue  # a mean over fewer splits could not be compared
        for unknown in unknown_names(splits[settings.splits[0]]):
            by_split = [_values(table, unknown, settings, draws) for table in splits.values()]
            first_values, _ = by_split[0]
            for metric in first_values:
                key = Key(embedding, score, unknown, metric)
                row: dict[str, Any] = key._asdict()
                values = [split_values[metric] for split_values, _ in by_split]
                for split, value in zip(splits, values, strict=True):
                    rows.append(row | {"split": split, "value": value})
                row |= {"split": None, "value": np.mean(values)}
                if metric in METRICS:
                    resampled[key] = np.mean([drawn[metric] for _, drawn in by_split], axis=0)
                    row |= _interval(resampled[key])
                rows.append(row)
    means = pd.DataFrame(rows, columns=[*_KEY, "split", "value", "low", "high"])
    means = means.astype({"split": "Int64"})
    differences = _differences(settings, means, resampled)
    return RejectionValues(means, differences, _counts(results), _shares_right(results))


def unknown_names(queries: pd.DataFrame) -> list[str]:
    """Return the names of the sets of unknown queries, and ``all`` where there are several."""
    unknown = queries[queries["kind"].isin(["near", "far"])]
    names = list(dict.fromkeys(unknown["set"]))
    if len(names) > 1:
        names.append(ALL_UNKNOWN)
    return names


def _values(
    table: pd.DataFrame, unknown: str, settings: RejectionSettings, draws: LandmarkDraws
) -> tuple[dict[str, float], dict[str, Floats]]:
    """Return the metrics of a result by name, and their values in all resamples."""
    is_unknown = table["set"] == unknown
    if unknown == ALL_UNKNOWN:
        is_unknown = table["kind"].isin(["near", "far"])
    known_rows, unknown_rows = table[table["kind"] == "known"], table[is_unknown]
    scored = ScoredQueries(
        known_rows["score"].to_numpy(np.float64),
        known_rows["right"].to_numpy(bool),
        unknown_rows["score"].to_numpy(np.float64),
    )
    known_counts, unknown_counts = draws.counts(known_rows), draws.counts(unknown_rows)
    blocks = []
    for start in range(0, len(known_counts), _BLOCK):
        block = slice(start, start + _BLOCK)
        blocks.append(scored.resampled_metrics(known_counts[block], unknown_counts[block]))
    resampled = {metric: np.concatenate([block[metric] for block in blocks]) for metric in METRICS}
    values = scored.metrics()
    calibration = table.loc[table["kind"] == "calibration", "score"].to_numpy(np.float64)
    if len(calibration):
        threshold = np.quantile(calibration, settings.accepted, method="higher")
        for name, scores in zip(ACCEPTED, (scored.known, scored.unknown), strict=True):
            values[name] = float((scores <= threshold).mean())
    return values, resampled


def _differences(
    settings: RejectionSettings, table: pd.DataFrame, resampled: Mapping[Key, Floats]
) -> pd.DataFrame:
    """Return differences from the same score on the baseline embeddings, and from the first score."""
    baselines = [name for name, embedding in settings.embeddings.items() if embedding.baseline]
    first_score = next(iter(settings.score_settings()))
    means = table[table["split"].isna()].set_index(_KEY)["value"]
    rows = []
    for key, drawn in resampled.items():
        references = [key._replace(score=first_score)]
        references += [key._replace(embedding=baseline) for baseline in baselines[:1]]
        for reference in references:
            if reference == key or reference not in resampled:
                continue
            row: dict[str, Any] = key._asdict()
            row |= {"from_embedding": reference.embedding, "from_score": reference.score}
            row["value"] = means[key] - means[reference]
            rows.append(row | _interval(drawn - resampled[reference]))
    columns = [*_KEY, "from_embedding", "from_score", "value", "low", "high"]
    differences: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    return differences


def _interval(resampled: Floats) -> dict[str, float]:
    low, high = percentile_interval(resampled, _CONFIDENCE)
    return {"low": low, "high": high}


def _counts(results: ScoreResults) -> pd.DataFrame:
    queries = pd.concat({run.split: table for run, table in results.items()}, names=["split"])
    classes = queries.groupby(["split", "set", "kind"], sort=False)["class"]
    return classes.agg(queries="size", classes="nunique").reset_index()


def _shares_right(results: ScoreResults) -> dict[str, float]:
    """Return the share of known queries with the right nearest image, by embedding: the mean over splits."""
    shares = {}
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
    """Return GAP with an answer to every query.

    Equal scores are in random order. A query that counts several times has the mean of its ranks.
    """
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
