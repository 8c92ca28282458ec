import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgld.labels.class_tree import levels_above
from hgld.labels.evidence import EVIDENCE_KINDS, Evidence, find_evidence, nearest_examples
from hgld.labels.group_examples import EmbeddedLabels, Example, collect_examples, taxonomy_terms
from hgld.labels.wording import normalised_words
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group, VocabularyTerm, read_taxonomy
from tests.labels.label_tables import classes_table, decision
from tests.labels.word_encoder import Words

GROUPS = (
    Group("bridge", "human-made", "Bridges: viaduct, arch.", ("Q12280",)),
    Group("castle / fort", "human-made", "Castle, citadel, tower house.", ("Q57831", "Q23413")),
    Group("lake", "natural", "Standing water: pond, lagoon. A bay is none.", ("Q23397",)),
    Group("gate", "human-made", "City gate, arch.", ()),
)
BRIDGE, CASTLE, LAKE, GATE, NONE = range(5)


VOCABULARY = (
    VocabularyTerm("keep", "castle / fort"),
    VocabularyTerm("tower of silence", None),
    VocabularyTerm("culvert", "bridge", ("Q7",)),
)


def find(
    labels: Sequence[tuple[str, str]],
    decisions: Sequence[Decision] = (),
    classes: Mapping[str, tuple[str, Sequence[str]]] | None = None,
) -> dict[str, Evidence]:
    words = Words()
    ids, texts = [label_id for label_id, _ in labels], [text for _, text in labels]
    tables = [classes_table(classes)] if classes else []
    embedded = EmbeddedLabels(ids, texts, words.unit(texts))
    result = find_evidence(embedded, GROUPS, VOCABULARY, decisions, tables, words.unit)
    return dict(zip(EVIDENCE_KINDS, result, strict=True))


def test_label_matches_name_guideline_vocabulary_link_or_other_decision() -> None:
    labels = [
        ("Q1", "Castles"),
        ("Q2", "arch"),
        ("Q23397", "See"),
        ("Q4", "stone bridge"),
        ("Q5", "towers of silence"),
    ]
    labels += [("Q6", "sheds"), ("Q7", "shed")]
    term = find(labels, [decision("Q7", "shed", "gate")])["term"]
    expected = [
        [0, 1, 0, 0, 0],
        [0.5, 0, 0, 0.5, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0],  # the decision on "shed" is its own
    ]
    np.testing.assert_array_equal(term.values, expected)
    assert term.explain(0, CASTLE) == "a name of the group"
    assert term.explain(1, GATE) == "named in the group's guideline"
    assert term.explain(2, LAKE) == "a class that the group is linked to"
    assert term.explain(4, NONE) == "in the vocabulary"
    assert term.explain(5, GATE) == "named like “shed” (decided gate)"


def test_labels_sharing_words_with_a_term_are_similar() -> None:
    near = find([("Q1", "old lake"), ("Q2", "citadel ruin"), ("Q3", "old keep")])["similar"]
    assert near.values[0].argmax() == LAKE
    assert near.explain(0, LAKE) == "near the group's name"
    assert near.values[1].argmax() == CASTLE
    assert near.explain(1, CASTLE) == "near “citadel” of the guideline"
    assert near.explain(2, CASTLE) == "near “keep” of the vocabulary"
    assert (near.values >= 0).all()


def test_decision_is_evidence_for_other_labels_only() -> None:
    labels = [("Q1", "snow shed"), ("Q2", "avalanche shed")]
    decisions = [decision("Q2", "avalanche shed", "gate")]
    alike, ending = find(labels, decisions)["similar"], find(labels, decisions)["ending"]
    assert alike.values[0].argmax() == GATE
    assert alike.explain(0, GATE) == "like “avalanche shed” (decided gate)"
    assert ending.explain(0, GATE) == "named like “avalanche shed” (decided gate)"
    assert not alike.values[1, GATE] > find(labels)["similar"].values[1, GATE]
    assert not ending.values[1].any()


