"""Write the documents of a release from templates: dataset card, datasheet and licence."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from hgld import tables
from hgld.arrays import Integers
from hgld.errors import InputError, counted
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.build_inputs import InputTables
from hgld.hierarchy.stats import HierarchyStats, hierarchy_stats
from hgld.io.columns import read_columns
from hgld.io.licences import hub_fields, licence_url
from hgld.io.markdown import join_names, markdown_table
from hgld.release.facts import (
    CLASSES,
    ReleaseFacts,
    annotations_creators,
    citation,
    template,
)
from hgld.tables import Provenance
from hgld.tables.column_values import SCRAPE_SOURCE_MEANINGS
from hgld.taxonomy.decisions import DECISIONS, Decision

#: Smallest number of rows in each size category of the Hugging Face hub, largest first.
_SIZES = (
    (10**6, "1M<n<10M"),
    (10**5, "100K<n<1M"),
    (10**4, "10K<n<100K"),
    (10**3, "1K<n<10K"),
    (0, "n<1K"),
)
#: Number of groups, roots and labels that are given as examples.
_EXAMPLES = 3
#: Largest number of groups in the table of groups.
_LISTED = 500
#: Largest number of roots in a sentence.
_NAMED = 5
_NOT_STATED = "Not stated."
#: Columns of a comparison of models; see hgld.benchmark.model_comparison.
_COMPARED = {
    "metric": pa.string(),
    "name": pa.string(),
    "mean": pa.float64(),
    "low": pa.float64(),
    "high": pa.float64(),
}
_MODELS = """
## How models do on it

{}

