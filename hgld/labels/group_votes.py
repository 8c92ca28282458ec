"""Votes of photographs on the groups of landmarks: each divides one vote among the groups of what it resembles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from hgld.compute.top_k import merge_top_k
from hgld.labels.photographs import Photographs, Vectors
from hgld.progress import NoProgress, Progress

#: Photographs and references compared at once, by type of device: 16 MB and 1 GB of cosines. They are fixed, since
#: the rounding of a product may depend on the shape of its factors.
_BLOCKS = {"cpu": (2**9, 2**13), "cuda": (2**13, 2**15)}


@dataclass(frozen=True, eq=False)
class References:
    """Vectors of known group: photographs of labelled landmarks, or texts.

    Args:
        vectors: Embeddings, M rows.
        item: int64, shape (M,); number of the landmark of a photograph, or of a text.
        groups: int64, shape (n_items,); group of each item.
        names: Name of each item.
        are_landmarks: Whether items are landmarks, with the numbers that photographs to be classified use, too; a
            photograph is then not compared with those of its own landmark.
    """

    vectors: Vectors
    item: NDArray[np.int64]
    groups: NDArray[np.int64]
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

    landmark: NDArray[np.int64]
    photographs: NDArray[np.int64]
    votes: NDArray[np.float64]
    similarity: NDArray[np.float64]
    nearest: pd.DataFrame

    def choices(self) -> NDArray[np.int64]:
        """Return the groups of each landmark by votes, most first: int64, shape (n, n_groups)."""
        return np.argsort(-self.votes, axis=1, kind="stable")

    def shares(self) -> NDArray[np.float64]:
        """Return the share of the first choice in the votes on each landmark: float64, shape (n,).

        One vote for no group is added, so that a single photograph counts less than many that agree.
        """
        return np.asarray(self.votes.max(axis=1) / (self.photographs + 1))


def vote(
    photographs: Photographs,
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
        photographs: Photographs of the landmarks to classify.
        references: References to compare them with.
        n_groups: Number of groups.
        k: Number of references that count; all if there are fewer.
        temperature: Difference of cosines that changes a weight by the factor e.
        device: Torch device that compares.
        n_nearest: Number of references returned for each landmark.
        progress: Reports compared photographs, once started.
    """
    similarity, item = _nearest_items(photographs, references, k, device, progress or NoProgress())
    landmark, row, counts = np.unique(photographs.landmark, return_inverse=True, return_counts=True)
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
        similarity=np.bincount(row, weights=np.nan_to_num(similarity[:, 0]), minlength=len(landmark)) / counts,
        nearest=pairs.drop_duplicates(["row", "item"]).groupby("row").head(n_nearest).reset_index(drop=True),
    )


def _nearest_items(
    photographs: Photographs, references: References, k: int, device: str, progress: Progress
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the cosines and items of the k nearest references, shape (N, k); NaN and -1 where there are none."""
    k = min(k, len(references.item))
    similarity = np.empty((len(photographs), k), np.float32)
    item = np.empty((len(photographs), k), np.int64)
    items = torch.from_numpy(references.item).to(device)
    n_queries, n_references = _BLOCKS["cpu" if device == "cpu" else "cuda"]
    for start in range(0, len(photographs), n_queries):
        rows = slice(start, start + n_queries)
        queries = photographs.vectors.unit(rows).to(device)
        own = torch.from_numpy(photographs.landmark[rows]).to(device)
        best = torch.full((len(queries), k), -torch.inf, device=device)
        positions = torch.full((len(queries), k), -1, device=device)
        for first in range(0, len(items), n_references):
            block = slice(first, first + n_references)
            scores = queries @ references.vectors.unit(block).to(device).T
            if references.are_landmarks:
                scores.masked_fill_(own[:, None] == items[None, block], -torch.inf)
            best, positions = merge_top_k(best, positions, scores, first)
        similarity[rows] = best.masked_fill(positions < 0, torch.nan).cpu().numpy()
        found = positions.cpu().numpy()
        item[rows] = np.where(found >= 0, references.item[found], -1)
        progress.advance(len(queries))
    return similarity, item
