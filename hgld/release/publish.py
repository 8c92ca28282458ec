"""The release folder: the hierarchy as Parquet and CSV, the decisions behind it, and its documentation.

The same hierarchy and the same settings give the same bytes with the same version of pyarrow: nothing in the folder
depends on when, where or by whom it was written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError
from hgld.hierarchy.build_inputs import InputTables, find_annotations, find_input_tables
from hgld.hierarchy.official import OFFICIAL_FILES, write_official
from hgld.io.files import folder_draft, replace_folder, sha256_of
from hgld.io.locks import exclusive_lock
from hgld.release.checksums import files_in, require_replaceable, same_checksums, write_checksums
from hgld.release.croissant import croissant_metadata, validate_croissant
from hgld.release.documents import ReleaseFacts, citation, write_documents
from hgld.release.origins import MACHINE, annotations_creators, describe_origins
from hgld.release.settings import ReleaseSettings
from hgld.release.suprank_files import suprank_file_name, write_suprank_files
from hgld.resources import annotation_file
from hgld.tables import SPLITS
from hgld.taxonomy.decisions import read_named_decisions
from hgld.taxonomy.groups import find_taxonomy, read_taxonomy

_CROISSANT = "croissant.json"


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
        require_replaceable(out, discard_edits=force)
        splits = _write_data(draft, rows, provenance)
        shutil.copyfile(decisions, draft / "decisions.csv")
        shutil.copyfile(taxonomy, draft / "taxonomy.csv")
        for name, (path, _) in raw.items():
            (draft / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, draft / name)
        files = _file_descriptions(splits) | {name: text for name, (_, text) in raw.items()}
        _write_documentation(draft, ReleaseFacts(settings, rows, decided, provenance, sources, files))
        validated = validate_croissant(draft / _CROISSANT)
        write_checksums(draft)
        if not force and same_checksums(draft, out):
            return None
        replace_folder(draft, out)
    return ReleaseSummary(
        landmarks={split: int(pc.sum(pc.equal(rows["split"], split)).as_py()) for split in splits},
        groups=len(pc.unique(rows["hierarchical_label"])),
        files=len(files_in(out)),
        validated=validated,
    )


def _require_built_with(hierarchy: Path, provenance: tables.Provenance, **inputs: Path) -> None:
    for name, path in inputs.items():
        if sha256_of(path) not in provenance.inputs.values():
            raise InputError(
                f"{hierarchy}: not built with the present content of {path}; set `{name}` to the file that it was "
                "built with, or build again"
            )


def _write_data(draft: Path, rows: pa.Table, provenance: tables.Provenance) -> list[str]:
    """Write the Parquet and CSV files; returns the splits that have rows."""
    splits = []
    for split in SPLITS:
        part = rows.filter(pc.equal(rows["split"], split)).sort_by("landmark_id")
        if len(part):
            tables.write_table(draft / "data" / f"{split}.parquet", tables.HIERARCHY, part, provenance)
            splits.append(split)
    write_official(draft, rows)
    write_suprank_files(draft / "suprank", rows)
    return splits


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
    files = {f"data/{split}.parquet": f"the {split} landmarks, sorted by landmark_id" for split in splits}
    files |= {
        OFFICIAL_FILES[split]: f"the {split} landmarks as CSV, without those whose group comes from photographs"
        for split in splits
    }
    files |= {
        f"suprank/{suprank_file_name(split)}": (
            f"the {split} landmarks as the training code of the paper (elias-ramzi/SupRank) reads them"
        )
        for split in splits
    }
    return files | {
        "decisions.csv": "the decision on each label, its annotator and its time",
        "taxonomy.csv": "the groups, their roots and what belongs to each",
        _CROISSANT: "machine-readable description of this dataset (Croissant 1.1)",
        "datasheet.md": "answers to the questions of Datasheets for Datasets",
        "LICENSE": "licence",
    }


def _write_documentation(draft: Path, facts: ReleaseFacts) -> None:
    """Write the Croissant file, which lists the data files, and the documents for people."""
    metadata = croissant_metadata(
        facts.settings,
        date=facts.date,
        citation=citation(facts.settings),
        annotations=describe_origins(facts.origins),
        machine_annotated=MACHINE in annotations_creators(facts.origins),
        files={name: (sha256_of(draft / name), (draft / name).stat().st_size) for name in files_in(draft)},
        columns=facts.hierarchy.schema,
        splits=facts.splits,
    )
    text = json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"
    (draft / _CROISSANT).write_text(text, encoding="utf-8", newline="\n")
    write_documents(draft, facts)
