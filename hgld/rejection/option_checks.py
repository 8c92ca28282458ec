"""Checks of options that several scores have: each raises an error that names the first option out of range."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hgld.errors import ConfigurationError


def check_at_least_1(**options: int) -> None:
    """Raise a :class:`ConfigurationError` for an option below 1."""
    for name, value in options.items():
        if not value >= 1:
            raise ConfigurationError(f"`{name}` is {value}; expected at least 1")


def check_above_0(**options: float | None) -> None:
    """Raise a :class:`ConfigurationError` for an option that is set, and not a finite number above 0."""
    for name, value in options.items():
        if value is not None and not 0 < value < math.inf:
            raise ConfigurationError(f"`{name}` is {value}; expected a number above 0")


def check_at_least_0(**options: float) -> None:
    """Raise a :class:`ConfigurationError` for an option that is not a finite number of 0 or more."""
    for name, value in options.items():
        if not 0 <= value < math.inf:
            raise ConfigurationError(f"`{name}` is {value}; expected a number of 0 or more")


def check_share(**options: float) -> None:
    """Raise a :class:`ConfigurationError` for an option that is not from 0 to 1, with 1 excluded."""
    for name, value in options.items():
        if not 0 <= value < 1:
            raise ConfigurationError(f"`{name}` is {value}; expected a share from 0 to less than 1")


def check_choice(choices: Sequence[str], **options: str) -> None:
    """Raise a :class:`ConfigurationError` for an option that is none of the choices."""
    for name, value in options.items():
        if value not in choices:
            raise ConfigurationError(f"`{name}` is {value}; expected one of {', '.join(choices)}")
