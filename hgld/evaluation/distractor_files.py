"""Count distractors in parts: a file of counts for each, which an evaluation then adds up."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hgld.compute.executors import Part, format_numbers
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.distractors import CountsByTask, DistractorCounts
from hgld.evaluation.evaluate import EvaluationConfig, count_distractors
from hgld.evaluation.evaluation_files import EvaluationInputs, choose_protocol, evaluation_provenance
from hgld.evaluation.settings import EvaluationFiles
from hgld.io.files import atomic_write
from hgld.tables import Provenance, is_up_to_date, with_provenance
from hgld.tables.embeddings import part_files


def count_distractors_file(
    files: EvaluationFiles, protocol: str | None, config: EvaluationConfig, part: Part, folder: Path
) -> tuple[Path, bool]:
    """Count a part of the distractors, and write the counts to a folder, unless they are up to date.

    A killed job leaves no file, so the same command resumes. The parts may run at the same time.

    Args:
        files: Input files, with distractors.
        protocol: Name of the protocol, see :func:`~hgld.evaluation.evaluation_files.evaluate_files`.
        config: Metrics, and how to rank.
        part: Part of the distractors.
        folder: Folder of the counts of all parts.

    Returns:
        The file of the part, and whether it was up to date.

    Raises:
        ConfigurationError: There are no distractors, files do not suit the protocol, or see
            :func:`~hgld.evaluation.evaluate.count_distractors`.
        InputError: A file is missing or malformed.
    """
    config = _as_counted(config)
    out, provenance = _counts_path(folder, part), _provenances(files, protocol, config)(part)
    if is_up_to_date(out, provenance):
        return out, True
    chosen, inputs = choose_protocol(files, protocol, config), EvaluationInputs.read(files)
    counted = count_distractors(chosen.build_tasks(inputs), config, part)
    tables = [
        pa.table(
            {
                "task": pa.array([name] * len(each.counts)).dictionary_encode(),
                "query": each.queries,
                "count": each.counts,
            }
        )
        for name, each in counted.items()
    ]
    table = pa.concat_tables(tables).unify_dictionaries()
    if not config.processes.rank:
        with atomic_write(out) as draft:
            metadata = with_provenance(table.schema, "distractor_counts/1", provenance).metadata
            pq.write_table(table.replace_schema_metadata(metadata), draft, compression="zstd")
    return out, False


def counts_are_written(
    files: EvaluationFiles, protocol: str | None, config: EvaluationConfig, folder: Path
) -> Callable[[Part], bool]:
    """Return a function that says whether the counts of a part are up to date.

    Arguments are those of :func:`count_distractors_file`.
    """
    provenance = _provenances(files, protocol, config)
    return lambda part: is_up_to_date(_counts_path(folder, part), provenance(part))


def read_distractor_counts(
    files: EvaluationFiles, protocol: str | None, config: EvaluationConfig, folder: Path
) -> CountsByTask:
    """Read the counts of all parts, and add them up.

    Arguments are those of :func:`count_distractors_file`.

    Raises:
        InputError: Parts are missing, or their counts are those of other files or settings.
    """
    paths = {Part.parse(path.stem.replace("-of-", "/")): path for path in folder.glob("*-of-*.parquet")}
    divisions = sorted({part.count for part in paths})
    if len(divisions) != 1:
        found = " and ".join(map(str, divisions)) or "no"
        raise InputError(f"{folder}: counts of {found} parts; expected those of all parts of one division")
    parts = [Part(number, divisions[0]) for number in range(1, divisions[0] + 1)]
    is_written = counts_are_written(files, protocol, config, folder)
    stale = [part.number for part in parts if not is_written(part)]
    if stale:
        raise InputError(
            f"{folder}: the counts of {len(stale):,} parts are missing, or are those of other files or settings; run "
            f"`part` N/{divisions[0]} for N = {format_numbers(stale)}"
        )
    tables = [pq.read_table(paths[part]) for part in parts]
    totals: CountsByTask = {}
    for name in pc.unique(tables[0]["task"]).to_pylist():
        own = [table.filter(pc.equal(table["task"], name)) for table in tables]
        counts = np.sum([table["count"].to_numpy() for table in own], axis=0)
        totals[name] = DistractorCounts(own[0]["query"].to_numpy(), counts)
    return totals


def _counts_path(folder: Path, part: Part) -> Path:
    return folder / f"{part.number}-of-{part.count}.parquet"


def _provenances(
    files: EvaluationFiles, protocol: str | None, config: EvaluationConfig
) -> Callable[[Part], Provenance]:
    """Return the provenance of each part; of the distractors it has the names, sizes and modification times."""
    if files.distractor_embeddings is None:
        raise ConfigurationError("`counts` are those of `distractor_embeddings`, which are not given")
    stats = [(file.name, file.stat()) for file in part_files(files.distractor_embeddings)]
    texts = (f"{name} {stat.st_size} {stat.st_mtime_ns}\n" for name, stat in stats)
    distractors = hashlib.sha256("".join(texts).encode()).hexdigest()
    rest, config = replace(files, distractor_embeddings=None), _as_counted(config)
    common = evaluation_provenance(rest, protocol, config, distractors=distractors)  # reads all files
    return lambda part: replace(common, parameters={**common.parameters, "part": str(part)})


def _as_counted(config: EvaluationConfig) -> EvaluationConfig:
    """Return the settings without those of metrics, on which counts do not depend."""
    return replace(config, metrics=None, relevance_alpha=1.0, level_weights=None)
