"""The documents of a release: dataset card, datasheet and licence, from templates, and Croissant for machines."""

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
from hgld.errors import InputError, counted
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.build_inputs import InputTables
from hgld.hierarchy.stats import HierarchyStats, hierarchy_stats
from hgld.io.columns import read_columns
from hgld.io.files import sha256_of
from hgld.io.licences import hub_fields, licence_url
from hgld.io.markdown import in_words, markdown_table
from hgld.release.facts import (
    CLASSES,
    CROISSANT,
    MACHINE,
    ReleaseFacts,
    annotations_creators,
    citation,
    safe_names,
    template,
)
from hgld.tables import Provenance
from hgld.tables.column_values import SCRAPE_SOURCE_MEANINGS
from hgld.taxonomy.decisions import DECISIONS, Decision

#: Size categories of the Hugging Face hub with the smallest number of rows of each, largest first.
_SIZES = (
    (10**6, "1M<n<10M"),
    (10**5, "100K<n<1M"),
    (10**4, "10K<n<100K"),
    (10**3, "1K<n<10K"),
    (0, "n<1K"),
)
_EXAMPLES = 3
#: Largest number of groups in the table of groups, and of roots in a sentence.
_LISTED, _NAMED = 500, 5
_NOT_STATED = "Not stated."
#: Columns of a comparison of models, see hgld.benchmark.compare.
_COMPARED = {"metric": pa.string(), "name": pa.string()} | dict.fromkeys(
    ("mean", "low", "high"), pa.float64()
)
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
#: Placeholders that are empty unless there is something to say.
_EMPTY = (
    "undecided",
    "undecided_limitation",
    "unconfirmed",
    "unconfirmed_limitation",
    "licence_unconfirmed",
)
#: Statement on annotators where there were none.
NOBODY = "No annotator has reviewed the labels."


def write_documents(folder: Path, facts: ReleaseFacts, models: Path | None = None) -> None:
    """Write ``README.md``, ``datasheet.md`` and ``LICENSE`` to a folder; the card quotes a comparison of models."""
    values = _placeholders(facts)
    values["models"] = "" if models is None else _models_section(models)
    for name in ("README.md", "datasheet.md", "LICENSE"):
        text = Template(template(name)).substitute(values)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _placeholders(facts: ReleaseFacts) -> dict[str, str]:
    counts = hierarchy_stats(facts.tree)
    imbalance = counts.imbalance[facts.tree.nouns[1]]
    n = len(facts.hierarchy)
    settings, group_level, roots = facts.settings, facts.tree.group_level, _roots(facts)
    return {
        **{name: value or _NOT_STATED for name, value in settings.model_dump().items()},
        **facts.words,
        "creators": ", ".join(settings.creators),
        "keywords": "\n".join(
            f"- {json.dumps(word, ensure_ascii=False)}" for word in settings.keywords
        ),
        "source": settings.source or "The source of the list is not stated.",
        "images": settings.images or "It is not stated where to get them.",
        "name_quoted": json.dumps(settings.name, ensure_ascii=False),
        "hub_licence": "\n".join(
            f"{name}: {value}" for name, value in hub_fields(settings.licence).items()
        ),
        "licence_url": licence_url(settings.licence),
        "date": facts.date,
        "examples": ", ".join(group.group for group in counts.groups[:_EXAMPLES]),
        "roots": " or ".join(roots if len(roots) <= _NAMED else [*roots[:_EXAMPLES], "..."]),
        "size_category": next(name for least, name in _SIZES if n >= least),
        "data_files": "\n".join(
            f"  - split: {_yaml_name(split)}\n    path: data/{split}.parquet"
            for split in facts.splits.values()
        ),
        "features": "\n".join(
            f"  - name: {_yaml_name(column.name)}\n    {_feature(column.type)}"
            for column in facts.columns
        ),
        "first_split": next(iter(facts.splits.values())),
        "split_list": in_words(facts.splits),
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
        "annotations_creators": "\n".join(
            f"- {term}" for term in annotations_creators(facts.origins) or ["other"]
        ),
        "annotators_named": _annotators_text(facts),
        "scraped": _listed_text(facts) or _scraped_text(facts) or "Not recorded.",
        "cleaned": " ".join(filter(None, (_cleaned_text(facts), _left_out_text(facts)))),
        "decided": _decisions_text(facts.decisions),
        "steps": "\n".join(f"{number}. {step}" for number, step in enumerate(_steps(facts), 1)),
        "completed_limitation": _completed_text(facts, _COMPLETED_LIMITATION),
        "provenance": "\n\n".join(
            map(_provenance_text, [*_provenances(facts.sources), facts.provenance])
        ),
        "citation": citation(settings),
        **_conditional_texts(facts),
    }


