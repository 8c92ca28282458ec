"""Trace a landmark through the stages, to explain its group or why it is not in the hierarchy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError
from hgld.hierarchy.build_inputs import find_annotations
from hgld.hierarchy.tree import ROOT
from hgld.io.files import sha256_of
from hgld.resources import annotation_file
from hgld.tables.column_values import RemovalReason
from hgld.taxonomy.decisions import (
    Decision,
    DecisionIndex,
    corrected_decisions,
    format_time,
    landmark_key,
    read_corrections,
    read_named_decisions,
)
from hgld.taxonomy.groups import Group, find_taxonomy, read_taxonomy
from hgld.taxonomy.label_identity import label_id, normalise_label

_REMOVAL_REASONS: Mapping[RemovalReason, str] = {
    "multiple": "since it has several relevant labels (hgld clean and hgld build can keep such landmarks)",
    "irrelevant": "since its labels do not describe a landmark",
    "unlabelled": "since it has no label",
}


@dataclass(frozen=True)
class TraceSources:
    """The files of all stages; a table that is None or an empty sequence is not available."""

    folder: Path
    hierarchy: Path | None
    scraped: Sequence[Path]
    clean: Path | None
    removed: Path | None
    clusters: Path | None
    completed: Path | None
    decisions: Path
    taxonomy: Path
    corrections: Path | None = None


def find_trace_sources(
    hierarchy: Path,
    *,
    scraped: Sequence[Path] | None = None,
    clean: Path | None = None,
    removed: Path | None = None,
    clusters: Path | None = None,
    completed: Path | None = None,
    decisions: Path | None = None,
    taxonomy: Path | None = None,
    corrections: Path | None = None,
) -> TraceSources:
    """Return the files given, and for the others those with default names beside ``hierarchy``.

    Decisions and groups are those that the hierarchy was built with, if they are found
    (:func:`~hgld.hierarchy.build_inputs.find_annotations`), else those that come with hgld.

    Args:
        hierarchy: Table from hgld build.
        scraped: Tables from hgld scrape. Default: scraped*.parquet.
        clean: Table from hgld clean. Default: clean.parquet.
        removed: Landmarks that hgld clean removed. Default: removed.parquet.
        clusters: Table from hgld cluster. Default: clusters.parquet.
        completed: Table from hgld complete. Default: completed.parquet.
        decisions: Decisions on labels.
        taxonomy: Groups of these decisions.
        corrections: Corrections of these decisions.

    Raises:
        InputError: A table that is given does not exist.
    """

    def beside(name: str) -> Path | None:
        path = hierarchy.with_name(name)
        return path if path.is_file() else None

    built_with = find_annotations(hierarchy)
    for path in (clean, removed, clusters, completed, *(scraped or ())):
        if path is not None and not path.is_file():
            raise InputError(f"{path}: no such file")
    return TraceSources(
        folder=hierarchy.parent,
        hierarchy=hierarchy if hierarchy.is_file() else None,
        scraped=scraped or tables.find_scraped_tables(hierarchy),
        clean=clean or beside("clean.parquet"),
        removed=removed or beside("removed.parquet"),
        clusters=clusters or beside("clusters.parquet"),
        completed=completed or beside("completed.parquet"),
        decisions=decisions or built_with.get("decisions") or annotation_file("decisions/final.csv"),
        taxonomy=taxonomy or built_with.get("taxonomy") or find_taxonomy(None, decisions),
        corrections=corrections or built_with.get("corrections"),
    )


@dataclass(frozen=True)
class Trace:
    """The facts about one landmark in the order of the stages, as pairs of a name and a text."""

    split: str
    landmark_id: int | str
    steps: Sequence[tuple[str, str]]


_Row = Mapping[str, Any]


def trace_landmark(sources: TraceSources, landmark_id: int | str, split: str | None = None) -> list[Trace]:
    """Trace a landmark through the stages.

    Returns:
        A trace for each split with such a landmark.
    """
    rows = {
        "hierarchy": _rows(sources.hierarchy, tables.HIERARCHY, landmark_id),
        "clean": _rows(sources.clean, tables.CLEAN, landmark_id),
        "removed": _rows(sources.removed, tables.REMOVED, landmark_id),
        "completed": _rows(sources.completed, tables.COMPLETED, landmark_id),
        "scraped": [row for path in sources.scraped for row in _rows(path, tables.SCRAPED, landmark_id)],
    }
    splits = [split] if split else sorted({row["split"] for stage_rows in rows.values() for row in stage_rows})
    groups = read_taxonomy(sources.taxonomy)
    corrections = {} if sources.corrections is None else read_corrections(sources.corrections, groups)
    decisions = DecisionIndex(corrected_decisions(read_named_decisions(sources.decisions, groups), corrections))
    traces = []
    for name in splits:
        row_of = {
            stage: next((row for row in stage_rows if row["split"] == name), None)
            for stage, stage_rows in rows.items()
        }
        if any(row_of.values()):
            correction = corrections.get(landmark_key(name, landmark_id))
            steps = _steps(sources, row_of, decisions, correction, {group.name: group for group in groups})
            traces.append(Trace(name, landmark_id, steps))
    if not traces:
        landmark = f"landmark {landmark_id}{f' of {split}' if split else ''}"
        places = (sources.hierarchy, sources.clean, sources.removed, sources.completed, *sources.scraped)
        searched = [path for path in places if path]
        if not searched:
            raise InputError(f"there are no tables in {sources.folder} to find {landmark} in")
        raise InputError(f"{landmark} is in none of {', '.join(map(str, searched))}")
    return traces


def _steps(
    sources: TraceSources,
    row_of: Mapping[str, _Row | None],
    decisions: DecisionIndex,
    correction: Decision | None,
    groups: Mapping[str, Group],
) -> list[tuple[str, str]]:
    stages = ("hierarchy", "clean", "removed", "scraped", "completed")
    built, clean, removed, scraped, proposal = (row_of[stage] for stage in stages)
    from_photographs = built is not None and built.get("label_source") == "photographs"
    category = next(row["category"] for row in row_of.values() if row is not None)
    steps = [("category" if "Category:" in category else "address", category)] if category else []
    steps += [*_page(sources, scraped), ("statement", _statement(sources, scraped or removed))]
    decision = None
    if clean is not None or (built is not None and not from_photographs):
        label, item = _label(built, clean, scraped)
        decision = decisions.find(label_id(label, item), label)
        steps += [
            ("class", item or "unknown: category pages show labels without items"),
            ("label", label),
            ("cluster", _cluster(sources.clusters, label_id(label, item))),
            *_decision(decision, groups),
        ]
    if correction is not None:
        steps += _decision(correction, groups, "correction")
    if proposal is not None and (from_photographs or built is None):
        steps += _proposal(proposal)
    if built is not None:
        if from_photographs:
            steps.append(("source", _source(sources, proposal)))
        steps += _place(built)
    else:
        steps.append(("hierarchy", _reason_absent(sources, removed, clean, decision, correction)))
    return steps + [("note", text) for text in _changed_inputs(sources)]


def _rows(path: Path | None, spec: tables.TableSpec, landmark_id: int | str) -> list[dict[str, Any]]:
    if path is None:
        return []
    table = tables.read_table(path, spec)
    ids = table["landmark_id"].cast(pa.string())
    rows: list[dict[str, Any]] = table.filter(pc.equal(ids, str(landmark_id))).to_pylist()
    return rows


def _page(sources: TraceSources, scraped: _Row | None) -> list[tuple[str, str]]:
    if scraped is None:
        unknown = (
            f"unknown: not in {', '.join(map(str, sources.scraped))}"
            if sources.scraped
            else "unknown: no scraped*.parquet in the folder"
        )
        return [("page", unknown), ("item", unknown)]
    title = scraped["resolved_title"] or scraped["title"]
    facts = [scraped["route"] or "no route"]
    if title != scraped["title"]:
        facts[0] += f" from {scraped['title']}"
    facts += [f"{scraped['source']}, {scraped['fetched_at']:%Y-%m-%d}"]
    return [
        ("page", f"{title} ({'; '.join(facts)})"),
        ("item", _item(scraped)),
    ]


def _item(scraped: _Row) -> str:
    if scraped["item"] is None:
        return f"none ({scraped['status']})"
    revision = "" if scraped["revision"] is None else f", revision {scraped['revision']}"
    return f"{scraped['item']}{revision}"


def _statement(sources: TraceSources, row: _Row | None) -> str:
    if row is None:
        return "unknown: no scraped*.parquet in the folder"
    values = [f"{value['label']} ({value['item'] or 'no item shown'})" for value in row["instance_of"]]
    files = (sources.hierarchy, sources.clean, *sources.scraped)
    verb = "" if any(tables.is_neutral(path) for path in files if path is not None) else "instance of "
    return verb + ", ".join(values) if values else "none"


def _label(built: _Row | None, clean: _Row | None, scraped: _Row | None) -> tuple[str, str | None]:
    """Return the label that decided on the group and its class item, None if unknown.

    A landmark that was removed by clean and built with several labels is in the hierarchy only.
    """
    if clean is not None:
        return clean["supercategory"], clean["class_item"]
    assert built is not None
    label: str = built["supercategory"]
    values = scraped["instance_of"] if scraped is not None else ()
    same = (value["item"] for value in values if normalise_label(value["label"]) == normalise_label(label))
    return label, next(same, None)


def _cluster(path: Path | None, identity: str) -> str:
    if path is None:
        return "unknown: no clusters.parquet in the folder"
    table = tables.read_table(path, tables.CLUSTERS)
    for row in table.filter(pc.equal(table["label_id"], identity)).to_pylist():
        return f"{row['cluster']}, sub-cluster {row['subcluster']}: {row['cluster_name']}"
    return f"unknown: the label is not in {path}"


def _decision(
    decision: Decision | None, groups: Mapping[str, Group], name: str = "decision"
) -> list[tuple[str, str]]:
    if decision is None:
        return [("decision", "none on this label")]
    outcome = decision.decision + (f": {decision.group}" if decision.group else "")
    steps = [(name, f"{outcome}, by {decision.annotator}, {format_time(decision.decided_at)}")]
    if decision.comment:
        steps.append(("comment", decision.comment))
    if decision.group:
        steps.append(("guideline", groups[decision.group].guideline))
    return steps


def _proposal(row: _Row) -> list[tuple[str, str]]:
    """Return what ``hgld complete`` proposes and why."""
    if row["group"] is None:
        return [("proposal", "none: no photographs of it are embedded")]
    votes = f"{row['votes']:.1f} of {row['photographs']} votes of its photographs"
    text = f"{row['group']}, score {row['score']:.2f}, {votes}"
    if row["second_group"] is not None:
        text += f"; second {row['second_group']}, {row['second_votes']:.1f}"
    nearest = [f"{item['name']} ({item['group']}, {item['similarity']:.2f})" for item in row["nearest"]]
    return [("proposal", text), ("nearest", ", ".join(nearest) or "none")]


def _source(sources: TraceSources, proposal: _Row | None) -> str:
    """Say that a group comes from photographs, from which score on, and whether the proposal is available."""
    assert sources.hierarchy is not None
    above = tables.read_provenance(sources.hierarchy).parameters.get("completed_above")
    text = "photographs, not a label: the proposal of hgld complete"
    text += f", taken from a score of {above:g} on" if above is not None else ""
    return text if proposal is not None else f"{text}; it is in no completed.parquet of the folder"


def _place(built: _Row) -> list[tuple[str, str]]:
    group, *above = tables.level_columns([*built])
    steps = [("group", built[group])]
    if further := built.get("hierarchical_labels", [])[1:]:
        steps.append(("further groups", ", ".join(further)))
    steps += [(f"extra level {n}", name) for n, name in enumerate(built.get("extra_levels", []), 1)]
    return [*steps, *(("root" if name == ROOT else name, built[name]) for name in above)]


def _reason_absent(
    sources: TraceSources,
    removed: _Row | None,
    clean: _Row | None,
    decision: Decision | None,
    correction: Decision | None,
) -> str:
    absent = "not in it: " if sources.hierarchy is not None else "unknown, no hierarchy.parquet in the folder; "
    if removed is not None:
        return absent + f"removed by hgld clean as {removed['reason']}, {_REMOVAL_REASONS[removed['reason']]}"
    if clean is None:
        return (
            absent
            + "in neither clean.parquet nor removed.parquet of the folder, so the stage that excluded it is unknown"
        )
    if correction is not None and correction.decision == "drop":
        return absent + "a correction of the landmark drops it"
    if decision is None or decision.decision == "unsure":
        return absent + "its label is undecided"
    if decision.decision == "drop":
        return absent + "its label is dropped"
    return absent + "its label has a group, so building again would include it"


def _changed_inputs(sources: TraceSources) -> list[str]:
    """Return a note for each file that is not the one the hierarchy was built from."""
    if sources.hierarchy is None:
        return []
    inputs = tables.read_provenance(sources.hierarchy).inputs
    current = {
        "clean": sources.clean,
        "decisions": sources.decisions,
        "taxonomy": sources.taxonomy,
        "completed": sources.completed,
        "corrections": sources.corrections,
    }
    return [
        f"{sources.hierarchy} was built from other {role} than {path}, so this trace may not explain it"
        for role, path in current.items()
        if path is not None and inputs.get(role, "") not in ("", sha256_of(path))
    ]
