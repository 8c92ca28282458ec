"""Classify landmarks by their photographs: references, votes, and calibrated scores."""

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

#: Difference of cosines that changes a vote by the factor e; for texts, the temperature of CLIP.
_TEMPERATURES: Mapping[Method, float] = {"neighbours": 0.1, "zero-shot": 0.01}
#: Numbers of photographs and references compared at once, by type of device: 16 MB and 1 GB of
#: cosines. They are fixed, since the rounding of a product may depend on the shape of its factors.
_BLOCKS = {"cpu": (2**9, 2**13), "cuda": (2**13, 2**15)}


@dataclass(frozen=True, eq=False)
class References:
    """Vectors of items with a known group: photographs of labelled landmarks, or texts.

    Args:
        vectors: Vectors of the items.
        groups: int64, shape (n_items,); group of each item.
        names: Names of the items.
        are_landmarks: Whether items are landmarks, with the same numbers as the landmarks to
            classify; a photograph is then not compared with photographs of its own landmark.
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
        photographs: int64, shape (n,); number of photographs of each landmark.
        votes: float64, shape (n, n_groups); sums of the votes of the photographs.
        similarity: float64, shape (n,); mean over photographs of the cosine to the nearest
            reference.
        nearest: Most similar references: columns row (position in ``landmark``), item, and
            similarity to the most similar photograph, best first within a row.
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

        The total includes an additional vote for no group, so that a single photograph counts less
        than many photographs that agree.
        """
        return np.asarray(self.votes.max(axis=1) / (self.photographs + 1))

    def features(self) -> Floats:
        """Return the features of the calibration, shares and similarities, as float64 (n, 2)."""
        return np.stack([self.shares(), self.similarity], axis=1)


class LandmarkClassifier:
    """Nearest-neighbour classifier of landmarks by their photographs.

    Args:
        inputs: Landmarks and photographs.
        config: Settings of proposals.
        visible: bool, shape (n_labelled,); labelled landmarks that provide references. Default:
            all.
        progress: Progress of the photographs.
        load: Function that loads the text encoder.
    """

    def __init__(
        self,
        inputs: CompletionInputs,
        config: CompleteConfig,
        *,
        visible: Booleans | None = None,
        progress: Progress | None = None,
        load: LoadEncoder = load_cached_encoder,
    ) -> None:
        if visible is None:
            visible = np.ones(inputs.n_labelled, bool)
        self._inputs = inputs
        self._config = config
        self._progress = progress or NoProgress()
        if config.method == "zero-shot":
            self.references = _text_references(inputs, visible, config, load)
        else:
            self.references = _photograph_references(inputs, visible)

    def vote(self, landmarks: Integers) -> GroupVotes:
        """Return the votes on landmark numbers; exclude landmarks without photographs."""
        is_classified = np.zeros(len(self._inputs.landmarks), bool)
        is_classified[landmarks] = True
        return vote(
            self._inputs.photographs.of_items(is_classified),
            self.references,
            len(self._inputs.group_names),
            k=self._config.k,
            temperature=_TEMPERATURES[self._config.method],
            device=self._config.device,
            progress=self._progress,
        )

    def calibrate(self, labelled: Integers) -> Booleans:
        """Calibrate scores on labelled landmarks, each compared with all other labelled landmarks.

        The landmark of a group with a single labelled landmark cannot be classified, and counts as
        wrong.

        Returns:
            bool, shape (n,); whether the first choice is right for each landmark, in the order of
            their numbers.
        """
        votes = self.vote(labelled)
        groups = self._inputs.groups[votes.landmark]
        right = np.asarray(votes.choices()[:, 0] == groups)
        self._calibration = fit_calibration(votes, right)
        return right

    def scores(self, votes: GroupVotes) -> Floats:
        """Return the calibrated probability that the first choice of each landmark is right."""
        return self._calibration(votes)


def _photograph_references(inputs: CompletionInputs, visible: Booleans) -> References:
    """Return the photographs of the visible labelled landmarks."""
    is_reference = np.zeros(len(inputs.landmarks), bool)
    is_reference[: inputs.n_labelled] = visible
    photographs = inputs.photographs.of_items(is_reference)
    return References(photographs, inputs.groups, inputs.names(), are_landmarks=True)


