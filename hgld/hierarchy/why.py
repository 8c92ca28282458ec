"""Trace a landmark through the stages, to explain its group or why it is not in the hierarchy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError
from hgld.hierarchy.build_inputs import find_annotations, read_annotations
from hgld.hierarchy.tree import ROOT
from hgld.io.files import sha256_of
from hgld.names import stored_id
from hgld.tables.column_values import RemovalReason
from hgld.taxonomy.decisions import Decision, DecisionIndex, format_time, landmark_key
from hgld.taxonomy.groups import Group, find_taxonomy
from hgld.taxonomy.label_identity import label_id, normalise_label
from hgld.taxonomy.project import nouns_of, project_file_of

_REMOVAL_REASONS: Mapping[RemovalReason, str] = {
    "multiple": "since it has several relevant labels (hgld clean and hgld build can keep such landmarks)",
    "irrelevant": "since its labels do not describe a landmark",
    "unlabelled": "since it has no label",
}
#: Tables with a row for each landmark; the scraped tables, of which there may be several, are not among them.
_STAGES = {
    "hierarchy": tables.HIERARCHY,
    "clean": tables.CLEAN,
    "removed": tables.REMOVED,
    "completed": tables.COMPLETED,
}
_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Trace:
    """The facts about one landmark in the order of the stages, as pairs of a name and a text."""

    split: str
    landmark_id: int | str
    steps: Sequence[tuple[str, str]]


class _Files(NamedTuple):
    """Files of the stages, as far as they exist.

    Args:
        hierarchy: Path of the hierarchy, which may not exist.
        tables: Tables by the stage that wrote them.
        scraped: Scraped tables.
        annotations: Files of decisions, groups and corrections by role.
    """

    hierarchy: Path
    tables: Mapping[str, Path]
    scraped: Sequence[Path]
    annotations: Mapping[str, Path]


def trace_landmark(
    hierarchy: Path,
    landmark_id: int | str,
    split: str | None = None,
    *,
    decisions: Path | None = None,
    taxonomy: Path | None = None,
    corrections: Path | None = None,
) -> list[Trace]:
    """Trace a landmark through the stages.

    Their tables are searched for beside the hierarchy under the names that the stages give them: clean.parquet,
    removed.parquet, completed.parquet, clusters.parquet and scraped*.parquet. The trace names those that are missing.

    Decisions and groups are those that the hierarchy was built with, if they are found
    (:func:`~hgld.hierarchy.build_inputs.find_annotations`), else those that come with hgld.

    Args:
        hierarchy: Table from hgld build, which may be missing.
        landmark_id: Id of the landmark.
        split: Split of the landmark. Default: all.
        decisions: Decisions on labels.
        taxonomy: Groups of these decisions.
        corrections: Corrections of these decisions.

    Returns:
        A trace for each split with such a landmark.

    Raises:
        InputError: The landmark is in none of the tables, or there are none.
    """
    if isinstance(landmark_id, str):
        landmark_id = stored_id(landmark_id)
    files = _find_files(hierarchy, decisions, taxonomy, corrections)
    rows = {
        stage: _rows(files.tables.get(stage), spec, landmark_id) for stage, spec in _STAGES.items()
    }
    rows["scraped"] = [
        row for path in files.scraped for row in _rows(path, tables.SCRAPED, landmark_id)
    ]
    splits = (
        [split]
        if split
        else sorted({row["split"] for stage_rows in rows.values() for row in stage_rows})
    )
    index, corrected, groups = read_annotations(files.annotations)
    traces = []
    for name in splits:
        row_of = {
            stage: next((row for row in stage_rows if row["split"] == name), None)
            for stage, stage_rows in rows.items()
        }
        if any(row_of.values()):
            correction = corrected.get(landmark_key(name, landmark_id))
            steps = _steps(
                files, row_of, index, correction, {group.name: group for group in groups}
            )
            traces.append(Trace(name, landmark_id, steps))
    if not traces:
        noun, _ = nouns_of(next(iter(files.tables.values()), hierarchy))
        raise _not_found_error(files, f"{noun} {landmark_id}{f' of {split}' if split else ''}")
    return traces


def _not_found_error(files: _Files, landmark: str) -> InputError:
    """Return an error that names the tables that were searched, and those that are missing."""
    folder = files.hierarchy.parent
    searched = [*(path for stage, path in files.tables.items() if stage in _STAGES), *files.scraped]
    names = {stage: f"{stage}.parquet" for stage in _STAGES} | {"hierarchy": files.hierarchy.name}
    missing = [name for stage, name in names.items() if stage not in files.tables]
    missing += () if files.scraped else ["scraped*.parquet"]
    if not searched:
        return InputError(
            f"there are no tables in {folder} to find {landmark} in; expected {', '.join(missing)}"
        )
    absent = f"; there is no {' and no '.join(missing)} in {folder}" if missing else ""
    return InputError(f"{landmark} is in none of {', '.join(map(str, searched))}{absent}")


def _find_files(
    hierarchy: Path, decisions: Path | None, taxonomy: Path | None, corrections: Path | None
) -> _Files:
    stages = {
        stage: hierarchy.with_name(f"{stage}.parquet")
        for stage in ("clean", "removed", "completed", "clusters")
    }
    found = {
        stage: path for stage, path in {"hierarchy": hierarchy, **stages}.items() if path.is_file()
    }
    given = {"decisions": decisions, "taxonomy": taxonomy, "corrections": corrections}
    annotations = find_annotations(hierarchy) | {
        role: path for role, path in given.items() if path is not None
    }
    if (
        "decisions" not in annotations
        and (known := project_file_of("decisions", hierarchy)) is not None
    ):
        annotations["decisions"] = known
    if "decisions" in annotations and "taxonomy" not in annotations:
        annotations["taxonomy"] = find_taxonomy(None, hierarchy, decisions)
    return _Files(hierarchy, found, tables.find_scraped_tables(hierarchy), annotations)


def _steps(
    files: _Files,
    row_of: Mapping[str, _Row | None],
    decisions: DecisionIndex,
    correction: Decision | None,
    groups: Mapping[str, Group],
) -> list[tuple[str, str]]:
    """Return the facts about a landmark, given its row in each table; see :class:`Trace`."""
    built, clean, removed = row_of["hierarchy"], row_of["clean"], row_of["removed"]
    proposal, scraped = row_of["completed"], row_of["scraped"]
    from_photographs = built is not None and built.get("label_source") == "photographs"
    category = next(row["category"] for row in row_of.values() if row is not None)
    steps = [("category" if "Category:" in category else "address", category)] if category else []
    was_scraped = not _is_plain_list(files)
    if was_scraped:
        steps += [*_page(files, scraped), ("statement", _statement(files, scraped or removed))]
    decision = None
    if clean is not None or (built is not None and not from_photographs):
        label, item = _label(built, clean, scraped)
        decision = decisions.find(label_id(label, item), label)
        if item is not None or was_scraped:
            steps.append(("class", item or _unknown_class(files, scraped)))
        steps += [
            ("label", label),
            ("cluster", _cluster(files.tables.get("clusters"), label_id(label, item))),
        ]
        if "decisions" in files.annotations:
            steps += _decision(decision, groups)
        else:
            steps.append(("decision", "unknown: no decisions are known for this list"))
    if correction is not None:
        steps += _decision(correction, groups, "correction")
    if proposal is not None and (from_photographs or built is None):
        steps += _proposal(proposal)
    if built is not None:
        if from_photographs:
            steps.append(("source", _source(files.hierarchy, proposal)))
        steps += _place(built)
    else:
        exists = "hierarchy" in files.tables
        absent = "not in it: " if exists else f"unknown, no {files.hierarchy.name} in the folder; "
        steps.append(("hierarchy", absent + _reason_absent(removed, clean, decision, correction)))
    return steps + [("note", text) for text in _changed_inputs(files)]


def _is_plain_list(files: _Files) -> bool:
    """Return whether the labels are from ``hgld labels``, so that nothing was scraped."""
    clean = files.tables.get("clean")
    return clean is not None and tables.read_provenance(clean).command == "labels"


def _rows(
    path: Path | None, spec: tables.TableSpec, landmark_id: int | str
) -> list[dict[str, Any]]:
    if path is None:
        return []
    table = tables.read_table(path, spec)
    ids = table["landmark_id"].cast(pa.string())
    return list(table.filter(pc.equal(ids, str(landmark_id))).to_pylist())


def _page(files: _Files, scraped: _Row | None) -> list[tuple[str, str]]:
    if scraped is None:
        searched = ", ".join(map(str, files.scraped))
        unknown = (
            f"unknown: not in {searched}"
            if searched
            else "unknown: no scraped*.parquet in the folder"
        )
        return [("page", unknown), ("item", unknown)]
    title = scraped["resolved_title"] or scraped["title"]
    facts = [scraped["route"] or "no route"]
    if title != scraped["title"]:
        facts[0] += f" from {scraped['title']}"
    facts += [f"{scraped['source']}, {scraped['fetched_at']:%Y-%m-%d}"]
    item = f"none ({scraped['status']})" if scraped["item"] is None else scraped["item"]
    if scraped["revision"] is not None:
        item += f", revision {scraped['revision']}"
    return [("page", f"{title} ({'; '.join(facts)})"), ("item", item)]


def _statement(files: _Files, row: _Row | None) -> str:
    if row is None:
        return "unknown: no scraped*.parquet in the folder"
    values = [
        f"{value['label']} ({value['item'] or 'no item shown'})" for value in row["instance_of"]
    ]
    others = [path for stage, path in files.tables.items() if stage in ("hierarchy", "clean")]
    verb = "" if any(map(tables.is_neutral, [*others, *files.scraped])) else "instance of "
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
    same = (
        value["item"]
        for value in values
        if normalise_label(value["label"]) == normalise_label(label)
    )
    return label, next(same, None)


def _unknown_class(files: _Files, scraped: _Row | None) -> str:
    if "clean" not in files.tables and not files.scraped:
        return "unknown: no clean.parquet and no scraped*.parquet in the folder"
    if scraped is not None and scraped["source"] != "html":
        return "unknown: the label has no item"
    return "unknown: category pages show labels without items"


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
        guideline = groups[decision.group].guideline
        if guideline:
            steps.append(("guideline", guideline))
    return steps


def _proposal(row: _Row) -> list[tuple[str, str]]:
    """Return what ``hgld complete`` proposes and why."""
    if row["group"] is None:
        return [("proposal", "none: no photographs of it are embedded")]
    votes = f"{row['votes']:.1f} of {row['photographs']} votes of its photographs"
    text = f"{row['group']}, score {row['score']:.2f}, {votes}"
    if row["second_group"] is not None:
        text += f"; second {row['second_group']}, {row['second_votes']:.1f}"
    nearest = [
        f"{item['name']} ({item['group']}, {item['similarity']:.2f})" for item in row["nearest"]
    ]
    return [("proposal", text), ("nearest", ", ".join(nearest) or "none")]


def _source(hierarchy: Path, proposal: _Row | None) -> str:
    """Say that a group comes from photographs, from which score on, and whether the proposal is available."""
    above = tables.read_provenance(hierarchy).parameters.get("completed_above")
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
    removed: _Row | None, clean: _Row | None, decision: Decision | None, correction: Decision | None
) -> str:
    if removed is not None:
        return (
            f"removed by hgld clean as {removed['reason']}, {_REMOVAL_REASONS[removed['reason']]}"
        )
    if clean is None:
        return "in neither clean.parquet nor removed.parquet of the folder, so the stage that excluded it is unknown"
    if correction is not None and correction.decision == "drop":
        return "a correction of the landmark drops it"
    if decision is None or decision.decision == "unsure":
        return "its label is undecided"
    if decision.decision == "drop":
        return "its label is dropped"
    return "its label has a group, so building again would include it"


def _changed_inputs(files: _Files) -> list[str]:
    """Return a note for each file that is not the one the hierarchy was built from."""
    if "hierarchy" not in files.tables:
        return []
    inputs = tables.read_provenance(files.hierarchy).inputs
    current = {**files.tables, **files.annotations}
    return [
        f"{files.hierarchy} was built from other {role} than {current[role]}, so this trace may not explain it"
        for role in ("clean", "decisions", "taxonomy", "completed", "corrections")
        if role in current and inputs.get(role, "") not in ("", sha256_of(current[role]))
    ]
