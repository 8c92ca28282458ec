"""The release folder: the hierarchy as Parquet and CSV, the decisions behind it, and its documentation; its upload.

The same hierarchy and the same settings give the same bytes with the same version of pyarrow: nothing in the folder
depends on when, where or by whom it was written.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from hgld import tables
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy.build_inputs import InputTables, find_annotations, find_input_tables
from hgld.hierarchy.files import write_official
from hgld.io.files import sha256_of
from hgld.io.folder_replacement import folder_draft, replace_folder
from hgld.io.hub import hub_snapshot, repository_tags, require_replaceable_repository, upload_folder
from hgld.io.locks import exclusive_lock
from hgld.io.markdown import in_words
from hgld.release.documents import files_in, write_croissant, write_documents
from hgld.release.facts import CROISSANT, SUPRANK_FILE, ReleaseFacts, ReleaseSettings
from hgld.taxonomy.decisions import corrected_decisions, read_corrections, read_named_decisions
from hgld.taxonomy.groups import read_taxonomy, taxonomy_beside

log = logging.getLogger(__name__)

CHECKSUMS = "checksums.sha256"
#: Columns of the table ``hierarchy``, and their names in the files for the SupRank code.
_SUPRANK_COLUMNS = {
    "landmark_id": "landmark_id",
    "hierarchical_label": "cluster",
    "natural_or_human_made": "overall_cluster",
}


@dataclass(frozen=True)
class ReleaseSummary:
    """Counts of a release, and what its landmarks are called.

    ``validated`` says whether mlcroissant is installed and accepted the Croissant file.
    """

    landmarks: Mapping[str, int]
    groups: int
    files: int
    validated: bool
    entities: str = "landmarks"


def write_release(
    hierarchy: Path,
    out: Path,
    settings: ReleaseSettings,
    *,
    decisions: Path | None = None,
    taxonomy: Path | None = None,
    corrections: Path | None = None,
    models: Path | None = None,
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
        corrections: Corrections that the hierarchy was built with. Default: found in the same way.
        models: results.parquet from hgld compare-models, for a table of models in the dataset card. Default: none.
        force: Write the release again if it is up to date, and discard edits of its files.

    Returns:
        Counts of the release, or None if ``out`` already is this release.

    Raises:
        InputError: The hierarchy was built with other decisions or another taxonomy, the raw values that are to be
            published are not beside it, or ``out`` contains files that hgld did not write.
    """
    rows = tables.read_table(hierarchy, tables.HIERARCHY).replace_schema_metadata()
    provenance = tables.read_provenance(hierarchy)
    annotations = _annotations(hierarchy, provenance, decisions, taxonomy, corrections)
    decided = []
    if annotations:
        groups = read_taxonomy(annotations["taxonomy"])
        corrected = (
            read_corrections(annotations["corrections"], groups)
            if "corrections" in annotations
            else {}
        )
        decided = corrected_decisions(
            read_named_decisions(annotations["decisions"], groups), corrected
        )
    sources = find_input_tables(hierarchy)
    raw = _raw_files(hierarchy, sources) if settings.raw else {}
    facts = ReleaseFacts(settings, rows, decided, provenance, sources)
    copies = {f"{role}.csv": path for role, path in annotations.items()} | raw
    if settings.unconfirmed:
        log.warning(
            "%s: the documents say that nobody has confirmed %s",
            out,
            in_words(settings.unconfirmed),
        )
    out = out.absolute()
    with exclusive_lock(out), folder_draft(out) as draft:
        _require_replaceable(out, discard_edits=force)
        _write_data(draft, facts)
        for name, path in copies.items():
            (draft / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, draft / name)
        validated = write_croissant(draft, facts)
        write_documents(draft, facts, models)
        checksums = "".join(f"{sha256_of(draft / name)}  {name}\n" for name in files_in(draft))
        (draft / CHECKSUMS).write_text(checksums, encoding="utf-8")
        if (
            not force
            and (out / CHECKSUMS).is_file()
            and (out / CHECKSUMS).read_text(encoding="utf-8") == checksums
        ):
            return None
        replace_folder(draft, out)
    return ReleaseSummary(
        landmarks={
            split: int(pc.sum(pc.equal(rows["split"], split)).as_py()) for split in facts.splits
        },
        groups=len(facts.tree.nodes[0]),
        files=len(files_in(out)),
        validated=validated,
        entities=facts.words["entities"],
    )


