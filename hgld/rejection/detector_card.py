"""The detector card: what a fitted score is, how good it is, how to use it, and its limits."""

from __future__ import annotations

import inspect
from pathlib import Path
from string import Template
from typing import Any

from hgld.io.markdown import markdown_table
from hgld.progress import byte_size
from hgld.rejection.detector import Detector
from hgld.rejection.detector_record import Calibration, DetectorRecord, Figure
from hgld.rejection.thresholds import Threshold
from hgld.version import __version__

_TEMPLATE = Path(__file__).parents[1] / "templates" / "rejection" / "README.md"


def detector_card(detector: Detector, record: DetectorRecord, *, title: str, n_bytes: int) -> str:
    """Return the text of ``README.md``.

    Args:
        detector: The fitted score.
        record: What it comes from.
        title: Title of the card.
        n_bytes: Size of what was fitted.
    """
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=title,
        n_images=f"{record.n_images:,}",
        about=score_summary(type(detector)),
        facts=_facts(detector, record, n_bytes),
        thresholds=_thresholds(record),
        detection=_detection(record.calibration),
        arguments=", ".join(["embeddings", *(f"{name}={name}" for name in record.inputs)]),
        options="".join(f" --{name} {name}.npy" for name in record.inputs),
        limits="\n".join(f"- {line}" for line in _limits(detector, record)),
    )


def score_summary(score: type[Detector]) -> str:
    """Return the first paragraph of the description of a score, in one line.

    >>> from hgld.rejection.registry import DETECTORS
    >>> score_summary(DETECTORS["top1_cosine"])
    'The negative cosine of an image to the nearest image of the index.'
    """
    return " ".join((inspect.getdoc(score) or "").partition("\n\n")[0].split()).replace("``", "`")


def _facts(detector: Detector, record: DetectorRecord, n_bytes: int) -> str:
    model = record.model
    rows = [
        ["score", f"`{detector.name}`"],
        *([f"option `{name}`", _text(value)] for name, value in detector.options().items()),
        ["dimension of the embeddings", f"{detector.dim:,}"],
        ["images of the index", f"{record.n_images:,}"],
        ["levels of the labels, finest first", ", ".join(record.level_names) or "none"],
        ["size", byte_size(n_bytes)],
        ["model of the embeddings", "not recorded" if model is None else f"`{model.name}`"],
        ["SHA-256 of its weights", "not recorded" if model is None else f"`{model.weights_sha256}`"],
        ["SHA-256 of the embeddings", f"`{record.index_sha256}`" if record.index_sha256 else "not recorded"],
        ["version of hgld", __version__],
    ]
    return markdown_table(["", ""], rows)


def _thresholds(record: DetectorRecord) -> str:
    calibration = record.calibration
    if calibration is None:
        return "None was fitted. `hgld reject fit --queries` fits one for each level of the labels."
    rows = [threshold_cells(*level) for level in zip(record.level_names, calibration.thresholds, strict=True)]
    first = calibration.thresholds[0]
    found = "with a confidence of 95 %" if first.conservative else "on these images"
    images = ", ".join(f"{n:,} {name}" for name, n in calibration.n_images.items())
    return (
        f"An answer is accepted where its score is at most the threshold. Each is the highest whose accepted answers "
        f"are right in {first.target:.0%} of the cases, {found}: {images}. Answers are the labels that the "
        f"{calibration.n_votes} nearest images vote for.\n\n"
        f"{markdown_table(list(THRESHOLD_COLUMNS), rows, n_numeric=len(THRESHOLD_COLUMNS) - 1)}\n\n"
        "Precision, accepted and rejected answers are those of the very images that the thresholds were fitted on. "
        "On other images the precision may be lower, and with another share of unknown images it is another one; "
        "the interval is exact for a fixed threshold (Clopper-Pearson) and ignores the choice."
    )


#: Columns of a table of thresholds.
THRESHOLD_COLUMNS = ("level", "threshold", "precision", "95 % interval", "accepted", "right answers rejected")


def threshold_cells(level: str, threshold: Threshold) -> list[str]:
    """Return a row of a table of thresholds.

    Args:
        level: Name of the level.
        threshold: Its threshold.
    """
    if threshold.value is None or threshold.precision is None:
        return [level, "none", f"at most {threshold.highest:.1%}", "–", "0.0%", f"{threshold.right_rejected:.1%}"]
    low, high = threshold.interval
    return [
        level,
        f"{threshold.value:.4g}",
        f"{threshold.precision:.1%}",
        f"{low:.1%} to {high:.1%}",
        f"{threshold.coverage:.1%}",
        f"{threshold.right_rejected:.1%}",
    ]


def _detection(calibration: Calibration | None) -> str:
    if calibration is None:
        return "Not measured."
    names = list(next(iter(calibration.detection.values())))
    header = ["metric in %", *(f"{name} ({calibration.n_images[name]:,})" for name in calibration.detection)]
    rows = [[name, *(figure_text(figures[name]) for figures in calibration.detection.values())] for name in names]
    return (
        f"How well the score tells the {calibration.n_images['known']:,} known calibration images from those of each "
        "kind, with bootstrap intervals of 95 %. Nothing but the thresholds was fitted on these images, and these "
        f"figures do not depend on thresholds.\n\n{markdown_table(header, rows, n_numeric=len(header) - 1)}\n\n"
        f"GAP of the answers at the finest level, over all of them: {figure_text(calibration.gap)} %. `fpr95_known` "
        "is the share of unknown images accepted where 95 % of the known ones are, and `fpr95_unknown` the share of "
        "known images rejected where 95 % of the unknown ones are."
    )


def figure_text(figure: Figure) -> str:
    """Return a figure in percent with its interval.

    >>> figure_text(Figure(value=0.5, interval=(0.4, 0.61)))
    '50.0 (40.0 to 61.0)'
    """
    low, high = figure.interval
    return f"{100 * figure.value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def _limits(detector: Detector, record: DetectorRecord) -> list[str]:
    model = "the same model" if record.model is None else f"`{record.model.name}` with these weights and settings"
    return [
        f"It scores embeddings of {detector.dim:,} dimensions made by {model}, and no others.",
        "It knows the index that it was fitted on. When images are added or removed, fit it again.",
        "A score is no probability. Its values cannot be compared with those of other scores or indexes.",
    ]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
