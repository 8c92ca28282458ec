from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgld.labels.class_graph import nearest_grouped_ancestors
from hgld.labels.evidence import EVIDENCE_KINDS, EmbeddedLabels, Evidence, find_evidence, nearest_examples
from hgld.tables import CLASSES
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group
from tests.labels.label_tables import decision
from tests.labels.word_encoder import Words

GROUPS = (
    Group("bridge", "human-made", "Bridges: viaduct, arch.", ("Q12280",)),
    Group("castle / fort", "human-made", "Castle, citadel, tower house.", ("Q57831", "Q23413")),
    Group("lake", "natural", "Standing water: pond, lagoon. A bay is none.", ("Q23397",)),
    Group("gate", "human-made", "City gate, arch.", ()),
)
BRIDGE, CASTLE, LAKE, GATE = range(4)


def classes_table(rows: Mapping[str, tuple[str, Sequence[str]]]) -> pa.Table:
    """Label and parents by item."""
    return pa.Table.from_pylist(
        [
            {"item": item, "label": label, "language": "en", "subclass_of": list(parents)}
            for item, (label, parents) in rows.items()
        ],
        CLASSES.schema,
    )


def find(
    labels: Sequence[tuple[str, str]],
    decisions: Sequence[Decision] = (),
    classes: Mapping[str, tuple[str, Sequence[str]]] | None = None,
) -> dict[str, Evidence]:
    words = Words()
    ids, texts = [label_id for label_id, _ in labels], [text for _, text in labels]
    tables = [classes_table(classes)] if classes else []
    result = find_evidence(EmbeddedLabels(ids, texts, words.unit(texts)), GROUPS, decisions, tables, words.unit)
    return dict(zip(EVIDENCE_KINDS, result, strict=True))


def test_label_matches_group_name_guideline_or_linked_class() -> None:
    labels = [("Q1", "Castles"), ("Q2", "arch"), ("Q23397", "See"), ("Q4", "stone bridge")]
    named, subclass = find(labels)["term"], find(labels)["subclass"]
    np.testing.assert_array_equal(named.values, [[0, 1, 0, 0], [0.5, 0, 0, 0.5], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert named.explain(0, CASTLE) == "a name of the group"
    assert named.explain(1, GATE) == "named in the group's guideline"
    np.testing.assert_array_equal(subclass.values, [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    assert subclass.explain(2, LAKE) == "a class that the group is linked to"


def test_labels_sharing_words_with_a_term_are_similar() -> None:
    near = find([("Q1", "old lake"), ("Q2", "citadel ruin")])["similar_term"]
    assert near.values[0].argmax() == LAKE
    assert near.explain(0, LAKE) == "near the group's name"
    assert near.values[1].argmax() == CASTLE
    assert near.explain(1, CASTLE) == "near “citadel” of the guideline"
    assert (near.values >= 0).all()


def test_decision_is_evidence_for_other_labels_only() -> None:
    labels = [("Q1", "snow shed"), ("Q2", "avalanche shed")]
    decisions = [decision("Q2", "avalanche shed", "gate")]
    alike, head = find(labels, decisions)["similar_label"], find(labels, decisions)["head_words"]
    assert alike.values[0].argmax() == GATE
    assert alike.explain(0, GATE) == "like “avalanche shed” (decided gate)"
    assert head.explain(0, GATE) == "named like “avalanche shed” (decided gate)"
    assert not alike.values[1].any()
    assert not head.values[1].any()


def test_dropped_and_unsure_labels_are_no_evidence() -> None:
    labels = [("Q1", "snow shed")]
    unsure = dataclasses.replace(decision("Q3", "rain shed", "gate"), decision="unsure")
    with_them = find(labels, [decision("Q2", "avalanche shed", None), unsure])
    for kind, finding in find(labels).items():
        np.testing.assert_array_equal(finding.values, with_them[kind].values)


def test_longest_common_ending_is_shared_between_groups() -> None:
    decisions = [decision(f"Q{n}", f"{name} gate", "castle / fort") for n, name in enumerate("abc", 10)]
    head = find([("Q1", "old city gate"), ("Q2", "gates of the town"), ("Q3", "stone lake")], decisions)["head_words"]
    np.testing.assert_allclose(head.values[0], [0, 0, 0, 1 / 1.5])  # "city gate" alone
    np.testing.assert_allclose(head.values[1], [0, 3 / 5.5, 0, 2 / 5.5])
    assert head.explain(1, GATE) == "named after “gate”"
    assert head.explain(2, LAKE) == "named after “lake”"


CLASSES_ABOVE: dict[str, tuple[str, Sequence[str]]] = {
    "Q1": ("weir bridge", ["Q2", "Q3"]),
    "Q2": ("road bridge", ["Q12280"]),
    "Q3": ("structure", ["Q23413"]),
    "Q12280": ("bridge", ["Q3"]),
    "Q5": ("urn", ["Q90", "Q6"]),
    "Q6": ("lagoon", []),
    "Q90": ("loop", ["Q5"]),
}


def test_nearest_superclass_decides() -> None:
    labels = [("Q1", "weir bridge"), ("Q2", "road bridge"), ("Q5", "urn"), ("Q404", "unknown")]
    subclass = find(labels, classes=CLASSES_ABOVE)["subclass"]
    expected: list[list[float]] = [
        [0.35, 0.35, 0, 0],  # two steps: bridge, and what is above structure
        [1, 0, 0, 0],
        [0, 0, 1, 0],  # by its label, for its item is not known
        [0, 0, 0, 0],
    ]
    np.testing.assert_allclose(subclass.values, expected)
    assert subclass.explain(0, BRIDGE) == "subclass of bridge"
    assert subclass.explain(0, CASTLE) == "subclass of Q23413"


def test_decision_on_superclass_overrides_its_link() -> None:
    decisions = [decision("label-1", "Road Bridge", "gate"), decision("Q12280", "bridge", "lake")]
    labels = [("Q1", "weir bridge"), ("Q2", "road bridge")]
    subclass = find(labels, decisions, CLASSES_ABOVE)["subclass"]
    np.testing.assert_allclose(subclass.values, [[0, 0, 0, 1], [0, 0, 1, 0]])
    assert subclass.explain(0, GATE) == "subclass of “Road Bridge” (decided gate)"
    own = find([("Q1", "bridge")], decisions, CLASSES_ABOVE)["subclass"]
    np.testing.assert_allclose(own.values, [[0, 0, 0, 1]])  # the decision on "bridge" is its own
    classes = {"label-1": ("x", ["Q2"]), "Q2": ("road bridge", ["Q12280"])}
    own = find([("label-1", "x")], decisions, classes)["subclass"]
    np.testing.assert_allclose(own.values, [[0, 0, 0.7, 0]])


vectors = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3).filter(any), min_size=n, max_size=n)
)


def unit(rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    matrix = np.array(rows, np.float64)
    return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True))


