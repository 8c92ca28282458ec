"""Search a gallery by embeddings: nearest images, votes on labels, rejection; answers as tables, JSON and a page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from hgld.compute.nearest_neighbours import check_k, nearest_neighbours
from hgld.compute.scoring import Vectors, as_tensor
from hgld.errors import ConfigurationError, InputError, counted, require
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.reranking import augment_gallery, pair_scores, reranked_search
from hgld.evaluation.settings import RerankSettings
from hgld.figures.style import LevelStyle, level_styles
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.neighbour_vote import TEMPERATURE, vote
from hgld.inspection.photos import FindImage, Photo, PhotoSource
from hgld.inspection.queries import TopK
from hgld.inspection.query_pages import PageQuery, PageRanking, write_photo_page
from hgld.io.files import atomic_write, require_suffix
from hgld.io.text_array import TextArray
from hgld.rejection import Detector, load_detector
from hgld.rejection.detector_files import Calibration
from hgld.search.gallery import Gallery
from hgld.search.score_inputs import check_same_model
from hgld.tables import Provenance, write_results
from hgld.tables.embeddings import embeddings_sha256


class NeighbourIndex(Protocol):
    """An approximate index of a gallery, such as :class:`hgld.search.faiss_index.FaissIndex`."""

    def search(
        self, queries: npt.NDArray[np.float32], k: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return cosines and positions of the k nearest, (n, k), best first; NaN and -1 where there are fewer.

        Args:
            queries: float32, shape (n, d).
            k: Number of images per query.
        """


@dataclass(frozen=True)
class LevelAnswer:
    """The answer at one level.

    Args:
        level: Name of the level.
        name: Name of the label.
        share: Share of the votes for the label, from 0 to 1; see :func:`hgld.hierarchy.vote`.
    """

    level: str
    name: str
    share: float


