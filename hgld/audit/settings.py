"""Settings of ``hgld audit``, in a module that is fast to import for help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hgld.errors import require
from hgld.hierarchy.settings import TEMPERATURE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class DuplicatesConfig:
    """Settings of the search for copies.

    The thresholds were chosen on 4,104 photographs of landmarks in Washington, where no two photographs of different
    landmarks reach them.

    Args:
        neighbours: Number of nearest images that each image is compared with.
        correlation: Correlation of details, up to 1, from which a pair counts as copies.
        similarity: Mean of that correlation and the cosine of the embeddings, where there are any, from which a pair
            counts as copies even if the correlation alone is too low.
        train_split: Split whose images are left out in favour of copies in other splits.

    Raises:
        ConfigurationError: ``neighbours`` is less than 1.
    """

    neighbours: int = 5
    correlation: float = 0.85
    similarity: float = 0.76
    train_split: str = "train"

    def __post_init__(self) -> None:
        require(self.neighbours >= 1, "at least 1", neighbours=self.neighbours)

    def are_copies(self, correlations: NDArray[np.float32], cosines: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return whether pairs are copies, by their correlations and cosines (NaN without embeddings)."""
        return (correlations >= self.correlation) | ((correlations + cosines) / 2 >= self.similarity)


@dataclass(frozen=True)
class LabelErrorsConfig:
    """Settings of the search for wrong labels.

    Args:
        neighbours: Number of nearest images that vote.
        temperature: Difference of cosines that changes the weight of a vote by the factor e.
    """

    neighbours: int = 10
    temperature: float = TEMPERATURE

    def __post_init__(self) -> None:
        valid = self.neighbours >= 1 and self.temperature > 0
        expected = "at least 1, and a number above 0"
        require(valid, expected, neighbours=self.neighbours, temperature=self.temperature)
