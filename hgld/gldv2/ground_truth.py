"""GLDv2's own ground truth of its retrieval and recognition tracks, and predictions in the form of its challenges.

Retrieval asks for the correct index images of each test image. ``retrieval_solution_v2.1.csv`` has a row per test
image: ``id``, ``images`` (ids of index images separated by spaces, or the word None where the test image is ignored)
and ``Usage`` (Public or Private). Of about 118,000 test images 1,129 have images, 379 of them Public and 750 Private.
``index_image_to_landmark.csv`` has a row for each of the 761,757 index images: ``id`` and ``landmark_id``.

Predictions are a CSV file with the columns ``id``, a test image, and ``images``, the ids of index images separated by
single spaces, best first. The challenges score the first 100. A test image without a row, or with an empty cell, has
no predictions.

Recognition asks for the landmark that each test image shows. ``recognition_solution_v2.1.csv`` has a row per test
image: ``id``, ``landmarks`` (ids separated by spaces, empty where the image shows no landmark) and ``Usage`` (Public,
Private or Ignored). Predictions have the columns ``id`` and ``landmarks``: one landmark and its score, separated by a
space. An image without a row, or with an empty cell, has no prediction.

Files of recognition are read as Google's published scorer reads them, Python's syntax of numbers included (``+2e0``,
``1_0.0``, ``inf``). Unlike it, a score of ``nan`` is refused, as it has no rank, and so is an image that the solution
repeats.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld.arrays import Integers
from hgld.errors import InputError, indented_list
from hgld.io.columns import parse_whole_number, read_rows
from hgld.io.files import write_csv
from hgld.io.text_array import TextArray, Texts
from hgld.ragged import RaggedIndices

log = logging.getLogger(__name__)

#: Parts of the solution that are scored, always separately.
USAGES = ("Public", "Private")
#: A third value of the column Usage, in the recognition track and in later exports of the retrieval track.
_IGNORED = "Ignored"
_NO_IMAGES = "None"


#: Predicted index images by test image, best first. An empty text takes a rank, but is no image.
RetrievalPredictions = Mapping[str, tuple[str, ...]]

_COLUMNS = ("id", "landmarks")


@dataclass(frozen=True)
class RetrievalSolution:
    """The scored test images, in the order of the file.

    Args:
        positives: Ids of the index images that are correct answers, for each test image; in the order of the file,
            each as often as it is listed. An empty list reads as one empty id, as in the published scorer.
    """

    query_ids: tuple[str, ...]
    usages: tuple[str, ...]
    positives: tuple[tuple[str, ...], ...]
    ignored_ids: tuple[str, ...] = ()

    @property
    def n_ignored(self) -> int:
        """Number of test images that are not scored."""
        return len(self.ignored_ids)


@dataclass(frozen=True)
class ImageLandmarks:
    """The landmark of each image, in the order of the file."""

    ids: npt.NDArray[np.str_]
    landmark_ids: Integers


@dataclass(frozen=True)
class QueryLandmarks:
    """The landmark of each query.

    Args:
        n_mixed: Number of queries whose positives belong to more than one landmark.
    """

    landmark_ids: Integers
    n_mixed: int


def read_retrieval_solution(path: Path, *, may_lack_positives: bool = False) -> RetrievalSolution:
    """Read and validate ``retrieval_solution_v2.1.csv``.

    Index images count as often as a list names them, as in the published scorer; a warning is logged.

    Args:
        may_lack_positives: Accept empty lists of scored test images, as the scorer of the challenges does.

    Raises:
        InputError: A row is malformed, or no test image is scored.
    """
    lines: dict[str, int] = {}
    repeating = []

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, str, tuple[str, ...] | None]:
        query, usage, images = row["id"].strip(), row["Usage"].strip(), row["images"]
        check_new_id(query, line, lines)
        if usage not in (*USAGES, _IGNORED):
            raise ValueError(f'the Usage is "{usage}"; expected {" or ".join(USAGES)}')
        if not images.strip() and not may_lack_positives:
            raise ValueError(f"the images are empty; expected ids of index images, or {_NO_IMAGES}")
        if images.strip() == _NO_IMAGES or usage not in USAGES:
            return query, usage, None
        positives = tuple(images.split(" "))
        if len(set(positives)) < len(positives):
            repeating.append(query)
        return query, usage, positives

    rows = read_rows(path, ("id", "images", "Usage"), parse)
    scored = [
        (query, usage, positives) for query, usage, positives in rows if positives is not None
    ]
    if not any(any(positives) for _, _, positives in scored):
        raise InputError(
            f"{path}: none of its {len(rows):,} test images has index images; is it the retrieval solution?"
        )
    if repeating:
        log.warning(
            "%s: %d lists of images repeat an image, the first that of %s; repetitions count as further positives, "
            "as in the published scorer",
            path,
            len(repeating),
            repeating[0],
        )
    query_ids, usages, positives = zip(*scored, strict=True)
    ignored = tuple(query for query, _, positives in rows if positives is None)
    return RetrievalSolution(query_ids, usages, positives, ignored)


def read_image_to_landmark(path: Path) -> ImageLandmarks:
    """Read and validate ``index_image_to_landmark.csv``, or any CSV file with the columns id and landmark_id."""
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> int:
        check_new_id(row["id"].strip(), line, lines)
        return parse_whole_number("landmark_id", row["landmark_id"])

    landmark_ids = read_rows(path, ("id", "landmark_id"), parse)
    # All ids have 16 characters, so that fixed width costs nothing.
    return ImageLandmarks(np.array(list(lines)), np.array(landmark_ids, np.int64))


def positive_positions(solution: RetrievalSolution, gallery_ids: Texts) -> RaggedIndices:
    """Return the positions of each query's positives in the gallery: a row per query."""
    rows, positions = _find_positives(solution, gallery_ids, "the gallery")
    return RaggedIndices.from_pairs(rows, positions, len(solution.query_ids))