In %, with 95 % intervals over classes; AP_l1 is that of the coarsest level. Compared by `hgld compare-models`.
"""
#: What ``hgld labels`` does to labels.
_SPELLINGS_UNIFIED = (
    "Spellings of a label that differ in case, spaces, hyphens or as English plurals became one."
)
_COMMONS = "commons.wikimedia.org"
#: Placeholders that are empty by default.
_EMPTY = (
    "levels",
    "overrepresented",
    "origins",
    "origins_listed",
    "values_licence",
    "address",
    "credited_at",
    "undecided",
    "undecided_limitation",
    "unconfirmed",
    "unconfirmed_limitation",
    "licence_unconfirmed",
)
#: Statement for releases without annotators.
NOBODY = "No annotator has reviewed the labels."


def write_documents(folder: Path, facts: ReleaseFacts, models: Path | None = None) -> None:
    """Write ``README.md``, ``datasheet.md`` and ``LICENSE``.

    Args:
        folder: Folder to write to.
        facts: Facts of the release.
        models: ``results.parquet`` of a comparison of models, which becomes a section of the card.
    """
    values = _placeholders(facts)
    values["models"] = "" if models is None else _models_section(models)
    for name in ("README.md", "datasheet.md", "LICENSE"):
        text = Template(template(name)).substitute(values)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _placeholders(facts: ReleaseFacts) -> dict[str, str]:
    """Return the text of each placeholder of the templates."""
    counts = hierarchy_stats(facts.tree)
    imbalance = counts.imbalance[facts.tree.nouns[1]]
    n = len(facts.hierarchy)
    settings = facts.settings
    group_level = facts.tree.group_level
    roots = _roots(facts)
    if len(roots) > _NAMED:
        roots = [*roots[:_EXAMPLES], "..."]
    data_files = []
    for split in facts.splits.values():
        data_files.append(f"  - split: {_yaml_name(split)}\n    path: data/{split}.parquet")
    features = []
    for column in facts.columns:
        features.append(f"  - name: {_yaml_name(column.name)}\n    {_feature(column.type)}")
    keywords = [f"- {json.dumps(word, ensure_ascii=False)}" for word in settings.keywords]
    hub_licence = [f"{name}: {value}" for name, value in hub_fields(settings.licence).items()]
    creators = [f"- {term}" for term in annotations_creators(facts.origins) or ["other"]]
    steps = [f"{number}. {step}" for number, step in enumerate(_steps(facts), 1)]
    provenances = [*_provenances(facts.sources), facts.provenance]
    return {
        **{name: value or _NOT_STATED for name, value in settings.model_dump().items()},
        **facts.words,
        "creators": ", ".join(settings.creators),
        "keywords": "\n".join(keywords),
        "source": settings.source or "The source of the list is not stated.",
        "images": settings.images or "It is not stated where to get them.",
        "name_quoted": json.dumps(settings.name, ensure_ascii=False),
        "hub_licence": "\n".join(hub_licence),
        "licence_url": licence_url(settings.licence),
        "date": facts.date,
        "examples": ", ".join(group.group for group in counts.groups[:_EXAMPLES]),
        "roots": " or ".join(roots),
        "size_category": next(name for least, name in _SIZES if n >= least),
        "data_files": "\n".join(data_files),
        "features": "\n".join(features),
        "first_split": next(iter(facts.splits.values())),
        "split_list": join_names(facts.splits),
        "counts": _counts_table(facts, counts),
        "largest": imbalance.largest,
        "largest_share": f"{imbalance.largest_share:.1%}",
        "effective_groups": f"{imbalance.effective_groups:.1f}",
        "gini": f"{imbalance.gini:.2f}",
        "n_groups": str(len(counts.groups)),
        "group_level": group_level,
        "group_sql": json.dumps(group_level) if facts.is_neutral else group_level,
        "columns": _descriptions(facts.column_descriptions, "column"),
        "files": _descriptions(facts.files, "file"),
        "listed": f"The {_LISTED} largest ones:\n\n" if len(counts.groups) > _LISTED else "",
        "groups": _groups_table(facts, counts),
        "annotations_creators": "\n".join(creators),
        "annotators_named": _annotators_text(facts),
        "scraped": _listed_text(facts) or _scraped_text(facts) or "Not recorded.",
        "cleaned": _join_sentences(_cleaned_text(facts), _left_out_text(facts)),
        "decided": _decisions_text(facts.decisions),
        "steps": "\n".join(steps),
        "completed_limitation": _completed_text(facts, _COMPLETED_LIMITATION),
        "provenance": "\n\n".join(map(_provenance_text, provenances)),
        "citation": citation(settings),
        **_conditional_texts(facts),
    }


def _join_sentences(*sentences: str) -> str:
    """Join sentences by spaces, without empty ones."""
    return " ".join(sentence for sentence in sentences if sentence)


def _conditional_texts(facts: ReleaseFacts) -> dict[str, str]:
    """Return the texts that depend on the kind of list and on the facts that are known."""
    settings = facts.settings
    words = facts.words
    entities = words["entities"]
    levels = join_names(f"`{name}`" for name in facts.tree.level_names[1:])
    texts = dict.fromkeys(_EMPTY, "")
    texts["level_list"] = levels
    if facts.is_neutral:
        texts["levels"] = f" The levels are {levels}."
    if not _listed_text(facts):
        texts["overrepresented"] = (
            f", so {words['kinds']}\nthat the sources describe well are overrepresented"
        )
    origins = _origins_table(facts)
    if origins:
        texts["origins"] = f"{origins}\n\n"
        texts["origins_listed"] = f" The groups come from:\n\n{origins}"
    if not facts.is_neutral or facts.sources.scraped or CLASSES in facts.origins:
        texts["values_licence"] = " Values of Wikidata are under CC0."
    if settings.url:
        texts["address"] = f"{settings.url}, "
        texts["credited_at"] = f", {settings.url}"
    undecided = _undecided_text(facts)
    if undecided:
        texts["undecided"] = f", also {undecided}"
        texts["undecided_limitation"] = (
            f"\n- Left out: {undecided}. The build excluded undecided labels."
        )
    if settings.unconfirmed:
        names = ", ".join(settings.unconfirmed)
        sentence = f"hgld suggested these facts, and nobody has confirmed them: {names}."
        texts["unconfirmed"] = f"{sentence}\n\n"
        texts["unconfirmed_limitation"] = f"\n- {sentence}"
    if "licence" in settings.unconfirmed:
        texts["licence_unconfirmed"] = ", which hgld suggested and nobody has confirmed"
    texts |= _decision_texts(facts)
    if settings.raw:
        texts["raw"] = (
            f"Yes: `raw/` has the scraped values of all {entities}, and the {entities} that were removed."
        )
    n_without_page = 0
    if "category" in facts.hierarchy.column_names:
        n_without_page = facts.hierarchy["category"].null_count
    texts["missing"] = "No values are missing"
    if n_without_page:
        texts["missing"] = f"`page`, for {n_without_page:,} {entities}"
    if n_without_page == len(facts.hierarchy):
        texts["links"] = ""
        texts["contents"] = f"the labels of {entities}"
    return texts


def _decision_texts(facts: ReleaseFacts) -> dict[str, str]:
    """Return the texts that depend on whether annotators decided on labels."""
    words = facts.words
    label_column = f"The label of every {words['entity']} is in the column `{words['label']}`"
    if not facts.decisions:
        return {
            "in_taxonomy": "",
            "signed": "",
            "changeable": "the labels or what is above them",
            "labelling": "What the settings below say.",
            "raw": f"{label_column}.",
        }
    assigned = "Each remaining label was assigned to one of the groups of `taxonomy.csv` or dropped"
    cleaned = _SPELLINGS_UNIFIED if _listed_text(facts) else words["labelling"]
    return {
        "in_taxonomy": "; `taxonomy.csv` says what belongs to each",
        "signed": " `decisions.csv` contains the names\nthat annotators entered for themselves.",
        "changeable": "`decisions.csv` or `taxonomy.csv`",
        "labelling": f"{cleaned} {assigned}{_except_undecided(facts)}.",
        "raw": f"{label_column}, every decision in `decisions.csv`.",
    }


def _models_section(models: Path) -> str:
    """Return the section of the card that quotes ``results.parquet`` of ``hgld compare-models``."""
    table = read_columns(models, list(_COMPARED), _COMPARED)
    if table.column_names != list(_COMPARED):
        raise InputError(
            f"{models}: lacks columns of a comparison ({', '.join(_COMPARED)}); name results.parquet of "
            "hgld compare-models"
        )
    rows = {(row["name"], row["metric"]): row for row in table.to_pylist()}
    metrics = dict.fromkeys(table["metric"].to_pylist())
    shown = [metric for metric in metrics if re.match("H-AP$|AP|R@1$|mAP@R$", metric)]
    if not shown:
        raise InputError(
            f"{models}: has none of the metrics H-AP, AP, mAP@R and R@1 to show; compare the models by one"
        )
    main = "H-AP" if "H-AP" in shown else shown[0]
    names = list(dict.fromkeys(table["name"].to_pylist()))
    names.sort(key=lambda name: -rows[name, main]["mean"])
    body = []
    for name in names:
        cells = [_mean_and_interval(rows[name, metric]) for metric in shown]
        body.append([name, *cells])
    return _MODELS.format(markdown_table(["model", *shown], body, n_numeric=len(shown)))


def _mean_and_interval(row: Mapping[str, Any]) -> str:
    """Return the mean and the interval of a metric in percent."""
    mean = f"{100 * row['mean']:.1f}"
    if row["low"] is None or not math.isfinite(row["low"]):
        return f"{mean} [no interval]"
    return f"{mean} [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"


def _yaml_name(name: str) -> str:
    """Return the name of a split or a column in YAML, in quotes unless YAML reads it as the same text."""
    if re.fullmatch(r"\w[\w ]*", name) and yaml.safe_load(name) == name:
        return name
    return json.dumps(name, ensure_ascii=False)


def _descriptions(descriptions: Mapping[str, str], key: str) -> str:
    """Return a table of names, such as names of files or columns, with their descriptions."""
    rows = [[f"`{name}`", text] for name, text in descriptions.items()]
    return markdown_table([key, "description"], rows)


def _counts_table(facts: ReleaseFacts, counts: HierarchyStats) -> str:
    """Return a table of the numbers of entities by split and root.

    Landmarks have two roots and a row per split; other lists may have many roots and have a row per
    root.
    """
    roots = _roots(facts)
    if facts.is_neutral:
        return _counts_by_root(facts.tree, counts, roots)
    rows = []
    for split, by_root in counts.landmarks.items():
        cells = [f"{by_root[root]:,}" for root in roots]
        rows.append([split, f"{sum(by_root.values()):,}", *cells])
    n_groups = Counter(group.root for group in counts.groups)
    groups = [str(n_groups[root]) for root in roots]
    rows.append(["groups", str(len(counts.groups)), *groups])
    return markdown_table(["", "all", *roots], rows, n_numeric=1 + len(roots))


def _counts_by_root(tree: Hierarchy, counts: HierarchyStats, roots: Sequence[str]) -> str:
    """Return a table of the numbers of entities by split and of names by level: in all, and per root."""
    finer_levels = tree.level_names[-2:0:-1]
    totals = [f"{sum(by_root.values()):,}" for by_root in counts.landmarks.values()]
    rows = [["all", *totals, *_count_names(tree, tree.labels, finer_levels)]]
    for root in roots[:_LISTED]:
        by_split = [f"{by_root[root]:,}" for by_root in counts.landmarks.values()]
        below_root = tree.labels[tree.labels[:, -1] == tree.code(root, 1)]
        rows.append([root, *by_split, *_count_names(tree, below_root, finer_levels)])
    header = [tree.root_level, *counts.landmarks, *finer_levels]
    return markdown_table(header, rows, n_numeric=len(header) - 1)


def _count_names(tree: Hierarchy, labels: Integers, levels: Sequence[str]) -> list[str]:
    """Return the number of distinct names at each level among rows of labels."""
    return [f"{len(np.unique(labels[:, tree.column(level)])):,}" for level in levels]


def _roots(facts: ReleaseFacts) -> list[str]:
    """Return the roots: "natural", "human-made" for landmarks; the largest first for other lists."""
    names = facts.tree.counts(1)
    if facts.is_neutral:
        return list(names)
    return sorted(names, reverse=True)


def _groups_table(facts: ReleaseFacts, counts: HierarchyStats) -> str:
    """Return a table of groups with their numbers of landmarks by split and most frequent labels."""
    tree = facts.tree
    groups = facts.hierarchy[tree.group_level].to_pylist()
    by_split = Counter(zip(groups, facts.hierarchy["split"].to_pylist(), strict=True))
    labels: defaultdict[str, Counter[str]] = defaultdict(Counter)
    labelled = tables.without_completed(facts.hierarchy)
    labelled_groups = labelled[tree.group_level].to_pylist()
    for name, label in zip(labelled_groups, labelled["supercategory"].to_pylist(), strict=True):
        labels[name][label] += 1
    rows = []
    for group in counts.groups[:_LISTED]:
        by_frequency = sorted(labels[group.group].items(), key=lambda item: (-item[1], item[0]))
        n_landmarks = [f"{by_split[group.group, split]:,}" for split in facts.splits]
        examples = ", ".join(label for label, _ in by_frequency[:_EXAMPLES])
        above = tree.ancestors(group.group, tree.group_level) if facts.is_neutral else [group.root]
        rows.append([group.group, *above, *n_landmarks, f"{len(by_frequency):,}", examples])
    levels = tree.level_names[1:] if facts.is_neutral else ("group", "root")
    return markdown_table([*levels, *facts.splits, "labels", "most frequent labels"], rows)


def _steps(facts: ReleaseFacts) -> list[str]:
    """Return the steps by which the release was made, as far as the tables prove them."""
    words = facts.words
    steps = []
    listed = _listed_text(facts)
    if listed:
        steps.append(f"Read the list. {listed} {_SPELLINGS_UNIFIED}")
    scraped = _scraped_text(facts)
    if scraped:
        steps.append(f"Scrape. {scraped}")
    cleaned = _cleaned_text(facts)
    if cleaned or not facts.is_neutral:
        steps.append(f"Clean. {words['An_entity']} has one relevant label. {cleaned}")
    if facts.decisions:
        decided = f"{_decisions_text(facts.decisions)} {_annotators_text(facts)}"
        steps.append(
            f"Decide. Every label is assigned to a group, or dropped{_except_undecided(facts)}. {decided}"
        )
    elif CLASSES in facts.origins:
        steps.append(
            "Decide. Groups and levels are the classes above each label on Wikidata; no annotator decided."
        )
    levels = facts.tree.level_names[1:] if facts.is_neutral else ("group", "root")
    columns = [words["Entity"], "label", *levels]
    built = f"Build. {', '.join(columns)}."
    steps.append(_join_sentences(built, _left_out_text(facts)))
    completed = _completed_text(facts, _COMPLETED_STEP)
    if completed and not facts.is_neutral:
        completed += _COMPLETED_CSV
    if completed:
        steps.append(completed)
    return steps


def _annotators_text(facts: ReleaseFacts) -> str:
    """Name the annotators."""
    if not facts.annotators:
        return NOBODY
    return f"Decisions are those of {', '.join(facts.annotators)}."


def _listed_text(facts: ReleaseFacts) -> str:
    """Describe the list that ``hgld labels`` read; "" if the labels have another or an unknown source."""
    if facts.sources.clean is None:
        return ""
    provenance = tables.read_provenance(facts.sources.clean)
    if provenance.command != "labels":
        return ""
    labels = tables.read_table(facts.sources.clean, tables.CLEAN)["supercategory"]
    n_labels = counted(len(labels.unique()), "label")
    return (
        f"{len(labels):,} {facts.words['entities']} with {n_labels} were read from a list, whose column "
        f"`{provenance.parameters['label']}` has the labels."
    )


def _scraped_text(facts: ReleaseFacts) -> str:
    """Describe which values were read, from where and when, as far as the scraped tables record it."""
    if not facts.sources.scraped:
        if facts.is_neutral:
            return ""
        return "The tables of scraped values were not beside the hierarchy, so their source is not recorded."
    sentences = []
    properties: list[str] = []
    for path in facts.sources.scraped:
        rows = tables.read_table(path, tables.SCRAPED)
        parameters = tables.read_provenance(path).parameters
        if "property_id" in parameters:
            properties.append(str(parameters["property_id"]))
        days: list[str] = []
        for time in pc.min_max(rows["fetched_at"]).as_py().values():
            if time and time.date().isoformat() not in days:
                days.append(time.date().isoformat())
        places = ", ".join(_scraped_places(facts, rows, parameters))
        number = f"{len(rows):,} {facts.words['entities']}"
        sentences.append(f"{number}, {' to '.join(days)}: {places}.")
    names = "Wikidata" if facts.is_neutral else '"instance of" (P31)'
    if properties:
        names = join_names(dict.fromkeys(properties))
    return " ".join([f"Values of {names} were read.", *sentences])


def _scraped_places(
    facts: ReleaseFacts, rows: pa.Table, parameters: Mapping[str, Any]
) -> list[str]:
    """Return the sources of a scraped table, and the addresses of the servers.

    Wikimedia Commons is left out for lists that name no page there.
    """
    places = []
    for source in sorted(set(rows["source"].to_pylist())):
        places.append(SCRAPE_SOURCE_MEANINGS[source].rstrip("."))
    for name, address in sorted(parameters.items()):
        if name.endswith("_url"):
            places.append(f"`{address}`")
    if facts.is_neutral and not pc.any(pc.match_substring(rows["category"], _COMMONS)).as_py():
        places = [
            place.replace("APIs of Wikidata and Wikimedia Commons", "API of Wikidata")
            for place in places
            if _COMMONS not in place
        ]
    return places


def _cleaned_text(facts: ReleaseFacts) -> str:
    """Count the entities that ``hgld clean`` kept and removed; "" if its tables were not found."""
    sources = facts.sources
    if sources.clean is None or sources.removed is None:
        return ""
    n_kept = len(tables.read_table(sources.clean, tables.CLEAN))
    reasons = tables.read_table(sources.removed, tables.REMOVED)["reason"].to_pylist()
    counts = [f"{n_kept:,} kept"]
    for reason, count in sorted(Counter(reasons).items()):
        counts.append(f"{count:,} {reason}")
    return f"Of {n_kept + len(reasons):,} {facts.words['entities']}: {', '.join(counts)}."


def _left_out_text(facts: ReleaseFacts) -> str:
    """Count the entities that the build left out, by reason; "" if the number is 0 or unknown."""
    left_out = facts.left_out
    entities = facts.words["entities"]
    if left_out is None:
        if not facts.may_lack_undecided:
            return ""
        return (
            f"Left out are {entities} whose label is undecided; how many is not recorded, as the table of labels was "
            "not beside the hierarchy."
        )
    reasons = []
    if left_out.dropped:
        reasons.append(f"{left_out.dropped:,} whose label was dropped")
    if left_out.undecided:
        labels = counted(left_out.undecided_labels, "label")
        reasons.append(f"{left_out.undecided:,} whose label is undecided ({labels})")
    if left_out.others:
        why = "for other reasons" if facts.decisions else "whose label leads to no group"
        reasons.append(f"{left_out.others:,} {why}")
    if not reasons:
        return ""
    return (
        f"{left_out.kept:,} of these {left_out.cleaned:,} {entities} have a group; "
        f"left out are {join_names(reasons)}."
    )


def _undecided_text(facts: ReleaseFacts) -> str:
    """Describe the entities that are left out because their label is undecided; "" for no entities."""
    if not facts.may_lack_undecided:
        return ""
    left_out = facts.left_out
    if left_out is None:
        return f"{facts.words['entities']} whose label is undecided"
    noun = facts.words["entity"] if left_out.undecided == 1 else facts.words["entities"]
    labels = counted(left_out.undecided_labels, "label")
    return f"{left_out.undecided:,} {noun} whose label is undecided ({labels})"


def _except_undecided(facts: ReleaseFacts) -> str:
    """Return the exception from statements on every label, such as ", except 3 undecided labels"."""
    if not facts.may_lack_undecided:
        return ""
    if facts.left_out is None:
        return ", except undecided labels"
    return f", except {counted(facts.left_out.undecided_labels, 'undecided label')}"


def _decisions_text(decisions: Sequence[Decision]) -> str:
    """Count the decisions by kind, with the first and the last day."""
    if not decisions:
        return "Not recorded."
    n_decisions = Counter(row.decision for row in decisions if not row.of_landmark)
    n_corrected = sum(row.of_landmark for row in decisions)
    times = [row.decided_at for row in decisions]
    first = min(times).date().isoformat()
    last = max(times).date().isoformat()
    days = f"on {first}" if first == last else f"from {first} to {last}"
    counts = []
    for decision in DECISIONS:
        if n_decisions[decision]:
            counts.append(f"{n_decisions[decision]:,} {decision}")
    text = f"{n_decisions.total():,} labels were decided {days} ({', '.join(counts)})."
    if n_corrected:
        verb = "was" if n_corrected == 1 else "were"
        text += f" Of single entries, {n_corrected:,} {verb} corrected."
    return text


#: Statements on entities with a group from photographs; number, share and lowest score are filled
#: in.
_COMPLETED_STEP = (
    "Complete. {An_entity} whose labels lead to no group takes the one that its photographs resemble,"
    "\n   if the probability that this is right, calibrated on labelled {entities}, is at least {above:.0%}."
)
_COMPLETED_CSV = "\n   The CSV files leave these landmarks out."
_COMPLETED_LIMITATION = (
    "\n- The groups of {n:,} {entities} ({share:.1%}; `label_source` is `photographs`) are predictions from\n"
    "  photographs that nobody checked. The estimated probability that one is right is at least "
    "{above:.0%}. Leave\n  these {entities} out where people must have decided all labels."
)


def _completed_text(facts: ReleaseFacts, text: str) -> str:
    """Fill in a statement on entities with a group from photographs; "" if there are no such entities."""
    n = len(facts.hierarchy) - len(tables.without_completed(facts.hierarchy))
    if n == 0:
        return ""
    above = facts.provenance.parameters["completed_above"]
    return text.format(**facts.words, n=n, share=n / len(facts.hierarchy), above=above)


def _origins_table(facts: ReleaseFacts) -> str:
    """Return a table of the origins with their numbers of entities; "" if origins are not recorded."""
    if not facts.origins:
        return ""
    rows = []
    for origin, n in facts.origins.items():
        description = origin.description.format(**facts.words)
        rows.append([origin.name, description, origin.creator, f"{n:,}"])
    header = ["origin of the group", "meaning", "annotations", facts.words["entities"]]
    return markdown_table(header, rows, n_numeric=1)


def _provenances(sources: InputTables) -> list[Provenance]:
    """Return the provenance of the scraped and clean tables that a hierarchy was made from."""
    paths = list(sources.scraped)
    if sources.clean is not None:
        paths.append(sources.clean)
    return [tables.read_provenance(path) for path in paths]


def _provenance_text(provenance: Provenance) -> str:
    """Describe a stage by the provenance of its table."""
    parameters = json.dumps(provenance.parameters, sort_keys=True, ensure_ascii=False)
    inputs = [[role, f"`{digest}`"] for role, digest in sorted(provenance.inputs.items())]
    command = f"`hgld {provenance.command}`, version {provenance.version}"
    table = markdown_table(["input", "SHA-256"], inputs)
    return f"{command}, with the settings `{parameters}`, from\n\n{table}"


def _feature(kind: pa.DataType) -> str:
    """Return the type of a column in the notation of the Hugging Face hub."""
    if pa.types.is_list(kind):
        return f"list: {kind.value_type}"
    return f"dtype: {kind}"
