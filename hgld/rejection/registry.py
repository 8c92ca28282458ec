"""Registry of rejection scores by name; their options are the parameters of their constructors."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from hgld.errors import ConfigurationError
from hgld.io.settings import Settings
from hgld.rejection.detector import Detector
from hgld.rejection.gaussian_scores import Gmm, Mahalanobis, SsdPlus
from hgld.rejection.heat import Heat
from hgld.rejection.logit_scores import Dice, Energy, KlMatching, MaxLogit, Msp, Odin, React
from hgld.rejection.neighbours import Knn
from hgld.rejection.subspaces import Residual, Vim

_SCORES: tuple[type[Detector], ...] = (
    Knn,
    Msp,
    MaxLogit,
    Energy,
    KlMatching,
    Odin,
    Dice,
    React,
    Mahalanobis,
    SsdPlus,
    Gmm,
    Residual,
    Vim,
    Heat,
)
#: The class of each score.
DETECTORS: Mapping[str, type[Detector]] = {score.name: score for score in _SCORES}


class _Options(Settings):
    """Base class of the options of a score, which may hold a classifier."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


def build_detector(name: str, options: Mapping[str, Any] | None = None) -> Detector:
    """Return an unfitted score.

    Args:
        name: Name of the score, one of :data:`DETECTORS`.
        options: Options by name; texts are converted to the types of the options. Other options
            have their defaults.

    Raises:
        ConfigurationError: The score or an option is unknown, or a value is out of range.

    >>> build_detector("knn", {"k": "1"}).options()
    {'k': 1}
    """
    if name not in DETECTORS:
        raise ConfigurationError(f"there is no score {name}; choose one of {', '.join(DETECTORS)}")
    detector = DETECTORS[name]
    hints = typing.get_type_hints(detector.__init__)
    fields: dict[str, Any] = {}
    for key, parameter in inspect.signature(detector).parameters.items():
        fields[key] = (hints[key], parameter.default)
    model = create_model(f"{name}_options", __base__=_Options, **fields)
    try:
        settings = model.model_validate(dict(options or {}))
    except ValidationError as error:
        problem = error.errors()[0]
        option = ".".join(map(str, problem["loc"]))
        raise ConfigurationError(
            f"option {option} of the score {name}: {problem['msg']}; its options are {', '.join(fields)}"
        ) from error
    return detector(**{key: getattr(settings, key) for key in fields})
