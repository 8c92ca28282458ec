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
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from hgld.benchmark.rejection.comparison_settings import RejectionSettings
from hgld.benchmark.rejection.image_sets import ComparedImages
from hgld.benchmark.rejection.mistakes import write_mistakes_page
from hgld.benchmark.rejection.near_far_figure import draw_near_far
from hgld.benchmark.rejection.rejection_markdown import rejection_markdown
from hgld.benchmark.rejection.rejection_values import RejectionValues, compare_parts
from hgld.benchmark.rejection.risk_coverage_figure import draw_risks
from hgld.benchmark.rejection.score_parts import FailedPart, ScorePart, n_finished, score_parts
from hgld.errors import InputError, indented_list
from hgld.evaluation.reports import to_json_values
from hgld.figures.style import figure_files
from hgld.io.files import atomic_write
from hgld.io.settings import to_dict
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance, with_provenance
from hgld.version import __version__


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
    """
    n_before = 0 if force else n_finished(settings, out)
    outcomes = list(score_parts(settings, out, force=force, progress=progress or NoProgress()))
    parts = [part for part in outcomes if isinstance(part, ScorePart)]
    failed = tuple(part for part in outcomes if isinstance(part, FailedPart))
    if not parts:
        reasons = [f"{part.embedding}, split {part.split}, {part.score}: {part.reason}" for part in failed]
        raise InputError(f"none of the scores could be computed:\n{indented_list(reasons)}")
    values = compare_parts(settings, parts)
    shown = _write_pictures(settings, values, parts, out)
    files = _write_tables(settings, values, failed, out, shown)
    return RejectionSummary(settings, values, failed, len(outcomes), len(parts) - n_before, (*files, *shown))


def _write_tables(
    settings: RejectionSettings,
    values: RejectionValues,
    failed: tuple[FailedPart, ...],
    out: Path,
    shown: tuple[Path, ...],
) -> tuple[Path, ...]:
    provenance = Provenance("reject compare", to_dict(settings))
    tables = {"values": values.values, "differences": values.differences}
    for name, table in tables.items():
        _write_parquet(out / f"{name}.parquet", table, f"rejection_{name}/1", provenance)
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
    with atomic_write(out / "results.md") as draft:
        draft.write_text(f"{rejection_markdown(settings, values, failed, shown)}\n", encoding="utf-8")
    names = ("values.parquet", "values.csv", "differences.parquet", "results.json", "results.md")
    return tuple(out / name for name in names)


def _write_pictures(
    settings: RejectionSettings, values: RejectionValues, parts: list[ScorePart], out: Path
) -> tuple[Path, ...]:
    files: list[Path] = []
    for name in settings.embeddings:
        pictures = [out / f"near_far_{name}.png", out / f"risk_{name}.png"]
        draw_near_far(settings, values, name, pictures[0])
        draw_risks(settings, parts, name, pictures[1])
        drawn = [path for path in pictures if path.is_file()]  # none where every score failed
        files += [file for path in drawn for file in figure_files(path)]
    if settings.mistakes is not None:
        page = out / "mistakes.html"
        split = settings.splits[0]
        mistakes = (settings.mistakes.embedding, settings.mistakes.score, split)
        part = next((part for part in parts if (part.embedding, part.score, part.split) == mistakes), None)
        if part is not None:
            write_mistakes_page(settings, part, ComparedImages(settings).sets(split), page)
            files.append(page)
    return tuple(files)


def _write_parquet(path: Path, table: pd.DataFrame, schema_id: str, provenance: Provenance) -> None:
    columns = pa.Table.from_pandas(table, preserve_index=False)
    schema = with_provenance(columns.schema, schema_id, provenance)
    with atomic_write(path) as draft:
        pq.write_table(columns.replace_schema_metadata(schema.metadata), draft, compression="zstd")


def _records(table: pd.DataFrame) -> list[dict[str, object]]:
    return list(table.astype(object).where(table.notna(), None).to_dict(orient="records"))
