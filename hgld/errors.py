"""Errors that hgld raises on purpose, divided by the next step of the caller.

::

    HgldError
    ├── InputError          a file or a row is invalid: correct it, then run again
    ├── ConfigurationError  a setting or the installation is invalid: change it, then run again
    ├── BusyError           another run holds the output: wait for it
    ├── ConflictError       something changed since it was read: look at it again, then decide
    ├── StorageError        a file can no longer be written: make room, then try again
    ├── ProcessError        a process that shares the work ended: read its message, then run again
    └── SourceError         a server failed or sent something invalid: run again later

A message names the problem, its place, and the remedy. It names parameters in backticks; the command line prints the
message with the names of the options, and exits with code 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, get_args


class HgldError(Exception):
    """Base class of all errors that are not bugs in hgld."""


class InputError(HgldError):
    """An input file, or a row in one, is missing or invalid."""


class ConfigurationError(HgldError):
    """A setting or the installation makes the work impossible."""


class BusyError(HgldError):
    """Another run is writing the same output."""


class ConflictError(HgldError):
    """Someone else has changed the same data, or other data depend on the data to change."""


class StorageError(HgldError):
    """A file can no longer be written, such as on a full disk; earlier contents are kept."""


class ProcessError(HgldError):
    """A process that shares the work ended, did not start or cannot be reached."""


class SourceError(HgldError):
    """A server kept failing, or sent something that cannot be used."""


def failure_reason(error: Exception) -> str:
    """Return why one of several runs failed, so that the other runs can continue.

    Raises:
        AssertionError: The error is a bug in hgld.
        OSError: The operating system raised the error, such as for a full disk.

    >>> failure_reason(InputError("x.pt: no such file"))
    'x.pt: no such file'
    >>> failure_reason(RuntimeError("CUDA out of memory"))
    'RuntimeError: CUDA out of memory'
    """
    if isinstance(error, AssertionError | OSError):
        raise error
    if isinstance(error, HgldError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def similar_names(name: str, known: Iterable[str], limit: int = 1) -> list[str]:
    """Return the known names that are most similar to a name, ignoring case, best match first.

    >>> similar_names("HAPPIER", ["happier", "roadmap"])
    ['happier']
    """
    by_lower_case = {known_name.lower(): known_name for known_name in known}
    matches = get_close_matches(name.lower(), by_lower_case, n=limit)
    return [by_lower_case[match] for match in matches]


def require_at_least(least: int, **values: float | None) -> None:
    """Raise an error that names a setting below the least number allowed, or NaN; skip None.

    >>> require_at_least(1, workers=2, size=None)
    """
    for name, value in values.items():
        if value is not None and not value >= least:
            raise ConfigurationError(f"`{name}` is {value}; expected {least} or more")


def require(valid: bool, expected: str, **values: object) -> None:
    """Raise an error that names settings with their expected values, unless they are valid.

    >>> require(True, "cosines, -1 to 1", alpha=0.9, beta=0.6)
    """
    if valid:
        return
    verb = "is "
    settings = []
    for name, value in values.items():
        settings.append(f"`{name}` {verb}{value}")
        verb = ""
    text = settings.pop()
    if settings:
        text = f"{', '.join(settings)} and {text}"
    raise ConfigurationError(f"{text}; expected {expected}")


def require_choice(choices: Any, **values: object) -> None:
    """Raise an error that names a setting whose value is not one of the values of a ``Literal``.

    >>> from typing import Literal
    >>> require_choice(Literal["mean", "sum"], reduction="sum")
    """
    names = get_args(choices)
    expected = f"{', '.join(names[:-1])} or {names[-1]}"
    for name, value in values.items():
        if value not in names:
            raise ConfigurationError(f'`{name}` is "{value}"; choose {expected}')


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun in the singular or plural, by default the noun with an s.

    >>> counted(1, "label"), counted(1200, "label"), counted(2, "entity", "entities")
    ('1 label', '1,200 labels', '2 entities')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or f'{noun}s'}"


def indented_list(items: Sequence[str], *, limit: int = 20) -> str:
    """Format items for a message: one per line, indented, with a count of the omitted ones.

    Args:
        items: Lines of text, such as the problems of a file.
        limit: Number of items shown at most.

    >>> print(indented_list(["row 2: a", "row 3: b", "row 9: c"], limit=2))
      row 2: a
      row 3: b
      … and 1 more
    """
    lines = [f"  {item}" for item in items[:limit]]
    if len(items) > limit:
        lines.append(f"  … and {len(items) - limit} more")
    return "\n".join(lines)


def bad_rows(problems: Sequence[str], note: str = "") -> str:
    """Format problems of rows of a file: the number of rows, and the first problems.

    Args:
        problems: A line of text for each row.
        note: Text after the number, such as ``, nothing was done``.

    >>> print(bad_rows(["line 2: no group"], ", nothing was done"))
    1 bad row, nothing was done:
      line 2: no group
    """
    return f"{counted(len(problems), 'bad row')}{note}:\n{indented_list(problems)}"