def test_dropped_labels_are_evidence_for_no_group_and_unsure_ones_for_nothing() -> None:
    labels = [("Q1", "snow shed")]
    dropped = find(labels, [decision("Q2", "avalanche shed", None)])
    assert dropped["similar"].values[0].argmax() == NONE
    np.testing.assert_array_equal(dropped["ending"].values, [[0, 0, 0, 0, 0.5]])
    unsure = dataclasses.replace(decision("Q3", "rain shed", "gate"), decision="unsure")
    for kind, evidence in find(labels).items():
        np.testing.assert_array_equal(evidence.values, find(labels, [unsure])[kind].values)


def test_longest_common_ending_counts_most_and_shorter_ones_fill_in() -> None:
    decisions = [decision(f"Q{n}", f"{name} gate", "castle / fort") for n, name in enumerate("abc", 10)]
    labels = [("Q1", "old city gate"), ("Q2", "gates of the town"), ("Q3", "stone lake"), ("Q10", "a gate")]
    ending = find(labels, decisions)["ending"]
    # At "gate": the name of the group counts 3, "city gate" and each decision 1.
    gate = np.array([0, 3, 0, 4, 0]) / 8
    np.testing.assert_allclose(ending.values[0], (np.array([0, 0, 0, 3, 0]) + gate) / 4)
    np.testing.assert_allclose(ending.values[1], (np.array([0, 0, 0, 3, 0]) + gate) / 4)
    np.testing.assert_allclose(ending.values[3], np.array([0, 2, 0, 4, 0]) / 7)
    assert ending.explain(0, GATE) == "named after “City gate”"
    assert ending.explain(1, GATE) == "named after “gate”"
    assert ending.explain(1, CASTLE) == "named like “a gate” (decided castle / fort)"
    assert ending.explain(2, LAKE) == "named after “lake”"


CLASSES_ABOVE: dict[str, tuple[str, Sequence[str]]] = {
    "Q1": ("weir bridge", ["Q2", "Q3"]),
    "Q2": ("road bridge", ["Q12280"]),
    "Q3": ("structure", ["Q23413"]),
    "Q12280": ("bridge", ["Q3"]),
    "Q5": ("urn", ["Q90", "Q6"]),
    "Q6": ("lagoon", []),
    "Q90": ("loop", ["Q5"]),
}


def test_nearest_superclasses_count_most() -> None:
    labels = [("Q1", "weir bridge"), ("Q2", "road bridge"), ("Q5", "urn"), ("Q404", "unknown"), ("label-1", "Urn")]
    evidence = find(labels, classes=CLASSES_ABOVE)
    direct, farther = evidence["superclass"], evidence["farther_superclass"]
    assert direct.values[1].argmax() == BRIDGE
    assert direct.values[1, BRIDGE] == pytest.approx(
        3 / 3.3
    )  # three votes of its own against 0.3 for what is farther
    assert farther.values[1, CASTLE] > 0
    assert direct.values[2, LAKE] == pytest.approx(3 / 3.3)  # by its label, for its item is not linked
    np.testing.assert_array_equal(direct.values[4], direct.values[2])  # the only class of this name
    assert not direct.values[3].any()
    assert not farther.values[3].any()
    assert direct.explain(1, BRIDGE) == "subclass of bridge"
    assert farther.explain(1, CASTLE) == "subclass of Q23413"


def test_superclass_of_many_groups_says_little() -> None:
    classes: dict[str, tuple[str, Sequence[str]]] = {
        "Q1": ("post", ["Q2", "Q3"]),
        "Q2": ("building", []),
        "Q3": ("lagoon", []),
        **{f"Q{n}": (name, ["Q2"]) for n, name in enumerate(("viaduct", "citadel", "pond", "city gate"), 10)},
    }
    direct = find([("Q1", "post")], classes=classes)["superclass"]
    assert direct.values[0].argmax() == LAKE
    assert direct.values[0, LAKE] > 0.6
    assert 0 < direct.values[0, BRIDGE] < 0.1
    assert direct.explain(0, BRIDGE) == "subclass of building, as others of the group"


