"""Every error hgld raises on purpose, split by what the caller does next.

::

    HgldError
    ├── InputError          a file or a row is wrong: mend it, run again
    ├── ConfigurationError  an option, a setting or an installation is wrong: change it, run again
    ├── BusyError           another run holds the output: wait for it
    ├── ConflictError       what was to be changed is no longer what it was: look again, then decide
    └── SourceError         a server did not answer as it should: run again later

The command line prints the message and exits with 1; a message says what was found, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence


class HgldError(Exception):
    """Base of all errors that are not bugs of hgld."""


class InputError(HgldError):
    """A file or a row is not what it should be."""


class ConfigurationError(HgldError):
    """An option, a setting or an installation keeps the work from being done."""


class BusyError(HgldError):
    """Another run is working on the same output."""


class ConflictError(HgldError):
    """What was to be changed has been changed by someone else, or something rests on it."""


class SourceError(HgldError):
    """A server kept failing, or answered something that cannot be read."""


def listing(problems: Sequence[str], *, most: int = 20) -> str:
    """The problems, one a line and indented, with a count of those left out.

    >>> print(listing(["row 2: a", "row 3: b", "row 9: c"], most=2))
      row 2: a
      row 3: b
      … and 1 more
    """
    lines = [f"  {problem}" for problem in problems[:most]]
    if len(problems) > most:
        lines.append(f"  … and {len(problems) - most} more")
    return "\n".join(lines)