def _require_replaceable(folder: Path, *, discard_edits: bool) -> None:
    """Raise an :class:`InputError` if replacing a folder would lose files or, unless discarded, edits of others."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise InputError(f"{folder}: a file of this name exists; expected a folder, or nothing")
    if not (folder / CHECKSUMS).is_file():
        raise InputError(
            f"{folder}: not written by hgld release (no {CHECKSUMS}); choose another folder"
        )
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


def _annotations(
    hierarchy: Path,
    built: tables.Provenance,
    decisions: Path | None,
    taxonomy: Path | None,
    corrections: Path | None,
) -> dict[str, Path]:
    """Return the files of annotations that the hierarchy was built with, by role; raise if others are given."""
    beside = {}
    if decisions is not None and taxonomy_beside(decisions).is_file():
        beside["taxonomy"] = taxonomy_beside(decisions)
    given = {"decisions": decisions, "taxonomy": taxonomy, "corrections": corrections}
    found = {
        **beside,
        **find_annotations(hierarchy),
        **{role: path for role, path in given.items() if path},
    }
    for role in (role for role, path in given.items() if path or role in built.inputs):
        path = found.get(role)
        if path is None:
            raise InputError(
                f"{hierarchy}: the {role} that it was built with is not beside it; name it by `{role}`"
            )
        if sha256_of(path) not in built.inputs.values():
            raise InputError(
                f"{hierarchy}: not built with the present content of {path}; set `{role}` to the file that it was "
                "built with, or build again"
            )
    return {role: found[role] for role in given if role in found and role in built.inputs}


def _write_data(draft: Path, facts: ReleaseFacts) -> None:
    """Write the Parquet files and, of landmarks, the CSV files.

    The files in ``suprank`` are for ``suprank/datasets/gldv2.py`` of https://github.com/elias-ramzi/SupRank (commit
    99041e8). It reads them beside GLDv2's own, with the columns ``landmark_id``, ``cluster`` (the group) and
    ``overall_cluster`` (the root), and skips images of landmarks without a row. Landmarks whose group comes from
    photographs are left out.
    """
    for split, name in facts.splits.items():
        rows = facts.hierarchy.filter(pc.equal(facts.hierarchy["split"], split)).sort_by(
            "landmark_id"
        )
        path = draft / "data" / f"{name}.parquet"
        tables.write_table(path, tables.HIERARCHY, rows, facts.provenance, neutral=facts.is_neutral)
        if not facts.is_neutral and len(labelled := tables.without_completed(rows)):
            frame = (
                labelled.select([*_SUPRANK_COLUMNS]).to_pandas().rename(columns=_SUPRANK_COLUMNS)
            )
            (draft / SUPRANK_FILE).parent.mkdir(exist_ok=True)
            frame.to_csv(draft / SUPRANK_FILE.format(split), index=False, lineterminator="\n")
    if not facts.is_neutral:
        write_official(draft, facts.hierarchy)


def _raw_files(hierarchy: Path, sources: InputTables) -> dict[str, Path]:
    """Return the tables of scraped and of removed rows, by their paths in a release."""
    if not sources.scraped or sources.removed is None:
        raise InputError(
            f"scraped values are to be published, but {hierarchy.parent} lacks scraped or removed tables that "
            f"{hierarchy} was made from"
        )
    return {f"raw/{path.name}": path for path in (*sources.scraped, sources.removed)}


def verify_checksums(folder: Path) -> tuple[list[str], list[str]]:
    """Return the files of a release without a checksum, and those with one that are changed or missing."""
    path = folder / CHECKSUMS
    if not path.is_file():
        raise InputError(f"{folder}: no {CHECKSUMS}, so not a release")
    listed = read_checksums(path)
    present = files_in(folder)
    unlisted = [name for name in present if name not in listed and name != CHECKSUMS]
    changed = [
        name
        for name, digest in listed.items()
        if name not in present or sha256_of(folder / name) != digest
    ]
    return unlisted, changed


def read_checksums(path: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a release, by its path."""
    listed = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        digest, separator, name = line.partition("  ")
        if not separator:
            raise InputError(f'{path}: line {number}: expected "<SHA-256>  <file>", found "{line}"')
        listed[name] = digest
    return listed


@dataclass(frozen=True)
class PushDatasetSummary:
    """Result of publishing a release: its tag, such as ``v1.0.0``, its files, and the URL of the commit."""

    name: str
    tag: str
    files: int
    n_bytes: int
    url: str


def push_dataset(
    folder: Path, repository: str, *, private: bool = False, force: bool = False
) -> PushDatasetSummary | None:
    """Upload a release to the Hugging Face hub in one commit, and tag it with its version.

    A version that is tagged never changes. Files of an earlier release that this one lacks are removed.

    ``hgld push-dataset`` describes the parameters.

    Returns:
        Counts of the release, or None if it is published already.

    Raises:
        ConfigurationError: The repository holds something else, or other files of this version; or a public one was
            to be private.
        InputError: The folder is no release, or was changed since.
    """
    if different := [name for names in verify_checksums(folder) for name in names]:
        raise InputError(
            f"{folder}: files are not those of hgld release; run it again, with `force` to discard edits:\n"
            f"{indented_list(different)}"
        )
    metadata = json.loads((folder / CROISSANT).read_text(encoding="utf-8"))
    tag = f"v{metadata['version']}"
    existing = require_replaceable_repository(
        repository,
        "a release of hgld",
        lambda names: {CHECKSUMS, CROISSANT} <= {*names},
        kind="dataset",
        private=private,
        force=force,
    )
    if existing and tag in repository_tags(repository, "dataset"):
        published = hub_snapshot(repository, [CHECKSUMS], tag, kind="dataset") / CHECKSUMS
        if published.is_file() and published.read_bytes() == (folder / CHECKSUMS).read_bytes():
            return None
        raise ConfigurationError(
            f"{repository}: {tag} is published with other files; raise the version in release.yaml and release again"
        )
    earlier = []
    if CHECKSUMS in existing:
        earlier = [
            *read_checksums(hub_snapshot(repository, [CHECKSUMS], kind="dataset") / CHECKSUMS)
        ]
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    name = f"{metadata['name']} {metadata['version']}"
    url = upload_folder(
        folder, repository, kind="dataset", private=private, message=name, replaces=earlier, tag=tag
    )
    return PushDatasetSummary(name, tag, len(sizes), sum(sizes), url)
