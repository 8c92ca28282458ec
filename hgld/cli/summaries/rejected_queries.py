"""Format the figures of rejected queries that ``hgld evaluate --reject`` reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hgld.cli.render import percent, wrapped_table
from hgld.cli.summaries.evaluation import value_cells
from hgld.compute.resampling import Interval
from hgld.rejection.rejection_report import SHOWN_METRICS, LevelFigures, RejectionReport
from hgld.rejection.thresholds import Threshold


def format_rejection(reports: Sequence[RejectionReport], *, width: int = 80) -> str:
    """Format figures of rejected queries: by level, over coverages, at the threshold, and for each unknown set.

    Args:
        reports: Figures of each result.
        width: Width of a line; columns that do not fit continue in a further table.
    """
    return "\n\n".join(_format_report(report, width) for report in reports)


def _format_report(report: RejectionReport, width: int) -> str:
    options = ", ".join(f"{name} {value}" for name, value in report.options.items())
    lines = [f"{report.name}, rejected by {report.score}{f' ({options})' if options else ''}", ""]
    rows = [row for level in report.levels for row in _level_rows(f"level {level.level}", level)]
    lines.append(wrapped_table("in %", ["GAP", "AURC"], rows, width=width))
    metrics = list(report.means_at_threshold)
    coverages = [
        (f"{figures.wanted:.0%}", {"risk": percent(figures.risk), **value_cells(figures.means)})
        for figures in report.coverages
    ]
    lines.append(wrapped_table("accepted", ["risk", *metrics], coverages, width=width))
    lines.append(_threshold_sentence(report.threshold))
    if report.threshold.value is not None:
        means = value_cells(report.means_at_threshold)
        lines.append(f"Of these: {', '.join(f'{name} {value}' for name, value in means.items())}.")
    if report.unknown:
        lines += ["", _unknown_table(report, width)]
    return "\n".join(lines)


def _unknown_table(report: RejectionReport, width: int) -> str:
    rows: list[tuple[str, Mapping[str, str]]] = []
    for name, figures in report.unknown.items():
        cells = {"images": f"{figures.n_unknown:,}", "GAP": percent(figures.levels[0].gap)}
        rows.append((name, cells | {title: percent(figures.detection[key]) for key, title in SHOWN_METRICS.items()}))
        bounds = {
            SHOWN_METRICS[key]: ends for key, ends in figures.detection_intervals.items() if key in SHOWN_METRICS
        }
        if "gap" in figures.levels[0].intervals:
            bounds = {"GAP": figures.levels[0].intervals["gap"], **bounds}
        rows += _interval_rows(bounds)
        for level in figures.levels[1:]:
            rows.append((f"  at level {level.level}", {"GAP": percent(level.gap)}))
    n_known = next(iter(report.unknown.values())).n_known
    table = wrapped_table("unknown images", ["images", "GAP", *SHOWN_METRICS.values()], rows, width=width)
    return f"{table}\nEach set with the {n_known:,} known queries, in %."


def _level_rows(name: str, level: LevelFigures) -> list[tuple[str, Mapping[str, str]]]:
    titles = {"gap": "GAP", "aurc": "AURC"}
    row = (name, {"GAP": percent(level.gap), "AURC": percent(level.aurc)})
    return [row, *_interval_rows({titles[key]: ends for key, ends in level.intervals.items()})]


def _interval_rows(bounds: Mapping[str, Interval]) -> list[tuple[str, Mapping[str, str]]]:
    if not bounds:
        return []
    ends = (("  95 % from", 0), ("  to", 1))
    return [(title, {name: percent(interval[end]) for name, interval in bounds.items()}) for title, end in ends]


def _threshold_sentence(threshold: Threshold) -> str:
    if threshold.value is None:
        return (
            f"No threshold reaches a precision of {threshold.target:.0%} on these queries: the highest is "
            f"{percent(threshold.highest)} %."
        )
    low, high = threshold.interval
    assert threshold.precision is not None
    return (
        f"Threshold {threshold.value:.6g}, chosen on these queries for a precision of {threshold.target:.0%}: "
        f"accepts {threshold.coverage:.1%}\nof them, {percent(threshold.precision)} % right ({percent(low)} to "
        f"{percent(high)}), and rejects {threshold.right_rejected:.1%} of the right answers."
    )
