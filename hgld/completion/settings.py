"""Settings of ``hgld complete``, in a module that is fast to import for help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hgld.errors import ConfigurationError, require_at_least, require_choice
from hgld.labels.settings import DEFAULT_ENCODER
from hgld.tables.column_values import MISSING_GROUP_REASON_MEANINGS

Method = Literal["neighbours", "zero-shot"]
#: Smallest number of labelled landmarks for calibration and evaluation.
MIN_LABELLED = 20


@dataclass(frozen=True)
class CompleteConfig:
    """Settings of proposals.

    Args:
        method: Compare with photographs of labelled landmarks, or with the texts of labels and
            groups.
        k: Number of photographs or texts that a photograph is compared with.
        reasons: Landmarks to propose groups for: removed by hgld clean as unlabelled, multiple or
            irrelevant, or excluded by hgld build; may be repeated.
        encoder: Text encoder of the model that embedded the photographs, for zero-shot:
            open_clip:MODEL/TAG, or open_clip:MODEL/PATH with a local checkpoint.
        calibration_landmarks: Maximum number of labelled landmarks to calibrate scores on, or to
            evaluate.
        seed: Seed of the sample of labelled landmarks.
        device: Torch device: cpu, cuda or cuda:N.
    """

    method: Method = "neighbours"
    k: int = 5
    reasons: Sequence[str] = ("unlabelled",)
    encoder: str = DEFAULT_ENCODER
    calibration_landmarks: int = 5000
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        from hgld.labels.encoders import usable_device

        require_choice(Method, method=self.method)
        require_at_least(1, k=self.k)
        require_at_least(MIN_LABELLED, calibration_landmarks=self.calibration_landmarks)
        unknown = sorted(set(self.reasons).difference(MISSING_GROUP_REASON_MEANINGS))
        if unknown or not self.reasons:
            raise ConfigurationError(
                f"`reasons` is {', '.join(unknown) or 'empty'}; expected some of "
                f"{', '.join(MISSING_GROUP_REASON_MEANINGS)}"
            )
        usable_device(self.device)

    def parameters(self) -> dict[str, Any]:
        """Return the settings that affect the result, as JSON values."""
        values = {
            "method": self.method,
            "k": self.k,
            "reasons": sorted(self.reasons),
            "calibration_landmarks": self.calibration_landmarks,
            "seed": self.seed,
            "device": self.device.partition(":")[0],  # the last bits depend on it
        }
        if self.method == "zero-shot":
            values["encoder"] = self.encoder
        return values
