"""Temperature check of all losses, and settings of ``hgld diagnose``; fast to import, for help."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hgld.errors import ConfigurationError, require, require_at_least

#: Lowest temperature of a sigmoid of score differences. Scores in float32 near 1 are at least 6e-8
#: apart, which is six times this temperature, so that the sigmoid is 0.998, or 0.002, for the smallest
#: difference.
MIN_TEMPERATURE = 1e-8


def check_temperature(name: str, value: float) -> None:
    """Raise a ConfigurationError for a temperature too low for float32, or not finite."""
    if not MIN_TEMPERATURE <= value < math.inf:
        raise ConfigurationError(
            f"`{name}` is {value}; expected at least {MIN_TEMPERATURE}: float32 scores are 6e-08 apart, and below it "
            "gradients vanish or overflow"
        )


@dataclass(frozen=True)
class DiagnosisConfig:
    """Settings of the diagnosis of embeddings.

    Args:
        batch_size: Number of images per batch.
        per_class: Number of images of each class in a batch.
        max_batches: Largest number of batches. Default: all batches of an epoch.
        metric: Metric of the decomposability gap, as for hgld evaluate.
        temperatures: Temperature of the sigmoid, at least 1e-8; may be repeated.
        alpha: Score that L_DG wants positives above (Eqs. 7 and 27 of the paper on rank losses).
        beta: Score that L_DG wants negatives below (Eqs. 7 and 27 of the paper on rank losses).
        seed: Seed of the batches.

    Raises:
        ConfigurationError: A value is out of range.
    """

    batch_size: int = 256
    per_class: int = 4
    max_batches: int | None = None
    metric: str = "AP"
    temperatures: tuple[float, ...] = (0.001, 0.01, 0.1)
    alpha: float = 0.9
    beta: float = 0.6
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least(1, max_batches=self.max_batches)
        are_cosines = -1 <= self.alpha <= 1 and -1 <= self.beta <= 1
        require(are_cosines, "cosines, -1 to 1", alpha=self.alpha, beta=self.beta)
        for tau in self.temperatures:
            check_temperature("temperatures", tau)
