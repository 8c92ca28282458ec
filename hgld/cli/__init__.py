"""The ``hgld`` command: one thin command per stage over one function of the library.

Results go to stdout, logs and progress to stderr; the exit code is 0 only if the work was done. Heavy modules are
imported inside the commands, so that ``--help`` responds at once.
"""

# Each module registers its commands with the application. The order is that of the help: along the workflow.
# isort: off
from hgld.cli import (
    scrape,
    labels,
    demo,
    review,
    hierarchy,
    release,
    data,
    manifest,
    repack,
    presets,
    train,
    benchmark,
    embed_images,
    evaluate,
    examples,
    diagnose,
    search,
    reject,
    reject_compare,
    export_embeddings,
    models,
)
from hgld.cli.base import app

__all__ = [
    "app",
    "benchmark",
    "data",
    "demo",
    "diagnose",
    "embed_images",
    "evaluate",
    "examples",
    "export_embeddings",
    "hierarchy",
    "labels",
    "manifest",
    "models",
    "presets",
    "reject",
    "reject_compare",
    "release",
    "repack",
    "review",
    "scrape",
    "search",
    "train",
]
