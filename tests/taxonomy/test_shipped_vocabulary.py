"""The shipped vocabulary agrees with the taxonomy, its guidelines and the shipped decisions."""

from collections import Counter
from typing import NamedTuple

import pytest

from hgld.io.columns import read_rows
from hgld.labels.wording import guideline_terms, normalised_words
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import read_decisions
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.label_identity import ITEM_ID

Words = tuple[str, ...]


class Row(NamedTuple):
    term: str
    group: str
    items: tuple[str, ...]


@pytest.fixture(scope="module")
def vocabulary() -> list[Row]:
    return read_rows(
        annotation_file("vocabulary.csv"),
        ("term", "group", "items"),
        lambda line, row: Row(row["term"], row["group"], tuple(row["items"].split())),
    )


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    return read_taxonomy(annotation_file("taxonomy.csv"))


def test_every_group_of_the_taxonomy_has_terms_and_there_are_no_others(
    vocabulary: list[Row], groups: list[Group]
) -> None:
    assert {row.group for row in vocabulary} == {group.name for group in groups} | {""}


def test_terms_are_sorted_and_unique_in_the_form_that_labels_are_compared_in(vocabulary: list[Row]) -> None:
    keys = [(row.group, row.term.casefold(), row.term) for row in vocabulary]
    assert keys == sorted(keys)
    repeated = [words for words, n in Counter(normalised_words(row.term) for row in vocabulary).items() if n > 1]
    assert repeated == []


def test_terms_repeat_and_contradict_no_guideline_and_no_decision(vocabulary: list[Row], groups: list[Group]) -> None:
    decided: dict[Words, str] = {
        normalised_words(name): group.name for group in groups for name in group.name.split(" / ")
    }
    for group in groups:
        decided |= {normalised_words(term): group.name for term in guideline_terms(group.guideline)}
    for decision in read_decisions(annotation_file("decisions/final.csv"), [group.name for group in groups]):
        decided[normalised_words(decision.label)] = decision.group or ""
    assert [row for row in vocabulary if normalised_words(row.term) in decided] == []


def test_items_are_wikidata_classes_that_nothing_else_is_linked_to(
    vocabulary: list[Row], groups: list[Group]
) -> None:
    items = [item for row in vocabulary for item in row.items]
    linked = [item for group in groups for item in group.items]
    assert all(ITEM_ID.fullmatch(item) for item in items)
    assert [item for item, n in Counter(items + linked).items() if n > 1] == []


@pytest.mark.parametrize(
    ("term", "group"),
    [
        ("tower house", "castle / fort"),
        ("gas holder", "factory"),
        ("dovecote tower", "agricultural land"),
        ("cave church", "church"),
        ("church ruins", "church"),
        ("railway museum", "museum"),
        ("post mill", "windmill"),
        ("beer garden", "restaurant"),
        ("gurdwara", ""),
        ("reef", ""),
    ],
)
def test_terms_whose_last_word_misleads(term: str, group: str, vocabulary: list[Row]) -> None:
    assert {row.term: row.group for row in vocabulary}[term] == group
