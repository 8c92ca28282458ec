from __future__ import annotations

import pytest

from hgld.labels.wording import Term, guideline_terms, head_words, normalised_words, taxonomy_terms
from hgld.resources import annotation_file
from hgld.taxonomy.groups import Group, read_taxonomy


@pytest.mark.parametrize(
    ("guideline", "terms"),
    [
        ("Standing water: lake, pond, tarn. The dam that holds it is a dam.", ["lake", "pond", "tarn"]),
        ("Watercraft, also ashore: ship, ferry.", ["ship", "ferry"]),
        ("Swimming pool, lido", ["Swimming pool", "lido"]),
        ("Standing water:", []),
        ("", []),
    ],
)
def test_the_first_sentence_of_a_guideline_lists_members(guideline: str, terms: list[str]) -> None:
    assert guideline_terms(guideline) == terms


def test_the_shipped_guidelines_list_members_and_nothing_else() -> None:
    for group in read_taxonomy(annotation_file("taxonomy.csv")):
        terms = guideline_terms(group.guideline)
        assert terms, group.name
        assert all(len(term.split()) <= 4 for term in terms), group.name


@pytest.mark.parametrize(
    ("label", "head"),
    [
        ("arch bridge", ("arch", "bridge")),
        ("Arch Bridges", ("arch", "bridge")),
        ("group of lakes", ("lake",)),
        ("group", ("group",)),
        ("lake in Norway", ("lake",)),
        ("church building (1172–1954)", ("church", "building")),
        ("library district of the United States", ("library", "district")),
        ("church, chapel or cathedral", ("church",)),
        ("灯台", ("灯台",)),
        ("…", ()),
    ],
)
def test_the_head_of_a_label(label: str, head: tuple[str, ...]) -> None:
    assert head_words(label) == head


@pytest.mark.parametrize(
    ("plural", "singular"),
    [("churches", "church"), ("cities", "city"), ("boxes", "box"), ("stairs", "stair"), ("parks", "park")],
)
def test_plurals_are_compared_as_singulars(plural: str, singular: str) -> None:
    assert normalised_words(plural) == (singular,)


@pytest.mark.parametrize("word", ["glass", "bus", "oasis", "gas", "bath"])
def test_words_ending_in_s_may_be_singular(word: str) -> None:
    assert normalised_words(word) == (word,)


def test_group_name_is_not_a_term_of_another_group() -> None:
    terms = taxonomy_terms(
        [
            Group("road", "human-made", "Street, roads, alley."),
            Group("castle / fort", "human-made", "Castle, road, tower."),
        ]
    )
    assert terms == [
        Term("road", 0, is_name=True),
        Term("castle", 1, is_name=True),
        Term("fort", 1, is_name=True),
        Term("Street", 0, is_name=False),
        Term("alley", 0, is_name=False),
        Term("tower", 1, is_name=False),
    ]


def test_every_group_has_terms_without_generic_nouns() -> None:
    groups = read_taxonomy(annotation_file("taxonomy.csv"))
    terms = taxonomy_terms(groups)
    assert {term.group for term in terms} == set(range(len(groups)))
    assert not {"building", "place", "land"} & {term.text.casefold() for term in terms}
