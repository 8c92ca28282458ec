"""Settings of a comparison of models: the models, and the treatments of their embeddings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from hgld.errors import ConfigurationError, similar_names
from hgld.evaluation.settings import RerankSettings

#: Options of a model, after ``?``, with their types.
_OPTIONS: Mapping[str, type] = {
    "pretrained": str,
    "size": int,
    "resize": int,
    "fit": str,
    "interpolation": str,
    "seen": str,
}
_SEEN = ("yes", "no", "unknown")
_TREATMENT = re.compile(r"(center)|(pca|whiten|truncate)-([1-9][0-9]*)|(adapt)-([a-z_]+)")


@dataclass(frozen=True)
class ModelEntry:
    """A model of a comparison.

    Args:
        name: Name in tables.
        model: Model for :func:`hgld.models.load_model`, or a file of embeddings.
        options: Further arguments of that function.
        seen: Whether the model was trained on images of the evaluated classes: yes, no or unknown.
    """

    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seen: str = "unknown"

    def __str__(self) -> str:
        return self.name


def parse_model(text: str) -> ModelEntry:
    """Parse ``[NAME=]MODEL[?OPTION=VALUE&...]``.

    Options are ``pretrained``, ``size``, ``resize``, ``fit`` and ``interpolation`` of
    :func:`~hgld.models.load_model`, and ``seen`` of :class:`ModelEntry`.

    Raises:
        ConfigurationError: There is no such option, or a value is invalid.

    >>> parse_model("lite=efficientnet-lite0?size=128&seen=no")
    ModelEntry(name='lite', model='efficientnet-lite0', options={'size': 128}, seen='no')
    """
    name_and_model, _, query = text.partition("?")
    name, equals, model = name_and_model.partition("=")
    if not equals:
        model = name_and_model
        name = re.sub(r"[^\w.-]+", "_", Path(model).name or model)
    options = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in _OPTIONS:
            similar = similar_names(option, _OPTIONS, 1) or [*_OPTIONS]
            raise ConfigurationError(
                f"{text}: a model has no option {option}; expected {', '.join(similar)}"
            )
        try:
            options[option] = _OPTIONS[option](value)
        except ValueError:
            raise ConfigurationError(
                f'{text}: {option} is "{value}"; expected a whole number'
            ) from None
    seen = options.pop("seen", "unknown")
    if seen not in _SEEN:
        raise ConfigurationError(f'{text}: seen is "{seen}"; expected {", ".join(_SEEN)}')
    if not re.fullmatch(r"\w[\w. -]*", name):
        raise ConfigurationError(
            f'{text}: "{name}" cannot name files; put a name of letters and digits before it: NAME={model}'
        )
    return ModelEntry(name, model, options, seen)


class Treatment(NamedTuple):
    """A treatment of embeddings before they are evaluated: its kind, and a number of dimensions or a loss."""

    kind: str
    value: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, self))

    @property
    def needs_training(self) -> bool:
        """Whether it is fitted to the embeddings of the training split."""
        return self.kind not in ("none", "truncate")


def parse_treatment(text: str) -> Treatment:
    """Parse the name of a treatment; see :class:`ModelComparisonConfig`.

    Raises:
        ConfigurationError: There is no such treatment.

    >>> parse_treatment("pca-128"), parse_treatment("adapt-happier")
    (Treatment(kind='pca', value='128'), Treatment(kind='adapt', value='happier'))
    """
    if text == "none":
        return Treatment(text)
    match = _TREATMENT.fullmatch(text)
    if match is None:
        raise ConfigurationError(
            f'the treatment is "{text}"; expected none, center, pca-D, whiten-D, truncate-D or adapt-LOSS, with a '
            "number of dimensions D such as 128, and a LOSS such as smooth_ap"
        )
    return Treatment(*filter(None, match.groups()))


@dataclass(frozen=True)
class ModelComparisonConfig:
    """Settings of a comparison of models.

    Args:
        treatments: Treatment of the embeddings of all models; may be repeated. none: no treatment;
            center: the mean over the training split is subtracted; pca-D, whiten-D: PCA to D
            dimensions, fitted on the training split, without or with whitening; truncate-D: the
            first D dimensions; adapt-LOSS: a linear layer that is trained with a loss, such as
            smooth_ap or happier, on the training split.
        split: Split of the manifest whose images are ranked against each other. Default: test, or all images if the
            manifest has no such split.
        train_split: Split that treatments are fitted to.
        metrics: Metric to report; may be repeated. Default: the metrics of hgld evaluate, and mistake_severity.
        reference: Name of the model with which other models are compared, with its treatment as in
            tables, such as "lite + center". Default: the best model by each metric.
        reranking: Re-ranking, with which all models are evaluated once more.
        device: Device: cpu, cuda or cuda:N.
        batch_size: Number of images embedded at once.
        workers: Number of processes that load images; 0 loads images in the calling process.
    """

    treatments: Sequence[str] = ("none",)
    split: str | None = None
    train_split: str = "train"
    metrics: Sequence[str] | None = None
    reference: str | None = None
    reranking: RerankSettings = field(default_factory=RerankSettings)
    device: str = "cpu"
    batch_size: int = 32
    workers: int = 2

    def __post_init__(self) -> None:
        for text in self.treatments:
            parse_treatment(text)