def _conditional_texts(facts: ReleaseFacts) -> dict[str, str]:
    """Return the texts that depend on what there is to describe."""
    settings, words, url, origins = (
        facts.settings,
        facts.words,
        facts.settings.url,
        _origins_table(facts),
    )
    decided = bool(facts.decisions)
    of_wikidata = not facts.is_neutral or facts.sources.scraped or CLASSES in facts.origins
    levels = in_words(f"`{name}`" for name in facts.tree.level_names[1:])
    without_page = (
        facts.hierarchy["category"].null_count if "category" in facts.hierarchy.column_names else 0
    )
    texts = {
        **dict.fromkeys(_EMPTY, ""),
        "levels": f" The levels are {levels}." if facts.is_neutral else "",
        "level_list": levels,
        "missing": f"`page`, for {without_page:,} {words['entities']}"
        if without_page
        else "No values are missing",
        "overrepresented": ""
        if _listed_text(facts)
        else f", so {words['kinds']}\nthat the sources describe well are overrepresented",
        "in_taxonomy": "; `taxonomy.csv` says what belongs to each" if decided else "",
        "signed": " `decisions.csv` contains the names\nthat annotators entered for themselves."
        if decided
        else "",
        "changeable": "`decisions.csv` or `taxonomy.csv`"
        if decided
        else "the labels or what is above them",
        "origins": f"{origins}\n\n" if origins else "",
        "origins_listed": f" The groups come from:\n\n{origins}" if origins else "",
        "values_licence": " Values of Wikidata are under CC0." if of_wikidata else "",
        "address": f"{url}, " if url else "",
        "credited_at": f", {url}" if url else "",
        "raw": (
            f"Yes: `raw/` has the scraped values of all {words['entities']}, and the {words['entities']} that were "
            "removed."
            if facts.settings.raw
            else f"The label of every {words['entity']} is in the column `{words['label']}`"
            f"{', every decision in `decisions.csv`' if decided else ''}."
        ),
    }
    if undecided := _undecided_text(facts):
        texts |= {
            "undecided": f", also {undecided}",
            "undecided_limitation": f"\n- Left out: {undecided}. The build excluded undecided labels.",
        }
    if settings.unconfirmed:
        names = ", ".join(settings.unconfirmed)
        sentence = f"hgld suggested these facts, and nobody has confirmed them: {names}."
        texts |= {"unconfirmed": f"{sentence}\n\n", "unconfirmed_limitation": f"\n- {sentence}"}
    if "licence" in settings.unconfirmed:
        texts["licence_unconfirmed"] = ", which hgld suggested and nobody has confirmed"
    if decided:
        assigned = (
            "Each remaining label was assigned to one of the groups of `taxonomy.csv` or dropped"
        )
        cleaned = _SPELLINGS_UNIFIED if _listed_text(facts) else words["labelling"]
        texts["labelling"] = f"{cleaned} {assigned}{_except_undecided(facts)}."
    else:
        texts["labelling"] = "What the settings below say."
    if without_page == len(facts.hierarchy):
        texts |= {"links": "", "contents": f"the labels of {words['entities']}"}
    return texts


def _models_section(models: Path) -> str:
    """Return the section of the card on the models in ``results.parquet`` of ``hgld compare-models``."""
    table = read_columns(models, [*_COMPARED], _COMPARED)
    if table.column_names != [*_COMPARED]:
        raise InputError(
            f"{models}: lacks columns of a comparison ({', '.join(_COMPARED)}); name results.parquet of "
            "hgld compare-models"
        )
    rows = {(row["name"], row["metric"]): row for row in table.to_pylist()}
    shown = [
        name
        for name in dict.fromkeys(table["metric"].to_pylist())
        if re.match("H-AP$|AP|R@1$|mAP@R$", name)
    ]
    if not shown:
        raise InputError(
            f"{models}: has none of the metrics H-AP, AP, mAP@R and R@1 to show; compare the models by one"
        )
    main = "H-AP" if "H-AP" in shown else shown[0]

    def cell(row: Mapping[str, Any]) -> str:
        mean = f"{100 * row['mean']:.1f}"
        if row["low"] is None or not math.isfinite(row["low"]):
            return f"{mean} [no interval]"
        return f"{mean} [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"

    names = sorted(
        dict.fromkeys(table["name"].to_pylist()), key=lambda name: -rows[name, main]["mean"]
    )
    body = [[name, *(cell(rows[name, metric]) for metric in shown)] for name in names]
    return _MODELS.format(markdown_table(["model", *shown], body, n_numeric=len(shown)))


