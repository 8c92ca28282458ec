"""Normalised labels, their ids, and one label and item per class."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.taxonomy.label_identity import label_id, normalise_label, parse_item, unify_labels


@given(st.text())
def test_normalise_label_is_idempotent(text: str) -> None:
    assert normalise_label(normalise_label(text)) == normalise_label(text)


def test_width_case_composition_and_white_space_are_ignored() -> None:
    spellings = ["Café  de Flore", "CAFÉ DE FLORE", "cafe\u0301\u00a0de\tflore ", "Ｃａｆé de flore"]
    assert len({normalise_label(spelling) for spelling in spellings}) == 1
    assert normalise_label("Straße") == normalise_label("STRASSE")
    assert normalise_label("lake") != normalise_label("lakes")


def test_label_id_is_the_item_or_derived_from_the_label() -> None:
    assert label_id("church building", "Q16970") == "Q16970"
    assert label_id("Church  Building", None) == label_id("church building", None) == "label-5ae8813c54"


def test_label_without_item_takes_the_only_item_of_that_label() -> None:
    labels, items = unify_labels(["lake", "Lake", "pond"], ["Q23397", None, None])
    assert labels == ["lake", "lake", "pond"]
    assert items == ["Q23397", "Q23397", None]


def test_items_with_equal_labels_stay_separate() -> None:
    labels, items = unify_labels(["gate", "Gate", "gate"], ["Q1", "Q2", None])
    assert items == ["Q1", "Q2", None]
    assert labels == ["gate"] * 3, "one label has one spelling"


def test_most_frequent_label_represents_its_item() -> None:
    assert unify_labels(["Kirche", "church", "Church", "church"], ["Q1"] * 4)[0] == ["church"] * 4
    assert unify_labels(["Kirche", "church"], ["Q1"] * 2)[0] == ["Kirche"] * 2


_LABELS = st.sampled_from(["lake", "Lake", "LAKE ", "pond", "Pond", "sea"])
_ITEMS: st.SearchStrategy[str | None] = st.sampled_from([None, "Q1", "Q2", "Q3"])


@given(st.lists(st.tuples(_LABELS, _ITEMS)))
def test_unified_ids_have_one_label_and_known_items_are_kept(values: list[tuple[str, str | None]]) -> None:
    labels, items = unify_labels([label for label, _ in values], [item for _, item in values])
    label_by_id: dict[str, str] = {}
    for label, item in zip(labels, items, strict=True):
        assert label_by_id.setdefault(label_id(label, item), label) == label
    assert len({normalise_label(label) for label in labels}) == len(set(labels))
    for (label, before), after in zip(values, items, strict=True):
        same = {item for other, item in values if normalise_label(other) == normalise_label(label)} - {None}
        assert after == (before or (same.pop() if len(same) == 1 else None))


@pytest.mark.parametrize(
    "text",
    [
        "Q144",
        " Q144 ",
        "https://www.wikidata.org/wiki/Q144",
        "http://m.wikidata.org/wiki/Q144",
        "HTTPS://WWW.Wikidata.org/wiki/Q144",
        "wikidata.org/wiki/Q144",
        "m.wikidata.org/entity/Q144",
        "//www.wikidata.org/entity/Q144/",
        "https://www.wikidata.org/wiki/Q144?uselang=fr#P31",
        "https://www.wikidata.org/wiki/Special:EntityPage/Q144",
        "wd:Q144",
    ],
)
def test_items_are_read_from_all_addresses_of_their_page(text: str) -> None:
    assert parse_item(text) == "Q144"


@pytest.mark.parametrize(
    "text",
    [
        "q144",
        "Q0144",
        "Q2147483648",
        "P31",
        "https://www.wikidata.org/wiki/Property:P31",
        "https://example.org/wiki/Q144",
    ],
)
def test_other_texts_are_no_items(text: str) -> None:
    with pytest.raises(ValueError, match="is no item; expected one such as Q42"):
        parse_item(text)
