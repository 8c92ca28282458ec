"""GLDv2's own ground truth of retrieval, the correct index images for each test image, and predictions of them.

``retrieval_solution_v2.1.csv`` has a row per test image: ``id``, ``images`` (ids of index images separated by spaces,
or the word None where the test image is ignored) and ``Usage`` (Public or Private). Of about 118,000 test images
1,129 have images, 379 of them Public and 750 Private. ``index_image_to_landmark.csv`` has a row for each of the
761,757 index images: ``id`` and ``landmark_id``.

Predictions have the form of the public landmark retrieval challenges: a CSV file with the columns ``id``, a test
image, and ``images``, the ids of index images separated by single spaces, best first. The challenges score the first
100. A test image without a row, or with an empty cell, has no predictions.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import InputError, indented_list
from hgld.io.columns import parse_whole_number, read_rows
from hgld.io.files import atomic_write
from hgld.ragged import Integers, RaggedIndices

log = logging.getLogger(__name__)

#: Parts of the solution that are scored, always separately.
USAGES = ("Public", "Private")
#: Valid values of the column Usage; later exports also mark ignored test images there.
_USAGES = (*USAGES, "Ignored")
_NO_IMAGES = "None"

Texts = npt.NDArray[np.str_]

#: Predicted index images by test image, best first. An empty text takes a rank, but is no image.
RetrievalPredictions = Mapping[str, tuple[str, ...]]


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

    ids: Texts
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
        InputError: See :func:`hgld.io.columns.read_rows`. A row is invalid if its id is empty or repeated, its
            Usage unknown or, unless they may lack positives, its list of images empty. Also raised if no test image
            is scored.
    """
    lines: dict[str, int] = {}
    repeating = []

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, str, tuple[str, ...] | None]:
        query, usage, images = row["id"].strip(), row["Usage"].strip(), row["images"]
        check_new_id(query, line, lines)
        if usage not in _USAGES:
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
    scored = [(query, usage, positives) for query, usage, positives in rows if positives is not None]
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
    """Read and validate ``index_image_to_landmark.csv``, or any CSV file with the columns id and landmark_id.

    Raises:
        InputError: See :func:`hgld.io.columns.read_rows`. A row is invalid if its id is empty or repeated, or its
            landmark_id not a whole number.
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> int:
        check_new_id(row["id"].strip(), line, lines)
        return parse_whole_number("landmark_id", row["landmark_id"])

    landmark_ids = read_rows(path, ("id", "landmark_id"), parse)
    # All ids have 16 characters, so that fixed width costs nothing.
    return ImageLandmarks(np.array(list(lines)), np.array(landmark_ids, np.int64))


def positive_positions(solution: RetrievalSolution, gallery_ids: Sequence[str] | Texts) -> RaggedIndices:
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
    solution: RetrievalSolution, ids: Sequence[str] | Texts, owner: str
) -> tuple[Integers, npt.NDArray[np.int64]]:
    """Return the query and the position in ``ids`` of each positive, in the order of the solution."""
    known = pa.array(ids, pa.string())
    repeated = len(known) - pc.count_distinct(known).as_py()
    if repeated:
        raise InputError(f"{owner}: {repeated:,} of {len(known):,} ids are repeated; expected each id once")
    pairs = [(row, image) for row, images in enumerate(solution.positives) for image in images if image]
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
        InputError: See :func:`hgld.io.columns.read_rows`. A row is invalid if its id is empty or repeated. Also
            raised if an id is not that of a test image.
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


def write_retrieval_predictions(path: Path, query_ids: Sequence[str], rankings: Iterable[Sequence[str]]) -> None:
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
                    raise InputError(f'the id "{image}" is empty or has whitespace; predictions separate ids by it')
            yield query, " ".join(images)

    write_predictions(path, ("id", "images"), rows())


def write_predictions(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file of predictions atomically."""
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def check_new_id(image: str, line: int, lines: dict[str, int]) -> None:
    """Raise ValueError if an id is empty or in an earlier line of a file; note its line otherwise."""
    if not image:
        raise ValueError("the id is empty")
    earlier = lines.setdefault(image, line)
    if earlier != line:
        raise ValueError(f"the id {image} is in line {earlier} already; expected one row per image")
