"""The tables of a comparison of rejection scores, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from hgld.benchmark.engine import markdown_link, markdown_table
from hgld.benchmark.rejection.score_parts import FailedPart
from hgld.benchmark.rejection.settings import ALL_UNKNOWN, RejectionSettings
from hgld.benchmark.rejection.values import ACCEPTED, RejectionValues
from hgld.rejection.detection_metrics import DETECTION_METRICS

_TITLES = {
    "gap": "GAP",
    **DETECTION_METRICS,
    "accepted_known": "accepted known",
    "accepted_unknown": "accepted unknown",
}
_WITH_INTERVALS = ("auroc", "fpr95_known")
_WITHOUT = ("gap", "fpr95_unknown", "aupr_known", "aupr_unknown", *ACCEPTED)
_MISSING = "—"
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


def rejection_markdown(
    settings: RejectionSettings,
    values: RejectionValues,
    failed: Sequence[FailedPart],
    files: Sequence[Path] = (),
) -> str:
    """Return the tables of a comparison, and what they mean."""
    about = _ABOUT.format(
        n_splits=len(settings.splits), n_resamples=settings.n_resamples, accepted=_percent(settings.accepted)
    )
    rows = [
        [str(name), str(own["kind"].iloc[0]), _range(own["queries"]), _range(own["classes"])]
        for name, own in values.counts.groupby("set", sort=False)
    ]
    sets = markdown_table(["queries", "kind", "number", "landmarks or classes"], rows)
    sections = [f"# {settings.title}", about, sets, *(markdown_link(path, path.parent) for path in files)]
    for name, embedding in settings.embeddings.items():
        sections.append(f"## {embedding.title}")
        if right := values.right.get(name, {}):
            share = _percent(sum(right.values()) / len(right))
            sections.append(f"The nearest image shows the landmark of {share} % of the known queries.")
        sections += _score_tables(settings, values, name)
    sections += _differences(settings, values)
    if failed:
        sections += ["## Not computed", "\n".join(f"- {part}" for part in failed)]
    return "\n\n".join(sections)


def _score_tables(settings: RejectionSettings, values: RejectionValues, embedding: str) -> Iterator[str]:
    computed = values.values.loc[values.values["embedding"] == embedding, "score"]
    scores = [score for score in settings.score_settings() if score in set(computed)]
    names = [name for name in values.unknown() if name != ALL_UNKNOWN]
    first = [(values.unknown()[-1], "gap"), *((name, metric) for name in names for metric in _WITH_INTERVALS)]
    second = [(name, metric) for name in names for metric in _WITHOUT]
    for columns, with_interval in ((first, True), (second, False)):
        rows = []
        for score in scores:
            means = [values.mean((embedding, score, *column)) for column in columns]
            cells = [_MISSING if mean is None else _cell(mean, with_interval) for mean in means]
            rows.append([settings.score_title(score), *cells])
        yield markdown_table(["score", *_headers(columns)], rows)


def _differences(settings: RejectionSettings, values: RejectionValues) -> Iterator[str]:
    table, names = values.differences, values.unknown()
    columns = [(names[-1], "gap"), *((name, "auroc") for name in names if name != ALL_UNKNOWN)]
    for name, embedding in settings.embeddings.items():
        of_embedding = table[table["embedding"] == name]
        is_other = of_embedding["from_embedding"] != name
        for part in (of_embedding[is_other], of_embedding[~is_other]):
            if part.empty:
                continue
            reference = part.iloc[0]
            if reference["from_embedding"] != name:
                baseline = settings.embeddings[reference["from_embedding"]].title
                yield f"## {embedding.title} minus {baseline}, in points"
            else:
                baseline = settings.score_title(reference["from_score"])
                yield f"## {embedding.title}: scores minus {baseline}, in points"
            rows = [
                [settings.score_title(str(score)), *map(_difference, own.loc[columns].itertuples())]
                for score, own in part.set_index(["unknown", "metric"]).groupby("score", sort=False)
            ]
            yield markdown_table(["", *_headers(columns)], rows)
            yield _BOLD


def _headers(columns: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{name}: {_TITLES[metric]}" for name, metric in columns]


def _cell(mean: pd.Series, with_interval: bool) -> str:
    interval = f" [{_percent(mean['low'])}, {_percent(mean['high'])}]" if with_interval else ""
    return f"{_percent(mean['value'])}{interval}"


def _difference(row: object) -> str:
    value, low, high = (100 * getattr(row, name) for name in ("value", "low", "high"))
    mark = "**" if low > 0 or high < 0 else ""
    return f"{mark}{value:+.1f}{mark} [{low:+.1f}, {high:+.1f}]"


def _percent(value: float) -> str:
    """Format a share in percent.

    >>> _percent(0.9512)
    '95.1'
    """
    return f"{100 * value:.1f}"


def _range(numbers: pd.Series) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
