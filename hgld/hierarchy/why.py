"""How a landmark came to its place in a hierarchy, or where it was left out: the answer of ``hgld why``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError
from hgld.io.files import sha256_of
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import Decision, DecisionIndex, format_time, read_decisions
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.label_identity import label_id, normalise_label

_WHY_REMOVED = {
    "multiple": "for it has several relevant labels (hgld clean --keep-multiple or hgld build --multi keep such)",
    "irrelevant": "for its labels say nothing of a landmark",
    "unlabelled": "for it has no label",
}


@dataclass(frozen=True)
class Sources:
    """Where the answers are; a table that is None or empty is not known.

    Args:
        folder: where the tables were looked for.
        hierarchy: from ``hgld build``.
        scraped: from ``hgld scrape``.
        clean: from ``hgld clean``.
        removed: what ``hgld clean`` removed.
        clusters: from ``hgld cluster``.
        decisions: on labels.
        taxonomy: the groups.
    """

    folder: Path
    hierarchy: Path | None
    scraped: Sequence[Path]
    clean: Path | None
    removed: Path | None
    clusters: Path | None
    decisions: Path
    taxonomy: Path


def find_sources(
    hierarchy: Path,
    *,
    scraped: Sequence[Path] | None = None,
    clean: Path | None = None,
    removed: Path | None = None,
    clusters: Path | None = None,
    decisions: Path | None = None,
    taxonomy: Path | None = None,
) -> Sources:
    """The tables named, and for the others those with the usual names beside ``hierarchy``.

    Raises:
        InputError: a table that is named is not there.
    """

    def beside(name: str) -> Path | None:
        path = hierarchy.with_name(name)
        return path if path.is_file() else None

    for path in (clean, removed, clusters, *(scraped or ())):
        if path is not None and not path.is_file():
            raise InputError(f"{path}: no such file")
    return Sources(
        folder=hierarchy.parent,
        hierarchy=hierarchy if hierarchy.is_file() else None,
        scraped=scraped or tables.scraped_beside(hierarchy),
        clean=clean or beside("clean.parquet"),
        removed=removed or beside("removed.parquet"),
        clusters=clusters or beside("clusters.parquet"),
        decisions=decisions or annotation_file("decisions/final.csv"),
        taxonomy=taxonomy or annotation_file("taxonomy.csv"),
    )


@dataclass(frozen=True)
class Trace:
    """What is known of one landmark, as pairs of a name and a text, in the order of the stages."""

    split: str
    landmark_id: int
    steps: Sequence[tuple[str, str]]


_Row = Mapping[str, Any]


def trace_landmark(sources: Sources, landmark_id: int, split: str | None = None) -> list[Trace]:
    """Trace the landmark with this id.

    Args:
        sources: the tables to look into.
        landmark_id: the id.
        split: the split that the id is of; without it, both are looked into.

    Returns:
        A trace for each split that has such a landmark.

    Raises:
        InputError: no table has it, or a table cannot be read.
    """
    rows = {
        "hierarchy": _rows(sources.hierarchy, tables.HIERARCHY, landmark_id),
        "clean": _rows(sources.clean, tables.CLEAN, landmark_id),
        "removed": _rows(sources.removed, tables.REMOVED, landmark_id),
        "scraped": [row for path in sources.scraped for row in _rows(path, tables.SCRAPED, landmark_id)],
    }
    splits = [split] if split else sorted({row["split"] for found in rows.values() for row in found})
    groups = read_taxonomy(sources.taxonomy)
    decisions = read_decisions(sources.decisions, {group.name for group in groups})
    traces = []
    for one in splits:
        found = {name: next((row for row in of if row["split"] == one), None) for name, of in rows.items()}
        if any(found.values()):
            steps = _steps(sources, found, DecisionIndex(decisions), {group.name: group for group in groups})
            traces.append(Trace(one, landmark_id, steps))
    if not traces:
        looked = [path for path in (sources.hierarchy, sources.clean, sources.removed, *sources.scraped) if path]
        raise InputError(
            f"landmark {landmark_id}{f' of {split}' if split else ''} is in none of "
            f"{', '.join(map(str, looked)) or f'the tables, for there are none in {sources.folder}'}"
        )
    return traces


def _steps(
    sources: Sources, found: Mapping[str, _Row | None], decisions: DecisionIndex, groups: Mapping[str, Group]
) -> list[tuple[str, str]]:
    built, clean, removed, scraped = (found[name] for name in ("hierarchy", "clean", "removed", "scraped"))
    category = next(row["category"] for row in found.values() if row is not None)
    steps = [("category", category), *_page(sources, scraped), ("statement", _statement(scraped or removed))]
    decision = None
    if clean is not None or built is not None:
        label, item = _label(built, clean, scraped)
        decision = decisions.find(label_id(label, item), label)
        steps += [
            ("class", item or "not known: pages show labels without items"),
            ("label", label),
            ("cluster", _cluster(sources.clusters, label_id(label, item))),
            *_decision(decision, groups),
        ]
    if built is not None:
        steps += _place(built)
    else:
        steps.append(("hierarchy", _why_absent(sources, removed, clean, decision)))
    return steps + [("note", text) for text in _other_inputs(sources)]


def _rows(path: Path | None, spec: tables.TableSpec, landmark_id: int) -> list[dict[str, Any]]:
    if path is None:
        return []
    table = tables.read_table(path, spec)
    rows: list[dict[str, Any]] = table.filter(pc.equal(table["landmark_id"], landmark_id)).to_pylist()
    return rows


def _page(sources: Sources, scraped: _Row | None) -> list[tuple[str, str]]:
    if scraped is None:
        unknown = (
            f"not known: not in {', '.join(map(str, sources.scraped))}"
            if sources.scraped
            else "not known: no scraped*.parquet beside"
        )
        return [("page", unknown), ("item", unknown)]
    title = scraped["resolved_title"] or scraped["title"]
    facts = [scraped["route"] or "no route"]
    if title != scraped["title"]:
        facts[0] += f" from {scraped['title']}"
    facts += [f"{scraped['source']}, {scraped['fetched_at']:%Y-%m-%d}"]
    return [
        ("page", f"{title} ({'; '.join(facts)})"),
        ("item", scraped["item"] or f"none ({scraped['status']})"),
    ]


def _statement(row: _Row | None) -> str:
    if row is None:
        return "not known: no scraped*.parquet beside"
    values = [f"{value['label']} ({value['item'] or 'no item shown'})" for value in row["instance_of"]]
    return f"instance of {', '.join(values)}" if values else "none"


def _label(built: _Row | None, clean: _Row | None, scraped: _Row | None) -> tuple[str, str | None]:
    """The label and class that counted; one that cleaning had removed and a build took back is in the latter."""
    if clean is not None:
        return clean["supercategory"], clean["class_item"]
    assert built is not None
    label: str = built["supercategory"]
    values = scraped["instance_of"] if scraped is not None else ()
    same = (value["item"] for value in values if normalise_label(value["label"]) == normalise_label(label))
    return label, next(same, None)


def _cluster(path: Path | None, identity: str) -> str:
    if path is None:
        return "not known: no clusters.parquet beside"
    table = tables.read_table(path, tables.CLUSTERS)
    for row in table.filter(pc.equal(table["label_id"], identity)).to_pylist():
        return f"{row['cluster']}, sub-cluster {row['subcluster']}: {row['cluster_name']}"
    return f"not known: the label is not in {path}"


def _decision(decision: Decision | None, groups: Mapping[str, Group]) -> list[tuple[str, str]]:
    if decision is None:
        return [("decision", "none on this label")]
    what = decision.decision + (f": {decision.group}" if decision.group else "")
    steps = [("decision", f"{what}, by {decision.annotator}, {format_time(decision.decided_at)}")]
    if decision.comment:
        steps.append(("comment", decision.comment))
    if decision.group:
        steps.append(("guideline", groups[decision.group].guideline))
    return steps


def _place(built: _Row) -> list[tuple[str, str]]:
    steps = [("group", built["hierarchical_label"])]
    if further := built.get("hierarchical_labels", [])[1:]:
        steps.append(("further groups", ", ".join(further)))
    steps += [(f"extra level {n}", name) for n, name in enumerate(built.get("extra_levels", []), 1)]
    return [*steps, ("root", built["natural_or_human_made"])]


def _why_absent(sources: Sources, removed: _Row | None, clean: _Row | None, decision: Decision | None) -> str:
    absent = "not in it: " if sources.hierarchy is not None else "not known, no hierarchy.parquet beside; "
    if removed is not None:
        return absent + f"removed by hgld clean as {removed['reason']}, {_WHY_REMOVED[removed['reason']]}"
    if clean is None:
        return absent + "in no clean.parquet and no removed.parquet beside, so where it was left out is not known"
    if decision is None or decision.decision == "unsure":
        return absent + "its label is undecided"
    if decision.decision == "drop":
        return absent + "its label is dropped"
    return absent + "its label has a group, so building it again would take it in"


def _other_inputs(sources: Sources) -> list[str]:
    """Which of the files looked into are not those that the hierarchy was built from."""
    if sources.hierarchy is None:
        return []
    inputs = tables.read_provenance(sources.hierarchy).inputs
    looked = {"clean": sources.clean, "decisions": sources.decisions, "taxonomy": sources.taxonomy}
    return [
        f"{sources.hierarchy} was built from other {role} than {path}, so this may not be how it came about"
        for role, path in looked.items()
        if path is not None and inputs.get(role, "") not in ("", sha256_of(path))
    ]
