"""Ground truth of GLDv2's retrieval track, and predictions in the format of its challenge.

Retrieval asks for the correct index images of each test image. ``retrieval_solution_v2.1.csv`` has
a row per test image: ``id``, ``images`` (ids of index images separated by spaces, or the word None
if the test image is ignored) and ``Usage`` (Public or Private). Of about 118,000 test images 1,129
have images: 379 are Public and 750 Private. ``index_image_to_landmark.csv`` has a row for each
of the 761,757 index images: ``id`` and ``landmark_id``.

Predictions are a CSV file with the columns ``id``, a test image, and ``images``, the ids of index
images separated by single spaces, best first. The challenge scores the first 100. A test image
without a row, or with an empty cell, has no predictions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld.arrays import Integers
from hgld.errors import InputError, indented_list
from hgld.io.files import write_csv
from hgld.io.table_rows import parse_whole_number, read_rows
from hgld.io.text_array import TextArray, Texts
from hgld.ragged import RaggedIndices

log = logging.getLogger(__name__)

#: Parts of the solution that are scored, always separately.
USAGES = ("Public", "Private")
#: A third value of the column Usage, in the recognition track and in later exports of the retrieval
#: track.
IGNORED = "Ignored"
_NO_IMAGES = "None"


#: Predicted index images by test image, best first. An empty text takes a rank, but is no image.
RetrievalPredictions = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class RetrievalSolution:
    """The scored test images, in the order of the file.

    Args:
        query_ids: Ids of the scored test images.
        usages: Public or Private, for each test image.
        positives: Ids of the index images that are correct answers, for each test image, in the
            order of the file and with repetitions. An empty list reads as one empty id, as in the
            published scorer.
        ignored_ids: Ids of the test images that are not scored.
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

    Repeated index images of a list count repeatedly, as in the published scorer; a warning is
    logged.

    Args:
        path: CSV file.
        may_lack_positives: Accept empty lists of scored test images, as the scorer of the
            challenges does.

    Raises:
        InputError: A row is malformed, or no test image is scored.
    """
    lines: dict[str, int] = {}
    repeating = []

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, str, tuple[str, ...] | None]:
        query = row["id"].strip()
        usage = row["Usage"].strip()
        images = row["images"]
        check_new_id(query, line, lines)
        if usage not in (*USAGES, IGNORED):
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
    query_ids = []
    usages = []
    positives_by_query = []
    ignored_ids = []
    for query, usage, positives in rows:
        if positives is None:
            ignored_ids.append(query)
            continue
        query_ids.append(query)
        usages.append(usage)
        positives_by_query.append(positives)
    if not any(map(any, positives_by_query)):
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
    return RetrievalSolution(
        tuple(query_ids), tuple(usages), tuple(positives_by_query), tuple(ignored_ids)
    )


def read_image_to_landmark(path: Path) -> ImageLandmarks:
    """Read and validate a CSV file with the columns id and landmark_id."""
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> int:
        check_new_id(row["id"].strip(), line, lines)
        return parse_whole_number("landmark_id", row["landmark_id"])

    landmark_ids = read_rows(path, ("id", "landmark_id"), parse)
    # All ids have 16 characters, so a fixed width does not waste memory.
    return ImageLandmarks(np.array(list(lines)), np.array(landmark_ids, np.int64))


def positive_positions(solution: RetrievalSolution, gallery_ids: Texts) -> RaggedIndices:
    """Return the positions of each query's positives in the gallery: a row per query."""
    rows, positions = _find_positives(solution, gallery_ids, "the gallery")
    return RaggedIndices.from_pairs(rows, positions, len(solution.query_ids))


def query_landmarks(solution: RetrievalSolution, image_landmarks: ImageLandmarks) -> QueryLandmarks:
    """Return the landmark of each query: the landmark of its first index image.

    The authors of H-GLDv2 chose landmarks in the same way.
    """
    queries, positions = _find_positives(
        solution, image_landmarks.ids, "the images with a landmark"
    )
    landmarks = image_landmarks.landmark_ids[positions]
    first_landmarks = landmarks[np.searchsorted(queries, np.arange(len(solution.query_ids)))]
    mixed_queries = np.unique(queries[landmarks != first_landmarks[queries]])
    return QueryLandmarks(first_landmarks, len(mixed_queries))


def _find_positives(
    solution: RetrievalSolution, ids: Texts, owner: str
) -> tuple[Integers, npt.NDArray[np.int64]]:
    """Return the query and the position in ``ids`` of each positive, in order of the solution."""
    id_column = TextArray(ids).to_arrow()
    n_repeated = len(id_column) - pc.count_distinct(id_column).as_py()
    if n_repeated:
        raise InputError(
            f"{owner}: {n_repeated:,} of {len(id_column):,} ids are repeated; expected each id once"
        )
    queries = []
    positives = []
    for query, images in enumerate(solution.positives):
        for image in images:
            if image:
                queries.append(query)
                positives.append(image)
    positive_column = pa.array(positives, pa.string())
    positions = pc.index_in(positive_column, value_set=id_column)
    missing = pc.unique(positive_column.filter(positions.is_null())).to_pylist()
    if missing:
        raise InputError(
            f"{len(missing):,} of the {len(set(positives)):,} index images that the solution lists are not in "
            f"{owner} ({len(id_column):,} images); the protocol needs all index images of GLDv2: add these, or check "
            f"that the ids are GLDv2's own, without folder and suffix:\n{indented_list(missing, limit=5)}"
        )
    return np.array(queries), positions.to_numpy().astype(np.int64)


def read_retrieval_predictions(path: Path, query_ids: Iterable[str]) -> RetrievalPredictions:
    """Read predictions of test images.

    As in the published scorer, two blanks in a row enclose an empty id, which takes a rank. Unlike
    the scorer, a repeated or unknown test image is an error even without predictions.

    Args:
        path: CSV file.
        query_ids: Ids of all test images, whether scored or not.

    Raises:
        InputError: A row is malformed, or its id is not among the test images.
    """
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
        query = row["id"].strip()
        check_new_id(query, line, lines)
        if not row["images"]:
            return query, ()
        return query, tuple(row["images"].split(" "))

    predictions = dict(read_rows(path, ("id", "images"), parse))
    test_images = set(query_ids)
    unknown = [query for query in predictions if query not in test_images]
    if unknown:
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
        path: CSV file to write.
        query_ids: Ids of the test images.
        rankings: Ids of index images for each test image, best first.

    Raises:
        InputError: An id is empty or contains whitespace, which separates ids.
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
    """Record the line of an id; raise ValueError if the id is empty or in an earlier line."""
    if not image:
        raise ValueError("the id is empty")
    earlier = lines.setdefault(image, line)
    if earlier != line:
        raise ValueError(f"the id {image} is in line {earlier} already; expected one row per image")
