"""Assertions that return what they are about."""

from typing import TypeVar

T = TypeVar("T")


def not_none(value: T | None) -> T:
    """Return a value that must not be None, such as the step of an action or the summary of a stage."""
    assert value is not None
    return value
