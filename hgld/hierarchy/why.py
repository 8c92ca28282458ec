"""Trace a landmark through the stages, to explain its group or its absence from the hierarchy."""

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
#: Stages that write a single table with a row for each landmark.
_STAGES = {
    "hierarchy": tables.HIERARCHY,
    "clean": tables.CLEAN,
    "removed": tables.REMOVED,
    "completed": tables.COMPLETED,
}
_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Trace:
    """The facts about one landmark in the order of the stages.

    Args:
        steps: Pairs of a name and a text.
    """

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

    Tables of the stages are expected beside the hierarchy under their default names: clean.parquet,
    removed.parquet, completed.parquet, clusters.parquet and scraped*.parquet. The trace names
    missing tables.

    Decisions and groups are the files that the hierarchy was built with, if they are found
    (:func:`~hgld.hierarchy.build_inputs.find_annotations`), otherwise the files of hgld.

    Args:
        hierarchy: Table from hgld build, which may be missing.
        landmark_id: Id of the landmark.
        split: Split of the landmark. Default: all.
        decisions: Decisions on labels.
        taxonomy: Groups that the decisions assign.
        corrections: Decisions that replace the decisions on labels.

    Returns:
        A trace for each split with such a landmark.

    Raises:
        InputError: The landmark is in no table, or no table exists.
    """
    if isinstance(landmark_id, str):
        landmark_id = stored_id(landmark_id)
    files = _find_files(hierarchy, decisions, taxonomy, corrections)
    rows_by_stage = {}
    for stage, spec in _STAGES.items():
        rows_by_stage[stage] = _rows(files.tables.get(stage), spec, landmark_id)
    rows_by_stage["scraped"] = []
    for path in files.scraped:
        rows_by_stage["scraped"] += _rows(path, tables.SCRAPED, landmark_id)
    rows_by_split: dict[str, dict[str, _Row]] = {}
    for stage, rows in rows_by_stage.items():
        for row in rows:
            rows_by_split.setdefault(row["split"], {}).setdefault(stage, row)
    index, corrections_by_key, group_list = read_annotations(files.annotations)
    groups = {group.name: group for group in group_list}
    traces = []
    for name in sorted(rows_by_split):
        if split in (None, "", name):
            correction = corrections_by_key.get(landmark_key(name, landmark_id))
            steps = _steps(files, rows_by_split[name], index, correction, groups)
            traces.append(Trace(name, landmark_id, steps))
    if not traces:
        noun, _ = nouns_of(next(iter(files.tables.values()), hierarchy))
        landmark = f"{noun} {landmark_id}"
        if split:
            landmark += f" of {split}"
        raise _not_found_error(files, landmark)
    return traces


def _not_found_error(files: _Files, landmark: str) -> InputError:
    """Return an error that names the searched and the missing tables."""
    folder = files.hierarchy.parent
    searched = []
    missing = []
    for stage in _STAGES:
        if stage in files.tables:
            searched.append(str(files.tables[stage]))
        else:
            missing.append(files.hierarchy.name if stage == "hierarchy" else f"{stage}.parquet")
    searched += map(str, files.scraped)
    if _is_plain_list(files):
        # hgld labels keeps every row of a list.
        missing = [name for name in missing if name != "removed.parquet"]
    elif not files.scraped:
        missing.append("scraped*.parquet")
    if not searched:
        return InputError(
            f"there are no tables in {folder} to find {landmark} in; expected {', '.join(missing)}"
        )
    message = f"{landmark} is in none of {', '.join(searched)}"
    if missing:
        message += f"; there is no {' and no '.join(missing)} in {folder}"
    return InputError(message)


def _find_files(
    hierarchy: Path, decisions: Path | None, taxonomy: Path | None, corrections: Path | None
) -> _Files:
    stage_tables = {}
    if hierarchy.is_file():
        stage_tables["hierarchy"] = hierarchy
    for stage in ("clean", "removed", "completed", "clusters"):
        path = hierarchy.with_name(f"{stage}.parquet")
        if path.is_file():
            stage_tables[stage] = path
    annotations = find_annotations(hierarchy)
    given = {"decisions": decisions, "taxonomy": taxonomy, "corrections": corrections}
    for role, file in given.items():
        if file is not None:
            annotations[role] = file
    if "decisions" not in annotations:
        project_decisions = project_file_of("decisions", hierarchy)
        if project_decisions is not None:
            annotations["decisions"] = project_decisions
    if "decisions" in annotations and "taxonomy" not in annotations:
        annotations["taxonomy"] = find_taxonomy(None, hierarchy, decisions)
    return _Files(hierarchy, stage_tables, tables.find_scraped_tables(hierarchy), annotations)


def _steps(
    files: _Files,
    rows: Mapping[str, _Row],
    decisions: DecisionIndex,
    correction: Decision | None,
    groups: Mapping[str, Group],
) -> list[tuple[str, str]]:
    """Return the facts about a landmark, given its row by stage; see :class:`Trace`."""
    built, clean, removed = rows.get("hierarchy"), rows.get("clean"), rows.get("removed")
    proposal, scraped = rows.get("completed"), rows.get("scraped")
    from_photographs = built is not None and built.get("label_source") == "photographs"
    steps = []
    category = next(iter(rows.values()))["category"]
    if category:
        steps.append(("category" if "Category:" in category else "address", category))
    was_scraped = not _is_plain_list(files)
    if was_scraped:
        steps += _page(files, scraped)
        steps.append(("statement", _statement(files, scraped or removed)))
    decision = None
    if clean is not None or (built is not None and not from_photographs):
        label, item = _label(built, clean, scraped)
        identity = label_id(label, item)
        decision = decisions.find(identity, label)
        if item is not None or was_scraped:
            steps.append(("class", item or _unknown_class(files, scraped)))
        steps.append(("label", label))
        levels = _levels_from_parents(files)
        if levels is None:
            steps.append(("cluster", _cluster(files.tables.get("clusters"), identity)))
        if levels is not None:
            steps.append(("decision", f"none is needed: hgld build --levels-from {levels}"))
        elif "decisions" in files.annotations:
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
        if clean is not None and _levels_from_parents(files) is not None:
            reason = "what is above its label on Wikidata gives it no group, as hgld build says"
        else:
            reason = _reason_absent(removed, clean, decision, correction)
        if "hierarchy" in files.tables:
            steps.append(("hierarchy", f"not in it: {reason}"))
        else:
            absent = f"unknown, no {files.hierarchy.name} in the folder; {reason}"
            steps.append(("hierarchy", absent))
    for note in _changed_inputs(files):
        steps.append(("note", note))
    return steps


def _is_plain_list(files: _Files) -> bool:
    """Return whether the labels come from ``hgld labels`` instead of a scrape."""
    clean = files.tables.get("clean")
    return clean is not None and tables.read_provenance(clean).command == "labels"


def _levels_from_parents(files: _Files) -> str | None:
    """Return the option --levels-from that a hierarchy was built with; None if it was built from decisions."""
    built = files.tables.get("hierarchy")
    if built is None:
        return None
    levels: str | None = tables.read_provenance(built).parameters.get("levels_from")
    return levels


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
        unknown = "unknown: no scraped*.parquet in the folder"
        if files.scraped:
            unknown = f"unknown: not in {', '.join(map(str, files.scraped))}"
        return [("page", unknown), ("item", unknown)]
    title = scraped["resolved_title"] or scraped["title"]
    route = scraped["route"] or "no route"
    if title != scraped["title"]:
        route += f" from {scraped['title']}"
    page = f"{title} ({route}; {scraped['source']}, {scraped['fetched_at']:%Y-%m-%d})"
    item = scraped["item"]
    if item is None:
        item = f"none ({scraped['status']})"
    if scraped["revision"] is not None:
        item += f", revision {scraped['revision']}"
    return [("page", page), ("item", item)]


def _statement(files: _Files, row: _Row | None) -> str:
    if row is None:
        return "unknown: no scraped*.parquet in the folder"
    values = []
    for value in row["instance_of"]:
        values.append(f"{value['label']} ({value['item'] or 'no item shown'})")
    if not values:
        return "none"
    statement = ", ".join(values)
    paths = [files.tables[stage] for stage in ("hierarchy", "clean") if stage in files.tables]
    if any(map(tables.is_neutral, [*paths, *files.scraped])):
        return statement
    return f"instance of {statement}"


def _label(built: _Row | None, clean: _Row | None, scraped: _Row | None) -> tuple[str, str | None]:
    """Return the label that determined the group, and its class item, None if unknown.

    A landmark with several labels may be in the hierarchy although ``clean`` removed it.
    """
    if clean is not None:
        return clean["supercategory"], clean["class_item"]
    assert built is not None
    label: str = built["supercategory"]
    if scraped is not None:
        for value in scraped["instance_of"]:
            if normalise_label(value["label"]) == normalise_label(label):
                return label, value["item"]
    return label, None


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
    outcome = decision.decision
    if decision.group:
        outcome += f": {decision.group}"
    steps = [(name, f"{outcome}, by {decision.annotator}, {format_time(decision.decided_at)}")]
    if decision.comment:
        steps.append(("comment", decision.comment))
    if decision.group:
        guideline = groups[decision.group].guideline
        if guideline:
            steps.append(("guideline", guideline))
    return steps


def _proposal(row: _Row) -> list[tuple[str, str]]:
    """Return the proposal of ``hgld complete`` and its nearest landmarks."""
    if row["group"] is None:
        return [("proposal", "none: no photographs of it are embedded")]
    votes = f"{row['votes']:.1f} of {row['photographs']} votes of its photographs"
    text = f"{row['group']}, score {row['score']:.2f}, {votes}"
    if row["second_group"] is not None:
        text += f"; second {row['second_group']}, {row['second_votes']:.1f}"
    nearest = []
    for landmark in row["nearest"]:
        similarity = landmark["similarity"]
        nearest.append(f"{landmark['name']} ({landmark['group']}, {similarity:.2f})")
    return [("proposal", text), ("nearest", ", ".join(nearest) or "none")]


def _source(hierarchy: Path, proposal: _Row | None) -> str:
    """Describe the source of a group from photographs."""
    text = "photographs, not a label: the proposal of hgld complete"
    lowest_score = tables.read_provenance(hierarchy).parameters.get("completed_above")
    if lowest_score is not None:
        text += f", taken from a score of {lowest_score:g} on"
    if proposal is None:
        text += "; it is in no completed.parquet of the folder"
    return text


def _place(built: _Row) -> list[tuple[str, str]]:
    """Return the group of a landmark and the levels above it."""
    levels = tables.level_columns(list(built))
    steps = [("group", built[levels[0]])]
    further_groups = built.get("hierarchical_labels", [])[1:]
    if further_groups:
        steps.append(("further groups", ", ".join(further_groups)))
    for number, name in enumerate(built.get("extra_levels", []), 1):
        steps.append((f"extra level {number}", name))
    for level in levels[1:]:
        steps.append(("root" if level == ROOT else level, built[level]))
    return steps


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
    """Return a note for each file that differs from the input of the hierarchy."""
    if "hierarchy" not in files.tables:
        return []
    inputs = tables.read_provenance(files.hierarchy).inputs
    current = {**files.tables, **files.annotations}
    notes = []
    for role in ("clean", "decisions", "taxonomy", "completed", "corrections"):
        digest = inputs.get(role)
        if digest and role in current and digest != sha256_of(current[role]):
            notes.append(
                f"{files.hierarchy} was built from other {role} than {current[role]}, so this trace may not "
                "explain it"
            )
    return notes
