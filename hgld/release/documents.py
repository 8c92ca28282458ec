"""The documents of a release: dataset card, datasheet and licence from templates, and Croissant metadata.

They say who decided on the groups, as far as decisions and provenance record it. Names of annotators are taken at
their word, except :data:`hgld.taxonomy.decisions.NOT_PEOPLE`. A person who accepts a suggestion on the review page
has decided.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.build_inputs import InputTables
from hgld.hierarchy.official import without_completed
from hgld.hierarchy.stats import HierarchyStats, hierarchy_stats
from hgld.io.files import sha256_of
from hgld.io.markdown import markdown_table
from hgld.release.settings import ReleaseSettings
from hgld.tables import HIERARCHY, Provenance
from hgld.tables.column_values import SCRAPE_SOURCE_MEANINGS
from hgld.tables.schemas import meaning_of
from hgld.taxonomy.decisions import DECISIONS, Decision
from hgld.taxonomy.label_identity import normalise_label

#: Description of each column of the table ``hierarchy``.
COLUMN_DESCRIPTIONS = {column.name: meaning_of(column) for column in (*HIERARCHY.schema, *HIERARCHY.optional)}
_TYPES = {pa.string(): "sc:Text", pa.int64(): "sc:Integer"}
CROISSANT = "croissant.json"
_FORMATS = {
    ".parquet": "application/x-parquet",
    ".csv": "text/csv",
    ".md": "text/markdown",
    "": "text/plain",
}
_TEMPLATES = Path(__file__).parents[1] / "templates" / "release"
#: Size categories of the Hugging Face hub with the smallest number of rows of each, largest first.
_SIZES = ((10**6, "1M<n<10M"), (10**5, "100K<n<1M"), (10**4, "10K<n<100K"), (10**3, "1K<n<10K"), (0, "n<1K"))
_EXAMPLES = 3
#: Statement on annotators where there were none.
NOBODY = "No annotator has reviewed the labels."
#: Answer to the question for raw data, by whether the release has it.
_RAW = {
    True: "Yes: `raw/` has the scraped values of all landmarks, and the landmarks that were removed.",
    False: "The label of every landmark is in the column `supercategory`, every decision in `decisions.csv`.",
}

EXPERT, MACHINE = "expert-generated", "machine-generated"


@dataclass(frozen=True)
class Origin:
    """One origin of groups.

    Args:
        name: Name in a few words.
        description: Explanation in a sentence, for the documents of a release.
        creator: Term for ``annotations_creators`` in dataset cards of the Hugging Face hub; its vocabulary is
            ``utils/resources/creators.json`` in the package ``datasets``.
    """

    name: str
    description: str
    creator: str


#: From the most to the least reliable.
ORIGINS = (
    Origin("several annotators", "Two or more people gave the landmark's label the same group.", EXPERT),
    Origin("one annotator", "One person decided on the label, or two disagreed and one opinion was taken.", EXPERT),
    Origin("draft", "A draft decision on the label that no annotator has reviewed.", MACHINE),
    Origin("photographs", "What the landmark's photographs resemble most; no label of it leads to a group.", MACHINE),
)
_SEVERAL, _ONE, _DRAFT, _PHOTOGRAPHS = ORIGINS
#: Columns of the table ``hierarchy`` on which the origin depends.
_DECIDING = ("supercategory", "hierarchical_label", "label_source")


@dataclass(frozen=True)
class ReleaseFacts:
    """The data that the documents of a release describe.

    Args:
        settings: What the publisher says of the dataset.
        hierarchy: The table ``hierarchy``, all splits.
        decisions: Decisions that the hierarchy was built with, with the names of their groups.
        provenance: Provenance of the hierarchy.
        sources: Tables that it was made from, as far as they were found.
        files: Description of each file of the release, by path.
    """

    settings: ReleaseSettings
    hierarchy: pa.Table
    decisions: Sequence[Decision]
    provenance: Provenance
    sources: InputTables
    files: Mapping[str, str]

    @property
    def date(self) -> str:
        """Date of publication, YYYY-MM-DD."""
        return (self.settings.date or max(row.decided_at for row in self.decisions).date()).isoformat()

    @property
    def annotators(self) -> list[str]:
        """Names of all people who took decisions, sorted."""
        return sorted({name for row in self.decisions for name in row.people})

    @cached_property
    def origins(self) -> dict[Origin, int]:
        """Number of landmarks by origin of their group."""
        return count_origins(self.hierarchy, self.decisions)

    @property
    def splits(self) -> list[str]:
        """The splits with rows, train first."""
        return sorted(set(self.hierarchy["split"].to_pylist()), reverse=True)


def decision_origin(decision: Decision) -> Origin:
    """Return the origin of the group that a decision gives to its label."""
    n_people = len(decision.people)
    return _SEVERAL if n_people > 1 else _ONE if n_people else _DRAFT


def count_origins(hierarchy: pa.Table, decisions: Iterable[Decision]) -> dict[Origin, int]:
    """Return the number of landmarks of each origin that occurs, in the order of :data:`ORIGINS`.

    The table does not hold the ids of labels. Where decisions of different origins fit a landmark's label and group,
    the least reliable one counts; where none fits, because the label was renamed since, that of all decisions for the
    group.

    Args:
        hierarchy: The table ``hierarchy``.
        decisions: Decisions that it was built with, with the names of their groups.
    """
    by_label: defaultdict[tuple[str, str], list[Origin]] = defaultdict(list)
    by_group: defaultdict[str, list[Origin]] = defaultdict(list)
    for row in decisions:
        if row.decision == "group" and row.group is not None:
            by_label[normalise_label(row.label), row.group].append(decision_origin(row))
            by_group[row.group].append(decision_origin(row))
    names = [name for name in _DECIDING if name in hierarchy.column_names]
    counts: Counter[Origin] = Counter()
    for row in hierarchy.group_by(names).aggregate([([], "count_all")]).to_pylist():
        label, group = row["supercategory"], row["hierarchical_label"]
        if row.get("label_source") == "photographs":
            origin = _PHOTOGRAPHS
        else:
            fitting = by_label.get((normalise_label(label), group)) or by_group.get(group) or [_DRAFT]
            origin = max(fitting, key=ORIGINS.index)
        counts[origin] += row["count_all"]
    return {origin: counts[origin] for origin in ORIGINS if counts[origin]}


def annotations_creators(origins: Iterable[Origin]) -> list[str]:
    """Return the terms of the Hugging Face hub for some origins."""
    return sorted({origin.creator for origin in origins})


def citation(settings: ReleaseSettings) -> str:
    """Return the BibTeX entries that the publisher names and that of the procedure."""
    return "\n\n".join(filter(None, (settings.citation, _template("citation.bib").rstrip())))


def write_documents(folder: Path, facts: ReleaseFacts) -> None:
    """Write ``README.md``, ``datasheet.md`` and ``LICENSE`` to a folder."""
    values = _placeholders(facts)
    for name in ("README.md", "datasheet.md", "LICENSE"):
        text = Template(_template(name)).substitute(values)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _placeholders(facts: ReleaseFacts) -> dict[str, str]:
    counts = hierarchy_stats(Hierarchy.from_arrow(facts.hierarchy))
    imbalance = counts.imbalance["landmarks"]
    n = len(facts.hierarchy)
    columns = facts.hierarchy.schema
    settings = facts.settings
    return {
        **settings.model_dump(),
        "creators": ", ".join(settings.creators),
        "keywords": "\n".join(f"- {json.dumps(word, ensure_ascii=False)}" for word in settings.keywords),
        "name_quoted": json.dumps(settings.name, ensure_ascii=False),
        "hub_licence": settings.licence.lower(),
        "licence_url": settings.licence_url,
        "date": facts.date,
        "examples": ", ".join(group.group for group in counts.groups[:_EXAMPLES]),
        "roots": " or ".join(_roots(counts)),
        "size_category": next(name for least, name in _SIZES if n >= least),
        "data_files": "\n".join(f"  - split: {split}\n    path: data/{split}.parquet" for split in facts.splits),
        "features": "\n".join(f"  - name: {column.name}\n    {_feature(column.type)}" for column in columns),
        "first_split": facts.splits[0],
        "split_list": " and ".join(facts.splits),
        "counts": _counts_table(counts),
        "largest": imbalance.largest,
        "largest_share": f"{imbalance.largest_share:.1%}",
        "effective_groups": f"{imbalance.effective_groups:.1f}",
        "gini": f"{imbalance.gini:.2f}",
        "n_groups": str(len(counts.groups)),
        "columns": _descriptions({column.name: COLUMN_DESCRIPTIONS[column.name] for column in columns}, "column"),
        "files": _descriptions(facts.files, "file"),
        "groups": _groups_table(facts, counts),
        "annotations_creators": "\n".join(f"- {term}" for term in annotations_creators(facts.origins)),
        "annotators_named": f"Decisions are those of {', '.join(facts.annotators)}." if facts.annotators else NOBODY,
        "scraped": _scraped_text(facts.sources),
        "cleaned": _cleaned_text(facts.sources),
        "decided": _decisions_text(facts.decisions),
        "raw": _RAW[settings.raw],
        **_completed_texts(facts),
        "origins": _origins_table(facts.origins),
        "provenance": "\n\n".join(map(_provenance_text, [*_provenances(facts.sources), facts.provenance])),
        "citation": citation(settings),
    }


def _descriptions(descriptions: Mapping[str, str], key: str) -> str:
    return markdown_table([key, "description"], [[f"`{name}`", text] for name, text in descriptions.items()])


def _counts_table(counts: HierarchyStats) -> str:
    roots = _roots(counts)
    rows = [
        [split, f"{sum(by_root.values()):,}", *(f"{by_root[root]:,}" for root in roots)]
        for split, by_root in counts.landmarks.items()
    ]
    groups = [str(sum(group.root == root for group in counts.groups)) for root in roots]
    return markdown_table(
        ["", "all", *roots], [*rows, ["groups", str(len(counts.groups)), *groups]], n_numeric=1 + len(roots)
    )


def _roots(counts: HierarchyStats) -> list[str]:
    return sorted({group.root for group in counts.groups}, reverse=True)


def _groups_table(facts: ReleaseFacts, counts: HierarchyStats) -> str:
    """Return a table of all groups with their numbers of landmarks by split and their most frequent labels."""
    by_split: Counter[tuple[str, str]] = Counter()
    labels: dict[str, Counter[str]] = {}
    columns = (facts.hierarchy[name].to_pylist() for name in ("split", "hierarchical_label"))
    for split, group in zip(*columns, strict=True):
        by_split[group, split] += 1
        labels.setdefault(group, Counter())
    labelled = without_completed(facts.hierarchy)
    columns = (labelled[name].to_pylist() for name in ("hierarchical_label", "supercategory"))
    for group, label in zip(*columns, strict=True):
        labels[group][label] += 1
    rows = []
    for group in counts.groups:
        by_frequency = sorted(labels[group.group].items(), key=lambda item: (-item[1], item[0]))
        n_landmarks = [f"{by_split[group.group, split]:,}" for split in facts.splits]
        examples = ", ".join(label for label, _ in by_frequency[:_EXAMPLES])
        rows.append([group.group, group.root, *n_landmarks, f"{len(by_frequency):,}", examples])
    return markdown_table(["group", "root", *facts.splits, "labels", "most frequent labels"], rows)


def _scraped_text(sources: InputTables) -> str:
    """Say which values were read where and when, as far as the scraped tables record it."""
    if not sources.scraped:
        return "The tables of scraped values were not beside the hierarchy, so their source is not recorded."
    parts = []
    for path in sources.scraped:
        rows = tables.read_table(path, tables.SCRAPED)
        places = [SCRAPE_SOURCE_MEANINGS[name].rstrip(".") for name in sorted(set(rows["source"].to_pylist()))]
        parameters = tables.read_provenance(path).parameters
        places += [f"`{address}`" for key, address in sorted(parameters.items()) if key.endswith("_url")]
        days = [time.date().isoformat() for time in pc.min_max(rows["fetched_at"]).as_py().values() if time]
        parts.append(f"{len(rows):,} landmarks, {' to '.join(dict.fromkeys(days))}: {', '.join(places)}.")
    return " ".join(['Values of "instance of" (P31) were read.', *parts])


def _cleaned_text(sources: InputTables) -> str:
    if sources.clean is None or sources.removed is None:
        return ""
    kept, removed = tables.read_table(sources.clean, tables.CLEAN), tables.read_table(sources.removed, tables.REMOVED)
    reasons = sorted(Counter(removed["reason"].to_pylist()).items())
    counts = ", ".join(f"{count:,} {reason}" for reason, count in [("kept", len(kept)), *reasons])
    return f"Of {len(kept) + len(removed):,} landmarks: {counts}."


def _decisions_text(decisions: Sequence[Decision]) -> str:
    n_decisions = Counter(row.decision for row in decisions)
    first, last = (pick(row.decided_at for row in decisions).date().isoformat() for pick in (min, max))
    counts = ", ".join(f"{n_decisions[decision]:,} {decision}" for decision in DECISIONS if n_decisions[decision])
    days = f"on {first}" if first == last else f"from {first} to {last}"
    return f"{len(decisions):,} labels were decided {days} ({counts})."


def _completed_texts(facts: ReleaseFacts) -> dict[str, str]:
    """Return the step and the limitation about landmarks with a group from photographs; empty if there are none."""
    n = len(facts.hierarchy) - len(without_completed(facts.hierarchy))
    if not n:
        return {"completed_step": "", "completed_limitation": ""}
    above = facts.provenance.parameters["completed_above"]
    share = f"{n / len(facts.hierarchy):.1%}"
    return {
        "completed_step": (
            "\n5. Complete. A landmark whose labels lead to no group takes the one that its photographs resemble,"
            f"\n   if the probability that this is right, calibrated on labelled landmarks, is at least {above:.0%}."
            "\n   The CSV files leave these landmarks out."
        ),
        "completed_limitation": (
            f"\n- The groups of {n:,} landmarks ({share}; `label_source` is `photographs`) are predictions from\n"
            "  photographs that nobody checked. The estimated probability that one is right is at least "
            f"{above:.0%}. Leave\n  these landmarks out where people must have decided all labels."
        ),
    }


def _origins_table(origins: Mapping[Origin, int]) -> str:
    """Return a table of the origins with their numbers of landmarks."""
    rows = [[origin.name, origin.description, origin.creator, f"{n:,}"] for origin, n in origins.items()]
    return markdown_table(["origin of the group", "meaning", "annotations", "landmarks"], rows, n_numeric=1)


def _provenances(sources: InputTables) -> list[Provenance]:
    """Return the provenance of the tables that a hierarchy was made from, the earliest first."""
    return [tables.read_provenance(path) for path in (*sources.scraped, sources.clean) if path is not None]


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


def files_in(folder: Path) -> list[str]:
    """Return the paths of all files of a folder, relative to it, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


