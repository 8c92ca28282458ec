"""Ground truth of GLDv2's recognition track, and predictions in the format of its challenge.

Recognition asks for the landmark that each test image shows. ``recognition_solution_v2.1.csv`` has
a row per test image: ``id``, ``landmarks`` (ids separated by spaces, empty if the image shows no
landmark) and ``Usage`` (Public, Private or Ignored). Predictions have the columns ``id`` and
``landmarks``: a landmark and its score, separated by a space. An image without a row, or with an
empty cell, has no prediction.

Files are read as Google's published scorer reads them, including Python's syntax of numbers
(``+2e0``, ``1_0.0``, ``inf``). Unlike the scorer, the reader refuses a score of ``nan``, which has
no rank, and repeated images of a solution.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import InputError
from hgld.gldv2.retrieval_ground_truth import IGNORED, USAGES, check_new_id
from hgld.io.files import write_csv
from hgld.io.table_rows import read_rows

log = logging.getLogger(__name__)

_COLUMNS = ("id", "landmarks")


@dataclass(frozen=True)
class RecognitionSolution:
    """The landmarks that each test image shows.

    Args:
        landmarks: Landmark ids by test image, by usage (Public and Private); empty for an image
            without landmark.
        ignored_ids: Ids of the test images that are not scored.
    """

    landmarks: Mapping[str, Mapping[str, frozenset[int]]]
    ignored_ids: frozenset[str] = frozenset()

    @property
    def scored_ids(self) -> set[str]:
        """Ids of the test images that are scored."""
        ids: set[str] = set()
        for images in self.landmarks.values():
            ids.update(images)
        return ids


@dataclass(frozen=True)
class LandmarkPrediction:
    """The landmark predicted for an image.

    Args:
        landmark: Landmark id.
        score: Confidence, higher for a more certain prediction; any number, including infinities.
    """

    landmark: int
    score: float


def read_recognition_solution(path: Path) -> RecognitionSolution:
    """Read and validate ``recognition_solution_v2.1.csv``.

    Landmarks of ignored images are not read.
    """
    lines: dict[str, int] = {}
    landmarks_by_usage: dict[str, dict[str, frozenset[int]]] = {usage: {} for usage in USAGES}
    ignored_ids = []

    def parse(line: int, row: Mapping[str, str]) -> None:
        image = row["id"].strip()
        usage = row["Usage"].strip()
        check_new_id(image, line, lines)
        if usage == IGNORED:
            ignored_ids.append(image)
            return
        if usage not in USAGES:
            raise ValueError(f'the Usage is "{usage}"; expected {", ".join(USAGES)} or {IGNORED}')
        landmarks = row["landmarks"].split(" ") if row["landmarks"] else []
        landmarks_by_usage[usage][image] = frozenset(map(_parse_landmark, landmarks))

    read_rows(path, (*_COLUMNS, "Usage"), parse)
    return RecognitionSolution(landmarks_by_usage, frozenset(ignored_ids))


def read_recognition_predictions(
    path: Path, solution: RecognitionSolution
) -> dict[str, LandmarkPrediction]:
    """Read the predicted landmarks of test images.

    As in the published scorer, rows of ignored test images are skipped, and rows without a
    prediction have no effect: a later row of the same image counts, and the image may be unknown,
    which is logged as a warning.
    """
    scored = solution.scored_ids
    lines: dict[str, int] = {}
    predictions: dict[str, LandmarkPrediction] = {}
    unknown: list[str] = []

    def parse(line: int, row: Mapping[str, str]) -> None:
        image = row["id"].strip()
        cell = row["landmarks"]
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
    """Write the predicted landmark of each test image, atomically.

    Scores are written with enough digits to restore the same numbers.

    Args:
        path: CSV file to write.
        image_ids: Ids of the test images.
        predictions: Prediction by test image; images without a prediction get an empty cell.

    Raises:
        InputError: An id is empty, or has whitespace around it, which readers remove.
    """

    def rows() -> Iterator[Sequence[str]]:
        for image in image_ids:
            if not image or image.strip() != image:
                raise InputError(
                    f'the id "{image}" is empty or has whitespace around it; predictions cannot name it'
                )
            cell = ""
            if image in predictions:
                prediction = predictions[image]
                cell = f"{prediction.landmark} {float(prediction.score)!r}"
            yield image, cell

    write_csv(path, _COLUMNS, rows())


def _parse_prediction(cell: str) -> LandmarkPrediction:
    words = cell.removesuffix(" ").split(" ")
    if len(words) != 2:
        raise ValueError(
            f'the prediction is "{cell}"; expected one landmark and its score, separated by a single space, such as '
            "6347 0.75, or an empty cell"
        )
    landmark, score_text = words
    try:
        score = float(score_text)
    except ValueError:
        score = math.nan
    if math.isnan(score):
        raise ValueError(f'the score is "{score_text}"; expected a number such as 0.75')
    return LandmarkPrediction(_parse_landmark(landmark), score)


def _parse_landmark(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f'a landmark is "{text}"; expected whole numbers such as 6347, separated by single spaces'
        ) from None
