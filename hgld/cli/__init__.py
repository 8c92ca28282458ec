"""The ``hgld`` command: one thin command per stage over one function of the library.

Results go to stdout, logs and progress to stderr; the exit code is 0 only when the work was done. Heavy
imports stay inside the commands, so that ``--help`` answers at once.
"""

# Each registers its commands with the application; in the order of the help, which is that of the work.
# isort: off
from hgld.cli import labels, review, hierarchy, release, data, manifest, train, benchmark, embed_images, retrieval
from hgld.cli.base import app

__all__ = [
    "app",
    "benchmark",
    "data",
    "embed_images",
    "hierarchy",
    "labels",
    "manifest",
    "release",
    "retrieval",
    "review",
    "train",
]
