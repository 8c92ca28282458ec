"""Settings of ``hgld audit``, in a module that is fast to import for help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hgld.errors import require
from hgld.hierarchy.settings import TEMPERATURE

if TYPE_CHECKING:
    from hgld.audit.alignment import Comparison


#: Relations of two images, as named in tables.
COPY = "copy"
NEAR_VIEW = "near view"


@dataclass(frozen=True)
class DuplicatesConfig:
    """Settings of the search for copies and near views.

    The thresholds were chosen on planted copies and on natural pairs, see ``benchmarks/README.md``.

    Args:
        neighbours: Number of nearest images that each image is compared with, by layouts and by embeddings.
        copy_agreement: Share of the details that agree and are in place, up to 1, from which a pair counts as copies
            if one image lies inside the other.
        near_view_agreement: Share of the details that agree from which other pairs count as near views.
        train_split: Split whose images are left out in favour of images in other splits. Without a split of the
            default name, no split is preferred.

    Raises:
        ConfigurationError: ``neighbours`` is less than 1, or a share is not above 0 and up to 1.
    """

    neighbours: int = 5
    copy_agreement: float = 0.94
    near_view_agreement: float = 0.65
    train_split: str = "train"

    def __post_init__(self) -> None:
        require(self.neighbours >= 1, "at least 1", neighbours=self.neighbours)
        expected = "a share above 0, up to 1"
        require(0 < self.copy_agreement <= 1, expected, copy_agreement=self.copy_agreement)
        require(
            0 < self.near_view_agreement <= 1,
            expected,
            near_view_agreement=self.near_view_agreement,
        )

    def relation(self, comparison: Comparison) -> str | None:
        """Return the relation of two images, or None if they are unrelated."""
        if comparison.is_crop and comparison.agreement_in_place >= self.copy_agreement:
            return COPY
        if comparison.agreement >= self.near_view_agreement:
            return NEAR_VIEW
        return None


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
