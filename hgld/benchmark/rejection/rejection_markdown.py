"""The tables of a comparison of rejection scores, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from hgld.benchmark.rejection.comparison_settings import ALL_UNKNOWN, RejectionSettings
from hgld.benchmark.rejection.rejection_values import ACCEPTED, RejectionValues
from hgld.benchmark.rejection.score_parts import FailedPart
from hgld.rejection.detection_metrics import DETECTION_METRICS

_TITLES = {
    "gap": "GAP",
    **DETECTION_METRICS,
    "accepted_known": "accepted known",
    "accepted_unknown": "accepted unknown",
}
_WITH_INTERVALS = ("auroc", "fpr95_known")
_WITHOUT = ("gap", "fpr95_unknown", "aupr_known", "aupr_unknown", *ACCEPTED)
#: The metrics of the tables of differences.
_COMPARED = ("gap", "auroc")
_MISSING = "—"


def rejection_markdown(
    settings: RejectionSettings,
    values: RejectionValues,
    failed: Sequence[FailedPart],
    files: Sequence[Path] = (),
) -> str:
    """Return the tables of a comparison, and what they mean.

    Args:
        settings: Settings of the comparison.
        values: Its values.
        failed: Scores that could not be computed.
        files: Figures and pages beside the text, which it links.
    """
    lines = [f"# {settings.title}", "", *_about(settings, values), ""]
    for path in files:
        lines += [f"![{path.stem}]({path.name})" if path.suffix == ".png" else f"[{path.stem}]({path.name})", ""]
    for name, embedding in settings.embeddings.items():
        right = values.right.get(name, {})
        lines += [f"## {embedding.title}", ""]
        if right:
            share = sum(right.values()) / len(right)
            lines += [f"The nearest image shows the landmark of {_percent(share)} % of the known queries.", ""]
        lines += _score_table(settings, values, name)
    lines += _differences(settings, values)
    if failed:
        lines += ["## Not computed", ""]
        lines += [f"- {part.embedding}, split {part.split}, {part.score}: {part.reason}" for part in failed]
    return "\n".join(lines)


def _about(settings: RejectionSettings, values: RejectionValues) -> list[str]:
    rows = [
        [name, str(own["kind"].iloc[0]), _range(own["queries"]), _range(own["classes"])]
        for name, own in ((name, values.counts[values.counts["set"] == name]) for name in values.sets())
    ]
    return [
        f"Means over {len(settings.splits)} splits in %, with intervals of 95 % from {settings.n_resamples:,} "
        "resamples of landmarks, which are the same for all scores, embeddings and splits. The intervals are for "
        "these trained models, and do not cover the choice of the splits.",
        "",
        "GAP ranks the answers to all queries by their scores. The nearest image of the index answers, or a vote "
        "where the score is one. FPR95 (known): "
        "share of the unknown queries accepted where 95 % of the known ones are. FPR95 (unknown): share of the known "
        "queries rejected where 95 % of the unknown ones are. AUPR: average precision with the named queries as "
        f"positives. Accepted: at the threshold that accepts {_percent(settings.accepted)} % of the calibration "
        "queries, which are other photographs of the landmarks of the index.",
        "",
        *_table(["queries", "kind", "number", "landmarks or classes"], rows),
    ]


def _score_table(settings: RejectionSettings, values: RejectionValues, embedding: str) -> list[str]:
    lines: list[str] = []
    names = _unknown(values)
    scores = [score for score in settings.score_settings() if _has(values, embedding, score)]
    first = [
        (names[-1], "gap"),
        *((name, metric) for name in names if name != ALL_UNKNOWN for metric in _WITH_INTERVALS),
    ]
    second = [(name, metric) for name in names if name != ALL_UNKNOWN for metric in _WITHOUT]
    for columns, with_interval in ((first, True), (second, False)):
        header = ["score", *(f"{name}: {_TITLES[metric]}" for name, metric in columns)]
        rows = [
            [
                _title(settings, score),
                *(_cell(values, (embedding, score, *column), with_interval) for column in columns),
            ]
            for score in scores
        ]
        lines += [*_table(header, rows), ""]
    return lines


def _differences(settings: RejectionSettings, values: RejectionValues) -> list[str]:
    lines: list[str] = []
    table = values.differences
    names = _unknown(values)
    columns = [(names[-1], "gap"), *((name, "auroc") for name in names if name != ALL_UNKNOWN)]
    header = ["", *(f"{name}: {_TITLES[metric]}" for name, metric in columns)]
    for name, embedding in settings.embeddings.items():
        from_embedding = table[(table["embedding"] == name) & (table["from_embedding"] != name)]
        if len(from_embedding):
            reference = settings.embeddings[from_embedding["from_embedding"].iloc[0]].title
            lines += [f"## {embedding.title} minus {reference}, in points", ""]
            lines += [*_difference_table(settings, from_embedding, columns, header), ""]
        from_score = table[(table["embedding"] == name) & (table["from_embedding"] == name)]
        if len(from_score):
            reference = _title(settings, str(from_score["from_score"].iloc[0]))
            lines += [f"## {embedding.title}: scores minus {reference}, in points", ""]
            lines += [*_difference_table(settings, from_score, columns, header), ""]
    return lines


def _difference_table(
    settings: RejectionSettings, table: pd.DataFrame, columns: Sequence[tuple[str, str]], header: Sequence[str]
) -> list[str]:
    rows = []
    for score in dict.fromkeys(table["score"]):
        own = table[table["score"] == score].set_index(["unknown", "metric"])
        cells = []
        for column in columns:
            row = own.loc[column]
            mark = "**" if row["low"] > 0 or row["high"] < 0 else ""
            cells.append(f"{mark}{100 * row['value']:+.1f}{mark} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]")
        rows.append([_title(settings, score), *cells])
    return [
        *_table(header, rows),
        "",
        "Bold: the interval of 95 % is on one side of 0. With this many differences, some are by chance.",
    ]


def _unknown(values: RejectionValues) -> list[str]:
    """Return the names of unknown queries, those of all last."""
    return list(dict.fromkeys(values.values["unknown"]))


def _has(values: RejectionValues, embedding: str, score: str) -> bool:
    table = values.values
    return bool(((table["embedding"] == embedding) & (table["score"] == score)).any())


def _title(settings: RejectionSettings, score: str) -> str:
    return settings.score_settings()[score].title or score


def _cell(values: RejectionValues, key: tuple[str, str, str, str], with_interval: bool) -> str:
    row = values.mean(key)
    if row is None:
        return _MISSING
    text = _percent(row["value"])
    return f"{text} [{_percent(row['low'])}, {_percent(row['high'])}]" if with_interval else text


def _percent(value: float) -> str:
    """Format a share in percent.

    >>> _percent(0.9512)
    '95.1'
    """
    return f"{100 * value:.1f}"


def _range(numbers: pd.Series[int]) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    align = ["---", *["---:"] * (len(header) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (header, align, *rows)]
