"""An encoder by hand: texts that share words are near each other, and nothing else is."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Words:
    """The sum of a vector for each word, drawn by its hash; remembers what it was asked.

    The more dimensions, the nearer to 0 is the cosine of texts without a common word.
    """

    def __init__(self, dimension: int = 64) -> None:
        self.asked: list[str] = []
        self._dimension = dimension

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        return np.array([self._sum(text.casefold().split()) for text in texts])

    def _sum(self, words: Sequence[str]) -> NDArray[np.float32]:
        return np.asarray(np.sum([_vector(word, self._dimension) for word in words], axis=0), np.float32)

    def unit(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Unit vectors, as the stage embeds texts."""
        vectors = self.encode(texts).astype(np.float64)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _vector(word: str, dimension: int) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).normal(size=dimension).astype(np.float32)
