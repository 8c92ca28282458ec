"""Write a release folder, verify its checksums, and upload it to the Hugging Face hub.

The folder has the hierarchy as Parquet and CSV, the decisions behind it, and its documentation. The
same hierarchy and the same settings give the same bytes with the same version of pyarrow: the files
do not depend on when, where or by whom they were written.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
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
from hgld.io.markdown import join_names
from hgld.release.croissant import files_in, write_croissant
from hgld.release.documents import write_documents
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
    """Counts of a release.

    Args:
        landmarks: Number of landmarks by split.
        groups: Number of groups.
        files: Number of files.
        validated: Whether mlcroissant is installed and accepted the Croissant file.
        entities: Plural word for the landmarks.
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

    The folder is written completely or not at all, also if the process is killed. An existing
    folder is replaced if hgld wrote all files in it.

    Args:
        hierarchy: The table from ``hgld build``.
        out: Folder to write.
        settings: Answers of the publisher.
        decisions: Decisions that the hierarchy was built with. Default: the file with the recorded
            SHA-256 (:func:`~hgld.hierarchy.build_inputs.find_annotations`).
        taxonomy: Taxonomy that the hierarchy was built with. Default: found in the same way.
        corrections: Corrections that the hierarchy was built with. Default: found in the same way.
        models: results.parquet from hgld compare-models, for a table of models in the dataset card.
            Default: none.
        force: Write the release again if it is up to date, and discard edits of its files.

    Returns:
        Counts of the release, or None if ``out`` already is this release.

    Raises:
        InputError: The hierarchy was built with other decisions or another taxonomy, the raw values
            that are to be published are not beside it, or ``out`` contains files that hgld did not
            write.
    """
    rows = tables.read_table(hierarchy, tables.HIERARCHY).replace_schema_metadata()
    provenance = tables.read_provenance(hierarchy)
    given = {"decisions": decisions, "taxonomy": taxonomy, "corrections": corrections}
    annotations = _find_annotations(hierarchy, provenance, given)
    decided = []
    if annotations:
        groups = read_taxonomy(annotations["taxonomy"])
        replacements = {}
        if "corrections" in annotations:
            replacements = read_corrections(annotations["corrections"], groups)
        named_decisions = read_named_decisions(annotations["decisions"], groups)
        decided = corrected_decisions(named_decisions, replacements)
    sources = find_input_tables(hierarchy)
    raw = _raw_files(hierarchy, sources) if settings.raw else {}
    facts = ReleaseFacts(settings, rows, decided, provenance, sources)
    copies = {f"{role}.csv": path for role, path in annotations.items()} | raw
    if settings.unconfirmed:
        log.warning(
            "%s: the documents say that nobody has confirmed %s",
            out,
            join_names(settings.unconfirmed),
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
        present = out / CHECKSUMS
        is_same = present.is_file() and present.read_text(encoding="utf-8") == checksums
        if is_same and not force:
            return None
        replace_folder(draft, out)
    n_landmarks = Counter(rows["split"].to_pylist())
    return ReleaseSummary(
        landmarks={split: n_landmarks[split] for split in facts.splits},
        groups=len(facts.tree.nodes[0]),
        files=len(files_in(out)),
        validated=validated,
        entities=facts.words["entities"],
    )


def _require_replaceable(folder: Path, *, discard_edits: bool) -> None:
    """Raise an InputError if replacing a folder would lose files of others or edits.

    Args:
        folder: The release folder.
        discard_edits: Accept that edits of files that hgld wrote are lost.
    """
    is_empty = folder.is_dir() and not any(folder.iterdir())
    if is_empty or not folder.exists():
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


def _find_annotations(
    hierarchy: Path, built: tables.Provenance, given: Mapping[str, Path | None]
) -> dict[str, Path]:
    """Return the files of annotations that the hierarchy was built with, by role.

    Args:
        hierarchy: The table ``hierarchy``.
        built: Provenance of the hierarchy.
        given: For each role the file that the user named, or None.

    Raises:
        InputError: A file is missing, or the hierarchy was built with other content.
    """
    files: dict[str, Path] = {}
    decisions = given["decisions"]
    if decisions is not None and taxonomy_beside(decisions).is_file():
        files["taxonomy"] = taxonomy_beside(decisions)
    files |= find_annotations(hierarchy)
    used = {}
    for role, given_path in given.items():
        if given_path is None and role not in built.inputs:
            continue
        path = given_path or files.get(role)
        if path is None:
            raise InputError(
                f"{hierarchy}: the {role} that it was built with is not beside it; name it by `{role}`"
            )
        if sha256_of(path) not in built.inputs.values():
            raise InputError(
                f"{hierarchy}: not built with the present content of {path}; set `{role}` to the file that it was "
                "built with, or build again"
            )
        if role in built.inputs:
            used[role] = path
    return used


def _write_data(draft: Path, facts: ReleaseFacts) -> None:
    """Write the Parquet files and, of landmarks, the CSV files.

    The files in ``suprank`` are for ``suprank/datasets/gldv2.py`` of
    https://github.com/elias-ramzi/SupRank (commit 99041e8), which reads the columns
    ``landmark_id``, ``cluster`` (the group) and ``overall_cluster`` (the root) beside GLDv2's
    files, and skips images of landmarks without a row. Landmarks whose group comes from photographs
    are left out.
    """
    for split, name in facts.splits.items():
        rows = facts.hierarchy.filter(pc.equal(facts.hierarchy["split"], split))
        rows = rows.sort_by("landmark_id")
        path = draft / "data" / f"{name}.parquet"
        tables.write_table(path, tables.HIERARCHY, rows, facts.provenance, neutral=facts.is_neutral)
        labelled = tables.without_completed(rows)
        if len(labelled) and not facts.is_neutral:
            frame = labelled.select(list(_SUPRANK_COLUMNS)).to_pandas()
            frame = frame.rename(columns=_SUPRANK_COLUMNS)
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
    """Compare the files of a release with its checksums.

    Returns:
        The files without a checksum, and the files that were changed or removed.
    """
    path = folder / CHECKSUMS
    if not path.is_file():
        raise InputError(f"{folder}: no {CHECKSUMS}, so not a release")
    listed = read_checksums(path)
    present = files_in(folder)
    unlisted = [name for name in present if name not in listed and name != CHECKSUMS]
    changed = []
    for name, digest in listed.items():
        if name not in present or sha256_of(folder / name) != digest:
            changed.append(name)
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
    """Name, tag (such as ``v1.0.0``), files and commit of a published release."""

    name: str
    tag: str
    files: int
    n_bytes: int
    url: str


def push_dataset(
    folder: Path, repository: str, *, private: bool = False, force: bool = False
) -> PushDatasetSummary | None:
    """Upload a release to the Hugging Face hub in one commit, and tag it with its version.

    A version that is tagged never changes. Files of an earlier release that this one lacks are
    removed.

    ``hgld push-dataset`` describes the parameters.

    Returns:
        Counts of the release, or None if it is published already.

    Raises:
        ConfigurationError: The repository holds something else, or other files of this version; or
            a public repository was to be private.
        InputError: The folder is not a release, or was changed since.
    """
    unlisted, changed = verify_checksums(folder)
    different = unlisted + changed
    if different:
        raise InputError(
            f"{folder}: files are not those of hgld release; run it again, with `force` to discard edits:\n"
            f"{indented_list(different)}"
        )
    metadata = json.loads((folder / CROISSANT).read_text(encoding="utf-8"))
    tag = f"v{metadata['version']}"
    existing = require_replaceable_repository(
        repository,
        "a release of hgld",
        lambda names: {CHECKSUMS, CROISSANT} <= set(names),
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
    earlier: list[str] = []
    if CHECKSUMS in existing:
        snapshot = hub_snapshot(repository, [CHECKSUMS], kind="dataset")
        earlier = list(read_checksums(snapshot / CHECKSUMS))
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    name = f"{metadata['name']} {metadata['version']}"
    url = upload_folder(
        folder, repository, kind="dataset", private=private, message=name, replaces=earlier, tag=tag
    )
    return PushDatasetSummary(name, tag, len(sizes), sum(sizes), url)