def query_landmarks(solution: RetrievalSolution, image_landmarks: ImageLandmarks) -> QueryLandmarks:
    """Return the landmark of each query: that of the first index image listed, as the authors of H-GLDv2 chose it."""
    rows, positions = _find_positives(solution, image_landmarks.ids, "the images with a landmark")
    landmarks = image_landmarks.landmark_ids[positions]
    first = landmarks[np.searchsorted(rows, np.arange(len(solution.query_ids)))]
    mixed = np.unique(rows[landmarks != first[rows]])
    return QueryLandmarks(first, len(mixed))


def _find_positives(
    solution: RetrievalSolution, ids: Texts, owner: str
) -> tuple[Integers, npt.NDArray[np.int64]]:
    """Return the query and the position in ``ids`` of each positive, in the order of the solution."""
    known = TextArray(ids).to_arrow()
    repeated = len(known) - pc.count_distinct(known).as_py()
    if repeated:
        raise InputError(
            f"{owner}: {repeated:,} of {len(known):,} ids are repeated; expected each id once"
        )
    pairs = [
        (row, image) for row, images in enumerate(solution.positives) for image in images if image
    ]
    wanted = pa.array([image for _, image in pairs], pa.string())
    positions = pc.index_in(wanted, value_set=known)
    missing = pc.unique(wanted.filter(positions.is_null())).to_pylist()
    if missing:
        raise InputError(
            f"{len(missing):,} of the {pc.count_distinct(wanted).as_py():,} index images that the solution lists are "
            f"not in {owner} ({len(known):,} images); the protocol needs all index images of GLDv2: add these, or "
            f"check that the ids are GLDv2's own, without folder and suffix:\n{indented_list(missing, limit=5)}"
        )
    return np.array([row for row, _ in pairs]), positions.to_numpy().astype(np.int64)


def read_retrieval_predictions(path: Path, query_ids: Iterable[str]) -> RetrievalPredictions:
    """Read predictions of test images.

    As in the published scorer, two blanks in a row enclose an empty id, which takes a rank. Unlike it, a repeated or
    unknown test image is an error even where it has no predictions.

    Args:
        query_ids: Ids of all test images, those that are not scored included.

    Raises:
        InputError: A row is malformed, or its id not that of a test image.
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
        query, images = row["id"].strip(), row["images"]
        check_new_id(query, line, lines)
        return query, tuple(images.split(" ")) if images else ()

    predictions = dict(read_rows(path, ("id", "images"), parse))
    known = set(query_ids)
    if unknown := [query for query in predictions if query not in known]:
        raise InputError(
            f"{path}: {len(unknown):,} of {len(predictions):,} ids are not those of test images in the solution:\n"
            f"{indented_list(unknown, limit=5)}"
        )
    return predictions


def write_retrieval_predictions(
    path: Path, query_ids: Sequence[str], rankings: Iterable[Sequence[str]]
) -> None:
    """Write predictions of test images, atomically.

    Args:
        rankings: Ids of the index images of each, best first.

    Raises:
        InputError: An id is empty or has whitespace in it, which separates ids.
    """

    def rows() -> Iterator[Sequence[str]]:
        for query, images in zip(query_ids, rankings, strict=True):
            for image in (query, *images):
                if image.split() != [image]:
                    raise InputError(
                        f'the id "{image}" is empty or has whitespace; predictions separate ids by it'
                    )
            yield query, " ".join(images)

    write_csv(path, ("id", "images"), rows())


def check_new_id(image: str, line: int, lines: dict[str, int]) -> None:
    """Raise ValueError if an id is empty or in an earlier line of a file; note its line otherwise."""
    if not image:
        raise ValueError("the id is empty")
    earlier = lines.setdefault(image, line)
    if earlier != line:
        raise ValueError(f"the id {image} is in line {earlier} already; expected one row per image")


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
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, str, frozenset[int]]:
        image, usage, landmarks = row["id"].strip(), row["Usage"].strip(), row["landmarks"]
        check_new_id(image, line, lines)
        if usage not in (*USAGES, _IGNORED):
            raise ValueError(f'the Usage is "{usage}"; expected {", ".join(USAGES)} or {_IGNORED}')
        if usage == _IGNORED or not landmarks:
            return image, usage, frozenset()
        return (
            image,
            usage,
            frozenset(_parse_landmark(landmark) for landmark in landmarks.split(" ")),
        )

    rows = read_rows(path, (*_COLUMNS, "Usage"), parse)
    return RecognitionSolution(
        {
            part: {image: landmarks for image, usage, landmarks in rows if usage == part}
            for part in USAGES
        },
        frozenset(image for image, usage, _ in rows if usage == _IGNORED),
    )


def read_recognition_predictions(
    path: Path, solution: RecognitionSolution
) -> dict[str, LandmarkPrediction]:
    """Read the predicted landmark of each test image that has one.

    As in the published scorer, rows of ignored test images are not looked at, and a row without a prediction says
    nothing: a later row of the same image counts, and the image may be unknown, which is logged as a warning.
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
                raise InputError(
                    f'the id "{image}" is empty or has whitespace around it; predictions cannot name it'
                )
            answer = predictions.get(image)
            yield image, "" if answer is None else f"{answer.landmark} {float(answer.score)!r}"

    write_csv(path, _COLUMNS, rows())


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