def _yaml_name(name: str) -> str:
    """Return the name of a split or a column in YAML, quoted where YAML could read it as something else."""
    is_plain = re.fullmatch(r"\w[\w ]*", name) and yaml.safe_load(name) == name
    return name if is_plain else json.dumps(name, ensure_ascii=False)


def _descriptions(descriptions: Mapping[str, str], key: str) -> str:
    return markdown_table(
        [key, "description"], [[f"`{name}`", text] for name, text in descriptions.items()]
    )


def _counts_table(facts: ReleaseFacts, counts: HierarchyStats) -> str:
    """Return the numbers of entities by split and root: a row per split, or per root where these may be many."""
    roots = _roots(facts)
    if facts.is_neutral:
        return _counts_by_root(facts.tree, counts, roots)
    rows = [
        [split, f"{sum(by_root.values()):,}", *(f"{by_root[root]:,}" for root in roots)]
        for split, by_root in counts.landmarks.items()
    ]
    groups = [str(sum(group.root == root for group in counts.groups)) for root in roots]
    return markdown_table(
        ["", "all", *roots],
        [*rows, ["groups", str(len(counts.groups)), *groups]],
        n_numeric=1 + len(roots),
    )


def _counts_by_root(tree: Hierarchy, counts: HierarchyStats, roots: Sequence[str]) -> str:
    """Return the number of entities of each split, and of names at each level, below each root and in all."""
    finer = tree.level_names[-2:0:-1]

    def names_below(root: str | None) -> list[str]:
        below = (
            tree.labels if root is None else tree.labels[tree.labels[:, -1] == tree.code(root, 1)]
        )
        return [f"{len(np.unique(below[:, tree.column(level)])):,}" for level in finer]

    splits = counts.landmarks.values()
    rows = [["all", *(f"{sum(split.values()):,}" for split in splits), *names_below(None)]]
    rows += [
        [root, *(f"{split[root]:,}" for split in splits), *names_below(root)]
        for root in roots[:_LISTED]
    ]
    header = [tree.root_level, *counts.landmarks, *finer]
    return markdown_table(header, rows, n_numeric=len(header) - 1)


def _roots(facts: ReleaseFacts) -> list[str]:
    """Return the roots, those of landmarks in the order "natural, human-made", others with the largest first."""
    names = facts.tree.counts(1)
    return list(names) if facts.is_neutral else sorted(names, reverse=True)


def _groups_table(facts: ReleaseFacts, counts: HierarchyStats) -> str:
    """Return a table of groups with their numbers of landmarks by split and their most frequent labels."""
    tree = facts.tree
    by_split = Counter(
        zip(
            *(facts.hierarchy[name].to_pylist() for name in (tree.group_level, "split")),
            strict=True,
        )
    )
    labels: defaultdict[str, Counter[str]] = defaultdict(Counter)
    labelled = tables.without_completed(facts.hierarchy)
    columns = (labelled[name].to_pylist() for name in (tree.group_level, "supercategory"))
    for group, label in zip(*columns, strict=True):
        labels[group][label] += 1
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
    """Return what was done, step by step, as far as the tables prove it."""
    words, scraped, cleaned = facts.words, _scraped_text(facts), _cleaned_text(facts)
    listed = _listed_text(facts)
    steps = [f"Read the list. {listed} {_SPELLINGS_UNIFIED}"] if listed else []
    steps += [f"Scrape. {scraped}"] if scraped else []
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
    built = f"Build. {', '.join((words['Entity'], 'label', *levels))}."
    steps.append(" ".join(filter(None, (built, _left_out_text(facts)))))
    if completed := _completed_text(facts, _COMPLETED_STEP):
        steps.append(completed + ("" if facts.is_neutral else _COMPLETED_CSV))
    return steps


def _annotators_text(facts: ReleaseFacts) -> str:
    return f"Decisions are those of {', '.join(facts.annotators)}." if facts.annotators else NOBODY


