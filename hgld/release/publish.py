"""The folder that is published: the hierarchy as Parquet and CSV, what is behind it, and what it says of itself.

The same hierarchy and the same settings give the same bytes, with the same version of pyarrow: nothing in the folder
depends on when, where or by whom it was written.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy.official import FILES, write_official
from hgld.io.files import atomic_write, sha256_of
from hgld.release import croissant
from hgld.release.card import Facts, citation, write_texts
from hgld.resources import annotation_file
from hgld.tables import SPLITS
from hgld.taxonomy.decisions import read_decisions
from hgld.taxonomy.groups import read_taxonomy

CHECKSUMS = "checksums.sha256"


@dataclass(frozen=True)
class ReleaseConfig:
    """What a release says of itself.

    Args:
        name: what the dataset is called.
        version: three numbers with points between.
        url: where it is published.
        date: of publication, YYYY-MM-DD; None for the day of the last decision, as the clock must not matter.
        creators: who made it; none for the annotators of the decisions.
    """

    name: str = "H-GLDv2"
    version: str = "1.0.0"
    url: str = "https://github.com/cvdfoundation/google-landmark"
    date: str | None = None
    creators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.name.isprintable():
            raise ConfigurationError(f"the name is {self.name!r}; expected a line of text")
        if not re.fullmatch(r"\d+\.\d+\.\d+", self.version):
            raise ConfigurationError(f'the version is "{self.version}"; expected three numbers such as 1.0.0')
        if not re.fullmatch(r"https?://\S+", self.url):
            raise ConfigurationError(f'the url is "{self.url}"; expected one that begins with https://')
        if self.date is not None and not _is_day(self.date):
            raise ConfigurationError(f'the date is "{self.date}"; expected a day such as 2026-03-01')


@dataclass(frozen=True)
class ReleaseSummary:
    """What a release holds: landmarks by split, groups, files, and whether its Croissant file was checked."""

    landmarks: Mapping[str, int]
    groups: int
    files: int
    validated: bool

    def __str__(self) -> str:
        """What ``hgld release`` prints."""
        splits = ", ".join(f"{split} {count:,}" for split, count in self.landmarks.items())
        checked = "valid Croissant" if self.validated else "Croissant not checked (pip install 'hgld[croissant]')"
        return f"{splits} landmarks in {self.groups:,} groups; {self.files} files, {checked}"


def release_folder(
    hierarchy: Path,
    out: Path,
    config: ReleaseConfig | None = None,
    *,
    decisions: Path | None = None,
    taxonomy: Path | None = None,
    force: bool = False,
) -> ReleaseSummary | None:
    """Write a release.

    The folder appears whole or not at all. One that is there is replaced if hgld wrote everything in it.

    Args:
        hierarchy: the table from ``hgld build``.
        out: the folder to write.
        config: what the release says of itself.
        decisions: those that the hierarchy was built with; ``annotations/decisions/final.csv`` by default.
        taxonomy: the groups that it was built with; ``annotations/taxonomy.csv`` by default.
        force: write although nothing changed, and although files of an earlier release were edited.

    Returns:
        None if ``out`` is this very release already.

    Raises:
        InputError: the hierarchy was not built with these decisions or this taxonomy, or cannot be read; or
            ``out`` holds what hgld has not written.
    """
    config = config or ReleaseConfig()
    decisions = decisions or annotation_file("decisions/final.csv")
    taxonomy = taxonomy or annotation_file("taxonomy.csv")
    rows = tables.read_table(hierarchy, tables.HIERARCHY)
    provenance = tables.read_provenance(hierarchy)
    decided = read_decisions(decisions, {group.name for group in read_taxonomy(taxonomy)})
    for what, path in (("decisions", decisions), ("taxonomy", taxonomy)):
        if sha256_of(path) not in provenance.inputs.values():
            raise InputError(
                f"{hierarchy}: not built with {path} as it is now; give the file that it was built with by "
                f"--{what}, or build again"
            )
    _refuse_foreign(out, force=force)
    draft = out.absolute().with_name(f".{out.absolute().name}.{os.getpid()}.part")
    try:
        splits = _write_data(draft, rows, provenance)
        shutil.copyfile(decisions, draft / "decisions.csv")
        shutil.copyfile(taxonomy, draft / "taxonomy.csv")
        last = max(row.decided_at for row in decided).date().isoformat()
        facts = Facts(
            name=config.name,
            version=config.version,
            url=config.url,
            date=config.date or last,
            hierarchy=rows,
            decisions=decided,
            provenance=provenance,
            files=_descriptions(splits),
        )
        described = croissant.metadata(
            name=config.name,
            version=config.version,
            url=config.url,
            date=facts.date,
            creators=config.creators or facts.annotators,
            description=f"Groups and roots above {len(rows):,} landmarks of the Google Landmarks Dataset v2.",
            citation=citation(),
            files={name: (sha256_of(draft / name), (draft / name).stat().st_size) for name in _inside(draft)},
            columns=rows.schema,
            splits=splits,
        )
        text = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
        (draft / "croissant.json").write_text(text, encoding="utf-8", newline="\n")
        write_texts(draft, facts)
        validated = croissant.validate(draft / "croissant.json")
        (draft / CHECKSUMS).write_text(
            "".join(f"{sha256_of(draft / name)}  {name}\n" for name in _inside(draft)), encoding="utf-8"
        )
        if not force and _same(draft, out):
            return None
        _put_in_place(draft, out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return ReleaseSummary(
        landmarks={split: int(pc.sum(pc.equal(rows["split"], split)).as_py()) for split in splits},
        groups=len(pc.unique(rows["hierarchical_label"])),
        files=len(_inside(out)),
        validated=validated,
    )


def write_suprank(folder: Path, hierarchy: pa.Table) -> list[Path]:
    """Write the files that the published training code reads its labels from.

    ``suprank/datasets/gldv2.py`` of https://github.com/elias-ramzi/SupRank (commit 99041e8) reads
    ``train_label_to_subcategory_with_clusters.csv`` and ``index_label_to_subcategory_with_clusters.csv`` beside
    GLDv2's own files, and of them the columns ``landmark_id``, ``cluster`` (the group) and ``overall_cluster`` (the
    root). Images of landmarks without a row are left out there.

    Returns:
        The files, in the order of splits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for split in SPLITS:
        rows = _of_split(hierarchy, split)
        if not len(rows):
            continue
        path = folder / f"{split}_label_to_subcategory_with_clusters.csv"
        with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(["landmark_id", "cluster", "overall_cluster"])
            columns = ("landmark_id", "hierarchical_label", "natural_or_human_made")
            writer.writerows(zip(*(rows[name].to_pylist() for name in columns), strict=True))
        written.append(path)
    return written