# Croissant


def write_croissant(folder: Path, facts: ReleaseFacts) -> bool:
    """Describe a release and its data files in Croissant 1.1, the vocabulary of MLCommons for datasets.

    https://docs.mlcommons.org/croissant/docs/croissant-spec.html, and for the terms on annotation (``rai:``)
    https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html

    Returns:
        Whether the file was validated, with mlcroissant if that is installed.

    Raises:
        InputError: The description is invalid.
    """
    text = json.dumps(_croissant_metadata(folder, facts), indent=2, ensure_ascii=False) + "\n"
    (folder / CROISSANT).write_text(text, encoding="utf-8", newline="\n")
    return _is_valid_croissant(folder / CROISSANT)


def _croissant_metadata(folder: Path, facts: ReleaseFacts) -> dict[str, Any]:
    settings, origins = facts.settings, facts.origins
    return {
        "@context": json.loads(_template("croissant_context.json")),
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": settings.name,
        "description": settings.description,
        "url": settings.url,
        "version": settings.version,
        "datePublished": facts.date,
        "license": settings.licence_url,
        "creator": [{"@type": "sc:Person", "name": creator} for creator in settings.creators],
        **({"keywords": list(settings.keywords)} if settings.keywords else {}),
        "citeAs": citation(settings),
        "rai:dataAnnotationProtocol": " ".join(
            f"{origin.name} ({n:,} landmarks): {origin.description}" for origin, n in origins.items()
        ),
        **({"rai:machineAnnotationTools": ["hgld"]} if MACHINE in annotations_creators(origins) else {}),
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
        "recordSet": [_record_set(split, facts.hierarchy.schema) for split in facts.splits],
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


def _record_set(split: str, columns: pa.Schema) -> dict[str, Any]:
    fields = []
    for column in columns:
        is_list = pa.types.is_list(column.type)
        field = {
            "@type": "cr:Field",
            "@id": f"{split}/{column.name}",
            "name": column.name,
            "description": COLUMN_DESCRIPTIONS[column.name],
            "dataType": _TYPES[column.type.value_type if is_list else column.type],
            "source": {"fileObject": {"@id": f"data/{split}.parquet"}, "extract": {"column": column.name}},
        }
        fields.append({**field, "repeated": True} if is_list else field)
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "description": f"The {split} landmarks, sorted by landmark_id.",
        "key": [{"@id": f"{split}/split"}, {"@id": f"{split}/landmark_id"}],
        "field": fields,
    }
