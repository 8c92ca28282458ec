"""Reports of a comparison of rejection scores: tables in Markdown, figures, and the page of mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

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
    Photo,
    PhotoSource,
    images_of_manifest,
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
    """Return the tables of a comparison, and what they mean."""
    about = _ABOUT.format(
        n_splits=len(settings.splits),
        n_resamples=settings.n_resamples,
        accepted=_percent(settings.accepted),
    )
    rows = [
        [str(name), str(own["kind"].iloc[0]), _range(own["queries"]), _range(own["classes"])]
        for name, own in values.counts.groupby("set", sort=False)
    ]
    sets = markdown_table(["queries", "kind", "number", "landmarks or classes"], rows, n_numeric=3)
    sections = [
        f"# {settings.title}",
        about,
        sets,
        *(markdown_link(path, path.parent) for path in files),
    ]
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
    computed = values.values.loc[values.values["embedding"] == embedding, "score"]
    scores = [score for score in settings.score_settings() if score in set(computed)]
    names = [name for name in values.unknown() if name != ALL_UNKNOWN]
    first = [
        (values.unknown()[-1], "gap"),
        *((name, metric) for name in names for metric in _WITH_INTERVALS),
    ]
    second = [(name, metric) for name in names for metric in _WITHOUT_INTERVALS]
    for columns, with_interval in ((first, True), (second, False)):
        rows = []
        for score in scores:
            means = [values.mean((embedding, score, *column)) for column in columns]
            cells = [
                _MISSING if mean is None else _cell_text(mean, with_interval) for mean in means
            ]
            rows.append([settings.score_title(score), *cells])
        yield markdown_table(["score", *_headers(columns)], rows, n_numeric=len(columns))


def _differences(settings: RejectionSettings, values: RejectionValues) -> Iterator[str]:
    table, names = values.differences, values.unknown()
    columns = [(names[-1], "gap"), *((name, "auroc") for name in names if name != ALL_UNKNOWN)]
    for name, embedding in settings.embeddings.items():
        of_embedding = table[table["embedding"] == name]
        for scores_compared, differences in of_embedding.groupby(
            of_embedding["from_embedding"] == name
        ):
            first = differences.iloc[0]
            if scores_compared:
                baseline = settings.score_title(first["from_score"])
                yield f"## {embedding.title}: scores minus {baseline}, in points"
            else:
                baseline = settings.embeddings[first["from_embedding"]].title
                yield f"## {embedding.title} minus {baseline}, in points"
            rows = [
                [
                    settings.score_title(str(score)),
                    *map(_difference_text, own.loc[columns].itertuples()),
                ]
                for score, own in differences.set_index(["unknown", "metric"]).groupby(
                    "score", sort=False
                )
            ]
            yield markdown_table(["", *_headers(columns)], rows, n_numeric=len(columns))
            yield _BOLD


def _headers(columns: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{name}: {_TITLES[metric]}" for name, metric in columns]


def _cell_text(mean: pd.Series, with_interval: bool) -> str:
    interval = f" [{_percent(mean['low'])}, {_percent(mean['high'])}]" if with_interval else ""
    return f"{_percent(mean['value'])}{interval}"


def _difference_text(row: object) -> str:
    value, low, high = (100 * getattr(row, name) for name in ("value", "low", "high"))
    mark = "**" if low > 0 or high < 0 else ""
    return f"{mark}{value:+.1f}{mark} [{low:+.1f}, {high:+.1f}]"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _range(numbers: pd.Series) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def draw_near_far(
    settings: RejectionSettings, values: RejectionValues, embedding: str, path: Path
) -> list[Path]:
    """Draw metrics of all scores on one kind of embeddings, apart for each set of unknown queries.

    Returns:
        The figure; none where every score failed.
    """

    def estimate(score: str, metric: str, unknown: str) -> Estimate | None:
        row = values.mean((embedding, score, unknown, metric))
        return (
            None
            if row is None
            else Estimate(float(row["value"]), (float(row["low"]), float(row["high"])))
        )

    unknown = values.unknown()
    scores = [
        name for name in settings.score_settings() if estimate(name, "gap", unknown[0]) is not None
    ]
    if not scores:
        return []
    panels = []
    for metric, lower_is_better in _PANELS:
        names = unknown if metric == "gap" else [name for name in unknown if name != ALL_UNKNOWN]
        nothing = Estimate(float("nan"))
        series = {
            name: [estimate(score, metric, name) or nothing for score in scores] for name in names
        }
        panels.append(
            MetricPanel(DETECTION_METRICS.get(metric, metric.upper()), series, lower_is_better)
        )
    draw_detection(path, list(map(settings.score_title, scores)), panels)
    return [path]


def draw_risks(
    settings: RejectionSettings, results: ScoreResults, embedding: str, path: Path
) -> list[Path]:
    """Draw risk over coverage of all scores on one kind of embeddings, for the queries of the first split.

    Returns:
        The figure; none where every score failed.
    """
    curves = []
    for run, queries in results.items():
        if run.embedding == embedding and run.split == settings.splits[0]:
            table = queries[queries["kind"].isin(("known", "near", "far"))]
            right = table["right"].to_numpy(bool) & (table["kind"] == "known").to_numpy()
            curve = risk_coverage(table["score"].to_numpy(np.float64), right)
            title = settings.score_title(run.score)
            curves.append(
                RiskCoverageCurve(title, curve.coverage, curve.risk, len(table), curve.area)
            )
    if not curves:
        return []
    title = f"{settings.embeddings[embedding].title}, split {settings.splits[0]}: known, near and far queries"
    draw_risk_coverage(path, curves, title=title)
    return [path]


def confident_mistakes(queries: pd.DataFrame, n: int) -> dict[str, pd.DataFrame]:
    """Return the most confident mistakes by kind, with at most one query of each class, most confident first."""
    known, right = queries["kind"] == "known", queries["right"].astype(bool)
    unknown = dict.fromkeys(queries.loc[queries["kind"].isin(["near", "far"]), "set"])
    sections = {
        f"Accepted although unknown: {name}": queries[queries["set"] == name] for name in unknown
    }
    sections["Accepted with the wrong landmark, though the index has the right one"] = queries[
        known & ~right
    ]
    ordered = {
        heading: rows.sort_values("score", kind="stable") for heading, rows in sections.items()
    }
    rejected = queries[known & right].sort_values("score", ascending=False, kind="stable")
    ordered["Rejected first although answered right"] = rejected
    return {heading: rows.drop_duplicates("class").head(n) for heading, rows in ordered.items()}


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
    row_of = {position: row for row, position in enumerate(positions.tolist())}
    known_scores = queries.loc[queries["kind"] == "known", "score"].to_numpy()

    def page_query(position: int, score: float) -> PageQuery:
        higher = float((known_scores > score).mean())
        note = f"score {score:.3f}, {100 * higher:.0f} % of known queries higher"
        return PageQuery(position, (), [PageRanking(top_k, row_of[position], ())], note=note)

    embedding = settings.embeddings[run.embedding].title
    write_photo_page(
        out,
        {
            heading: [
                page_query(*query)
                for query in zip(rows.index.tolist(), rows["score"].tolist(), strict=True)
            ]
            for heading, rows in sections.items()
        },
        _photo_source(settings, scores),
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
    labels, vectors, n_index = scores.images.labels, scores.embedded.vectors, scores.images.n_index
    cosines, nearest = nearest_neighbours(
        vectors[n_index + positions], vectors[:n_index], _N_NEAREST
    )
    levels = (labels[nearest] == labels[n_index + positions][:, None, :]).sum(2)
    return TopK(cosines.astype(np.float32), nearest, np.where(nearest >= 0, levels, 0))


def _photo_source(settings: RejectionSettings, scores: SplitScores) -> PhotoSource:
    """Return the photographs by position; ids of other sources than the index begin with the name of the source."""
    assert settings.mistakes is not None
    table, manifests, hierarchy = (
        scores.images.table,
        scores.all_images.manifests,
        settings.mistakes.hierarchy,
    )
    names = manifests[INDEX].class_names[0]
    titles = {} if hierarchy is None else landmark_titles(load_hierarchy(hierarchy), names)
    finders = {
        source: images_of_manifest(manifests[source], root_of(images))
        for source, images in settings.sources.items()
    }

    def photo(position: int) -> Photo:
        row = table.iloc[position]
        source = row["source"]
        found = manifest_photo(
            manifests[source], int(row["row"]), titles if source == INDEX else None
        )
        key = found.id if source == INDEX else f"{source}:{found.id}"
        return Photo(key, found.names, found.link, row["kind"] != "far")

    def find(key: str) -> Image.Image | None:
        source, colon, image_id = key.partition(":")
        return finders[source](image_id) if colon and source in finders else finders[INDEX](key)

    return PhotoSource(lambda position: photo(scores.images.n_index + position), photo, find)
