"""Origins of the groups of a release: who decided, as far as decisions and provenance record it.

Names of annotators are taken at their word, except :data:`hgld.taxonomy.decisions.NOT_PEOPLE`. A person who accepts a
suggestion on the review page has decided.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.label_identity import normalise_label

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


def describe_origins(origins: Mapping[Origin, int]) -> str:
    """Return the number of landmarks of each origin, in a text."""
    return " ".join(f"{origin.name} ({n:,} landmarks): {origin.description}" for origin, n in origins.items())


def annotations_creators(origins: Iterable[Origin]) -> list[str]:
    """Return the terms of the Hugging Face hub for some origins."""
    return sorted({origin.creator for origin in origins})
