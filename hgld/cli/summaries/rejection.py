"""Format the output of ``hgld reject``."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from hgld.cli.render import aligned
from hgld.progress import byte_size
from hgld.rejection import Detector
from hgld.rejection.detector_card import THRESHOLD_COLUMNS, figure_text, score_summary, threshold_cells
from hgld.rejection.detector_record import Calibration, Figure
from hgld.search.detector_fit import FitSummary
from hgld.search.score_images import IMAGES, QUANTILES, ScoredImages


def format_scores(scores: Mapping[str, type[Detector]], *, width: int = 88) -> str:
    """Format each score with what it needs, its options with their defaults and choices, and its description.

    Args:
        scores: Scores by name.
        width: Width of the lines of descriptions.
    """
    blocks = []
    for name, score in scores.items():
        hints = typing.get_type_hints(score.__init__)
        options = [
            f"{key}={parameter.default}{_choices(hints[key], parameter.default)}"
            for key, parameter in inspect.signature(score).parameters.items()
        ]
        inputs = [("needs", score.requires), ("takes", score.uses)]
        given = [f"{verb} {', '.join(sorted(names))}" for verb, names in inputs if names]
        title = "; ".join([*given, *([", ".join(options)] if options else [])])
        blocks.append("\n".join([f"{name}: {title}" if title else name, *_indented(score_summary(score), width)]))
    return "\n".join(blocks)


def format_fit(summary: FitSummary) -> str:
    """Format what was fitted on how many images, and its size."""
    options, calibration = _options(summary.options), summary.record.calibration
    text = (
        f"{summary.score}{f' ({options})' if options else ''} fitted on {summary.record.n_images:,} images of "
        f"{summary.dim:,} dimensions in {summary.seconds:.1f} s, {byte_size(summary.n_bytes)}"
    )
    return text if calibration is None else f"{text}\n{format_calibration(calibration, summary.record.level_names)}"


def format_calibration(calibration: Calibration, level_names: Sequence[str]) -> str:
    """Format the threshold of each level, what it costs, and how well the score detects each kind of images.

    Args:
        calibration: Thresholds and figures.
        level_names: Names of the levels, finest first.
    """
    thresholds = calibration.thresholds
    rows = [threshold_cells(*level) for level in zip(level_names, thresholds, strict=True)]
    images = ", ".join(f"{n:,} {name}" for name, n in calibration.n_images.items())
    lines = [
        f"calibration images: {images}; GAP {figure_text(calibration.gap)} %",
        f"thresholds for {thresholds[0].target:.0%} precision, and what they accept of these images:",
        *(f"  {line}" for line in aligned(THRESHOLD_COLUMNS, rows)),
        *format_detection(calibration.detection),
    ]
    return "\n".join(lines)


def format_detection(detection: Mapping[str, Mapping[str, Figure]]) -> list[str]:
    """Format the detection metrics of each kind of unknown images as the lines of a table."""
    names = list(next(iter(detection.values())))
    rows = [[name, *(figure_text(figures[name]) for figures in detection.values())] for name in names]
    header = ["detection in %", *(f"known from {name}" for name in detection)]
    return aligned(header, rows)


def format_scored(scored: ScoredImages) -> str:
    """Format the quantiles of the scores of each kind of images, what is accepted of them, and detection metrics."""
    levels = list(scored.accepted(IMAGES) or ())
    header = [
        "score",
        "images",
        *(f"{100 * share:.0f} %" for share in QUANTILES),
        *(f"{level} accepted" for level in levels),
    ]
    rows = [
        [
            kind,
            len(scores),
            *(f"{value:.4g}" for value in scored.quantiles(kind)),
            *(f"{share:.1%}" for share in (scored.accepted(kind) or {}).values()),
        ]
        for kind, scores in scored.scores.items()
    ]
    detection = scored.detection()
    return "\n".join([*aligned(header, rows), *(format_detection(detection) if detection else [])])


def _choices(hint: Any, default: Any) -> str:
    """Return the other values of an option that is one of a few texts, such as " (or code)"."""
    choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    others = [choice for choice in choices if choice != default]
    return f" (or {', '.join(map(str, others))})" if others else ""


def _indented(text: str, width: int) -> list[str]:
    return wrap(text, width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())
