"""The release folder: the hierarchy as Parquet and CSV, the decisions behind it, and its documentation.

The same hierarchy and the same settings give the same bytes with the same version of pyarrow: nothing in the folder
depends on when, where or by whom it was written.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError, indented_list
from hgld.hierarchy.build_inputs import InputTables, find_annotations, find_input_tables
from hgld.hierarchy.official import without_completed, write_official
from hgld.io.files import sha256_of
from hgld.io.folders import folder_draft, replace_folder
from hgld.io.locks import exclusive_lock
from hgld.release.documents import CROISSANT, ReleaseFacts, files_in, write_croissant, write_documents
from hgld.release.settings import ReleaseSettings
from hgld.resources import annotation_file
from hgld.tables import SPLITS
from hgld.taxonomy.decisions import read_named_decisions
from hgld.taxonomy.groups import find_taxonomy, read_taxonomy

CHECKSUMS = "checksums.sha256"
#: Columns of the table ``hierarchy``, and their names in the files for the SupRank code.
_SUPRANK_COLUMNS = {
    "landmark_id": "landmark_id",
    "hierarchical_label": "cluster",
    "natural_or_human_made": "overall_cluster",
}


@dataclass(frozen=True)
class ReleaseSummary:
    """Counts of a release.

    Args:
        landmarks: Number of landmarks, by split.
        groups: Number of groups.
        files: Number of files in the folder.
        validated: Whether mlcroissant is installed and accepted the Croissant file.
    """

    landmarks: Mapping[str, int]
    groups: int
    files: int
    validated: bool


def write_release(
    hierarchy: Path,
    out: Path,
    settings: ReleaseSettings,
    *,
    decisions: Path | None = None,
    taxonomy: Path | None = None,
    force: bool = False,
) -> ReleaseSummary | None:
    """Write a release folder.

    The folder is written completely or not at all, also if the process is killed. An existing one is replaced if hgld
    wrote everything in it.

    Args:
        hierarchy: The table from ``hgld build``.
        out: Folder to write.
        settings: What the publisher says of the dataset.
        decisions: Decisions that the hierarchy was built with. Default: those that are found by their SHA-256
            (:func:`~hgld.hierarchy.build_inputs.find_annotations`).
        taxonomy: Taxonomy that the hierarchy was built with. Default: found in the same way.
        force: Whether to write although nothing changed, and to discard edits of an existing release.

    Returns:
        Counts of the release, or None if ``out`` already is this release.

    Raises:
        BusyError: Another run is writing ``out``.
        InputError: The hierarchy cannot be read, was built with other decisions or another taxonomy, or ``out``
            contains files that hgld did not write; or the raw values, which are to be published, are not beside the
            hierarchy.
    """
    built_with = find_annotations(hierarchy)
    decisions = decisions or built_with.get("decisions") or annotation_file("decisions/final.csv")
    taxonomy = taxonomy or built_with.get("taxonomy") or find_taxonomy(None, decisions)
    rows = tables.read_table(hierarchy, tables.HIERARCHY)
    provenance = tables.read_provenance(hierarchy)
    decided = read_named_decisions(decisions, read_taxonomy(taxonomy))
    _require_built_with(hierarchy, provenance, decisions=decisions, taxonomy=taxonomy)
    sources = find_input_tables(hierarchy)
    raw = _raw_files(hierarchy, sources) if settings.raw else {}
    out = out.absolute()
    with exclusive_lock(out), folder_draft(out) as draft:
        _require_replaceable(out, discard_edits=force)
        splits = _write_data(draft, rows, provenance)
        shutil.copyfile(decisions, draft / "decisions.csv")
        shutil.copyfile(taxonomy, draft / "taxonomy.csv")
        for name, (path, _) in raw.items():
            (draft / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, draft / name)
        files = _file_descriptions(splits) | {name: text for name, (_, text) in raw.items()}
        facts = ReleaseFacts(settings, rows, decided, provenance, sources, files)
        validated = write_croissant(draft, facts)
        write_documents(draft, facts)
        checksums = "".join(f"{sha256_of(draft / name)}  {name}\n" for name in files_in(draft))
        (draft / CHECKSUMS).write_text(checksums, encoding="utf-8")
        if not force and (out / CHECKSUMS).is_file() and (out / CHECKSUMS).read_text(encoding="utf-8") == checksums:
            return None
        replace_folder(draft, out)
    return ReleaseSummary(
        landmarks={split: int(pc.sum(pc.equal(rows["split"], split)).as_py()) for split in splits},
        groups=len(pc.unique(rows["hierarchical_label"])),
        files=len(files_in(out)),
        validated=validated,
    )


def _require_replaceable(folder: Path, *, discard_edits: bool) -> None:
    """Raise an :class:`InputError` if replacing a folder would lose files or, unless discarded, edits of others."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise InputError(f"{folder}: a file of this name exists; expected a folder, or nothing")
    if not (folder / CHECKSUMS).is_file():
        raise InputError(f"{folder}: not written by hgld release (no {CHECKSUMS}); choose another folder")
    unlisted, changed = verify_checksums(folder)
    if unlisted:
        raise InputError(
            f"{folder}: contains files not written by hgld release; move them away:\n{indented_list(unlisted)}"
        )
    if changed and not discard_edits:
        raise InputError(
            f"{folder}: files changed since hgld release wrote them; keep copies elsewhere, then run again with "
            f"`force`:\n{indented_list(changed)}"
        )