def verify(folder: Path) -> tuple[list[str], list[str]]:
    """Compare a release with its checksums.

    Returns:
        The files that are not listed, and those that are listed but changed or missing.

    Raises:
        InputError: the folder has no checksums, or they cannot be read.
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
    there = _inside(folder)
    unlisted = [name for name in there if name not in listed and name != CHECKSUMS]
    changed = [name for name, digest in listed.items() if name not in there or sha256_of(folder / name) != digest]
    return unlisted, changed


def _write_data(draft: Path, rows: pa.Table, provenance: tables.Provenance) -> list[str]:
    """Write Parquet and CSV; the splits that there are."""
    splits = []
    for split in SPLITS:
        part = _of_split(rows, split)
        if len(part):
            tables.write_table(draft / "data" / f"{split}.parquet", tables.HIERARCHY, part, provenance)
            splits.append(split)
    write_official(draft, rows)
    write_suprank(draft / "suprank", rows)
    return splits


def _of_split(rows: pa.Table, split: str) -> pa.Table:
    return rows.filter(pc.equal(rows["split"], split)).sort_by("landmark_id")


def _descriptions(splits: list[str]) -> dict[str, str]:
    """What each file is; of those that belong to a split, only for splits that there are."""
    files = {f"data/{split}.parquet": f"the {split} landmarks, sorted by landmark_id" for split in splits}
    files |= {FILES[split]: f"the {split} landmarks under the file and column names of H-GLDv2" for split in splits}
    files |= {
        f"suprank/{split}_label_to_subcategory_with_clusters.csv": (
            f"the {split} landmarks as the training code of the paper (elias-ramzi/SupRank) reads them"
        )
        for split in splits
    }
    return files | {
        "decisions.csv": "what was decided about each label, by whom and when",
        "taxonomy.csv": "the groups, their roots and what belongs to each",
        "croissant.json": "this dataset described for machines (Croissant 1.0)",
        "datasheet.md": "the questions of Datasheets for Datasets, answered",
        "LICENSE": "CC BY 4.0",
    }


def _refuse_foreign(out: Path, *, force: bool) -> None:
    """Raise if replacing ``out`` would lose what hgld has not written."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not out.is_dir():
        raise InputError(f"{out}: a file is in the way; expected a folder, or nothing")
    if not (out / CHECKSUMS).is_file():
        raise InputError(f"{out}: not written by hgld release (no {CHECKSUMS}); choose another folder")
    unlisted, changed = verify(out)
    if unlisted:
        raise InputError(
            f"{out}: files that hgld release has not written; move them away:\n{indented_list(unlisted)}"
        )
    if changed and not force:
        raise InputError(
            f"{out}: changed since hgld release wrote them; keep them elsewhere, then run again with --force:\n"
            f"{indented_list(changed)}"
        )


def _same(draft: Path, out: Path) -> bool:
    """Whether both folders hold the same files; ``out`` was checked against its list."""
    there = out / CHECKSUMS
    return there.is_file() and there.read_bytes() == (draft / CHECKSUMS).read_bytes()


def _put_in_place(draft: Path, out: Path) -> None:
    """Give the draft its name; what had it goes away afterwards, or comes back if that fails."""
    earlier = draft.with_suffix(".old")
    if out.exists():
        out.replace(earlier)
    try:
        draft.replace(out)
    except OSError:
        if earlier.exists():
            earlier.replace(out)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _inside(folder: Path) -> list[str]:
    """All files, by their path within the folder, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
