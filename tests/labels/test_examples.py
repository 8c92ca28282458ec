import numpy as np

from hgld.labels.evidence import EmbeddedLabels, Example, collect_examples, taxonomy_terms
from hgld.labels.wording import normalised_words
from hgld.resources import annotation_file
from hgld.taxonomy.groups import Group, VocabularyTerm, read_taxonomy
from tests.labels.label_tables import decision


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
    assert [set(own) for own in examples.own] == [{2}, {3}, set()]
    assert [examples.quote(number) for number in range(1, 4)] == [
        "“Standing water” of the guideline",
        "“lough” (decided lake)",
        "“mere” (decided to drop)",
    ]
