"""Classify landmarks by their photographs: the references to compare with, the votes, and calibrated scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.errors import ConfigurationError, InputError
from hgld.labels.completion_inputs import MIN_LABELLED, CompletionInputs
from hgld.labels.embed import EmbedConfig, embed_labels
from hgld.labels.encoder_cache import load_cached_encoder
from hgld.labels.encoders import DEFAULT_ENCODER, LoadEncoder
from hgld.labels.group_votes import GroupVotes, References, vote
from hgld.labels.photographs import Vectors
from hgld.labels.vote_calibration import fit_calibration
from hgld.progress import NoProgress, Progress
from hgld.tables.column_values import MISSING_GROUP_REASON_MEANINGS

Method = Literal["neighbours", "zero-shot"]

#: Difference of cosines that changes a vote by the factor e; that of texts is the one of CLIP.
_TEMPERATURES: Mapping[Method, float] = {"neighbours": 0.1, "zero-shot": 0.01}


@dataclass(frozen=True)
class CompleteConfig:
    """Settings of proposals.

    Args:
        method: ``neighbours`` compares photographs with those of labelled landmarks, ``zero-shot`` with the texts of
            labels and groups.
        k: Number of photographs or texts that each photograph is compared with.
        reasons: Landmarks to propose groups for, by the reason why they have none.
        encoder: Text encoder of the image model, for ``zero-shot``; see :mod:`hgld.labels.encoders`.
        calibration_landmarks: Maximum number of labelled landmarks that scores are calibrated on.
        seed: Seed of their choice.
        device: Torch device that compares vectors and encodes texts.

    Raises:
        ConfigurationError: A value is out of range, or the device is not available.
    """

    method: Method = "neighbours"
    k: int = 5
    reasons: Sequence[str] = ("unlabelled",)
    encoder: str = DEFAULT_ENCODER
    calibration_landmarks: int = 5000
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ConfigurationError(f'`method` is "{self.method}"; expected {" or ".join(get_args(Method))}')
        if self.k < 1:
            raise ConfigurationError(f"`k` is {self.k}; expected 1 or more")
        if self.calibration_landmarks < MIN_LABELLED:
            raise ConfigurationError(
                f"`calibration_landmarks` is {self.calibration_landmarks}; expected {MIN_LABELLED} or more"
            )
        if not self.reasons or (unknown := sorted(set(self.reasons) - {*MISSING_GROUP_REASON_MEANINGS})):
            raise ConfigurationError(
                f"`reasons` is {', '.join(unknown) if self.reasons else 'empty'}; expected some of "
                f"{', '.join(MISSING_GROUP_REASON_MEANINGS)}"
            )
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
            raise ConfigurationError(f'the device "{self.device}" cannot be used: {error}') from error

    def sample(self, labelled: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return at most ``calibration_landmarks`` of some landmarks, chosen at random."""
        if len(labelled) <= self.calibration_landmarks:
            return labelled
        return np.random.default_rng(self.seed).choice(labelled, self.calibration_landmarks, replace=False)

    def parameters(self) -> dict[str, Any]:
        """Return the settings that affect the result, as JSON values."""
        values = {
            "method": self.method,
            "k": self.k,
            "reasons": sorted(self.reasons),
            "calibration_landmarks": self.calibration_landmarks,
            "seed": self.seed,
            "device": torch.device(self.device).type,  # the last bits depend on it
        }
        return values | ({"encoder": self.encoder} if self.method == "zero-shot" else {})


class LandmarkClassifier:
    """Nearest-neighbour classifier of landmarks by their photographs, with references from labelled landmarks.

    Args:
        inputs: Landmarks and photographs.
        config: Settings.
        visible: bool, shape (n_labelled,); labelled landmarks that are used, all by default.
        progress: Reports compared photographs.
        load: Returns the encoder for a name and a device.

    Raises:
        InputError: Texts and photographs have vectors of different dimension.
        ConfigurationError: The encoder cannot be used.
        SourceError: Its weights cannot be downloaded.
    """

    def __init__(
        self,
        inputs: CompletionInputs,
        config: CompleteConfig,
        *,
        visible: NDArray[np.bool_] | None = None,
        progress: Progress | None = None,
        load: LoadEncoder = load_cached_encoder,
    ) -> None:
        visible = np.ones(inputs.n_labelled, bool) if visible is None else visible
        self._inputs, self._config, self._progress = inputs, config, progress or NoProgress()
        if config.method == "zero-shot":
            self.references = _text_references(inputs, visible, config, load)
        else:
            self.references = _photograph_references(inputs, visible)

    def vote(self, landmarks: NDArray[np.int64]) -> GroupVotes:
        """Return the votes on landmarks by their numbers; a landmark without photographs has no row."""
        chosen = np.zeros(len(self._inputs.landmarks), bool)
        chosen[landmarks] = True
        return vote(
            self._inputs.photographs.of_landmarks(chosen),
            self.references,
            len(self._inputs.group_names),
            k=self._config.k,
            temperature=_TEMPERATURES[self._config.method],
            device=self._config.device,
            progress=self._progress,
        )

    def calibrate(self, labelled: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Calibrate scores on labelled landmarks, each compared with all others.

        A group with a single labelled landmark cannot be found this way, and counts as wrong, as it would be for
        others of its kind.

        Args:
            labelled: Numbers of labelled landmarks with photographs.

        Returns:
            Whether the first choice is right for each landmark, in the order of their numbers.
        """
        votes = self.vote(labelled)
        right = np.asarray(votes.choices()[:, 0] == self._inputs.groups[votes.landmark])
        self._calibration = fit_calibration(votes, right)
        return right

    def scores(self, votes: GroupVotes) -> NDArray[np.float64]:
        """Return the probability that the first choice of each landmark is right, once calibrated."""
        return self._calibration.scores(votes)


def _photograph_references(inputs: CompletionInputs, visible: NDArray[np.bool_]) -> References:
    chosen = np.concatenate([visible, np.zeros(len(inputs.landmarks) - inputs.n_labelled, bool)])
    photographs = inputs.photographs.of_landmarks(chosen)
    return References(photographs.vectors, photographs.landmark, inputs.groups, inputs.names(), are_landmarks=True)


def _text_references(
    inputs: CompletionInputs, visible: NDArray[np.bool_], config: CompleteConfig, load: LoadEncoder
) -> References:
    """Return the texts of labels, with the groups that they are in, and of the groups themselves."""
    pairs = {(inputs.labels[row], int(inputs.groups[row])) for row in np.flatnonzero(visible).tolist()}
    pairs |= {(inputs.group_names[group], group) for _, group in pairs}
    texts, groups = zip(*sorted(pairs), strict=True)
    encoder = load(config.encoder, config.device)
    embedding = EmbedConfig()
    vectors = torch.from_numpy(embed_labels(texts, encoder, embedding.templates, embedding.batch_size))
    if vectors.shape[1] != inputs.photographs.vectors.dim:
        raise InputError(
            f"the texts have {vectors.shape[1]} dimensions and the photographs {inputs.photographs.vectors.dim}; "
            "embed the photographs with the image encoder that belongs to the text encoder in `encoder`"
        )
    return References(
        Vectors.of(vectors), np.arange(len(texts)), np.array(groups, np.int64), texts, are_landmarks=False
    )
