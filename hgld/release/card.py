"""What a release says about itself in words: dataset card, datasheet, licence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

import pyarrow as pa

from hgld.hierarchy import Hierarchy
from hgld.hierarchy.stats import HierarchyStats, stats
from hgld.release.croissant import DESCRIPTIONS
from hgld.tables import Provenance
from hgld.taxonomy.decisions import DECISIONS, Decision

_TEMPLATES = Path(__file__).parents[1] / "templates" / "release"
#: The hub's size categories: the number that each begins at, largest first.
_SIZES = ((10**6, "1M<n<10M"), (10**5, "100K<n<1M"), (10**4, "10K<n<100K"), (10**3, "1K<n<10K"), (0, "n<1K"))
_EXAMPLES = 3


@dataclass(frozen=True)
class Facts:
    """What the texts of a release are about.

    Args:
        name: of the dataset.
        version: of the dataset.
        url: where it is published.
        date: since when, YYYY-MM-DD.
        hierarchy: the rows of all splits, as in the table ``hierarchy``.
        decisions: those behind it.
        provenance: what built it.
        files: what each file of the release is, by path.
    """

    name: str
    version: str
    url: str
    date: str
    hierarchy: pa.Table
    decisions: Sequence[Decision]
    provenance: Provenance
    files: Mapping[str, str]

    @property
    def annotators(self) -> list[str]:
        """Everyone who decided a label; two who agree are named as ``ada+ben`` in a decision."""
        return sorted({name for row in self.decisions for name in row.annotator.split("+")})

    @property
    def splits(self) -> list[str]:
        """The splits that occur, train first."""
        return sorted(set(self.hierarchy["split"].to_pylist()), reverse=True)


def citation() -> str:
    """BibTeX of the procedure and of the landmarks."""
    return _text("citation.bib").rstrip()


def write_texts(folder: Path, facts: Facts) -> None:
    """Write ``README.md``, ``datasheet.md`` and ``LICENSE`` into a release."""
    values = _values(facts)
    for name in ("README.md", "datasheet.md", "LICENSE"):
        text = Template(_text(name)).substitute(values)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _values(facts: Facts) -> dict[str, str]:
    counted = stats(Hierarchy.from_arrow(facts.hierarchy))
    spread = counted.imbalance["landmarks"]
    n = len(facts.hierarchy)
    columns = facts.hierarchy.schema
    return {
        "name": facts.name,
        "name_quoted": json.dumps(facts.name, ensure_ascii=False),
        "version": facts.version,
        "url": facts.url,
        "date": facts.date,
        "size_category": next(name for least, name in _SIZES if n >= least),
        "data_files": "\n".join(f"  - split: {split}\n    path: data/{split}.parquet" for split in facts.splits),
        "features": "\n".join(f"  - name: {column.name}\n    {_feature(column.type)}" for column in columns),
        "first_split": facts.splits[0],
        "split_list": " and ".join(facts.splits),
        "counts": _counts(counted),
        "largest": spread.largest,
        "largest_share": f"{spread.largest_share:.1%}",
        "effective_groups": f"{spread.effective_groups:.1f}",
        "gini": f"{spread.gini:.2f}",
        "n_groups": str(len(counted.groups)),
        "columns": _markdown(["column", "what it is"], [[f"`{c.name}`", DESCRIPTIONS[c.name]] for c in columns]),
        "files": _markdown(["file", "what it is"], [[f"`{path}`", what] for path, what in facts.files.items()]),
        "groups": _groups(facts, counted),
        "annotators": ", ".join(facts.annotators),
        "decided": _decided(facts.decisions),
        "provenance": _made(facts.provenance),
        "citation": citation(),
    }


def _counts(counted: HierarchyStats) -> str:
    roots = sorted({group.root for group in counted.groups}, reverse=True)
    rows = [
        [split, f"{sum(by_root.values()):,}", *(f"{by_root[root]:,}" for root in roots)]
        for split, by_root in counted.landmarks.items()
    ]
    groups = [str(sum(group.root == root for group in counted.groups)) for root in roots]
    return _markdown(["", "all", *roots], [*rows, ["groups", str(len(counted.groups)), *groups]], numbers=3)


def _groups(facts: Facts, counted: HierarchyStats) -> str:
    """Every group with its landmarks by split and its most frequent labels."""
    by_split: Counter[tuple[str, str]] = Counter()
    labels: dict[str, Counter[str]] = {}
    columns = (facts.hierarchy[name].to_pylist() for name in ("split", "hierarchical_label", "supercategory"))
    for split, group, label in zip(*columns, strict=True):
        by_split[group, split] += 1
        labels.setdefault(group, Counter())[label] += 1
    rows = []
    for group in counted.groups:
        most = sorted(labels[group.group].items(), key=lambda item: (-item[1], item[0]))
        counts = [f"{by_split[group.group, split]:,}" for split in facts.splits]
        examples = ", ".join(label for label, _ in most[:_EXAMPLES])
        rows.append([group.group, group.root, *counts, f"{len(most):,}", examples])
    return _markdown(["group", "root", *facts.splits, "labels", "most frequent labels"], rows)


def _decided(decisions: Sequence[Decision]) -> str:
    made = Counter(row.decision for row in decisions)
    first, last = (time(row.decided_at for row in decisions).date().isoformat() for time in (min, max))
    counts = ", ".join(f"{made[decision]:,} {decision}" for decision in DECISIONS if made[decision])
    days = f"on {first}" if first == last else f"from {first} to {last}"
    return f"{len(decisions):,} labels were decided {days} ({counts})."


def _made(provenance: Provenance) -> str:
    """The build, as the table's metadata records it."""
    parameters = json.dumps(provenance.parameters, sort_keys=True, ensure_ascii=False)
    inputs = [[role, f"`{digest}`"] for role, digest in sorted(provenance.inputs.items())]
    command = f"`hgld {provenance.command}`, version {provenance.version}"
    return f"Built by {command}, with the settings `{parameters}`, from\n\n{_markdown(['input', 'SHA-256'], inputs)}"


def _feature(kind: pa.DataType) -> str:
    """A column's type as the hub writes it."""
    return f"list: {kind.value_type}" if pa.types.is_list(kind) else f"dtype: {kind}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> str:
    """A table; the last ``numbers`` columns are aligned to the right."""
    lines = ["---"] * (len(header) - numbers) + ["--:"] * numbers
    cells = [[text.replace("|", "\\|").replace("\n", " ") for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, lines, *cells])


def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
