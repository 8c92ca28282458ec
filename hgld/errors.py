"""Errors that hgld raises on purpose, divided by what the caller does next.

::

    HgldError
    ├── InputError          a file or a row is invalid: correct it, then run again
    ├── ConfigurationError  a setting or the installation is invalid: change it, then run again
    ├── BusyError           another run holds the output: wait for it
    ├── ConflictError       something changed since it was read: look at it again, then decide
    ├── StorageError        a file can no longer be written: make room, then try again
    ├── ProcessError        a process that shares the work ended: read its message, then run again
    └── SourceError         a server failed or sent something invalid: run again later

A message says what was found, where, and what to do. It names parameters in backticks; the command line prints it
with the names of the options, and exits with code 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, get_args


class HgldError(Exception):
    """Base class of all errors that are not bugs in hgld."""


class InputError(HgldError):
    """An input file, or a row of it, is missing or invalid."""


class ConfigurationError(HgldError):
    """A setting or the installation makes the work impossible."""


class BusyError(HgldError):
    """Another run is writing the same output."""


class ConflictError(HgldError):
    """Someone else changed what was to be changed, or something depends on it."""


class StorageError(HgldError):
    """A file can no longer be written, such as on a full disk; it still holds what was written before."""


class ProcessError(HgldError):
    """A process that shares the work ended, did not start or cannot be reached."""


class SourceError(HgldError):
    """A server kept failing, or sent something that cannot be used."""


def failure_reason(error: Exception) -> str:
    """Return why one of several runs failed, whatever its network raised, so that the others go on.

    Raises:
        AssertionError: The error is a mistake of hgld.
        OSError: The error is one of the system, such as a full disk.

    >>> failure_reason(InputError("x.pt: no such file")), failure_reason(RuntimeError("CUDA out of memory"))
    ('x.pt: no such file', 'RuntimeError: CUDA out of memory')
    """
    if isinstance(error, AssertionError | OSError):
        raise error
    return str(error) if isinstance(error, HgldError) else f"{type(error).__name__}: {error}"


def similar_names(name: str, known: Iterable[str], limit: int = 1) -> list[str]:
    """Return the known names that are most like an unknown one, whatever their case, the most similar first.

    >>> similar_names("HAPPIER", ["happier", "roadmap"])
    ['happier']
    """
    by_lower_case = {each.lower(): each for each in known}
    return [
        by_lower_case[match] for match in get_close_matches(name.lower(), by_lower_case, n=limit)
    ]


def require_at_least(least: int, **values: float | None) -> None:
    """Raise an error that names a setting below the least number allowed, or NaN; None stands for no number.

    >>> require_at_least(1, workers=2, size=None)
    """
    for name, value in values.items():
        if value is not None and not value >= least:
            raise ConfigurationError(f"`{name}` is {value}; expected {least} or more")


def require(valid: bool, expected: str, **values: object) -> None:
    """Raise an error that names settings and what is expected of them, unless they are valid.

    >>> require(True, "cosines, -1 to 1", alpha=0.9, beta=0.6)
    """
    if not valid:
        found = [
            f"`{name}` {'' if number else 'is '}{value}"
            for number, (name, value) in enumerate(values.items())
        ]
        several = ", ".join(found[:-1]) + " and " if len(found) > 1 else ""
        raise ConfigurationError(f"{several}{found[-1]}; expected {expected}")


def require_choice(choices: Any, **values: object) -> None:
    """Raise an error that names a setting whose value is not among those of a ``Literal``.

    >>> from typing import Literal
    >>> require_choice(Literal["mean", "sum"], reduction="sum")
    """
    known = get_args(choices)
    for name, value in values.items():
        if value not in known:
            raise ConfigurationError(
                f'`{name}` is "{value}"; choose {", ".join(known[:-1])} or {known[-1]}'
            )


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
    """Format what is wrong with the rows of a file: their number, and the first of them.

    Args:
        problems: A line of text for each row.
        note: What follows the number, such as ``, nothing was done``.

    >>> print(bad_rows(["line 2: no group"], ", nothing was done"))
    1 bad row, nothing was done:
      line 2: no group
    """
    return (
        f"{len(problems):,} bad row{'s' * (len(problems) != 1)}{note}:\n{indented_list(problems)}"
    )