@dataclass(frozen=True, eq=False)
class Rejections:
    """The finest level at which the answer to each of n queries is accepted.

    Args:
        scores: Rejection scores at each level, float, shape (n, L), finest first.
        thresholds: Threshold of each level, up to which scores are accepted; None where none is.
        finest: int64, shape (n,), column of the finest accepted level; L where no level is.
    """

    scores: npt.NDArray[Any]
    thresholds: tuple[float | None, ...]
    finest: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rejector:
    """A fitted score with thresholds for the levels of a gallery."""

    detector: Detector
    calibration: Calibration

    def check_votes(self, k: int) -> None:
        """Check that thresholds were fitted for answers by the vote of k images.

        Raises:
            ConfigurationError: They were fitted for another number.
        """
        if k != self.calibration.n_votes:
            raise ConfigurationError(
                f"`k` is {k}, but the thresholds of the detector are for answers by the vote of "
                f"{self.calibration.n_votes} images; choose that number, or search without the detector"
            )

    def judge(self, queries: torch.Tensor) -> Rejections:
        """Return at which levels the answers to queries, float, shape (n, d), are accepted."""
        scores = self.detector.score_levels(queries)
        thresholds = tuple(threshold.value for threshold in self.calibration.thresholds)
        return Rejections(scores, thresholds, self.calibration.finest_accepted(scores))


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to n queries.

    Args:
        gallery: The gallery.
        query_ids: n texts.
        top_k: Nearest images. Their levels are those that they share with the answer; 0 for unlabelled images.
        labels: int64, shape (n, L), the labels that the nearest images vote for, finest first; -1 if none has labels.
        shares: float64, shape (n, L), their shares of the votes; see :func:`hgld.hierarchy.vote`.
        rejections: Levels at which the answers are accepted; None if all are.
    """

    gallery: Gallery
    query_ids: tuple[str, ...]
    top_k: TopK
    labels: LabelMatrix
    shares: npt.NDArray[np.float64]
    rejections: Rejections | None = None

    def __len__(self) -> int:
        return len(self.query_ids)

    def answer(self, row: int) -> tuple[LevelAnswer, ...]:
        """Return the answer to a query at each level, finest first.

        Levels at which it is rejected are left out; it is empty if all are, or if no near image has labels.
        """
        names = self.gallery.names(self.labels[row])
        levels = self.gallery.level_names[: len(names)]
        shares = self.shares[row].tolist()[: len(names)]
        return tuple(map(LevelAnswer, levels, names, shares))[self.n_rejected(row) :]

    def n_rejected(self, row: int) -> int:
        """Return the number of levels at which the answer to a query is rejected, the finest ones."""
        return 0 if self.rejections is None else int(self.rejections.finest[row])

    def rejection(self, row: int) -> str:
        """Return the message about a rejected query, such as "no such landmark"; empty if it is accepted."""
        if not self.n_rejected(row):
            return ""
        text = f"no such {self.gallery.level_names[0].replace('_', ' ')}"
        others_rejected = self.n_rejected(row) == self.gallery.n_levels > 1
        return f"{text}, and no coarser label is sure" if others_rejected else text

    def results(self, row: int) -> Iterator[tuple[int, float, int]]:
        """Iterate over the nearest images of a query: position, score, and level shared with the answer."""
        return self.top_k.items(row)


class Searcher:
    """Searches a gallery, exactly unless it gets an index.

    Args:
        gallery: The gallery.
        index: Index of the same images, which finds most of the nearest ones. Default: all images are compared, in
            blocks.
        temperature: Temperature of the votes; see :func:`hgld.hierarchy.vote`.
        rejector: Score and thresholds by which answers are rejected. Default: none is.
        config: Device, precision and distance of the exact search, and re-ranking. Votes count cosines, also after
            re-ranking, or minus distances.

    >>> gallery = Gallery.from_arrays(np.eye(3), "abc", [["A", "x"], ["B", "x"], ["C", "y"]], ["product", "kind"])
    >>> answers = Searcher(gallery).search(np.array([[0.9, 0.7, 0.1]]), k=2)
    >>> [gallery.ids[position] for position, *_ in answers.results(0)]
    ['a', 'b']
    >>> [(answer.name, round(answer.share, 2)) for answer in answers.answer(0)]
    [('A', 0.92), ('x', 1.0)]
    """

    def __init__(
        self,
        gallery: Gallery,
        *,
        index: NeighbourIndex | None = None,
        temperature: float = TEMPERATURE,
        rejector: Rejector | None = None,
        config: RankingConfig | None = None,
    ) -> None:
        require(temperature > 0, "a number above 0", temperature=temperature)
        self.gallery = gallery
        self._index, self._temperature, self._rejector = index, temperature, rejector
        self._config, self._vectors = config, gallery.vectors
        self._reranking = RerankSettings() if config is None else config.reranking
        distance = "cosine" if config is None else config.distance
        if distance != "cosine" and (index is not None or rejector is not None):
            name = "`index`" if rejector is None else "`reject`"
            raise ConfigurationError(f"{name} compares cosines, but the distance is {distance}; leave it out")
        if self._reranking.rerank is not None and rejector is not None:
            raise ConfigurationError("`reject` scores cosines, which `rerank` replaces; leave out one of them")
        if self._reranking.rerank == "dba":
            if index is not None:
                raise ConfigurationError("`rerank` dba changes the gallery, and the `index` is of the original one")
            self._vectors = augment_gallery(gallery.vectors, self._reranking, config).vectors

    def search(self, queries: Vectors, k: int = 10, *, ids: Sequence[str] | None = None) -> Answers:
        """Find the k nearest images of each query, and let them vote on its labels.

        Args:
            queries: float, shape (n, d).
            k: Number of images per query, all of which vote; there are fewer results if the gallery is smaller.
            ids: Names of the queries. Default: their rows.

        Raises:
            ConfigurationError: ``k`` is less than 1, or not the number of votes that thresholds were fitted for.
            InputError: A query has another dimension than the gallery, or is not finite, or only zeros.
        """
        if self._rejector is not None:
            self._rejector.check_votes(k)
        vectors = as_tensor(queries)
        if vectors.ndim != 2 or vectors.shape[1] != self.gallery.dim:
            raise InputError(
                f"the queries have the shape {tuple(vectors.shape)}; expected (n, {self.gallery.dim}), the dimension "
                "of the gallery"
            )
        names = tuple(map(str, range(len(vectors)))) if ids is None else tuple(ids)
        rejections = None if self._rejector is None else self._rejector.judge(vectors)
        check_k(k)
        scorer = None if self._config is None else self._config.pair_scorer
        pairs = pair_scores(scorer, TextArray(names), self.gallery.ids)
        scores, positions = np.empty((0, k), np.float32), np.empty((0, k), np.int64)
        if len(vectors):
            originals = self.gallery.vectors
            scores, positions = reranked_search(self._nearest, vectors, originals, k, self._reranking, pairs)
        labels, shares, levels = self._vote(scores, positions, rejections)
        return Answers(self.gallery, names, TopK(scores, positions, levels), labels, shares, rejections)

    def _vote(
        self,
        scores: npt.NDArray[np.float32],
        positions: npt.NDArray[np.int64],
        rejections: Rejections | None,
    ) -> tuple[LabelMatrix, npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return the labels that the nearest images vote for, their shares, and the levels of :class:`Answers`."""
        (n, k), n_levels = positions.shape, self.gallery.n_levels
        labels_of_images = self.gallery.labels_of(positions.reshape(-1))
        n_labels = labels_of_images.shape[1]  # an image has a vote for each of its labels
        votes = labels_of_images.reshape(n, k * n_labels, n_levels)
        labels, shares = vote(np.repeat(scores, n_labels, axis=1), votes, self._temperature)
        labels_of_images = labels_of_images.reshape(n, k, n_labels, n_levels)
        shared = (labels_of_images == labels[:, None, None]) & (labels_of_images >= 0)
        if rejections is not None:  # a rejected label is no part of the answer
            shared &= (np.arange(n_levels) >= rejections.finest[:, None])[:, None, None]
        levels = (shared * np.arange(n_levels, 0, -1)).max(axis=(2, 3), initial=0)
        return labels, shares, levels

    def _nearest(self, queries: torch.Tensor, k: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        if self._index is None:
            return nearest_neighbours(queries, self._vectors, k, config=self._config)
        return self._index.search(queries.float().numpy(), k)


def open_rejector(folder: Path, embeddings: Path, gallery: Gallery) -> Rejector:
    """Load a detector for a search.

    Raises:
        InputError: The folder holds no detector, or is damaged.
        ConfigurationError: The detector has no thresholds, was fitted on embeddings of another model, on another
            gallery or on other levels, or needs more than embeddings.
    """
    saved = load_detector(folder)
    detector, record, calibration = saved.detector, saved.record, saved.record.calibration
    if calibration is None:
        raise ConfigurationError(
            f"{folder}: has no thresholds; fit it again with calibration images: hgld reject fit --queries"
        )
    if record.inputs:
        raise ConfigurationError(
            f"{folder}: the score {detector.name} needs {' and '.join(record.inputs)} of a query, which "
            "a search does not have; fit another score"
        )
    check_same_model(record.model, embeddings, str(folder))
    if detector.dim != gallery.dim:
        raise ConfigurationError(
            f"{folder}: fitted on embeddings of {detector.dim:,} dimensions, and {embeddings} has {gallery.dim:,}; "
            "name the detector of this gallery"
        )
    if record.n_images != len(gallery) or record.index_sha256 != embeddings_sha256(embeddings):
        raise ConfigurationError(
            f"{folder}: fitted on another index of {record.n_images:,} images than {embeddings}; fit it on this "
            "gallery"
        )
    if record.level_names != gallery.level_names:
        raise ConfigurationError(
            f"{folder}: has thresholds for the levels {', '.join(record.level_names)}, and the gallery has "
            f"{', '.join(gallery.level_names) or 'no labels'}; give the `labels` and the `hierarchy` that it was "
            "fitted with"
        )
    return Rejector(detector, calibration)


def write_answers(path: Path, answers: Answers, provenance: Provenance) -> None:
    """Write answers in the format of the suffix, ``.csv``, ``.parquet`` or ``.json``.

    Raises:
        ConfigurationError: The suffix is another one.
    """
    require_suffix(path, ".csv", ".parquet", ".json")
    if path.suffix != ".json":
        write_results(path, answers_table(answers), "search/1", provenance)
        return
    with atomic_write(path) as draft:
        draft.write_text(answers_to_json(answers) + "\n", encoding="utf-8")


def answers_table(answers: Answers) -> pa.Table:
    """Return a table with a row for each query and result.

    Columns: ``query``; ``rank``, from 1; ``id`` of the image in the gallery; ``score``, the cosine or minus the
    distance; ``level``, the one that it shares with the answer, 0 to L. Then, for each level, finest first, ``name``
    with the label of the image, ``answer_name`` with that of the query, and ``share_name`` with its share of the
    votes; null where there is none. A search that rejects adds ``rejection_score``, and ``rejected``, whether the
    finest label of the answer is; the answer is null at rejected levels.
    """
    gallery = answers.gallery
    rows = []
    for query in range(len(answers)):
        answer = {f"answer_{level.level}": level.name for level in answers.answer(query)}
        shares = {f"share_{level.level}": level.share for level in answers.answer(query)}
        for rank, (position, score, level) in enumerate(answers.results(query), start=1):
            row = {"query": answers.query_ids[query], "rank": rank, "id": str(gallery.ids[position])}
            row |= {"score": score, "level": level}
            if answers.rejections is not None:
                rejection_score = float(answers.rejections.scores[query, 0])
                row |= {"rejected": answers.n_rejected(query) > 0, "rejection_score": rejection_score}
            names = gallery.names_of(position)
            rows.append({**row, **dict(zip(gallery.level_names, names, strict=False)), **answer, **shares})
    fields = [("query", pa.string()), ("rank", pa.int64()), ("id", pa.string()), ("score", pa.float32())]
    fields += [("level", pa.int64())]
    if answers.rejections is not None:
        fields += [("rejected", pa.bool_()), ("rejection_score", pa.float64())]
    for name in gallery.level_names:
        fields += [(name, pa.string()), (f"answer_{name}", pa.string()), (f"share_{name}", pa.float64())]
    return pa.Table.from_pylist(rows, pa.schema(fields))


def answers_to_json(answers: Answers) -> str:
    """Format answers as JSON.

    ``{"levels": [...], "queries": [...]}``, with the names of the levels, finest first, and for each query ``id``;
    ``answer``, a list of ``level``, ``name`` and ``share``, finest first, empty if no near image has labels; and
    ``results``, a list of ``rank``, ``id``, ``score``, ``level`` and ``labels``. A search that rejects adds
    ``rejection`` with ``rejected``, whether the finest label of the answer is; ``accepted_level``, the finest one
    that is left, or null; and for each level, finest first, ``scores`` and ``thresholds``, null where there
    is none. Its ``answer`` has accepted levels only.
    """
    gallery = answers.gallery
    queries = []
    for query in range(len(answers)):
        results: list[dict[str, Any]] = []
        for rank, (position, score, level) in enumerate(answers.results(query), start=1):
            labels = list(gallery.names_of(position))
            entry = {"rank": rank, "id": str(gallery.ids[position]), "score": _rounded(score)}
            results.append({**entry, "level": level, "labels": labels})
        answer = [{**vars(level), "share": _rounded(level.share)} for level in answers.answer(query)]
        content = {"id": answers.query_ids[query], "answer": answer}
        queries.append({**content, **_rejection_values(answers, query), "results": results})
    return json.dumps({"levels": list(gallery.level_names), "queries": queries}, indent=2, ensure_ascii=False)


def _rejection_values(answers: Answers, query: int) -> dict[str, Any]:
    """Return the key ``rejection`` of a query; nothing if the search does not reject."""
    rejections = answers.rejections
    if rejections is None:
        return {}
    names, n_rejected = [*answers.gallery.level_names, None], answers.n_rejected(query)
    return {
        "rejection": {
            "rejected": n_rejected > 0,
            "accepted_level": names[n_rejected],
            "scores": [_rounded(score) for score in rejections.scores[query].tolist()],
            "thresholds": list(rejections.thresholds),
        }
    }


def _rounded(value: float) -> float:
    """Return a number to six digits, which is what float32 holds."""
    assert math.isfinite(value)
    return float(f"{value:.6g}")


#: Explanation of rejected answers for the readers of a page.
REJECTIONS = (
    "A label is left out where its rejection score is above the threshold that was fitted for the wanted precision."
)
#: Explanation of the shares of votes for the readers of a page.
SHARES = (
    "The number beside a label is its share of the votes of the nearest photographs, which count the more the more "
    "similar they are; it is not a calibrated probability."
)


def write_answer_page(
    answers: Answers,
    out: Path,
    query_image: FindImage,
    gallery_image: FindImage,
) -> None:
    """Write a page of queries and their nearest photographs: one HTML file without scripts, thumbnails included."""
    gallery = answers.gallery
    queries = []
    for row in range(len(answers)):
        shares = [(answer.name, answer.share) for answer in reversed(answers.answer(row))]
        ranking = PageRanking(answers.top_k, row, [])
        queries.append(PageQuery(row, [], [ranking], note=rejection_sentence(answers, row), votes=shares))
    source = PhotoSource(
        query=lambda row: Photo(answers.query_ids[row]),
        gallery=lambda position: gallery_photo(gallery, position),
        image=gallery_image,
        query_image=query_image,
    )
    n_queries = "1 query" if len(answers) == 1 else f"{len(answers):,} queries"
    write_photo_page(
        out,
        {"": queries},
        source,
        title="Search",
        about=f"{n_queries} in {counted(len(gallery), 'photograph')}.",
        explanation=(
            f"Below each query are the labels that its nearest photographs vote for. {explanation_of(answers)} The "
            "colour of a result is the level that it shares with this answer."
            if gallery.n_levels
            else "The photographs have no labels."
        ),
        levels=answer_levels(gallery),
    )


def explanation_of(answers: Answers) -> str:
    """Return the explanation of shares, and that of rejections if answers may be rejected."""
    return SHARES if answers.rejections is None else f"{SHARES} {REJECTIONS}"


def rejection_sentence(answers: Answers, row: int) -> str | None:
    """Return "No such landmark." with the score and the threshold; None for an accepted query."""
    text, rejections = answers.rejection(row), answers.rejections
    if not text or rejections is None:
        return None
    threshold = rejections.thresholds[0]
    score = f"rejection score {rejections.scores[row, 0]:.4g}"
    reason = f"{score} above {threshold:.4g}" if threshold is not None else f"{score}, and no score is accepted"
    return f"{text[0].upper()}{text[1:]}: {reason}."


def gallery_photo(gallery: Gallery, position: int) -> Photo:
    """Return the description of an image of a gallery."""
    names = gallery.names_of(position)
    return Photo(str(gallery.ids[position]), names, has_labels=bool(names))


def answer_levels(gallery: Gallery) -> list[LevelStyle]:
    """Return the styles of the levels that a result can share with an answer; none without labels."""
    return level_styles(gallery.n_levels, gallery.level_names) if gallery.n_levels else []
