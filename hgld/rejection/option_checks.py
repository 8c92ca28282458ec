"""Checks of options that several scores have."""

from __future__ import annotations

from hgld.errors import ConfigurationError


def check_at_least_1(**options: int) -> None:
    """Raise a :class:`ConfigurationError` that names the first option below 1."""
    for name, value in options.items():
        if value < 1:
            raise ConfigurationError(f"`{name}` is {value}; expected at least 1")


def check_above_0(**options: float | None) -> None:
    """Raise a :class:`ConfigurationError` that names the first option, if it is set, that is not above 0."""
    for name, value in options.items():
        if value is not None and not 0 < value < float("inf"):
            raise ConfigurationError(f"`{name}` is {value}; expected a number above 0")
