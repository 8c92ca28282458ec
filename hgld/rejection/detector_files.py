"""Folders of fitted rejection scores: what a score comes from, its tensors, and its card.

::

    detector.json        the score, its options, what it was fitted on, and its thresholds
    detector.safetensors what was fitted: statistics of the index, or its embeddings
    README.md            detector card

Loading runs no code from a folder: JSON is validated, and tensors are memory-mapped, so a score that keeps the
embeddings of its index reads those that it needs. For that reason the values of the tensors are not checked against a
digest, only that they are whole and belong to ``detector.json``.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from string import Template
from textwrap import shorten
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hgld.errors import ConfigurationError, HgldError, InputError
from hgld.io.files import atomic_write, exclusive_lock, folder_draft, read_json, replace_folder
from hgld.io.markdown import markdown_table
from hgld.io.settings import Settings
from hgld.progress import byte_size
from hgld.rejection.detector import Detector
from hgld.rejection.registry import build_detector
from hgld.rejection.risk_coverage import Threshold
from hgld.version import __version__

DESCRIPTION, STATE, CARD = "detector.json", "detector.safetensors", "README.md"
_FORMAT: Literal["hgld.detector/1"] = "hgld.detector/1"
_TEMPLATE = Path(__file__).parents[1] / "templates" / "rejection" / "README.md"


class DetectorModel(Settings):
    """The model that made the embeddings which a score was fitted on."""

    name: str
    weights_sha256: str
    settings: dict[str, Any] = Field(default_factory=dict)


class Figure(Settings):
    """A metric with its confidence interval of 95 %."""

    value: float
    interval: tuple[float, float]


class Calibration(Settings):
    """Thresholds of a score, and how well it detects the images that they were fitted on.

    Args:
        n_images: Number of calibration images by kind: ``known``, whose landmark the index has, and others.
        thresholds: Threshold of each of the L levels, finest first.
        gap: Global average precision of the answers, ranked by the score.
        detection: Metrics of :func:`hgld.rejection.detection_metrics.detection_metrics` for each kind of images that
            are not known.
        n_votes: Number of nearest images that voted on the answers.
    """

    n_images: dict[str, int]
    thresholds: tuple[Threshold, ...]
    gap: Figure
    detection: dict[str, dict[str, Figure]]
    n_votes: int

    def finest_accepted(self, scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the column of the finest level at which each answer is accepted; L where none is.

        An answer that is accepted at a level is accepted at all coarser ones.

        Returns:
            int64, shape (n,).
        """
        accepted = [threshold.accepts(scores[:, column]) for column, threshold in enumerate(self.thresholds)]
        table = np.stack([*accepted, np.ones(len(scores), np.bool_)], axis=1)
        columns: npt.NDArray[np.int64] = table.argmax(axis=1)
        return columns


class DetectorRecord(Settings):
    """What a fitted score comes from, and what it can be used for.

    Args:
        n_images: Number of images of the index.
        index_sha256: SHA-256 of the file of its embeddings; None if they were in memory.
        model: The model that made the embeddings; None if it is not known.
        level_names: Names of the L levels of the labels, finest first; empty without labels.
        inputs: Names of the inputs beside embeddings and labels that it was fitted on, ``logits`` and ``deviations``;
            images are scored by them, too.
        calibration: Thresholds, and figures of detection; None if no threshold was fitted.
        provenance: Command, parameters and SHA-256 of the inputs.
    """

    n_images: int
    index_sha256: str | None = None
    model: DetectorModel | None = None
    level_names: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    calibration: Calibration | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)


class _Description(Settings):
    """Contents of ``detector.json``."""

    format: Literal["hgld.detector/1"]
    hgld_version: str
    score: str
    options: dict[str, Any]
    dim: int = Field(ge=1)
    n_levels: int = Field(ge=1)
    record: DetectorRecord

    def fit_digest(self) -> str:
        """Return a digest of what determines the state."""
        record = self.record.model_dump(mode="json", include={"n_images", "index_sha256", "model", "provenance"})
        content = [self.score, self.options, self.dim, self.n_levels, record]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class SavedDetector:
    """A fitted score and its record."""

    detector: Detector
    record: DetectorRecord


def is_detector_folder(folder: Path) -> bool:
    """Return whether a folder has a ``detector.json`` in the format of hgld, of any version."""
    try:
        return str(read_json(folder / DESCRIPTION).get("format")).startswith("hgld.detector/")
    except (OSError, ValueError):
        return False


