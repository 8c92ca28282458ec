"""Search a gallery by embeddings: nearest images, their votes on labels, rejection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import check_k, nearest_neighbours
from hgld.compute.scoring import Vectors, as_tensor
from hgld.errors import ConfigurationError, InputError, require
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.reranking import augment_gallery, pair_scores, reranked_search
from hgld.evaluation.settings import RerankSettings
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.neighbour_vote import TEMPERATURE, vote
from hgld.inspection.queries import TopK
from hgld.io.text_array import TextArray
from hgld.rejection import Detector, load_detector
from hgld.rejection.detector_files import Calibration
from hgld.search.gallery import Gallery
from hgld.search.score_inputs import check_same_model
from hgld.tables.embeddings import embeddings_sha256


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
    """Searches a gallery, of which all images are compared with each query, in blocks.

    Args:
        gallery: The gallery.
        temperature: Temperature of the votes; see :func:`hgld.hierarchy.vote`.
        rejector: Score and thresholds by which answers are rejected. Default: none is.
        config: Device, precision and distance of the search, and re-ranking. Votes count cosines, also after
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
        temperature: float = TEMPERATURE,
        rejector: Rejector | None = None,
        config: RankingConfig | None = None,
    ) -> None:
        require(temperature > 0, "a number above 0", temperature=temperature)
        self.gallery = gallery
        self._temperature, self._rejector = temperature, rejector
        self._config, self._vectors = config, gallery.vectors
        self._reranking = RerankSettings() if config is None else config.reranking
        distance = "cosine" if config is None else config.distance
        if distance != "cosine" and rejector is not None:
            raise ConfigurationError(f"`reject` compares cosines, but the distance is {distance}; leave it out")
        if self._reranking.rerank is not None and rejector is not None:
            raise ConfigurationError("`reject` scores cosines, which `rerank` replaces; leave out one of them")
        if self._reranking.rerank == "dba":
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
        return nearest_neighbours(queries, self._vectors, k, config=self._config)


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
