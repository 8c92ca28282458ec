"""What a comparison found, for people and programs: a table, Markdown, LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.retrieval.benchmark.evaluating import EvaluatedRun
from hgld.retrieval.benchmark.runs import SweepPoint
from hgld.retrieval.benchmark.settings import BenchmarkSettings


@dataclass(frozen=True, eq=False)
class MethodResults:
    """A method and its runs that are evaluated.

    Args:
        name: in the comparison.
        title: in tables and pictures.
        latex: the same in LaTeX, where it is more than text.
        baseline: whether it is one of those that the others are compared with.
        runs: in the order of the seeds; one at least.
    """

    name: str
    title: str
    latex: str | None
    baseline: bool
    runs: tuple[EvaluatedRun, ...]


@dataclass(frozen=True)
class ResultFiles:
    """Where the results are."""

    parquet: Path
    markdown: Path
    latex: Path


def write_results(
    settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path, *, about: Sequence[str] = ()
) -> ResultFiles:
    """Write results.parquet, results.md and results.tex into ``out``; ``about`` is added to the notes."""
    raise NotImplementedError


def write_sweep(
    settings: BenchmarkSettings,
    name: str,
    points: Sequence[tuple[SweepPoint, tuple[EvaluatedRun, ...]]],
    out: Path,
) -> list[Path]:
    """Write ``out/sweeps/NAME.parquet`` and ``.md``."""
    raise NotImplementedError


def comparison_text(settings: BenchmarkSettings, methods: Sequence[MethodResults], *, width: int = 80) -> str:
    """The table of means and deviations and the differences to the best baseline, for the terminal."""
    raise NotImplementedError