def _text_references(
    inputs: CompletionInputs, visible: Booleans, config: CompleteConfig, load: LoadEncoder
) -> References:
    """Return the texts of labels and groups of the visible labelled landmarks."""
    pairs = set()
    for row in np.flatnonzero(visible).tolist():
        group = int(inputs.groups[row])
        pairs.add((inputs.labels[row], group))
        pairs.add((inputs.group_names[group], group))
    sorted_pairs = sorted(pairs)
    texts = [text for text, _ in sorted_pairs]
    groups = np.array([group for _, group in sorted_pairs], np.int64)
    encoder = load(config.encoder, config.device)
    embed_config = EmbedConfig()
    embeddings = embed_labels(texts, encoder, embed_config.templates, embed_config.batch_size)
    vectors = torch.from_numpy(embeddings)
    dim = inputs.photographs.embeddings.shape[1]
    if vectors.shape[1] != dim:
        raise InputError(
            f"the texts have {vectors.shape[1]} dimensions and the photographs {dim}; "
            "embed the photographs with the image encoder that belongs to the text encoder in `encoder`"
        )
    numbers = np.arange(len(texts))
    return References(Vectors(vectors, numbers, numbers), groups, texts, are_landmarks=False)


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

    Each photograph divides one vote among the groups of its k most similar references, with weights
    ``exp(s / t)`` of the cosine s and the temperature t. References of equal similarity are taken
    in their order.

    Args:
        photographs: Vectors of the landmarks to classify.
        references: Vectors of known group.
        n_groups: Number of groups.
        k: Number of references per photograph; all references if there are fewer.
        temperature: Temperature t.
        device: Torch device.
        n_nearest: Largest number of nearest references to return per landmark.
        progress: Progress of the photographs.
    """
    similarity, item = _nearest_items(photographs, references, k, device, progress or NoProgress())
    landmark, row, counts = np.unique(photographs.item, return_inverse=True, return_counts=True)
    # A photograph has no vote if all references are photographs of its own landmark.
    exists = item >= 0
    differences = similarity.astype(np.float64) - similarity[:, :1]
    weights = np.where(exists, np.exp(differences / temperature), 0.0)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1.0)  # the first weight is 1
    rows = np.broadcast_to(row[:, None], item.shape)[exists]
    items = item[exists]
    votes = np.zeros((len(landmark), n_groups))
    np.add.at(votes, (rows, references.groups[items]), weights[exists])
    pairs = pd.DataFrame({"row": rows, "item": items, "similarity": similarity[exists]})
    pairs = pairs.sort_values(["row", "similarity", "item"], ascending=[True, False, True])
    nearest = pairs.drop_duplicates(["row", "item"]).groupby("row").head(n_nearest)
    best = np.nan_to_num(similarity[:, 0])
    return GroupVotes(
        landmark=landmark,
        photographs=counts,
        votes=votes,
        similarity=np.bincount(row, weights=best, minlength=len(landmark)) / counts,
        nearest=nearest.reset_index(drop=True),
    )


def _nearest_items(
    photographs: Vectors, references: References, k: int, device: str, progress: Progress
) -> tuple[NDArray[np.float32], Integers]:
    """Return cosines and items of the k nearest references of N photographs.

    Returns:
        float32 cosines and int64 items, shape (N, k); NaN and -1 for missing references.
    """
    k = min(k, len(references.vectors))
    similarity = np.empty((len(photographs), k), np.float32)
    item = np.empty((len(photographs), k), np.int64)
    items = torch.from_numpy(references.vectors.item).to(device)
    n_queries, n_references = _BLOCKS["cpu" if device == "cpu" else "cuda"]
    for start in range(0, len(photographs), n_queries):
        rows = slice(start, start + n_queries)
        queries = photographs.unit(rows).to(device)
        query_landmarks = torch.from_numpy(photographs.item[rows]).to(device)
        top_k = RunningTopK(len(queries), k, torch.float32, queries.device)
        for first in range(0, len(items), n_references):
            block = slice(first, first + n_references)
            scores = queries @ references.vectors.unit(block).to(device).T
            if references.are_landmarks:
                is_same = query_landmarks[:, None] == items[None, block]
                scores.masked_fill_(is_same, -torch.inf)
            top_k.add(scores, first)
        similarity[rows], positions = top_k.result()
        item[rows] = np.where(positions >= 0, references.vectors.item[positions], -1)
        progress.advance(len(queries))
    return similarity, item


def fit_calibration(votes: GroupVotes, right: Booleans) -> Callable[[GroupVotes], Floats]:
    """Fit a logistic regression to landmarks whose group was hidden from the votes.

    Args:
        votes: Votes on n landmarks.
        right: bool, shape (n,); whether the first choice is right.

    Returns:
        A function of votes that returns the probability that the first choice for each landmark is
        right, float64, shape (n,).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if right.all() or not right.any():
        # A regression needs both outcomes; Laplace's rule of succession gives the expected share.
        share = (right.sum() + 1) / (len(right) + 2)
        return lambda new_votes: np.full(len(new_votes.landmark), share)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(votes.features(), right)
    return lambda new_votes: np.asarray(model.predict_proba(new_votes.features())[:, 1])
