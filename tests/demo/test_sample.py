"""The bundled sample holds together, and the cases its README promises are in it."""

from __future__ import annotations

import csv
import re
from collections import Counter

import pytest

from hgld.demo.sample import Sample, read_sample
from hgld.resources import sample_file
from hgld.tables import SPLITS
from hgld.wikimedia.categories import read_categories
from hgld.wikimedia.titles import normalise_title


@pytest.fixture(scope="module")
def sample() -> Sample:
    return read_sample()


@pytest.fixture(scope="module")
def titles() -> dict[str, list[str]]:
    return {
        split: [row.title for row in read_categories(sample_file(f"{split}_label_to_category.csv"))]
        for split in SPLITS
    }


def test_every_landmark_is_a_page_but_for_the_two_that_are_meant_to_be_missing(
    sample: Sample, titles: dict[str, list[str]]
) -> None:
    listed = [title for split in SPLITS for title in titles[split]]
    assert len(listed) == len(set(listed)) == 325
    missing = {title for title in listed if title not in sample.pages}
    assert missing == {"Category:Hanging Gardens of Babylon", "Category:Mount Fuji [sunrise]"}


def test_every_page_is_listed_or_redirected_to(sample: Sample, titles: dict[str, list[str]]) -> None:
    targets = {page.redirect or page.soft_redirect for page in sample.pages.values()}
    unused = [title for title in sample.pages if title not in {*titles["train"], *titles["index"], *targets}]
    assert not unused


def test_titles_are_in_mediawikis_spelling(sample: Sample) -> None:
    for title in sample.pages:
        assert normalise_title(title) == title


def test_pages_point_at_items_and_pages_that_exist(sample: Sample) -> None:
    for title, page in sample.pages.items():
        assert sum(value is not None for value in (page.item, page.redirect, page.soft_redirect)) <= 1, title
        assert page.item is None or sample.items[page.item].category == title
        for target in (page.redirect, page.soft_redirect):
            assert target is None or target in sample.pages


def test_items_point_at_labelled_classes_and_at_topics(sample: Sample) -> None:
    for item_id, item in sample.items.items():
        assert re.fullmatch(r"Q[1-9]\d*", item_id)
        for class_id in item.instance_of + item.subclass_of:
            assert sample.items[class_id].label
        assert set(item.preferred) <= set(item.instance_of)
        if item.main_topic:
            assert sample.items[item.main_topic].instance_of
            assert sample.items[item.main_topic].category is None


def test_the_chains_of_classes_end(sample: Sample) -> None:
    def climb(item_id: str, below: tuple[str, ...]) -> None:
        assert item_id not in below, f"{item_id} is a subclass of itself through {below}"
        for parent in sample.items[item_id].subclass_of:
            climb(parent, (*below, item_id))

    for item_id in sample.items:
        climb(item_id, ())


def test_ids_stand_once_and_made_up_ones_are_in_their_ranges(sample: Sample) -> None:
    rows = {}
    for name in ("pages.csv", "classes.csv"):
        with sample_file(name).open(encoding="utf-8", newline="") as stream:
            rows[name] = [row["item"] for row in csv.DictReader(stream) if row["item"]]
    assert len(rows["pages.csv"] + rows["classes.csv"]) == len(sample.items)
    assert all(int(item_id[1:]) > 910_000_000 for item_id in rows["pages.csv"])
    assert all(int(item_id[1:]) < 910_000_000 for item_id in rows["classes.csv"])


def test_there_is_enough_to_cluster(sample: Sample) -> None:
    only_values = Counter(
        sample.items[page.item].instance_of[0]
        for page in sample.pages.values()
        if page.item and len(sample.items[page.item].instance_of) == 1
    )
    assert len(only_values) >= 100
    assert max(only_values.values()) >= 5


def test_the_cases_that_the_readme_names_are_there(sample: Sample) -> None:
    def page_of(name: str):
        return sample.pages[f"Category:{name}"]

    def labels(name: str) -> list[str | None]:
        item = sample.items[page_of(name).item or ""]
        return [sample.items[value].label for value in item.best_instance_of]

    assert labels("Angkor Wat") == ["Hindu temple", "Buddhist temple", "archaeological site"]
    assert labels("Eiffel Tower") == ["lattice tower"]
    assert labels("Victoria Bridge") == ["Wikimedia disambiguation page"]
    assert labels("Cathédrale Notre-Dame de Reims") == ["cathedral", "Wikimedia category"]
    assert sample.items[page_of("Great Wall of China").item or ""].main_topic
    assert page_of("Ayers Rock").redirect == "Category:Uluru"
    assert page_of("富士山").soft_redirect == "Category:Mount Fuji"
    assert page_of(page_of("Tour Eiffel").soft_redirect.removeprefix("Category:")).redirect
    assert labels("Chand Baori") == []
    assert page_of("Sunsets in Oia").item is None


def test_both_splits_use_one_number_for_different_landmarks() -> None:
    train, index = (
        {row.landmark_id: row.title for row in read_categories(sample_file(f"{split}_label_to_category.csv"))}
        for split in SPLITS
    )
    both = train.keys() & index.keys()
    assert both == {46496}
    assert train[46496] != index[46496]