def test_decision_on_superclass_outweighs_its_link() -> None:
    decisions = [decision("label-1", "Road Bridge", "gate"), decision("Q12280", "bridge", "lake")]
    labels = [("Q1", "weir bridge"), ("Q2", "road bridge")]
    direct = find(labels, decisions, CLASSES_ABOVE)["superclass"]
    assert direct.values.argmax(axis=1).tolist() == [GATE, LAKE]
    assert direct.explain(0, GATE) == "subclass of “Road Bridge” (decided gate)"
    own = find([("Q1", "bridge")], decisions, CLASSES_ABOVE)["superclass"]
    assert own.values[0].argmax() == GATE
    assert not own.values[0, LAKE]  # the decision on "bridge" is its own
    classes = {"label-1": ("x", ["Q2"]), "Q2": ("road bridge", ["Q12280"])}
    own = find([("label-1", "x")], decisions, classes)["superclass"]
    assert not own.values[0, GATE]


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


@given(st.dictionaries(items, st.lists(items, max_size=3)), items)
def test_levels_match_search_over_all_paths(parents: dict[str, list[str]], start: str) -> None:
    def distances(item: str, path: tuple[str, ...]) -> dict[str, int]:
        """The fewest steps to every class above, along every path that does not cross itself."""
        result: dict[str, int] = {}
        for parent in parents.get(item, []):
            if parent not in path:
                result[parent] = min(result.get(parent, 99), len(path))
                for above, steps in distances(parent, (*path, parent)).items():
                    result[above] = min(result.get(above, 99), steps)
        return result

    expected = distances(start, (start,))
    levels = levels_above([start], parents)
    assert {item: steps for steps, level in enumerate(levels, 1) for item in level} == expected
    assert sum(map(len, levels)) == len(expected)


def test_group_name_is_not_a_term_of_another_group() -> None:
    terms = taxonomy_terms(
        [
            Group("road", "human-made", "Street, roads, alley."),
            Group("castle / fort", "human-made", "Castle, road, tower."),
        ],
        [
            VocabularyTerm("alleys", "castle / fort"),
            VocabularyTerm("keep", "castle / fort"),
            VocabularyTerm("a", None),
        ],
    )
    assert terms == [
        Example("road", 0, "name"),
        Example("castle", 1, "name"),
        Example("fort", 1, "name"),
        Example("Street", 0, "guideline"),
        Example("alley", 0, "guideline"),
        Example("tower", 1, "guideline"),
        Example("keep", 1, "vocabulary"),
        Example("a", 2, "vocabulary"),
    ]


def test_every_group_has_terms_without_generic_nouns() -> None:
    groups = read_taxonomy(annotation_file("taxonomy.csv"))
    terms = taxonomy_terms(groups)
    assert {term.group for term in terms} == set(range(len(groups)))
    assert not {"building", "place", "land"} & {term.text.casefold() for term in terms}
    assert len({normalised_words(term.text) for term in terms}) >= 0.98 * len(terms)


def test_own_decisions_are_found_by_id_or_text() -> None:
    labels = EmbeddedLabels(["Q1", "Q2", "Q3"], ["tarn", "Mere", "pond"], np.eye(3))
    groups = [Group("lake", "natural", "Standing water.")]
    decisions = [decision("Q1", "lough", "lake"), decision("Q9", "mere", None), decision("Q8", "ponds", "lake")]
    examples = collect_examples(labels, groups, [], decisions)
    assert [example.source for example in examples.rows] == ["name", "guideline", "decision", "decision", "decision"]
    assert [example.group for example in examples.rows] == [0, 0, 0, 1, 0]
    assert [set(own) for own in examples.own_decisions] == [{2}, {3}, set()]
    assert [examples.quote(number) for number in range(1, 4)] == [
        "“Standing water” of the guideline",
        "“lough” (decided lake)",
        "“mere” (decided to drop)",
    ]