def _listed_text(facts: ReleaseFacts) -> str:
    """Say which list of labels ``hgld labels`` read; empty if labels come from elsewhere, or nothing is known."""
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
    """Say which values were read where and when, as far as the scraped tables record it."""
    if not facts.sources.scraped:
        unknown = "The tables of scraped values were not beside the hierarchy, so their source is not recorded."
        return "" if facts.is_neutral else unknown
    parts = []
    properties: list[str] = []
    for path in facts.sources.scraped:
        rows = tables.read_table(path, tables.SCRAPED)
        parameters = tables.read_provenance(path).parameters
        properties += [str(parameters["property_id"])] if "property_id" in parameters else []
        places = [
            SCRAPE_SOURCE_MEANINGS[name].rstrip(".")
            for name in sorted(set(rows["source"].to_pylist()))
        ]
        places += [
            f"`{address}`" for key, address in sorted(parameters.items()) if key.endswith("_url")
        ]
        if facts.is_neutral and not pc.any(pc.match_substring(rows["category"], _COMMONS)).as_py():
            places = [
                text.replace("APIs of Wikidata and Wikimedia Commons", "API of Wikidata")
                for text in places
            ]
            places = [text for text in places if _COMMONS not in text]
        days = [
            time.date().isoformat()
            for time in pc.min_max(rows["fetched_at"]).as_py().values()
            if time
        ]
        days_text = " to ".join(dict.fromkeys(days))
        parts.append(f"{len(rows):,} {facts.words['entities']}, {days_text}: {', '.join(places)}.")
    unnamed = "Wikidata" if facts.is_neutral else '"instance of" (P31)'
    names = in_words(dict.fromkeys(properties)) if properties else unnamed
    return " ".join([f"Values of {names} were read.", *parts])


def _cleaned_text(facts: ReleaseFacts) -> str:
    sources = facts.sources
    if sources.clean is None or sources.removed is None:
        return ""
    kept, removed = (
        tables.read_table(sources.clean, tables.CLEAN),
        tables.read_table(sources.removed, tables.REMOVED),
    )
    reasons = sorted(Counter(removed["reason"].to_pylist()).items())
    counts = ", ".join(f"{count:,} {reason}" for reason, count in [("kept", len(kept)), *reasons])
    return f"Of {len(kept) + len(removed):,} {facts.words['entities']}: {counts}."


def _left_out_text(facts: ReleaseFacts) -> str:
    """Say how many entities the build left out, and why; empty if it left out none, or nothing is known."""
    left_out, entities = facts.left_out, facts.words["entities"]
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
        f"left out are {in_words(reasons)}."
    )


def _undecided_text(facts: ReleaseFacts) -> str:
    """Return what is left out because it is undecided, such as "3 paintings whose label ..."; empty if nothing is."""
    if not facts.may_lack_undecided:
        return ""
    left_out, words = facts.left_out, facts.words
    if left_out is None:
        return f"{words['entities']} whose label is undecided"
    number = f"{left_out.undecided:,} {words['entity'] if left_out.undecided == 1 else words['entities']}"
    return f"{number} whose label is undecided ({counted(left_out.undecided_labels, 'label')})"


def _except_undecided(facts: ReleaseFacts) -> str:
    """Return the exception from statements on every label; empty if there is none."""
    if not facts.may_lack_undecided:
        return ""
    if facts.left_out is None:
        return ", except undecided labels"
    return f", except {counted(facts.left_out.undecided_labels, 'undecided label')}"


def _decisions_text(decisions: Sequence[Decision]) -> str:
    if not decisions:
        return "Not recorded."
    of_landmarks = [row for row in decisions if row.of_landmark]
    n_decisions = Counter(row.decision for row in decisions if not row.of_landmark)
    first, last = (
        pick(row.decided_at for row in decisions).date().isoformat() for pick in (min, max)
    )
    counts = ", ".join(
        f"{n_decisions[decision]:,} {decision}" for decision in DECISIONS if n_decisions[decision]
    )
    days = f"on {first}" if first == last else f"from {first} to {last}"
    text = f"{n_decisions.total():,} labels were decided {days} ({counts})."
    if of_landmarks:
        text += f" Of single entries, {len(of_landmarks):,} {'was' if len(of_landmarks) == 1 else 'were'} corrected."
    return text


#: What the card says of entities with a group from photographs; their number, share and lowest score are filled in.
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
    """Fill in a text about entities with a group from photographs; empty if there are none."""
    n = len(facts.hierarchy) - len(tables.without_completed(facts.hierarchy))
    if not n:
        return ""
    above = facts.provenance.parameters["completed_above"]
    return text.format(**facts.words, n=n, share=n / len(facts.hierarchy), above=above)


def _origins_table(facts: ReleaseFacts) -> str:
    """Return a table of the origins with their numbers of entities; empty if they are not recorded."""
    rows = [
        [origin.name, origin.description.format(**facts.words), origin.creator, f"{n:,}"]
        for origin, n in facts.origins.items()
    ]
    header = ["origin of the group", "meaning", "annotations", facts.words["entities"]]
    return markdown_table(header, rows, n_numeric=1) if rows else ""


