"""Compare rejection scores on open-set splits of images, on one or several kinds of embeddings.

::

    OUT/scores/                 scores of the queries, see hgld.benchmark.rejection.split_scores
    OUT/values.parquet          metrics by embedding, score, unknown images and split, with intervals
    OUT/values.csv              the same
    OUT/differences.parquet     differences from the baseline embeddings, and from the first score
    OUT/results.json            settings, values and scores that could not be computed
    OUT/results.md              tables
    OUT/near_far_EMBEDDING.png  GAP, AUROC and FPR95 of near and of far unknown queries
    OUT/risk_EMBEDDING.png      share of wrong answers among the accepted ones, on the first split
    OUT/mistakes.html           the most confident mistakes with photographs
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa

from hgld.benchmark.rejection.reports import draw_near_far, draw_risks, rejection_markdown, write_mistakes_page
from hgld.benchmark.rejection.settings import RejectionSettings
from hgld.benchmark.rejection.split_scores import (
    ComparedImages,
    FailedScore,
    SplitScores,
    files_of_split,
    head_checkpoint,
)
from hgld.benchmark.rejection.values import RejectionValues, compare_scores
from hgld.errors import InputError, indented_list
from hgld.evaluation.results import to_json_values
from hgld.figures.style import figure_files
from hgld.io.files import atomic_write, exclusive_lock, write_text
from hgld.io.settings import to_dict
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance, write_results
from hgld.version import __version__


@dataclass(frozen=True)
class RejectionComparison:
    """Scores of a comparison on all embeddings and splits."""

    settings: RejectionSettings
    out: Path

    @cached_property
    def images(self) -> ComparedImages:
        """Images of the comparison."""
        return ComparedImages(self.settings)

    @cached_property
    def splits(self) -> list[SplitScores]:
        """Scores of each split on each kind of embeddings."""
        splits = []
        for embedding in self.settings.embeddings:
            for split in self.settings.splits:
                splits.append(SplitScores(self.settings, self.images, self.out, embedding, split))
        return splits

    @property
    def failed(self) -> list[FailedScore]:
        """Scores that could not be computed."""
        return [result for split in self.splits for result in split.failed.values()]

    @property
    def n_results(self) -> int:
        """Number of results: one of each score on each kind of embeddings and each split."""
        return len(self.splits) * len(self.settings.score_settings())

    def n_finished(self) -> int:
        """Return how many scores a run would not compute again."""
        return sum(split.is_finished(name) for split in self.splits for name in self.settings.score_settings())

    @property
    def n_kept(self) -> int:
        """Number of scores that :func:`compare_rejection` did not compute again."""
        return sum(split.n_kept for split in self.splits)

    def sizes(self) -> dict[int, dict[str, int]]:
        """Return the number of images of each set, by seed of the split.

        Raises:
            InputError: A manifest cannot be read.
            ConfigurationError: The settings do not fit the images.
        """
        return {split: dict(Counter(self.images.split(split).table["set"])) for split in self.settings.splits}

    def missing(self) -> list[str]:
        """Return the files of embeddings and heads that do not exist."""
        missing = []
        for embedding in self.settings.embeddings.values():
            for split in self.settings.splits:
                for path in files_of_split(embedding, split).values():
                    if not path.is_file():
                        missing.append(str(path))
                try:
                    head_checkpoint(embedding, split)
                except InputError:
                    missing.append(str(embedding.head).replace("{split}", str(split)))
        return list(dict.fromkeys(missing))

    def write(self) -> tuple[RejectionValues, list[Path]]:
        """Compare the scores that were computed, and write tables, figures and pages."""
        settings, out, failed = self.settings, self.out, self.failed
        results = [result for split in self.splits for result in split.results()]
        if not results:
            raise InputError(f"none of the scores could be computed:\n{indented_list(list(map(str, failed)))}")
        values = compare_scores(settings, results)
        drawn = []
        for name in settings.embeddings:
            drawn += draw_near_far(settings, values, name, out / f"near_far_{name}.png")
            drawn += draw_risks(settings, results, name, out / f"risk_{name}.png")
        shown = [file for path in drawn for file in figure_files(path)]
        mistakes = settings.mistakes
        if mistakes is not None:
            wanted = (mistakes.embedding, mistakes.score, settings.splits[0])
            first_split = next(split for split in self.splits if split.embedding == mistakes.embedding)
            for result in results:
                if (result.embedding, result.score, result.split) == wanted:
                    page = out / "mistakes.html"
                    write_mistakes_page(settings, result, first_split, page)
                    shown.append(page)
        provenance = Provenance("compare-rejection", to_dict(settings))
        for name, table in (("values", values.values), ("differences", values.differences)):
            rows = pa.Table.from_pandas(table, preserve_index=False)
            write_results(out / f"{name}.parquet", rows, f"rejection_{name}/1", provenance)
        with atomic_write(out / "values.csv") as draft:
            values.values.to_csv(draft, index=False)
        report = {
            "hgld": __version__,
            "settings": to_dict(settings),
            "right": values.right,
            "counts": _records(values.counts),
            "values": _records(values.values),
            "differences": _records(values.differences),
            "failed": [vars(result) for result in failed],
        }
        write_text(out / "results.json", json.dumps(to_json_values(report), indent=1, ensure_ascii=False))
        write_text(out / "results.md", rejection_markdown(settings, values, failed, shown) + "\n")
        names = ("values.parquet", "values.csv", "differences.parquet", "results.json", "results.md")
        return values, [*(out / name for name in names), *shown]


def compare_rejection(
    study: RejectionComparison, *, force: bool = False, progress: Progress | None = None
) -> tuple[RejectionValues, list[Path]]:
    """Compute missing scores, or all with ``force``, compare them, and write tables, figures and a page.

    Progress counts results. Returns the values, and the files written.

    Raises:
        InputError: Images or embeddings cannot be read, or no score could be computed.
        ConfigurationError: The settings do not fit the images, or a head was trained on them.
        BusyError: Another comparison is writing to the folder.
    """
    progress = progress or NoProgress()
    progress.start(study.n_results)
    study.out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(study.out):
        for split in study.splits:
            split.compute(progress, force=force)
        return study.write()


def _records(table: pd.DataFrame) -> list[dict[str, object]]:
    return list(table.astype(object).where(table.notna(), None).to_dict(orient="records"))
