"""Classify landmarks by their photographs: the references to compare with, the votes, and calibrated scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from hgld.arrays import Booleans, Floats, Integers
from hgld.completion.inputs import CompletionInputs, Vectors
from hgld.completion.settings import CompleteConfig, Method
from hgld.compute.nearest_neighbours import RunningTopK
from hgld.errors import InputError
from hgld.labels.embed import embed_labels
from hgld.labels.encoders import LoadEncoder, load_cached_encoder
from hgld.labels.settings import EmbedConfig
from hgld.progress import NoProgress, Progress

#: Difference of cosines that changes a vote by the factor e; that of texts is the one of CLIP.
_TEMPERATURES: Mapping[Method, float] = {"neighbours": 0.1, "zero-shot": 0.01}
#: Photographs and references compared at once, by type of device: 16 MB and 1 GB of cosines. They are fixed, since
#: the rounding of a product may depend on the shape of its factors.
_BLOCKS = {"cpu": (2**9, 2**13), "cuda": (2**13, 2**15)}


@dataclass(frozen=True, eq=False)
class References:
    """Vectors of known group: photographs of labelled landmarks, or texts.

    Args:
        groups: int64, shape (n_items,); group of each item.
        are_landmarks: Whether items are landmarks, with the numbers that photographs to be classified use, too; a
            photograph is then not compared with those of its own landmark.
    """

    vectors: Vectors
    groups: Integers
    names: Sequence[str]
    are_landmarks: bool


@dataclass(frozen=True, eq=False)
class GroupVotes:
    """Votes on the groups of n landmarks.

    Args:
        landmark: int64, shape (n,); numbers of the landmarks with photographs, ascending.
        photographs: int64, shape (n,); number of photographs of each.
        votes: float64, shape (n, n_groups); sums of the votes of these photographs.
        similarity: float64, shape (n,); cosine of a photograph and its nearest reference, averaged over them.
        nearest: Most similar references: columns row (of a landmark, in the order above), item and similarity (of
            the most similar photograph), best first within a row.
    """

    landmark: Integers
    photographs: Integers
    votes: Floats
    similarity: Floats
    nearest: pd.DataFrame

    def choices(self) -> Integers:
        """Return the groups of each landmark by votes, most first: int64, shape (n, n_groups)."""
        return np.argsort(-self.votes, axis=1, kind="stable")

    def shares(self) -> Floats:
        """Return the share of the first choice in the votes on each landmark: float64, shape (n,).

        One vote for no group is added, so that a single photograph counts less than many that agree.
        """
        return np.asarray(self.votes.max(axis=1) / (self.photographs + 1))

    def quantities(self) -> Floats:
        """Return what scores depend on: float64, shape (n, 2), the shares and the similarities."""
        return np.stack([self.shares(), self.similarity], axis=1)


class LandmarkClassifier:
    """Nearest-neighbour classifier of landmarks by their photographs, with references from labelled landmarks."""

    def __init__(
        self,
        inputs: CompletionInputs,
        config: CompleteConfig,
        *,
        visible: Booleans | None = None,
        progress: Progress | None = None,
        load: LoadEncoder = load_cached_encoder,
    ) -> None:
        visible = np.ones(inputs.n_labelled, bool) if visible is None else visible
        self._inputs, self._config, self._progress = inputs, config, progress or NoProgress()
        if config.method == "zero-shot":
            self.references = _text_references(inputs, visible, config, load)
        else:
            self.references = _photograph_references(inputs, visible)

    def vote(self, landmarks: Integers) -> GroupVotes:
        """Return the votes on landmarks by their numbers; a landmark without photographs has no row."""
        chosen = np.zeros(len(self._inputs.landmarks), bool)
        chosen[landmarks] = True
        return vote(
            self._inputs.photographs.of_items(chosen),
            self.references,
            len(self._inputs.group_names),
            k=self._config.k,
            temperature=_TEMPERATURES[self._config.method],
            device=self._config.device,
            progress=self._progress,
        )

    def calibrate(self, labelled: Integers) -> Booleans:
        """Calibrate scores on labelled landmarks, each compared with all others.

        A group with a single labelled landmark cannot be found this way, and counts as wrong, as it would be for
        others of its kind.

        Returns:
            Whether the first choice is right for each landmark, in the order of their numbers.
        """
        votes = self.vote(labelled)
        groups = self._inputs.groups[votes.landmark]
        right = np.asarray(votes.choices()[:, 0] == groups)
        self._calibration = fit_calibration(votes, right)
        return right

    def scores(self, votes: GroupVotes) -> Floats:
        """Return the probability that the first choice of each landmark is right, once calibrated."""
        return self._calibration(votes)


def _photograph_references(inputs: CompletionInputs, visible: Booleans) -> References:
    chosen = np.concatenate([visible, np.zeros(len(inputs.landmarks) - inputs.n_labelled, bool)])
    photographs = inputs.photographs.of_items(chosen)
    return References(photographs, inputs.groups, inputs.names(), are_landmarks=True)


def _text_references(
    inputs: CompletionInputs, visible: Booleans, config: CompleteConfig, load: LoadEncoder
) -> References:
    """Return the texts of labels, with the groups that they are in, and of the groups themselves."""
    pairs = {
        (inputs.labels[row], int(inputs.groups[row])) for row in np.flatnonzero(visible).tolist()
    }
    pairs |= {(inputs.group_names[group], group) for _, group in pairs}
    texts, groups = zip(*sorted(pairs), strict=True)
    encoder = load(config.encoder, config.device)
    embedding = EmbedConfig()
    vectors = torch.from_numpy(
        embed_labels(texts, encoder, embedding.templates, embedding.batch_size)
    )
    dim = inputs.photographs.embeddings.shape[1]
    if vectors.shape[1] != dim:
        raise InputError(
            f"the texts have {vectors.shape[1]} dimensions and the photographs {dim}; "
            "embed the photographs with the image encoder that belongs to the text encoder in `encoder`"
        )
    numbers = np.arange(len(texts))
    return References(
        Vectors(vectors, numbers, numbers), np.array(groups, np.int64), texts, are_landmarks=False
    )


def vote(
    photographs: Vectors,
    references: References,
    n_groups: int,
    *,
    k: int,
    temperature: float,
    device: str = "cpu",
    n_nearest: int = 5,
    progress: Progress | None = None,
) -> GroupVotes:
    """Let photographs vote on the groups of their landmarks.

    Each photograph divides one vote among the groups of its k most similar references, with weights ``exp(s / t)`` of
    the cosine s and the temperature t. References of equal similarity are taken in their order.

    Args:
        k: Number of references that count; all if there are fewer.
    """
    similarity, item = _nearest_items(photographs, references, k, device, progress or NoProgress())
    landmark, row, counts = np.unique(photographs.item, return_inverse=True, return_counts=True)
    votes = np.zeros((len(landmark), n_groups))
    # A photograph without any other landmark to compare with has no vote.
    filled = item >= 0
    differences = similarity.astype(np.float64) - similarity[:, :1]
    weights = np.where(filled, np.exp(differences / temperature), 0.0)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1.0)  # the first weight is 1
    row_of_weight = np.broadcast_to(row[:, None], item.shape)
    np.add.at(votes, (row_of_weight[filled], references.groups[item[filled]]), weights[filled])
    pairs = pd.DataFrame(
        {"row": row_of_weight[filled], "item": item[filled], "similarity": similarity[filled]}
    ).sort_values(["row", "similarity", "item"], ascending=[True, False, True])
    return GroupVotes(
        landmark=landmark,
        photographs=counts,
        votes=votes,
        similarity=np.bincount(
            row, weights=np.nan_to_num(similarity[:, 0]), minlength=len(landmark)
        )
        / counts,
        nearest=pairs.drop_duplicates(["row", "item"])
        .groupby("row")
        .head(n_nearest)
        .reset_index(drop=True),
    )


def _nearest_items(
    photographs: Vectors, references: References, k: int, device: str, progress: Progress
) -> tuple[NDArray[np.float32], Integers]:
    """Return the cosines and items of the k nearest references, shape (N, k); NaN and -1 where there are none."""
    k = min(k, len(references.vectors))
    similarity = np.empty((len(photographs), k), np.float32)
    item = np.empty((len(photographs), k), np.int64)
    items = torch.from_numpy(references.vectors.item).to(device)
    n_queries, n_references = _BLOCKS["cpu" if device == "cpu" else "cuda"]
    for start in range(0, len(photographs), n_queries):
        rows = slice(start, start + n_queries)
        queries = photographs.unit(rows).to(device)
        own = torch.from_numpy(photographs.item[rows]).to(device)
        top_k = RunningTopK(len(queries), k, torch.float32, queries.device)
        for first in range(0, len(items), n_references):
            block = slice(first, first + n_references)
            scores = queries @ references.vectors.unit(block).to(device).T
            if references.are_landmarks:
                scores.masked_fill_(own[:, None] == items[None, block], -torch.inf)
            top_k.add(scores, first)
        similarity[rows], found = top_k.result()
        item[rows] = np.where(found >= 0, references.vectors.item[found], -1)
        progress.advance(len(queries))
    return similarity, item


def fit_calibration(votes: GroupVotes, right: Booleans) -> Callable[[GroupVotes], Floats]:
    """Fit a logistic regression to landmarks whose group was hidden from the votes.

    Returns:
        A function of votes: the probability that the first choice for each landmark is right, float64, shape (n,).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if right.all() or not right.any():
        # No regression separates one outcome from none; Laplace's rule of succession is the share to expect.
        share = (right.sum() + 1) / (len(right) + 2)
        return lambda others: np.full(len(others.landmark), share)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(votes.quantities(), right)
    return lambda others: np.asarray(model.predict_proba(others.quantities())[:, 1])