def _provenances(sources: InputTables) -> list[Provenance]:
    """Return the provenance of the tables that a hierarchy was made from, the earliest first."""
    return [
        tables.read_provenance(path)
        for path in (*sources.scraped, sources.clean)
        if path is not None
    ]


def _provenance_text(provenance: Provenance) -> str:
    """Describe a stage by the provenance of its table."""
    parameters = json.dumps(provenance.parameters, sort_keys=True, ensure_ascii=False)
    inputs = [[role, f"`{digest}`"] for role, digest in sorted(provenance.inputs.items())]
    command = f"`hgld {provenance.command}`, version {provenance.version}"
    table = markdown_table(["input", "SHA-256"], inputs)
    return f"{command}, with the settings `{parameters}`, from\n\n{table}"


def _feature(kind: pa.DataType) -> str:
    """Return the type of a column in the notation of the Hugging Face hub."""
    return f"list: {kind.value_type}" if pa.types.is_list(kind) else f"dtype: {kind}"


_TYPES = {pa.string(): "sc:Text", pa.int64(): "sc:Integer"}
_FORMATS = {
    ".parquet": "application/x-parquet",
    ".csv": "text/csv",
    ".md": "text/markdown",
    "": "text/plain",
}


def files_in(folder: Path) -> list[str]:
    """Return the paths of all files of a folder, relative to it, sorted."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()
    )


def write_croissant(folder: Path, facts: ReleaseFacts) -> bool:
    """Describe a release and its data files in Croissant 1.1, the vocabulary of MLCommons for datasets.

    https://docs.mlcommons.org/croissant/docs/croissant-spec.html, and for the terms on annotation (``rai:``)
    https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html

    Returns:
        Whether mlcroissant is installed and found it valid.
    """
    text = json.dumps(_croissant_metadata(folder, facts), indent=2, ensure_ascii=False) + "\n"
    (folder / CROISSANT).write_text(text, encoding="utf-8", newline="\n")
    return _is_valid_croissant(folder / CROISSANT)


def _croissant_metadata(folder: Path, facts: ReleaseFacts) -> dict[str, Any]:
    settings, origins = facts.settings, facts.origins
    protocol = " ".join(
        f"{origin.name} ({n:,} {facts.words['entities']}): {origin.description.format(**facts.words)}"
        for origin, n in origins.items()
    )
    return {
        "@context": json.loads(template("croissant_context.json")),
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.1",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "name": settings.name,
        "description": settings.description,
        **({"url": settings.url} if settings.url else {}),
        "version": settings.version,
        "datePublished": facts.date,
        "license": licence_url(settings.licence),
        "creator": [{"@type": "sc:Person", "name": creator} for creator in settings.creators],
        **({"keywords": list(settings.keywords)} if settings.keywords else {}),
        "citeAs": citation(settings),
        **({"rai:dataAnnotationProtocol": protocol} if protocol else {}),
        **(
            {"rai:machineAnnotationTools": ["hgld"]}
            if MACHINE in annotations_creators(origins)
            else {}
        ),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": name,
                "contentSize": f"{(folder / name).stat().st_size} B",
                "encodingFormat": _FORMATS[Path(name).suffix],
                "sha256": sha256_of(folder / name),
            }
            for name in files_in(folder)
        ],
        "recordSet": [_record_set(split, name, facts) for split, name in facts.splits.items()],
    }


def _is_valid_croissant(path: Path) -> bool:
    """Return whether mlcroissant is installed; raise an :class:`InputError` if it finds the file invalid."""
    try:
        import mlcroissant
    except ImportError:
        return False
    try:
        mlcroissant.Dataset(jsonld=path)
    except mlcroissant.ValidationError as error:
        raise InputError(f"{path.name}: invalid Croissant: {error}") from error
    return True


def _record_set(split: str, name: str, facts: ReleaseFacts) -> dict[str, Any]:
    fields = []
    ids = {column: f"{name}/{safe}" for column, safe in safe_names(facts.columns.names).items()}
    for column in facts.columns:
        is_list = pa.types.is_list(column.type)
        field = {
            "@type": "cr:Field",
            "@id": ids[column.name],
            "name": column.name,
            "description": facts.column_descriptions[column.name],
            "dataType": _TYPES[column.type.value_type if is_list else column.type],
            "source": {
                "fileObject": {"@id": f"data/{name}.parquet"},
                "extract": {"column": column.name},
            },
        }
        fields.append({**field, "repeated": True} if is_list else field)
    key = facts.columns.names[:2]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"The {split} {facts.words['entities']}, sorted by {key[1]}.",
        "key": [{"@id": ids[column]} for column in key],
        "field": fields,
    }
