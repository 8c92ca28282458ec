"""The bundled sample is consistent, and contains the cases that its README describes."""

import csv
import re
from collections import Counter

import pytest

from hgld.demo.sample import Sample, SamplePage, read_sample
from hgld.resources import sample_file
from hgld.tables import SPLITS
from hgld.wikimedia.scrape_files import read_categories
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


def test_pages_are_the_landmarks_and_redirect_targets(sample: Sample, titles: dict[str, list[str]]) -> None:
    listed = [title for split in SPLITS for title in titles[split]]
    assert len(listed) == len(set(listed)) == 325
    targets = {page.redirect or page.soft_redirect for page in sample.pages.values()} - {None}
    missing = {title for title in listed if title not in sample.pages}
    assert missing == {"Category:Hanging Gardens of Babylon", "Category:Mount Fuji [sunrise]"}
    assert sample.pages.keys() - {*listed} <= targets <= sample.pages.keys()
    for title, page in sample.pages.items():
        assert normalise_title(title) == title
        assert sum(value is not None for value in (page.item, page.redirect, page.soft_redirect)) <= 1, title
        assert page.item is None or sample.items[page.item].category == title


def test_items_refer_to_labelled_classes_and_topics(sample: Sample) -> None:
    for item_id, item in sample.items.items():
        assert re.fullmatch(r"Q[1-9]\d*", item_id)
        assert all(sample.items[class_id].label for class_id in item.instance_of + item.subclass_of)
        assert set(item.preferred) <= set(item.instance_of)
        if item.main_topic:
            assert sample.items[item.main_topic].instance_of
            assert sample.items[item.main_topic].category is None


def test_subclass_chains_are_acyclic(sample: Sample) -> None:
    def climb(item_id: str, below: tuple[str, ...]) -> None:
        assert item_id not in below, f"{item_id} is a subclass of itself through {below}"
        for parent in sample.items[item_id].subclass_of:
            climb(parent, (*below, item_id))

    for item_id in sample.items:
        climb(item_id, ())


def test_ids_are_unique_and_invented_ones_are_in_their_range(sample: Sample) -> None:
    rows = {}
    for name in ("pages.csv", "classes.csv"):
        with sample_file(name).open(encoding="utf-8", newline="") as stream:
            rows[name] = [row["item"] for row in csv.DictReader(stream) if row["item"]]
    assert len(rows["pages.csv"] + rows["classes.csv"]) == len(sample.items)
    assert all(int(item_id[1:]) > 910_000_000 for item_id in rows["pages.csv"])
    assert all(int(item_id[1:]) < 910_000_000 for item_id in rows["classes.csv"])


def test_sample_has_enough_labels_to_cluster(sample: Sample) -> None:
    label_counts = Counter(
        sample.items[page.item].instance_of[0]
        for page in sample.pages.values()
        if page.item and len(sample.items[page.item].instance_of) == 1
    )
    assert len(label_counts) >= 100
    assert max(label_counts.values()) >= 5


def test_cases_of_the_readme_are_present(sample: Sample) -> None:
    def page_of(name: str) -> SamplePage:
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
    assert page_of((page_of("Tour Eiffel").soft_redirect or "").removeprefix("Category:")).redirect
    assert labels("Chand Baori") == []
    assert page_of("Sunsets in Oia").item is None


def test_splits_share_an_id_for_different_landmarks() -> None:
    train, index = (
        {row.landmark_id: row.title for row in read_categories(sample_file(f"{split}_label_to_category.csv"))}
        for split in SPLITS
    )
    shared_ids = train.keys() & index.keys()
    assert shared_ids == {46496}
    assert train[46496] != index[46496]
