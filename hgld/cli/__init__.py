"""The ``hgld`` command: one thin command per stage over one function of the library.

Results go to stdout, logs and progress to stderr; the exit code is 0 only if the work was done. Heavy modules are
imported inside the commands, so that ``--help`` responds at once.
"""

# Each module registers its commands with the application. The order is that of the help: along the workflow.
# isort: off
# ruff: noqa: F401
import hgld.cli.demo
import hgld.cli.scrape
import hgld.cli.labels
import hgld.cli.review
import hgld.cli.hierarchy
import hgld.cli.images
import hgld.cli.audit
import hgld.cli.models
import hgld.cli.benchmark
import hgld.cli.evaluate
import hgld.cli.search
from hgld.cli.application import app

__all__ = ["app"]
