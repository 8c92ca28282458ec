"""Inter-annotator agreement as data: settings, coefficients with intervals, and disagreements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from hgld.errors import ConfigurationError
from hgld.review.merged_taxonomy import GroupConflict


@dataclass(frozen=True)
class AgreementConfig:
    """Settings of the bootstrap intervals.

    Args:
        n_resamples: Number of bootstrap samples.
        confidence: Share of the samples within the interval, between 0 and 1.
        seed: Seed of the random generator.

    Raises:
        ConfigurationError: ``n_resamples`` is less than 1, or ``confidence`` is not between 0 and 1.
    """

    n_resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_resamples < 1:
            raise ConfigurationError(f"{self.n_resamples} bootstrap samples; take at least one, e.g. 1000")
        if not 0 < self.confidence < 1:
            raise ConfigurationError(f"the confidence is {self.confidence}; expected between 0 and 1, e.g. 0.95")


@dataclass(frozen=True)
class Estimate:
    """A coefficient with its interval; NaN where it is undefined."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PairAgreement:
    """Agreement of two annotators on the labels that both decided."""

    first: str
    second: str
    labels: int
    raw: Estimate
    kappa: Estimate


@dataclass(frozen=True)
class Measures:
    """Coefficients under one weighting: of every two annotators, and of all together."""

    pairs: tuple[PairAgreement, ...]
    alpha: Estimate


@dataclass(frozen=True)
class SubsetAgreement:
    """Agreement on some of the labels.

    Args:
        labels: Number of labels that two or more annotators decided.
        by_label: Coefficients with every label counted once.
        by_landmark: Coefficients with every landmark counted once; None if their numbers are unknown.
    """

    labels: int
    by_label: Measures
    by_landmark: Measures | None


@dataclass(frozen=True)
class GroupAgreement:
    """Agreement of two annotators on one category; summed over all pairs if there are more annotators.

    Args:
        category: Name of a group, ``DROP`` or ``UNSURE``.
        both: Number of labels that both put into the category.
        only_one: Number of labels that only one of the two put into the category.
        specific: Proportion of specific agreement, ``2 both / (2 both + only_one)``.
        specific_by_landmark: The same, counting landmarks; None if their numbers are unknown.
    """

    category: str
    both: int
    only_one: int
    specific: float
    specific_by_landmark: float | None


@dataclass(frozen=True)
class Disagreement:
    """A label that two or more annotators put into different categories.

    Args:
        label_id: Id of the label.
        label: Text of the label.
        landmarks: Number of landmarks with the label; None if unknown.
        opinions: Category by annotator, for those who decided the label.
        comments: Comment by annotator, for those who wrote one.
    """

    label_id: str
    label: str
    landmarks: int | None
    opinions: Mapping[str, str]
    comments: Mapping[str, str]


@dataclass(frozen=True)
class Agreement:
    """Inter-annotator agreement.

    Args:
        annotators: Names of the annotators.
        labels: Number of labels that two or more annotators decided.
        single: Number of labels that only one annotator decided; they are not part of any measure.
        by_label: Coefficients with every label counted once.
        by_landmark: Coefficients with every landmark counted once; None if their numbers are unknown.
        blind: Agreement on labels that all annotators who decided them decided without seeing suggestions; None if
            there are none.
        not_blind: Agreement on the other labels; None if there are none.
        mixed: Number of labels that one annotator decided blind and another with suggestions.
        groups: Agreement on each category in use, the least agreement first.
        disagreements: Labels in different categories, those with most landmarks first.
        config: Settings of the intervals.
        group_conflicts: Groups that annotators name differently; these do not count as disagreements.
    """

    annotators: tuple[str, ...]
    labels: int
    single: int
    by_label: Measures
    by_landmark: Measures | None
    blind: SubsetAgreement | None
    not_blind: SubsetAgreement | None
    mixed: int
    groups: tuple[GroupAgreement, ...]
    disagreements: tuple[Disagreement, ...]
    config: AgreementConfig
    group_conflicts: tuple[GroupConflict, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; undefined numbers are null."""
        return {name: _without_nan(value) for name, value in asdict(self).items()}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and isnan(value) else value