def check_replaceable_folder(folder: Path) -> None:
    """Check that a detector can be written to ``folder``: it is new, empty, or that of a detector.

    Raises:
        ConfigurationError: The folder holds something else.
    """
    if folder.exists() and any(folder.iterdir()) and not is_detector_folder(folder):
        raise ConfigurationError(f"{folder}: contains files that are not those of a detector; name another folder")


def save_detector(folder: Path, detector: Detector, record: DetectorRecord) -> None:
    """Write a fitted score with its card to a folder, which appears whole or not at all.

    The folder of another detector is replaced.

    Raises:
        ConfigurationError: The score was not fitted, or the folder holds something else than a detector.
        BusyError: Another run is writing the folder.
    """
    if not detector.dim:
        raise ConfigurationError(f"the score {detector.name} was not fitted; call `fit` first")
    description = _Description(
        format=_FORMAT,
        hgld_version=__version__,
        score=detector.name,
        options=detector.options(),
        dim=detector.dim,
        n_levels=detector.n_levels,
        record=record,
    )
    folder = folder.absolute()
    with exclusive_lock(folder), folder_draft(folder) as draft:
        check_replaceable_folder(folder)
        # The digest is that of the values as they are read again: a tuple becomes a list.
        values = description.model_dump(mode="json")
        # As safetensors holds tensors: on the CPU, contiguous, and each with memory of its own.
        copied = torch.contiguous_format
        state = {name: value.detach().cpu().clone(memory_format=copied) for name, value in detector.state().items()}
        # One entry only: safetensors writes several in an order that differs from file to file.
        metadata = {"fit": _Description.model_validate(values).fit_digest()}
        with atomic_write(draft / STATE) as part:
            save_file(state, part, metadata=metadata)
        text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
        (draft / DESCRIPTION).write_text(text, encoding="utf-8")
        n_bytes = sum(tensor.nbytes for tensor in state.values())
        card = detector_card(detector, record, title=folder.name, n_bytes=n_bytes)
        (draft / CARD).write_text(card, encoding="utf-8")
        shutil.copymode(draft / DESCRIPTION, draft / STATE)  # safetensors lets nobody but the owner read its files
        replace_folder(draft, folder)


def load_detector(folder: Path) -> SavedDetector:
    """Load a fitted score from a folder of :func:`save_detector`.

    Raises:
        InputError: There is no such folder, or its files are missing, damaged, of another version or of several
            detectors.
    """
    description = _read_description(folder)
    try:
        detector = build_detector(description.score, description.options)
        detector.restore(description.dim, _read_state(folder, description), n_levels=description.n_levels)
        return SavedDetector(detector, description.record)
    except HgldError as error:
        raise InputError(f"{folder}: {error}") from error
    except (RuntimeError, ValueError, TypeError, IndexError) as error:  # tensors of other shapes or types
        raise InputError(
            f"{folder}: does not fit this version of hgld, or is damaged: {shorten(str(error), 200)}; fit it again"
        ) from error


def _read_description(folder: Path) -> _Description:
    path = folder / DESCRIPTION
    try:
        values = read_json(path)
        if values.get("format") != _FORMAT:
            raise InputError(
                f'{path}: expected a detector of hgld reject fit, "{_FORMAT}", but its format is '
                f'"{values.get("format")}"; fit it again'
            )
        return _Description.model_validate(values)
    except OSError as error:
        raise InputError(
            f"{folder}: not a detector of hgld reject fit, as it has no {DESCRIPTION} that can be read "
            f"({error.strerror})"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; was it changed? fit it again"
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: not whole JSON ({error}); fit it again") from error


def _read_state(folder: Path, description: _Description) -> dict[str, torch.Tensor]:
    path = folder / STATE
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("fit") != description.fit_digest():
                raise InputError(
                    f"{STATE} belongs to another {DESCRIPTION}; copy both from one detector, or fit it again"
                )
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise InputError(f"{STATE} is not whole ({reason}); copy it again, or fit it again") from error


def detector_card(detector: Detector, record: DetectorRecord, *, title: str, n_bytes: int) -> str:
    """Return the text of ``README.md``."""
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
        *(
            [f"option `{name}`", f"{value:g}" if isinstance(value, float) else str(value)]
            for name, value in detector.options().items()
        ),
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
    """Return a row of a table of thresholds."""
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
