import pytest

from hgld.labels.wording import guideline_terms, head_words, normalised_words
from hgld.resources import annotation_file
from hgld.taxonomy.groups import read_taxonomy


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
