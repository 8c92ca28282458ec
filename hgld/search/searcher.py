"""Search a gallery by embeddings: nearest images, and their votes on labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hgld.arrays import Floats, Floats32, Integers
from hgld.compute.nearest_neighbours import check_k, nearest_neighbours
from hgld.compute.scoring import Vectors, as_tensor
from hgld.errors import InputError, require
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.reranking import augment_gallery, reranked_scorer
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.neighbour_vote import vote
from hgld.hierarchy.settings import TEMPERATURE
from hgld.inspection.queries import TopK
from hgld.search.gallery import Gallery


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
class Answers:
    """The answers to n queries.

    Args:
        gallery: The gallery.
        query_ids: n texts.
        top_k: Nearest images. Their levels are the levels shared with the answer; 0 for unlabelled
            images.
        labels: int64, shape (n, L), labels for which the nearest images vote, finest first; -1 if no
            near image has labels.
        shares: float64, shape (n, L), shares of the votes for these labels; see
            :func:`hgld.hierarchy.vote`.
    """

    gallery: Gallery
    query_ids: tuple[str, ...]
    top_k: TopK
    labels: LabelMatrix
    shares: Floats

    def __len__(self) -> int:
        return len(self.query_ids)

    def answer(self, row: int) -> tuple[LevelAnswer, ...]:
        """Return the answer to a query at each level, finest first; empty if no near image has labels."""
        names = self.gallery.names(self.labels[row])
        shares = self.shares[row].tolist()
        answers = []
        for level, name, share in zip(self.gallery.level_names, names, shares, strict=False):
            answers.append(LevelAnswer(level, name, share))
        return tuple(answers)

    def results(self, row: int) -> Iterator[tuple[int, float, int]]:
        """Iterate over the nearest images of a query: position, score, and level shared with the answer."""
        return self.top_k.items(row)


class Searcher:
    """Search of a gallery, in which each query is compared with all images, in blocks.

    Args:
        gallery: The gallery.
        temperature: Temperature of the votes; see :func:`hgld.hierarchy.vote`.
        config: Device, precision and distance of the search, and re-ranking. Votes are weighted by
            cosines, also after re-ranking, or by minus distances.

    >>> from hgld.io.text_array import TextArray
    >>> labels = np.array([[0, 0], [1, 0], [2, 1]])
    >>> names = (("A", "B", "C"), ("x", "y"))
    >>> gallery = Gallery(torch.eye(3), TextArray("abc"), labels, ("product", "kind"), names)
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
        config: RankingConfig | None = None,
    ) -> None:
        require(temperature > 0, "a number above 0", temperature=temperature)
        self.gallery = gallery
        self._temperature = temperature
        self._config = config
        self._vectors = gallery.vectors
        if config is not None and config.reranking.rerank == "dba":
            self._vectors = augment_gallery(gallery.vectors, config.reranking, config).vectors

    def search(self, queries: Vectors, k: int = 10, *, ids: Sequence[str] | None = None) -> Answers:
        """Find the k nearest images of each query, and let them vote on its labels.

        Args:
            queries: float, shape (n, d).
            k: Number of images per query, which all vote; fewer if the gallery is smaller.
            ids: Names of the queries. Default: their rows.

        Raises:
            ConfigurationError: ``k`` is less than 1.
            InputError: A query has another dimension than the gallery, or is infinite, NaN or zero.
        """
        vectors = as_tensor(queries)
        if vectors.ndim != 2 or vectors.shape[1] != self.gallery.dim:
            raise InputError(
                f"the queries have the shape {tuple(vectors.shape)}; expected (n, {self.gallery.dim}), the dimension "
                "of the gallery"
            )
        if ids is None:
            ids = [str(row) for row in range(len(vectors))]
        check_k(k)
        scores = np.empty((0, k), np.float32)
        positions = np.empty((0, k), np.int64)
        if len(vectors):
            scores, positions = self._nearest(vectors, k)
        labels, shares, levels = self._vote(scores, positions)
        top_k = TopK(scores, positions, levels)
        return Answers(self.gallery, tuple(ids), top_k, labels, shares)

    def _vote(self, scores: Floats32, positions: Integers) -> tuple[LabelMatrix, Floats, Integers]:
        """Return the labels that win the votes, their shares, and the levels shared with each image."""
        n, k = positions.shape
        n_levels = self.gallery.n_levels
        labels_of_images = self.gallery.labels_of(positions.reshape(-1))
        n_labels = labels_of_images.shape[1]  # an image has a vote for each of its labels
        votes = labels_of_images.reshape(n, k * n_labels, n_levels)
        labels, shares = vote(np.repeat(scores, n_labels, axis=1), votes, self._temperature)
        labels_of_images = labels_of_images.reshape(n, k, n_labels, n_levels)
        is_shared = (labels_of_images == labels[:, None, None]) & (labels_of_images >= 0)
        levels = (is_shared * np.arange(n_levels, 0, -1)).max(axis=(2, 3), initial=0)
        return labels, shares, levels

    def _nearest(self, queries: torch.Tensor, k: int) -> tuple[Floats32, Integers]:
        """Return the scores and positions of the k nearest images of each query, after query expansion."""
        scorer = None
        if self._config is not None and self._config.reranking.rerank in ("aqe", "alpha-qe"):
            scorer = reranked_scorer(queries, self._vectors, self._config, self._config.reranking)
        return nearest_neighbours(queries, self._vectors, k, config=self._config, scorer=scorer)
