"""Reports of a comparison of rejection scores: tables in Markdown, figures, and the page of mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from hgld.benchmark.rejection.settings import ALL_UNKNOWN, INDEX, RejectionSettings, root_of
from hgld.benchmark.rejection.split_scores import ScoreResults, ScoreRun, SplitScores
from hgld.benchmark.rejection.values import ACCEPTED, RejectionValues
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.figures.coverage import (
    Estimate,
    MetricPanel,
    RiskCoverageCurve,
    draw_detection,
    draw_risk_coverage,
)
from hgld.figures.style import level_styles
from hgld.hierarchy import load_hierarchy
from hgld.inspection.photos import (
    ManifestImages,
    Photo,
    PhotoSource,
    landmark_titles,
    manifest_photo,
)
from hgld.inspection.queries import TopK
from hgld.inspection.query_pages import PageQuery, PageRanking, write_photo_page
from hgld.io.markdown import markdown_link, markdown_table
from hgld.rejection.detection_metrics import DETECTION_METRICS
from hgld.rejection.risk_coverage import risk_coverage

_TITLES = {
    "gap": "GAP",
    **DETECTION_METRICS,
    "accepted_known": "accepted known",
    "accepted_unknown": "accepted unknown",
}
_WITH_INTERVALS = ("auroc", "fpr95_known")
_WITHOUT_INTERVALS = ("gap", "fpr95_unknown", "aupr_known", "aupr_unknown", *ACCEPTED)
_MISSING = "—"
#: Metrics of the figure of near and far queries, and whether less of it is better.
_PANELS = (("gap", False), ("auroc", False), ("fpr95_known", True))
_ABOUT = """\
Means over {n_splits} splits in %, with intervals of 95 % from {n_resamples:,} resamples of landmarks, which are \
the same for all scores, embeddings and splits. The intervals are for these trained models, and do not cover the \
choice of the splits.

