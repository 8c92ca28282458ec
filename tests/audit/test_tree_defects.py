"""Defects of superclasses, beside reachability that is computed one statement at a time, on random graphs."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.audit.tree_defects import PROBLEMS, GroupedClasses, TreeDefect, find_tree_defects, known_groups
from hgld.tables import CLASSES, CLEAN, Provenance, write_table
from hgld.taxonomy.groups import Group, VocabularyTerm, write_taxonomy
from tests.commands import run_hgld

ITEMS = [f"Q{number}" for number in range(1, 8)]
#: Superclasses of each of the items.
GRAPHS = st.fixed_dictionaries({item: st.lists(st.sampled_from(ITEMS), max_size=3) for item in ITEMS})
KNOWN = st.dictionaries(st.sampled_from(ITEMS), st.sampled_from("abcd").map(lambda name: frozenset({name})))


def graph_of(superclasses: dict[str, list[str]], known: dict[str, frozenset[str]] | None = None) -> GroupedClasses:
    return GroupedClasses(superclasses, {item: item.lower() for item in superclasses}, known or {})


def found(defects: Sequence[TreeDefect], problem: str) -> set[tuple[str, tuple[str, ...]]]:
    return {(defect.item, defect.superclasses) for defect in defects if defect.problem == problem}


def reachable(start: str, statements: set[tuple[str, str]]) -> set[str]:
    """Return what is above a class, by repeated passes over all statements."""
    above: set[str] = set()
    while new := {parent for child, parent in statements if child in above | {start}} - above:
        above |= new
    return above


@given(GRAPHS)
def test_redundant_statements_can_be_removed(superclasses: dict[str, list[str]]) -> None:
    acyclic = {item: [each for each in parents if each > item] for item, parents in superclasses.items()}
    statements = {(item, parent) for item, parents in acyclic.items() for parent in parents}
    expected = {
        (item, (parent,)) for item, parent in statements if parent in reachable(item, statements - {(item, parent)})
    }
    defects = find_tree_defects(graph_of(acyclic), ITEMS)
    assert found(defects, "redundant") == expected
    assert not found(defects, "cycle")


@given(GRAPHS)
def test_cycles_are_the_classes_above_each_other(superclasses: dict[str, list[str]]) -> None:
    statements = {(item, parent) for item, parents in superclasses.items() for parent in parents}
    above = {item: reachable(item, statements) for item in ITEMS}
    expected = {frozenset(each for each in ITEMS if each in above[item] and item in above[each]) for item in ITEMS}
    defects = find_tree_defects(graph_of(superclasses), ITEMS)
    assert {frozenset({item, *others}) for item, others in found(defects, "cycle")} == expected - {frozenset()}
    for defect in defects:
        assert set(defect.labels) == {label for label in ITEMS if defect.item in above[label] | {label}}


@given(GRAPHS, KNOWN)
def test_a_label_has_one_problem_with_groups_at_most(
    superclasses: dict[str, list[str]], known: dict[str, frozenset[str]]
) -> None:
    graph = graph_of(superclasses, known)
    defects = find_tree_defects(graph, ITEMS)
    touched = {
        problem: {label for each in defects if each.problem == problem for label in each.labels}
        for problem in PROBLEMS
    }
    below, general, above = (
        touched[name] for name in ("several groups below", "over-general", "several groups above")
    )
    assert not below & general
    assert not (below | general) & above
    assert above == {label for label in ITEMS if len(graph.groups_above(label)) > 1}
    assert [len(defect.labels) for defect in defects] == sorted((len(each.labels) for each in defects), reverse=True)


#: lake and pier are known; a boat house is both a boat and a house; a shed and a barn are buildings like church and
#: house, and things are above all.
CLASSES_ABOVE = {
    ("Q1", "thing"): [],
    ("Q2", "building"): ["Q1"],
    ("Q3", "church"): ["Q2"],
    ("Q4", "house"): ["Q2", "Q1"],  # redundantly a thing
    ("Q5", "boat"): ["Q1"],
    ("Q6", "boathouse"): ["Q4", "Q5"],
    ("Q7", "old boathouse"): ["Q6"],
    ("Q8", "shed"): ["Q2"],
    ("Q9", "barn"): ["Q8"],
    ("Q10", "idea"): ["Q1"],
    ("Q11", "orphan"): [],
    ("Q12", "lake"): ["Q1"],
    ("Q13", "tarn"): ["Q12"],
    ("Q14", "pier"): ["Q1"],
    ("Q15", "park"): ["Q1"],
}
SUPERCLASSES = {item: above for (item, _), above in CLASSES_ABOVE.items()}
NAMES = dict(CLASSES_ABOVE.keys())
GROUPS = [
    Group("worship", "human-made", "", ("Q3",)),
    Group("house", "human-made", ""),  # known by its name
    Group("vessel", "human-made", "Afloat: boat, raft."),  # by its guideline
    Group("still water", "natural", ""),  # by the vocabulary
    Group("jetty", "natural", "", ("Q14",)),
    Group("greens", "natural", "", ("Q15",)),
]
VOCABULARY = [VocabularyTerm("mere", "still water", ("Q12",)), VocabularyTerm("orphan", None)]


def test_problems_with_groups() -> None:
    known = known_groups(NAMES, GROUPS, VOCABULARY)
    assert known["Q3"] == {"worship"}
    assert known["Q4"] == {"house"}
    assert known["Q5"] == {"vessel"}
    assert known["Q12"] == {"still water"}
    assert known["Q11"] == {"(drop)"}
    defects = find_tree_defects(GroupedClasses(SUPERCLASSES, NAMES, known), NAMES)
    assert {(each.problem, NAMES[each.item], tuple(NAMES[label] for label in each.labels)) for each in defects} == {
        ("redundant", "house", ("house", "boathouse", "old boathouse")),
        ("several groups above", "boathouse", ("boathouse", "old boathouse")),
        ("several groups below", "building", ("shed", "barn")),
        ("over-general", "building", ("building",)),
        ("over-general", "idea", ("idea",)),
    }
    details = {each.item: each.detail for each in defects}
    assert details["Q10"] == "only below thing (Q1), above 6 groups"
    assert details["Q6"] == "house (Q4): house; boat (Q5): vessel"
    assert details["Q4"] == "below thing (Q1) by way of building (Q2) already"


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    made = Provenance("test")
    classes = [{"item": item, "label": NAMES[item], "subclass_of": above} for item, above in SUPERCLASSES.items()]
    write_table(tmp_path / "train.classes.parquet", CLASSES, pa.Table.from_pylist(classes, CLASSES.schema), made)
    labels = ["Q7", "Q7", "Q9", "Q4", "Q8", None]
    rows = [
        {"split": "train", "landmark_id": n, "category": f"x{n}", "supercategory": NAMES.get(item or "", "hut")}
        | {"class_item": item}
        for n, item in enumerate(labels)
    ]
    write_table(tmp_path / "clean.parquet", CLEAN, pa.Table.from_pylist(rows, CLEAN.schema), made)
    write_taxonomy(tmp_path / "groups.csv", GROUPS)
    return tmp_path / "clean.parquet"


def test_command(clean: Path) -> None:
    out = clean.with_name("tree.csv")
    arguments = ["audit", "tree", clean, "--taxonomy", clean.with_name("groups.csv"), "-o", out]
    assert run_hgld(*arguments).stdout.startswith("15 classes for 5 labels\n1 label without a class in the tables\n")
    table = pd.read_csv(out)
    assert table["labels"].is_monotonic_decreasing
    row = table[table["problem"] == "several groups above"].iloc[0]
    assert row[["item", "labels", "landmarks", "touched"]].tolist() == ["Q6", 1, 2, "old boathouse"]
    row = table[table["problem"] == "several groups below"].iloc[0]
    assert row[["class", "labels", "touched"]].tolist() == ["building", 2, "shed; barn"]


def test_missing_classes_are_explained(clean: Path) -> None:
    clean.with_name("train.classes.parquet").unlink()
    result = run_hgld("audit", "tree", clean, "-o", clean.with_name("tree.csv"), code=1)
    assert "has no *.classes.parquet; give tables of classes from hgld scrape as --classes" in result.stderr