def _require_built_with(hierarchy: Path, provenance: tables.Provenance, **inputs: Path) -> None:
    for name, path in inputs.items():
        if sha256_of(path) not in provenance.inputs.values():
            raise InputError(
                f"{hierarchy}: not built with the present content of {path}; set `{name}` to the file that it was "
                "built with, or build again"
            )


def _write_data(draft: Path, rows: pa.Table, provenance: tables.Provenance) -> list[str]:
    """Write the Parquet and CSV files; returns the splits that have rows.

    The files in ``suprank`` are for ``suprank/datasets/gldv2.py`` of https://github.com/elias-ramzi/SupRank (commit
    99041e8). It reads them beside GLDv2's own, with the columns ``landmark_id``, ``cluster`` (the group) and
    ``overall_cluster`` (the root), and skips images of landmarks without a row. Landmarks whose group comes from
    photographs are left out.
    """
    splits = []
    (draft / "suprank").mkdir()
    for split in SPLITS:
        part = rows.filter(pc.equal(rows["split"], split)).sort_by("landmark_id")
        if len(part):
            tables.write_table(draft / "data" / f"{split}.parquet", tables.HIERARCHY, part, provenance)
            splits.append(split)
        if len(labelled := without_completed(part)):
            frame = labelled.select([*_SUPRANK_COLUMNS]).to_pandas().rename(columns=_SUPRANK_COLUMNS)
            frame.to_csv(draft / _suprank_file(split), index=False, lineterminator="\n")
    write_official(draft, rows)
    return splits


def _suprank_file(split: str) -> str:
    return f"suprank/{split}_label_to_subcategory_with_clusters.csv"


def _raw_files(hierarchy: Path, sources: InputTables) -> dict[str, tuple[Path, str]]:
    """Return the tables of scraped and of removed landmarks, with descriptions, by their paths in a release."""
    if not sources.scraped or sources.removed is None:
        raise InputError(
            f"the setting raw is true, but {hierarchy.parent} lacks scraped or removed tables that {hierarchy} was "
            "made from"
        )
    described = dict.fromkeys(sources.scraped, 'scraped values of "instance of" (P31), with items and revisions')
    described[sources.removed] = "landmarks that were removed, each with its values and the reason"
    return {f"raw/{path.name}": (path, text) for path, text in described.items()}


def _file_descriptions(splits: Sequence[str]) -> dict[str, str]:
    """Return the description of each file, by path."""
    texts = {
        "data/{}.parquet": "the {} landmarks, sorted by landmark_id",
        "{}_label_to_hierarchical.csv": "the {} landmarks as CSV, without those whose group comes from photographs",
        _suprank_file("{}"): "the {} landmarks as the training code of the paper (elias-ramzi/SupRank) reads them",
    }
    return {name.format(split): text.format(split) for name, text in texts.items() for split in splits} | {
        "decisions.csv": "the decision on each label, its annotator and its time",
        "taxonomy.csv": "the groups, their roots and what belongs to each",
        CROISSANT: "machine-readable description of this dataset (Croissant 1.1)",
        "datasheet.md": "answers to the questions of Datasheets for Datasets",
        "LICENSE": "licence",
    }


def verify_checksums(folder: Path) -> tuple[list[str], list[str]]:
    """Compare the files of a release with its checksums.

    Returns:
        The files without a checksum, and the files with one that are changed or missing.

    Raises:
        InputError: The folder has no checksums, or they cannot be parsed.
    """
    path = folder / CHECKSUMS
    if not path.is_file():
        raise InputError(f"{folder}: no {CHECKSUMS}, so not a release")
    listed = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        digest, separator, name = line.partition("  ")
        if not separator:
            raise InputError(f'{path}: line {number}: expected "<SHA-256>  <file>", found "{line}"')
        listed[name] = digest
    present = files_in(folder)
    unlisted = [name for name in present if name not in listed and name != CHECKSUMS]
    changed = [name for name, digest in listed.items() if name not in present or sha256_of(folder / name) != digest]
    return unlisted, changed