GAP ranks the answers to all queries by their scores. The nearest image of the index answers, or a vote where the \
score is one. FPR95 (known): share of the unknown queries accepted where 95 % of the known ones are. FPR95 \
(unknown): share of the known queries rejected where 95 % of the unknown ones are. AUPR: average precision with the \
named queries as positives. Accepted: at the threshold that accepts {accepted} % of the calibration queries, which \
are other photographs of the landmarks of the index."""
_BOLD = "Bold: the interval of 95 % is on one side of 0. With this many differences, some are by chance."
#: Number of nearest images that are shown of each query.
_N_NEAREST = 5
_EXPLANATION = (
    "Each query shows its score and the share of the known queries that have a higher one; beside it are the nearest "
    "images of the index, each with the level that it shares with the query, its cosine, and what it depicts. The "
    "nearest image is the answer."
)


def rejection_markdown(
    settings: RejectionSettings,
    values: RejectionValues,
    failed: Sequence[str],
    files: Sequence[Path] = (),
) -> str:
    """Return the tables of a comparison, with explanations."""
    about = _ABOUT.format(
        n_splits=len(settings.splits),
        n_resamples=settings.n_resamples,
        accepted=_percent(settings.accepted),
    )
    rows = []
    for name, splits in values.counts.groupby("set", sort=False):
        kind = str(splits["kind"].iloc[0])
        rows.append([str(name), kind, _range(splits["queries"]), _range(splits["classes"])])
    sets = markdown_table(["queries", "kind", "number", "landmarks or classes"], rows, n_numeric=3)
    sections = [f"# {settings.title}", about, sets]
    sections += [markdown_link(path, path.parent) for path in files]
    for name, embedding in settings.embeddings.items():
        sections.append(f"## {embedding.title}")
        if name in values.right:
            share = _percent(values.right[name])
            sections.append(
                f"The nearest image shows the landmark of {share} % of the known queries."
            )
        sections += _score_tables(settings, values, name)
    sections += _differences(settings, values)
    if failed:
        sections += ["## Not computed", "\n".join(f"- {part}" for part in failed)]
    return "\n\n".join(sections)


def _score_tables(
    settings: RejectionSettings, values: RejectionValues, embedding: str
) -> Iterator[str]:
    computed = set(values.values.loc[values.values["embedding"] == embedding, "score"])
    scores = [score for score in settings.score_settings() if score in computed]
    with_intervals = [(values.unknown()[-1], "gap")]
    without_intervals = []
    for name in values.unknown():
        if name != ALL_UNKNOWN:
            with_intervals += [(name, metric) for metric in _WITH_INTERVALS]
            without_intervals += [(name, metric) for metric in _WITHOUT_INTERVALS]
    for columns in (with_intervals, without_intervals):
        rows = []
        for score in scores:
            row = [settings.score_title(score)]
            for name, metric in columns:
                mean = values.mean((embedding, score, name, metric))
                row.append(_cell_text(mean, with_interval=columns is with_intervals))
            rows.append(row)
        yield markdown_table(["score", *_headers(columns)], rows, n_numeric=len(columns))


def _differences(settings: RejectionSettings, values: RejectionValues) -> Iterator[str]:
    names = values.unknown()
    columns = [(names[-1], "gap")]
    columns += [(name, "auroc") for name in names if name != ALL_UNKNOWN]
    for name, embedding in settings.embeddings.items():
        rows_of_embedding = values.differences[values.differences["embedding"] == name]
        is_of_scores = rows_of_embedding["from_embedding"] == name
        for scores_compared, differences in rows_of_embedding.groupby(is_of_scores):
            first = differences.iloc[0]
            if scores_compared:
                baseline = settings.score_title(first["from_score"])
                yield f"## {embedding.title}: scores minus {baseline}, in points"
            else:
                baseline = settings.embeddings[first["from_embedding"]].title
                yield f"## {embedding.title} minus {baseline}, in points"
            rows = []
            by_column = differences.set_index(["unknown", "metric"])
            for score, score_differences in by_column.groupby("score", sort=False):
                row = [settings.score_title(str(score))]
                for difference in score_differences.loc[columns].itertuples():
                    row.append(_difference_text(difference))
                rows.append(row)
            yield markdown_table(["", *_headers(columns)], rows, n_numeric=len(columns))
            yield _BOLD


def _headers(columns: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{name}: {_TITLES[metric]}" for name, metric in columns]


def _cell_text(mean: pd.Series | None, *, with_interval: bool) -> str:
    if mean is None:
        return _MISSING
    text = _percent(mean["value"])
    if with_interval:
        text += f" [{_percent(mean['low'])}, {_percent(mean['high'])}]"
    return text


def _difference_text(row: Any) -> str:
    text = f"{100 * row.value:+.1f}"
    if row.low > 0 or row.high < 0:
        text = f"**{text}**"
    return f"{text} [{100 * row.low:+.1f}, {100 * row.high:+.1f}]"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _range(numbers: pd.Series) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return f"{low:,}"
    return f"{low:,} to {high:,}"


def draw_near_far(
    settings: RejectionSettings, values: RejectionValues, embedding: str, path: Path
) -> list[Path]:
    """Draw metrics of all scores on one kind of embeddings, by set of unknown queries.

    Returns:
        The figure; an empty list if every score failed.
    """
    unknown_sets = values.unknown()
    scores = []
    for score in settings.score_settings():
        if values.mean((embedding, score, unknown_sets[0], "gap")) is not None:
            scores.append(score)
    if not scores:
        return []
    panels = []
    for metric, lower_is_better in _PANELS:
        series = {}
        for unknown in unknown_sets:
            if unknown == ALL_UNKNOWN and metric != "gap":
                continue
            means = [values.mean((embedding, score, unknown, metric)) for score in scores]
            series[unknown] = [_estimate(mean) for mean in means]
        title = DETECTION_METRICS.get(metric, metric.upper())
        panels.append(MetricPanel(title, series, lower_is_better))
    draw_detection(path, [settings.score_title(score) for score in scores], panels)
    return [path]


def _estimate(mean: pd.Series | None) -> Estimate:
    if mean is None:
        return Estimate(float("nan"))
    return Estimate(float(mean["value"]), (float(mean["low"]), float(mean["high"])))


def draw_risks(
    settings: RejectionSettings, results: ScoreResults, embedding: str, path: Path
) -> list[Path]:
    """Draw risk over coverage of all scores on one kind of embeddings, for the queries of the first split.

    Returns:
        The figure; an empty list if every score failed.
    """
    curves = []
    first_split = settings.splits[0]
    for run, queries in results.items():
        if run.embedding != embedding or run.split != first_split:
            continue
        table = queries[queries["kind"].isin(("known", "near", "far"))]
        right = table["right"].to_numpy(bool) & (table["kind"] == "known").to_numpy()
        curve = risk_coverage(table["score"].to_numpy(np.float64), right)
        title = settings.score_title(run.score)
        curves.append(RiskCoverageCurve(title, curve.coverage, curve.risk, len(table), curve.area))
    if not curves:
        return []
    title = (
        f"{settings.embeddings[embedding].title}, split {first_split}: known, near and far queries"
    )
    draw_risk_coverage(path, curves, title=title)
    return [path]


def confident_mistakes(queries: pd.DataFrame, n: int) -> dict[str, pd.DataFrame]:
    """Return the most confident mistakes by kind: the most confident ones first, at most one of each class."""

    def most_confident(rows: pd.DataFrame, *, rejected: bool = False) -> pd.DataFrame:
        rows = rows.sort_values("score", ascending=not rejected, kind="stable")
        distinct: pd.DataFrame = rows.drop_duplicates("class").head(n)
        return distinct

    is_known, is_right = queries["kind"] == "known", queries["right"].astype(bool)
    sections = {}
    for name in dict.fromkeys(queries.loc[queries["kind"].isin(["near", "far"]), "set"]):
        rows = queries[queries["set"] == name]
        sections[f"Accepted although unknown: {name}"] = most_confident(rows)
    sections["Accepted with the wrong landmark, though the index has the right one"] = (
        most_confident(queries[is_known & ~is_right])
    )
    sections["Rejected first although answered right"] = most_confident(
        queries[is_known & is_right], rejected=True
    )
    return sections


def write_mistakes_page(
    settings: RejectionSettings,
    run: ScoreRun,
    queries: pd.DataFrame,
    scores: SplitScores,
    out: Path,
) -> None:
    """Write the page of the most confident mistakes of a score on a split, from its result.

    Raises:
        InputError: Embeddings or the hierarchy cannot be read.
    """
    assert settings.mistakes is not None
    sections = confident_mistakes(queries, settings.mistakes.n)
    positions = np.concatenate([rows.index.to_numpy(np.int64) for rows in sections.values()])
    top_k = _nearest_images(scores, positions)
    known_scores = queries.loc[queries["kind"] == "known", "score"].to_numpy()
    page_sections: dict[str, list[PageQuery]] = {}
    n_queries = 0
    for heading, rows in sections.items():
        page_queries = page_sections[heading] = []
        for position, score in zip(rows.index.tolist(), rows["score"].tolist(), strict=True):
            higher = float((known_scores > score).mean())
            note = f"score {score:.3f}, {100 * higher:.0f} % of known queries higher"
            ranking = PageRanking(top_k, n_queries, ())
            page_queries.append(PageQuery(position, (), [ranking], note=note))
            n_queries += 1
    photos = _MistakePhotos(settings, scores)
    embedding = settings.embeddings[run.embedding].title
    write_photo_page(
        out,
        page_sections,
        PhotoSource(photos.query_photo, photos.photo, photos.find),
        title=f"Most confident mistakes: {settings.score_title(run.score)}",
        about=(
            f"{settings.title}, split {run.split}, embeddings: {embedding}. Of each landmark or class, the query "
            "that is most confidently wrong."
        ),
        levels=level_styles(
            scores.images.labels.shape[1], scores.all_images.manifests[INDEX].level_names
        ),
        explanation=_EXPLANATION,
    )


def _nearest_images(scores: SplitScores, positions: np.ndarray) -> TopK:
    """Return the nearest images of the index to some queries, with the levels that they share."""
    labels, vectors = scores.images.labels, scores.embedded.vectors
    n_index = scores.images.n_index
    queries = n_index + positions
    cosines, nearest = nearest_neighbours(vectors[queries], vectors[:n_index], _N_NEAREST)
    levels = (labels[nearest] == labels[queries][:, None, :]).sum(2)
    return TopK(cosines.astype(np.float32), nearest, np.where(nearest >= 0, levels, 0))


class _MistakePhotos:
    """Photographs of the index and of queries.

    Ids of photographs from other sources than the index begin with the name of the source and a colon.
    """

    def __init__(self, settings: RejectionSettings, scores: SplitScores) -> None:
        assert settings.mistakes is not None
        self._table = scores.images.table
        self._n_index = scores.images.n_index
        self._manifests = scores.all_images.manifests
        self._titles = {}
        if settings.mistakes.hierarchy is not None:
            names = self._manifests[INDEX].class_names[0]
            self._titles = landmark_titles(load_hierarchy(settings.mistakes.hierarchy), names)
        self._finders = {
            source: ManifestImages(self._manifests[source], root_of(images))
            for source, images in settings.sources.items()
        }

    def query_photo(self, position: int) -> Photo:
        """Return the photograph of a query by its position among the queries."""
        return self.photo(self._n_index + position)

    def photo(self, position: int) -> Photo:
        """Return a photograph by its position among all images, the index first."""
        row = self._table.iloc[position]
        source, manifest_row = row["source"], int(row["row"])
        if source == INDEX:
            photo = manifest_photo(self._manifests[INDEX], manifest_row, self._titles)
            key = photo.id
        else:
            photo = manifest_photo(self._manifests[source], manifest_row)
            key = f"{source}:{photo.id}"
        return Photo(key, photo.names, photo.link, row["kind"] != "far")

    def find(self, key: str) -> Image.Image | None:
        """Return the picture with an id; None if there is no such file."""
        source, _, image_id = key.partition(":")
        if image_id and source in self._finders:
            return self._finders[source](image_id)
        return self._finders[INDEX](key)
