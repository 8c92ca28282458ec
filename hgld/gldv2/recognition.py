"""Files of GLDv2's landmark recognition track: its ground truth, and predictions in the form of its challenges.

``recognition_solution_v2.1.csv`` has a row per test image: ``id``, ``landmarks`` (ids separated by spaces, empty
where the image shows no landmark) and ``Usage`` (Public, Private or Ignored). Predictions have the columns ``id`` and
``landmarks``: one landmark and its score, separated by a space. An image without a row, or with an empty cell, has no
prediction.

Both are read as Google's published scorer reads them, Python's syntax of numbers included (``+2e0``, ``1_0.0``,
``inf``). Unlike it, a score of ``nan`` is refused, as it has no rank, and so is an image that the solution repeats.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import InputError
from hgld.gldv2.ground_truth import USAGES, check_new_id, write_predictions
from hgld.io.columns import read_rows

log = logging.getLogger(__name__)

_IGNORED = "Ignored"
_COLUMNS = ("id", "landmarks")


@dataclass(frozen=True)
class RecognitionSolution:
    """The landmarks that each test image shows.

    Args:
        landmarks: Landmark ids by test image, for Public and for Private; none where an image shows no landmark.
    """

    landmarks: Mapping[str, Mapping[str, frozenset[int]]]
    ignored_ids: frozenset[str] = frozenset()

    @property
    def scored_ids(self) -> set[str]:
        """Ids of the test images that are scored."""
        return {image for images in self.landmarks.values() for image in images}


@dataclass(frozen=True)
class LandmarkPrediction:
    """The landmark predicted for an image.

    Args:
        score: Confidence, higher for what is more certain; any number, infinities included.
    """

    landmark: int
    score: float


def read_recognition_solution(path: Path) -> RecognitionSolution:
    """Read and validate ``recognition_solution_v2.1.csv``.

    Landmarks of ignored images are not looked at.

    Raises:
        InputError: See :func:`hgld.io.columns.read_rows`. A row is invalid if its id is empty or repeated, its
            Usage unknown, or a landmark of a scored image not a whole number.
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, str, frozenset[int]]:
        image, usage, landmarks = row["id"].strip(), row["Usage"].strip(), row["landmarks"]
        check_new_id(image, line, lines)
        if usage not in (*USAGES, _IGNORED):
            raise ValueError(f'the Usage is "{usage}"; expected {", ".join(USAGES)} or {_IGNORED}')
        if usage == _IGNORED or not landmarks:
            return image, usage, frozenset()
        return image, usage, frozenset(_parse_landmark(landmark) for landmark in landmarks.split(" "))

    rows = read_rows(path, (*_COLUMNS, "Usage"), parse)
    return RecognitionSolution(
        {part: {image: landmarks for image, usage, landmarks in rows if usage == part} for part in USAGES},
        frozenset(image for image, usage, _ in rows if usage == _IGNORED),
    )


def read_recognition_predictions(path: Path, solution: RecognitionSolution) -> dict[str, LandmarkPrediction]:
    """Read the predicted landmark of each test image that has one.

    As in the published scorer, rows of ignored test images are not looked at, and a row without a prediction says
    nothing: a later row of the same image counts, and the image may be unknown, which is logged as a warning.

    Raises:
        InputError: See :func:`hgld.io.columns.read_rows`. A row is invalid if its id is empty, if an earlier row
            has a prediction of the same image, or if its cell is not empty and either not one landmark and its score,
            or of an image that is not in the solution.
    """
    scored = solution.scored_ids
    lines: dict[str, int] = {}
    predictions: dict[str, LandmarkPrediction] = {}
    unknown: list[str] = []

    def parse(line: int, row: Mapping[str, str]) -> None:
        image, cell = row["id"].strip(), row["landmarks"]
        if not image:
            raise ValueError("the id is empty")
        if image in solution.ignored_ids:
            return
        if image in lines:
            raise ValueError(
                f"the id {image} has a prediction in line {lines[image]} already; expected one per image"
            )
        if not cell:
            if image not in scored:
                unknown.append(image)
            return
        if image not in scored:
            raise ValueError(f"the id {image} is not that of a test image in the solution")
        predictions[image] = _parse_prediction(cell)
        lines[image] = line

    read_rows(path, _COLUMNS, parse, may_be_empty=True)
    if unknown:
        log.warning(
            "%s: %d rows without a prediction are of images that are not in the solution, the first that of %s",
            path,
            len(unknown),
            unknown[0],
        )
    return predictions


def write_recognition_predictions(
    path: Path, image_ids: Iterable[str], predictions: Mapping[str, LandmarkPrediction]
) -> None:
    """Write the predicted landmark of each test image, atomically; :func:`read_recognition_predictions` reads it.

    Scores are written with as many digits as it takes to read the same numbers again.

    Args:
        predictions: Prediction by test image; the cells of those without one are empty.

    Raises:
        InputError: An id is empty, or has whitespace around it, which readers remove.
    """

    def rows() -> Iterator[Sequence[str]]:
        for image in image_ids:
            if not image or image.strip() != image:
                raise InputError(f'the id "{image}" is empty or has whitespace around it; predictions cannot name it')
            answer = predictions.get(image)
            yield image, "" if answer is None else f"{answer.landmark} {float(answer.score)!r}"

    write_predictions(path, _COLUMNS, rows())


def _parse_prediction(cell: str) -> LandmarkPrediction:
    parts = cell.removesuffix(" ").split(" ")
    if len(parts) != 2:
        raise ValueError(
            f'the prediction is "{cell}"; expected one landmark and its score, separated by a single space, such as '
            "6347 0.75, or an empty cell"
        )
    try:
        score = float(parts[1])
    except ValueError:
        score = math.nan
    if math.isnan(score):
        raise ValueError(f'the score is "{parts[1]}"; expected a number such as 0.75')
    return LandmarkPrediction(_parse_landmark(parts[0]), score)


def _parse_landmark(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f'a landmark is "{text}"; expected whole numbers such as 6347, separated by single spaces'
        ) from None