@given(vectors, vectors, st.data())
def test_nearest_examples_match_brute_force(
    rows: list[list[int]], others: list[list[int]], data: st.DataObject
) -> None:
    group_of = data.draw(st.lists(st.integers(0, 4), min_size=len(others), max_size=len(others)))
    excluded = [data.draw(st.sets(st.integers(0, len(others) - 1))) for _ in rows]
    cosines, which = nearest_examples(unit(rows), unit(others), np.array(group_of), 5, excluded)
    for row, vector in enumerate(unit(rows)):
        for group in range(5):
            best, number = -1.0, -1
            for other, example in enumerate(unit(others)):
                cosine = round(float(sum(vector * example)), 6)
                if group_of[other] == group and other not in excluded[row] and (number < 0 or cosine > best):
                    best, number = cosine, other
            assert cosines[row, group] == pytest.approx(best, abs=2e-6)
            if which[row, group] != number:  # equal but for rounding
                assert round(float(unit(rows)[row] @ unit(others)[which[row, group]]), 5) == round(best, 5)


items = st.sampled_from([f"Q{n}" for n in range(1, 9)])


@given(st.dictionaries(items, st.lists(items, max_size=3)), st.dictionaries(items, st.integers(0, 3)), items)
def test_nearest_grouped_ancestors_match_search_over_all_paths(
    parents: dict[str, list[str]], group_of: dict[str, int], start: str
) -> None:
    def distances(item: str, path: tuple[str, ...]) -> dict[str, int]:
        """The fewest steps to every class above, along every path that does not cross itself."""
        result: dict[str, int] = {}
        for parent in parents.get(item, []):
            if parent not in path:
                result[parent] = min(result.get(parent, 99), len(path))
                for above, steps in distances(parent, (*path, parent)).items():
                    result[above] = min(result.get(above, 99), steps)
        return result

    belonging = {item: steps for item, steps in distances(start, (start,)).items() if item in group_of}
    steps, result = nearest_grouped_ancestors(start, parents, group_of.get)
    if not belonging:
        assert result == []
        return
    assert steps == min(belonging.values())
    assert dict(result) == {item: group_of[item] for item, far in belonging.items() if far == steps}
    assert len(result) == len(dict(result))
