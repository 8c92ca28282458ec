"""The documents of a release: dataset card, datasheet and licence, from templates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.build_inputs import InputTables
from hgld.hierarchy.official import without_completed
from hgld.hierarchy.stats import HierarchyStats, hierarchy_stats
from hgld.io.markdown import markdown_table
from hgld.release.croissant import COLUMN_DESCRIPTIONS
from hgld.release.origins import Origin, annotations_creators, count_origins
from hgld.release.settings import ReleaseSettings
from hgld.tables import Provenance
from hgld.tables.column_values import SCRAPE_SOURCE_MEANINGS
from hgld.taxonomy.decisions import DECISIONS, Decision

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


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
