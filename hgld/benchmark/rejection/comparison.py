"""Compare rejection scores on open-set splits of images, on one or several kinds of embeddings.

::

    OUT/scores/                 scores of the queries, see hgld.benchmark.rejection.split_scores
    OUT/values.parquet          metrics by embedding, score, unknown images and split, with intervals
    OUT/differences.parquet     differences from the baseline embeddings, and from the first score
    OUT/results.md              tables
    OUT/near_far_EMBEDDING.png  GAP, AUROC and FPR95 of near and of far unknown queries
    OUT/risk_EMBEDDING.png      share of wrong answers among the accepted ones, on the first split
    OUT/mistakes.html           the most confident mistakes with photographs
    OUT/results.made.json       files of the report, and their provenance
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa

from hgld.benchmark.engine import (
    Report,
    compute_runs,
    describe_failures,
    open_folder,
    report_provenance,
)
from hgld.benchmark.rejection.reports import (
    draw_near_far,
    draw_risks,
    rejection_markdown,
    write_mistakes_page,
)
from hgld.benchmark.rejection.settings import RejectionSettings
from hgld.benchmark.rejection.split_scores import (
    ComparedImages,
    ScoreResults,
    ScoreRun,
    SplitScores,
    files_of_split,
    head_checkpoint,
)
from hgld.benchmark.rejection.values import RejectionValues, compare_scores
from hgld.errors import InputError, indented_list
from hgld.figures.style import figure_files
from hgld.io.files import write_text
from hgld.io.settings import to_dict
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance, write_results


@dataclass
class RejectionComparison:
    """Scores of a comparison on all embeddings and splits.

    Attributes:
        failures: Reasons why :func:`compare_rejection` could not compute scores.
        n_kept: Number of scores that it did not compute again, as they were up to date.
    """

    settings: RejectionSettings
    out: Path
    failures: dict[ScoreRun, str] = field(default_factory=dict, init=False)
    n_kept: int = field(default=0, init=False)

    @cached_property
    def images(self) -> ComparedImages:
        """Images of the comparison."""
        return ComparedImages(self.settings)

    @cached_property
    def splits(self) -> list[SplitScores]:
        """Scores of each split on each kind of embeddings."""
        splits = []
        for embedding in self.settings.embeddings:
            for seed in self.settings.splits:
                splits.append(SplitScores(self.settings, self.images, self.out, embedding, seed))
        return splits

    @cached_property
    def runs(self) -> dict[ScoreRun, SplitScores]:
        """Each score on each kind of embeddings and each split."""
        runs = {}
        for split in self.splits:
            for score in self.settings.score_settings():
                runs[ScoreRun(split.embedding, score, split.seed)] = split
        return runs

    @property
    def failure_lines(self) -> list[str]:
        """Scores that could not be computed, and why, as lines of text."""
        return describe_failures(self.failures)

    @property
    def n_results(self) -> int:
        """Number of results: one of each score on each kind of embeddings and each split."""
        return len(self.runs)

    def n_finished(self) -> int:
        """Return how many scores are up to date, so that a run would keep them."""
        return sum(split.result_file(run.score).is_up_to_date() for run, split in self.runs.items())

    def sizes(self) -> dict[int, dict[str, int]]:
        """Return the number of images of each set, by seed of the split.

        Raises:
            InputError: A manifest cannot be read.
            ConfigurationError: The settings do not fit the images.
        """
        sizes = {}
        for seed in self.settings.splits:
            sizes[seed] = dict(Counter(self.images.split(seed).table["set"]))
        return sizes

    def missing(self) -> list[str]:
        """Return the files of embeddings and heads that do not exist."""
        missing: dict[str, None] = {}
        for embedding in self.settings.embeddings.values():
            for seed in self.settings.splits:
                for path in files_of_split(embedding, seed).values():
                    if not path.is_file():
                        missing[str(path)] = None
                try:
                    head_checkpoint(embedding, seed)
                except InputError:
                    missing[str(embedding.head).replace("{split}", str(seed))] = None
        return list(missing)

    def compute(self, *, force: bool, progress: Progress) -> ScoreResults:
        """Compute missing scores, or all scores if ``force``, and return the results without failures.

        Raises:
            InputError: Images or embeddings cannot be read, or no score could be computed.
            ConfigurationError: The settings do not fit the images, or a head was trained on them.
        """
        for split in self.splits:
            split.write_queries(force=force)
        pending = {}
        for run, split in self.runs.items():
            if force or not split.result_file(run.score).is_up_to_date():
                pending[run] = partial(split.write_score, run.score)
        self.n_kept = self.n_results - len(pending)
        self.failures = compute_runs(pending, progress)
        results = {}
        for run, split in self.runs.items():
            if run not in self.failures:
                results[run] = split.read(run.score)
        if not results:
            raise InputError(
                f"none of the scores could be computed:\n{indented_list(self.failure_lines)}"
            )
        return results

    def report(self, results: ScoreResults, *, force: bool) -> tuple[RejectionValues, list[Path]]:
        """Compare the scores that were computed, and write tables, figures and pages unless they are up to date."""
        values = compare_scores(self.settings, results)
        parameters = {**to_dict(self.settings), "failed": self.failure_lines}
        files = {str(run): self.runs[run].path(run.score) for run in results}
        provenance = report_provenance("compare-rejection", parameters, files)
        write = partial(self._write, results, values)
        report = Report(self.out / "results.made.json", provenance, write)
        report.update(force=force)
        return values, report.files

    def _write(
        self, results: ScoreResults, values: RejectionValues, provenance: Provenance
    ) -> list[Path]:
        settings, out, mistakes = self.settings, self.out, self.settings.mistakes
        drawn = []
        for name in settings.embeddings:
            drawn += draw_near_far(settings, values, name, out / f"near_far_{name}.png")
            drawn += draw_risks(settings, results, name, out / f"risk_{name}.png")
        shown = []
        for path in drawn:
            shown += figure_files(path)
        if mistakes is not None:
            run = ScoreRun(mistakes.embedding, mistakes.score, settings.splits[0])
            if run in results:
                page = out / "mistakes.html"
                write_mistakes_page(settings, run, results[run], self.runs[run], page)
                shown.append(page)
        files = []
        for name, table in (("values", values.values), ("differences", values.differences)):
            rows = pa.Table.from_pandas(table, preserve_index=False)
            files.append(out / f"{name}.parquet")
            write_results(files[-1], rows, f"rejection_{name}/1", provenance)
        files.append(out / "results.md")
        write_text(
            files[-1], rejection_markdown(settings, values, self.failure_lines, shown) + "\n"
        )
        return files + shown


def compare_rejection(
    study: RejectionComparison, *, force: bool = False, progress: Progress | None = None
) -> tuple[RejectionValues, list[Path]]:
    """Compute missing scores, or all scores with ``force``, and write tables, figures and a page.

    Progress counts the scores that are missing. Returns the values, and the files of tables, figures and the page.

    Raises:
        InputError: Images or embeddings cannot be read, or no score could be computed.
        ConfigurationError: The settings do not fit the images, or a head was trained on them.
        BusyError: Another comparison is writing to the folder.
    """
    with open_folder(study.out):
        results = study.compute(force=force, progress=progress or NoProgress())
        return study.report(results, force=force)
