"""The detector card: what a fitted score is, how good it is, how to use it, and its limits."""

from __future__ import annotations

import inspect
from pathlib import Path
from string import Template
from typing import Any

from hgld.io.markdown import markdown_table
from hgld.progress import byte_size
from hgld.rejection.detector import Detector
from hgld.rejection.detector_record import DetectorRecord
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
    inputs = [name for name in ("logits", "deviations") if name in detector.requires]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=title,
        n_images=f"{record.n_images:,}",
        about=score_summary(type(detector)),
        facts=_facts(detector, record, n_bytes),
        arguments=", ".join(["embeddings", *(f"{name}={name}" for name in inputs)]),
        options="".join(f" --{name} {name}.npy" for name in inputs),
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


def _limits(detector: Detector, record: DetectorRecord) -> list[str]:
    model = "the same model" if record.model is None else f"`{record.model.name}` with these weights and settings"
    return [
        f"It scores embeddings of {detector.dim:,} dimensions made by {model}, and no others.",
        "It knows the index that it was fitted on. When images are added or removed, fit it again.",
        "A score is no probability. Its values cannot be compared with those of other scores or indexes.",
    ]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
