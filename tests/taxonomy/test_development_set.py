"""The development set: labels that can be trusted, and a graph of superclasses that holds all of them."""

import csv
import re
from collections import Counter
from graphlib import TopologicalSorter

import pytest

from hgld.resources import annotation_file
from hgld.taxonomy.decisions import read_decisions
from hgld.taxonomy.groups import read_taxonomy

REGIONS = {"Africa", "Antarctica", "Asia", "Europe", "North America", "Oceania", "South America", "worldwide"}


def rows_of(name: str) -> list[dict[str, str]]:
    with annotation_file(f"development/{name}").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def labels() -> list[dict[str, str]]:
    return rows_of("labels.csv")


@pytest.fixture(scope="module")
def superclasses() -> dict[str, set[str]]:
    result: dict[str, set[str]] = {}
    for row in rows_of("superclasses.csv"):
        result.setdefault(row["class"], set()).add(row["superclass"])
    return result


def test_labels_are_unique_whatever_their_case_and_sorted(labels: list[dict[str, str]]) -> None:
    names = [row["label"] for row in labels]
    assert len(names) >= 800
    assert len({name.casefold() for name in names}) == len(names)
    assert names == sorted(names, key=lambda name: (name.casefold(), name))
    assert not [name for name in names if name != " ".join(name.split())]


def test_every_group_and_region_is_in_both_halves(labels: list[dict[str, str]]) -> None:
    groups = {group.name for group in read_taxonomy(annotation_file("taxonomy.csv"))}
    count = Counter((row["half"], row["group"]) for row in labels)
    assert set(count) == {(half, group) for half in ("fit", "final") for group in groups | {""}}
    assert min(count.values()) >= 2
    halves = Counter(row["half"] for row in labels)
    assert abs(halves["fit"] - halves["final"]) <= 0.03 * len(labels)
    assert 0.08 <= (count["fit", ""] + count["final", ""]) / len(labels) <= 0.12
    assert {row["region"] for row in labels} == REGIONS
    assert {row["author"] for row in labels} == {"development"}


def test_no_label_was_decided_before(labels: list[dict[str, str]]) -> None:
    decided = {decision.label.casefold() for decision in read_decisions(annotation_file("decisions/final.csv"), None)}
    assert not [row["label"] for row in labels if row["label"].casefold() in decided]


def test_few_labels_are_terms_of_a_guideline(labels: list[dict[str, str]]) -> None:
    lists = [group.guideline.split(". ")[0] for group in read_taxonomy(annotation_file("taxonomy.csv"))]
    terms = {term.strip().casefold() for line in lists for term in re.split("[:,]", line)}
    assert sum(row["label"].casefold() in terms for row in labels) <= len(labels) / 3


def test_every_label_leads_to_the_top_without_a_cycle(
    labels: list[dict[str, str]], superclasses: dict[str, set[str]]
) -> None:
    order = list(TopologicalSorter(superclasses).static_order())  # raises CycleError
    assert not [row["label"] for row in labels if row["label"] not in superclasses]
    assert [name for name in order if name not in superclasses] == ["entity"]


def test_items_are_of_classes_in_the_graph(superclasses: dict[str, set[str]]) -> None:
    rows = rows_of("items.csv")
    assert {row["class"] for row in rows} <= set(superclasses) | {"entity"}
    assert all(re.fullmatch(r"Q[1-9]\d*", row["item"]) for row in rows)
    assert len({row["item"] for row in rows}) == len({row["class"] for row in rows}) == len(rows)
