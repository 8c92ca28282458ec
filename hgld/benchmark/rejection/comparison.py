"""Compare rejection scores on open-set splits of images, on one or several kinds of embeddings.

::

    OUT/scores/                 scores of the queries, see hgld.benchmark.rejection.score_parts
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import pandas as pd

from hgld.benchmark.engine import InProcess, Report, run_study, write_text
from hgld.benchmark.rejection.image_sets import ComparedImages, embedding_files, head_checkpoint
from hgld.benchmark.rejection.reports import draw_near_far, draw_risks, rejection_markdown, write_mistakes_page
from hgld.benchmark.rejection.score_parts import FailedPart, SplitScores, write_parquet
from hgld.benchmark.rejection.settings import RejectionSettings
from hgld.benchmark.rejection.values import RejectionValues, compare_parts
from hgld.errors import InputError, indented_list
from hgld.evaluation.results import to_json_values
from hgld.figures.style import figure_files
from hgld.io.files import atomic_write
from hgld.io.settings import to_dict
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance
from hgld.version import __version__


@dataclass(frozen=True)
class RejectionPlan:
    """What a comparison would compute.

    Args:
        title: Title of the comparison.
        sizes: Number of images of each set, by seed of the split.
        n_embeddings: Number of kinds of embeddings.
        scores: Names of the scores.
        n_parts: Number of scores, embeddings and splits counted apart.
        n_finished: Number of those that are done.
        n_pairs: Number of pairs of queries and images of the index over all parts to do; each neighbour score
            compares them once.
        missing: Files of embeddings and heads that do not exist.
    """

    title: str
    sizes: dict[int, dict[str, int]]
    n_embeddings: int
    scores: tuple[str, ...]
    n_parts: int
    n_finished: int
    n_pairs: int
    missing: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RejectionSummary:
    """Outcome of a comparison.

    Args:
        settings: Its settings.
        values: Its values.
        failed: Scores that could not be computed.
        n_parts: Number of scores, embeddings and splits counted apart.
        n_new: Number of those that this run computed.
        files: Files written.
    """

    settings: RejectionSettings
    values: RejectionValues
    failed: tuple[FailedPart, ...]
    n_parts: int
    n_new: int
    files: tuple[Path, ...]


@dataclass(frozen=True)
class RejectionComparison:
    """Scores of a comparison on all embeddings and splits; a :class:`~hgld.benchmark.engine.Study`."""

    settings: RejectionSettings
    out: Path

    @cached_property
    def images(self) -> ComparedImages:
        """Images of the comparison."""
        return ComparedImages(self.settings)

    @cached_property
    def splits(self) -> list[SplitScores]:
        """Scores of each split on each kind of embeddings."""
        settings = self.settings
        pairs = [(embedding, split) for embedding in settings.embeddings for split in settings.splits]
        return [SplitScores(settings, self.images, self.out, *pair) for pair in pairs]

    @property
    def failed(self) -> list[FailedPart]:
        """Scores that could not be computed."""
        return [part for split in self.splits for part in split.failed.values()]

    @property
    def n_parts(self) -> int:
        """Number of scores, embeddings and splits counted apart."""
        return len(self.splits) * len(self.settings.score_settings())

    def n_finished(self) -> int:
        """Return how many scores a run would not compute again."""
        return sum(len(split.finished()) for split in self.splits)

    def tasks(self, n_processes: int, *, force: bool) -> list[Callable[[Progress], None]]:
        """Return the computation of each split; finished scores are kept."""
        return [partial(split.compute, force=force) for split in self.splits]

    def reports(self) -> Iterator[Report[RejectionValues]]:
        """Yield the only report, which is always written."""
        yield Report(self._write)

    def _write(self) -> tuple[RejectionValues, list[Path]]:
        settings, out, failed = self.settings, self.out, self.failed
        parts = [part for split in self.splits for part in split.parts()]
        if not parts:
            raise InputError(f"none of the scores could be computed:\n{indented_list(list(map(str, failed)))}")
        values = compare_parts(settings, parts)
        shown: list[Path] = []
        for name in settings.embeddings:
            pictures = [out / f"near_far_{name}.png", out / f"risk_{name}.png"]
            draw_near_far(settings, values, name, pictures[0])
            draw_risks(settings, parts, name, pictures[1])
            drawn = [path for path in pictures if path.is_file()]  # none where every score failed
            shown += [file for path in drawn for file in figure_files(path)]
        if settings.mistakes is not None:
            key = (settings.mistakes.embedding, settings.mistakes.score, settings.splits[0])
            part = next((part for part in parts if (part.embedding, part.score, part.split) == key), None)
            if part is not None:
                shown.append(out / "mistakes.html")
                write_mistakes_page(settings, part, self.images.sets(part.split), shown[-1])
        provenance = Provenance("reject compare", to_dict(settings))
        for name, table in (("values", values.values), ("differences", values.differences)):
            write_parquet(out / f"{name}.parquet", table, f"rejection_{name}/1", provenance)
        with atomic_write(out / "values.csv") as draft:
            values.values.to_csv(draft, index=False)
        report = {
            "hgld": __version__,
            "settings": to_dict(settings),
            "right": values.right,
            "counts": _records(values.counts),
            "values": _records(values.values),
            "differences": _records(values.differences),
            "failed": [vars(part) for part in failed],
        }
        with atomic_write(out / "results.json") as draft:
            draft.write_text(json.dumps(to_json_values(report), indent=1, ensure_ascii=False), encoding="utf-8")
        write_text(out / "results.md", rejection_markdown(settings, values, failed, shown))
        names = ("values.parquet", "values.csv", "differences.parquet", "results.json", "results.md")
        return values, [*(out / name for name in names), *shown]


def compare_rejection(
    settings: RejectionSettings, out: Path, *, force: bool = False, progress: Progress | None = None
) -> RejectionSummary:
    """Compute missing scores, compare them, and write tables, a figure and a page.

    Args:
        settings: Settings of the comparison.
        out: Output folder.
        force: Whether to compute again what is there.
        progress: Progress in scores, embeddings and splits counted apart.

    Raises:
        InputError: Images or embeddings cannot be read, or no score could be computed.
        ConfigurationError: The settings do not fit the images, or a head was trained on them.
        BusyError: Another comparison is writing to the folder.
    """
    study, progress = RejectionComparison(settings, out), progress or NoProgress()
    n_before = 0 if force else study.n_finished()
    progress.start(study.n_parts)
    outcome = run_study(study, InProcess(), force=force, progress=progress)
    n_new = study.n_parts - len(study.failed) - n_before
    return RejectionSummary(
        settings, outcome.results[0], tuple(study.failed), study.n_parts, n_new, tuple(outcome.files)
    )


def plan_comparison(settings: RejectionSettings, out: Path) -> RejectionPlan:
    """Return what a comparison would compute; the manifests of the images have to exist.

    Raises:
        InputError: A manifest cannot be read.
        ConfigurationError: The settings do not fit the images.
    """
    study, scores = RejectionComparison(settings, out), tuple(settings.score_settings())
    sizes = {
        split: {name: len(images) for name, images in study.images.sets(split).items()} for split in settings.splits
    }
    missing = _missing(settings)
    pairs = [size["index"] * (sum(size.values()) - size["index"]) for size in sizes.values()]
    return RejectionPlan(
        title=settings.title,
        sizes=sizes,
        n_embeddings=len(settings.embeddings),
        scores=scores,
        n_parts=study.n_parts,
        n_finished=0 if missing else study.n_finished(),
        n_pairs=sum(pairs) * len(settings.embeddings) * len(scores),
        missing=missing,
    )


def _missing(settings: RejectionSettings) -> tuple[str, ...]:
    missing: dict[str, None] = {}
    for embedding in settings.embeddings.values():
        for split in settings.splits:
            files = embedding_files(embedding, split).values()
            missing |= dict.fromkeys(str(path) for path in files if not path.is_file())
            try:
                head_checkpoint(embedding, split)
            except InputError:
                missing[str(embedding.head).replace("{split}", str(split))] = None
    return tuple(missing)


def _records(table: pd.DataFrame) -> list[dict[str, object]]:
    return list(table.astype(object).where(table.notna(), None).to_dict(orient="records"))
