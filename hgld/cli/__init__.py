"""The ``hgld`` command: one thin command per stage over one function of the library.

Results go to stdout, logs and progress to stderr; the exit code is 0 only when the work was done. Heavy
imports stay inside the commands, so that ``--help`` answers at once.
"""

from hgld.cli import data, labels, publish, release, review  # each registers its commands with the application
from hgld.cli.base import app

__all__ = ["app", "data", "labels", "publish", "release", "review"]
