"""GLDv2's own ground truth of retrieval: which index images answer each test image.

``retrieval_solution_v2.1.csv`` has a row per test image: ``id``, ``images`` (ids of index images with spaces between,
or the word None where the test image is ignored) and ``Usage`` (Public or Private). Of about 118,000 test images
1,129 have images, 379 of them Public and 750 Private. ``index_image_to_landmark.csv`` has a row for each of the
761,757 index images: ``id`` and ``landmark_id``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from hgld.errors import InputError, indented_list
from hgld.io.csv_files import parse_whole_number, read_rows
from hgld.ragged import Integers, RaggedIndices

log = logging.getLogger(__name__)

#: The parts of the solution that are scored, always apart.
USAGES = ("Public", "Private")
#: What may stand in the column Usage; later exports mark ignored test images there, too.
_USAGES = (*USAGES, "Ignored")
_NO_IMAGES = "None"
_INDEX_COLUMNS = ["id", "landmark_id"]

Texts = npt.NDArray[np.str_]


@dataclass(frozen=True)
class RetrievalSolution:
    """The scored test images, in the file's order.

    Args:
        query_ids: the ids of the test images.
        usages: for each, Public or Private.
        positives: for each, the ids of the index images that answer it, in the file's order and each once.
        n_ignored: the test images that are not scored.
    """

    query_ids: tuple[str, ...]
    usages: tuple[str, ...]
    positives: tuple[tuple[str, ...], ...]
    n_ignored: int


@dataclass(frozen=True)
class ImageLandmarks:
    """The landmark of each image, in the file's order.

    Args:
        ids: str, shape (n_images,); each once.
        landmark_ids: int64, shape (n_images,).
    """

    ids: Texts
    landmark_ids: Integers


@dataclass(frozen=True)
class QueryLandmarks:
    """The landmark of each query.

    Args:
        landmark_ids: int64, shape (n_query,).
        n_mixed: the queries whose positives are of more than one landmark.
    """

    landmark_ids: Integers
    n_mixed: int


def read_retrieval_solution(path: Path) -> RetrievalSolution:
    """Read and check ``retrieval_solution_v2.1.csv``.

    An index image that stands twice in a list counts once, with a warning.

    Raises:
        InputError: see :func:`hgld.io.csv_files.read_rows`; a row is bad whose id is empty or stands in an earlier row,
            whose Usage is unknown or whose images are empty. No test image is scored.
    """
    lines: dict[str, int] = {}
    repeating = []

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, str, tuple[str, ...]]:
        query, usage, images = row["id"].strip(), row["Usage"].strip(), row["images"].split()
        _check_id(query, line, lines)
        if usage not in _USAGES:
            raise ValueError(f'the Usage is "{usage}"; expected {" or ".join(USAGES)}')
        if not images:
            raise ValueError(f"the images are empty; expected ids of index images, or {_NO_IMAGES}")
        if images == [_NO_IMAGES] or usage not in USAGES:
            return query, usage, ()
        positives = tuple(dict.fromkeys(images))
        if len(positives) < len(images):
            repeating.append(query)
        return query, usage, positives

    rows = read_rows(path, ("id", "images", "Usage"), parse)
    scored = [row for row in rows if row[2]]
    if not scored:
        raise InputError(
            f"{path}: none of its {len(rows):,} test images has index images; is it the solution of retrieval?"
        )
    if repeating:
        log.warning(
            "%s: %d lists of images name an image more than once, first that of %s; it counts once",
            path,
            len(repeating),
            repeating[0],
        )
    query_ids, usages, positives = zip(*scored, strict=True)
    return RetrievalSolution(query_ids, usages, positives, len(rows) - len(scored))


def read_image_to_landmark(path: Path) -> ImageLandmarks:
    """Read and check ``index_image_to_landmark.csv``, or any CSV file with the columns id and landmark_id.

    Raises:
        InputError: see :func:`hgld.io.csv_files.read_rows`; a row is bad whose id is empty or stands in an earlier row,
            or whose landmark_id is no whole number.
    """
    table = _read_well_formed(path)
    if table is None:
        table = _read_row_by_row(path)
    # All ids have 16 characters, so that fixed width costs nothing.
    return ImageLandmarks(table["id"].to_numpy().astype(np.str_), table["landmark_id"].to_numpy())


def positive_positions(solution: RetrievalSolution, gallery_ids: Sequence[str] | Texts) -> RaggedIndices:
    """Where the positives of each query are in the gallery.

    Args:
        solution: the ground truth.
        gallery_ids: the ids of the gallery's images, shape (n_gallery,).

    Returns:
        One row per query; the columns are positions in ``gallery_ids``.

    Raises:
        InputError: positives are not in the gallery, or an id stands twice there.
    """
    rows, found = _positions(solution, gallery_ids, "the gallery")
    return RaggedIndices.from_pairs(rows, found, len(solution.query_ids))


def query_landmarks(solution: RetrievalSolution, image_landmarks: ImageLandmarks) -> QueryLandmarks:
    """The landmark of each query: that of the first index image listed, as the authors of H-GLDv2 took it.

    Raises:
        InputError: positives have no landmark, or an id stands twice in ``image_landmarks``.
    """
    rows, found = _positions(solution, image_landmarks.ids, "the images with a landmark")
    landmarks = image_landmarks.landmark_ids[found]
    first = landmarks[np.searchsorted(rows, np.arange(len(solution.query_ids)))]
    mixed = np.unique(rows[landmarks != first[rows]])
    return QueryLandmarks(first, len(mixed))


def _check_id(image: str, line: int, lines: dict[str, int]) -> None:
    if not image:
        raise ValueError("the id is empty")
    earlier = lines.setdefault(image, line)
    if earlier != line:
        raise ValueError(f"the id {image} stands in line {earlier} already; expected one row per image")


def _read_well_formed(path: Path) -> pa.Table | None:
    """The table of a file that is as it should be in every row, quickly; None for any other."""
    options = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(_INDEX_COLUMNS, pa.string()), include_columns=_INDEX_COLUMNS
    )
    try:
        table = pa_csv.read_csv(path, convert_options=options)
    except (pa.ArrowException, OSError):
        return None
    ids, numbers = table.columns
    well_formed = (
        len(table) > 0
        and pc.all(pc.match_substring_regex(ids, r"^\S+$")).as_py()
        # Eighteen digits always fit.
        and pc.all(pc.match_substring_regex(numbers, "^[0-9]{1,18}$")).as_py()
        and pc.count_distinct(ids).as_py() == len(ids)
    )
    return table.set_column(1, "landmark_id", numbers.cast(pa.int64())) if well_formed else None


def _read_row_by_row(path: Path) -> pa.Table:
    """The same table, several times slower, with every bad row reported by its line."""
    lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> tuple[str, int]:
        image = row["id"].strip()
        _check_id(image, line, lines)
        return image, parse_whole_number("landmark_id", row["landmark_id"])

    ids, numbers = zip(*read_rows(path, _INDEX_COLUMNS, parse), strict=True)
    return pa.table({"id": ids, "landmark_id": pa.array(numbers, pa.int64())})


def _positions(
    solution: RetrievalSolution, ids: Sequence[str] | Texts, whose: str
) -> tuple[Integers, npt.NDArray[np.int64]]:
    """The query and the position in ``ids`` of each positive, in the solution's order."""
    known = pa.array(ids, pa.string())
    repeated = len(known) - pc.count_distinct(known).as_py()
    if repeated:
        raise InputError(f"{whose}: {repeated:,} of {len(known):,} ids stand there already; expected each id once")
    wanted = pa.array([image for images in solution.positives for image in images], pa.string())
    found = pc.index_in(wanted, value_set=known)
    missing = pc.unique(wanted.filter(found.is_null())).to_pylist()
    if missing:
        raise InputError(
            f"{len(missing):,} of the {pc.count_distinct(wanted).as_py():,} index images that the solution lists are "
            f"not in {whose} ({len(known):,} images); the protocol is that of all index images of GLDv2: add these, "
            f"or check that the ids are GLDv2's own, without folder and ending:\n{indented_list(missing, limit=5)}"
        )
    rows = np.repeat(np.arange(len(solution.positives)), [len(images) for images in solution.positives])
    return rows, found.to_numpy().astype(np.int64)
