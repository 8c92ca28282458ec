"""All rejection scores by name; their options are the parameters of their constructors."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError, create_model

from hgld.errors import ConfigurationError
from hgld.io.settings import Settings
from hgld.rejection import classifiers, gaussians, heat, neighbours, subspaces
from hgld.rejection.detector import Detector

#: The class of each score.
DETECTORS: Mapping[str, type[Detector]] = {
    score.name: score
    for module in (neighbours, classifiers, gaussians, subspaces, heat)
    for score in vars(module).values()
    if inspect.isclass(score) and issubclass(score, Detector) and "name" in vars(score)
}


def build_detector(name: str, options: Mapping[str, Any] | None = None) -> Detector:
    """Return a score that is not fitted yet.

    Args:
        name: Name of the score, one of :data:`DETECTORS`.
        options: Its options; texts are converted to the types of the options. Default: the defaults.

    Raises:
        ConfigurationError: There is no such score or option, or a value is out of range.

    >>> build_detector("top1_cosine").options()
    {}
    """
    if name not in DETECTORS:
        raise ConfigurationError(f"there is no score {name}; choose one of {', '.join(DETECTORS)}")
    detector = DETECTORS[name]
    hints = typing.get_type_hints(detector.__init__)
    fields: dict[str, Any] = {
        key: (hints[key], parameter.default) for key, parameter in inspect.signature(detector).parameters.items()
    }
    try:
        settings = create_model(f"{name}_options", __base__=Settings, **fields).model_validate(dict(options or {}))
    except ValidationError as error:
        first = error.errors()[0]
        known = ", ".join(fields) or "none"
        raise ConfigurationError(
            f"option {'.'.join(map(str, first['loc']))} of the score {name}: {first['msg']}; its options are {known}"
        ) from error
    return detector(**{key: getattr(settings, key) for key in fields})
