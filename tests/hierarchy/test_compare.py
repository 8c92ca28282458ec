"""Differences between two hierarchies, and their causes."""

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld import tables
from hgld.cli.hierarchy import format_comparison
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.build import build_file
from hgld.hierarchy.build_inputs import BuildInputs, find_build_inputs
from hgld.hierarchy.changes import explain_changes, write_changes
from hgld.hierarchy.compare import GroupFlow, SplitChange, compare_files, compare_hierarchies, partition_agreement
from hgld.hierarchy.settings import BuildConfig
from hgld.labels.clean import clean_file
from hgld.taxonomy.decisions import Decision, DecisionIndex, write_decisions
from hgld.taxonomy.groups import Group, write_taxonomy
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.hierarchy.conftest import ATTRACTION, BRIDGE, CHURCH, LAKE, MOUNTAIN, WHEN, WIDE
from tests.labels.label_tables import PROVENANCE, scraped_row

ROOTS = {"lake": "natural", "sea": "natural", "church": "human-made", "chapel": "human-made", "mosque": "human-made"}


def hierarchy(*landmarks: tuple[str, int, str]) -> Hierarchy:
    """A hierarchy of (split, landmark_id, group)."""
    frame = pd.DataFrame(landmarks, columns=["split", "landmark_id", "hierarchical_label"])
    return Hierarchy.from_pandas(frame.assign(natural_or_human_made=frame["hierarchical_label"].map(ROOTS)))


BEFORE = hierarchy(
    ("train", 1, "lake"), ("train", 2, "lake"), ("train", 3, "chapel"), ("train", 4, "chapel"), ("index", 1, "church")
)
AFTER = hierarchy(
    ("train", 1, "lake"),
    ("train", 2, "church"),
    ("train", 3, "mosque"),
    ("train", 4, "mosque"),
    ("index", 2, "church"),
)


def test_landmarks_are_matched_by_split_and_id_and_renamed_groups_are_found() -> None:
    result = compare_hierarchies(BEFORE, AFTER)
    assert result.splits == (
        SplitChange("train", before=4, after=4, added=0, lost=0, moved=3, other_root=1),
        SplitChange("index", before=1, after=1, added=1, lost=1, moved=0, other_root=0),
    )
    assert result.common == 4
    assert not result.identical
    assert result.flows == (
        GroupFlow("chapel", "mosque", 2, renamed=True),
        GroupFlow("lake", "church", 1, renamed=False),
    )


def test_a_hierarchy_is_identical_to_itself() -> None:
    result = compare_hierarchies(AFTER, AFTER)
    assert result.identical
    assert not result.flows
    assert all(set(vars(level).values()) == {1.0} for level in result.agreement.values())
    assert "identical" in format_comparison(result, "landmarks")


def test_disjoint_hierarchies_have_no_agreement() -> None:
    result = compare_hierarchies(hierarchy(("train", 1, "lake")), hierarchy(("index", 1, "lake")))
    assert (result.common, result.agreement, result.flows) == (0, {}, ())
    assert [(part.added, part.lost) for part in result.splits] == [(0, 1), (1, 0)]
    assert not result.identical


COLUMNS = [
    *("split", "landmark_id", "change", "before", "after", "cause", "label_before", "label_after"),
    *("item_before", "item_after", "revision_before", "revision_after"),
]


def test_texts_of_changes_are_no_formulas(tmp_path: Path) -> None:
    write_changes(tmp_path / "changes.csv", pd.DataFrame([["train", 1, "=1+1", "", "@SUM(A1)", None]]))
    assert (tmp_path / "changes.csv").read_text().splitlines()[1] == "train,1,'=1+1,,'@SUM(A1),"


def test_changes_do_not_replace_files_of_other_programs(tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("name,age,city\nada,36,London\n")
    changes, _ = explain_changes((BEFORE, BuildInputs()), (AFTER, BuildInputs()))
    with pytest.raises(ConfigurationError, match=r"people.csv: exists, and hgld did not write it"):
        write_changes(people, changes)
    assert people.read_text() == "name,age,city\nada,36,London\n"


def test_changes_are_written_to_csv(tmp_path: Path) -> None:
    changes, _ = explain_changes((BEFORE, BuildInputs()), (AFTER, BuildInputs()))
    write_changes(tmp_path / "changes.csv", changes)
    with (tmp_path / "changes.csv").open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
        assert header == COLUMNS
        assert [row[:5] for row in rows] == [
            ["index", "1", "lost", "church", ""],
            ["index", "2", "added", "", "church"],
            ["train", "2", "moved", "lake", "church"],
            ["train", "3", "moved", "chapel", "mosque"],
            ["train", "4", "moved", "chapel", "mosque"],
        ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=12))
def test_agreement_measures_match_definitions(pairs: list[tuple[int, int]]) -> None:
    before, after = (np.array(side) for side in zip(*pairs, strict=True))
    result = partition_agreement(before, after)
    assert result.ari == pytest.approx(slow_ari(pairs))
    assert result.ami == pytest.approx(slow_ami(pairs))
    homogeneity, completeness = (slow_homogeneity(pairs), slow_homogeneity([pair[::-1] for pair in pairs]))
    assert result.homogeneity == pytest.approx(homogeneity)
    assert result.completeness == pytest.approx(completeness)
    total = homogeneity + completeness
    assert result.v_measure == pytest.approx(2 * homogeneity * completeness / total if total else 0.0)
    assert result.purity_after == pytest.approx(slow_purity(pairs))
    assert result.purity_before == pytest.approx(slow_purity([pair[::-1] for pair in pairs]))


def slow_ari(pairs: list[tuple[int, int]]) -> float:
    """By looking at every pair of items."""
    together = [(a[0] == b[0], a[1] == b[1]) for a, b in combinations(pairs, 2)]
    in_before, in_after = (sum(side) for side in zip(*together, strict=True))
    both = sum(one and other for one, other in together)
    expected = in_before * in_after / len(together)
    most = (in_before + in_after) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def entropy(values: list[object]) -> float:
    return -sum(n / len(values) * math.log(n / len(values)) for n in Counter(values).values())


def slow_homogeneity(pairs: list[tuple[int, int]]) -> float:
    before, after = map(list, zip(*pairs, strict=True))
    if not entropy(before):
        return 1.0
    return 1 - (entropy(list(pairs)) - entropy(after)) / entropy(before)


def slow_purity(pairs: list[tuple[int, int]]) -> float:
    best = 0
    for part in {after for _, after in pairs}:
        best += max(Counter(before for before, after in pairs if after == part).values())
    return best / len(pairs)


def slow_ami(pairs: list[tuple[int, int]]) -> float:
    """The mutual information that chance gives, by the hypergeometric distribution of every cell."""
    before, after = map(list, zip(*pairs, strict=True))
    n = len(pairs)
    information = entropy(before) + entropy(after) - entropy(list(pairs))
    expected = 0.0
    for a in Counter(before).values():
        for b in Counter(after).values():
            for cell in range(max(1, a + b - n), min(a, b) + 1):
                chance = math.comb(a, cell) * math.comb(n - a, b - cell) / math.comb(n, b)
                expected += chance * cell / n * math.log(n * cell / (a * b))
    most = (entropy(before) + entropy(after)) / 2
    if len(set(before)) == len(set(after)) in (1, n):  # alike, whatever their names
        return 1.0
    if math.isclose(most, expected, abs_tol=1e-12):
        return 0.0
    return (information - expected) / (most - expected)


def test_compare_command(tmp_path: Path) -> None:
    for name, content in (("a", BEFORE), ("b", AFTER)):
        rows = content.filter(splits=["train"]).to_pandas().drop(columns="split")
        rows.to_csv(tmp_path / f"train_{name}.csv", index=False)
    files = [tmp_path / f"train_{name}.csv" for name in "ab"]
    changes = tmp_path / "changes.csv"
    result = run_hgld("compare", *files, "--changes", changes)
    assert "3 landmarks moved, in 2 flows between groups" in result.output
    assert len(changes.read_text().splitlines()) == 4
    result = run_hgld("compare", *files, "--json")
    flow = {"source": "chapel", "target": "mosque", "landmarks": 2, "renamed": True}
    assert json.loads(result.output)["flows"][0] == flow


@pytest.mark.slow
def test_compare_released_labels_with_merged_groups(shared: Path) -> None:
    released = load_hierarchy(shared / "released")
    assert compare_hierarchies(released, released).identical
    merged = released.merge(["castle / fort", "palace"], "castle")
    result = compare_hierarchies(released, merged)
    assert [(flow.source, flow.target, flow.landmarks) for flow in result.flows] == [
        ("castle / fort", "castle", 4603),
        ("palace", "castle", 718),
    ]
    assert result.splits[0].moved == 4603 + 718
    group = result.agreement["hierarchical_label"]
    assert group.completeness == pytest.approx(1)
    assert group.purity_before == pytest.approx(1)
    assert group.purity_after == pytest.approx(1 - 718 / 55529)
    assert group.homogeneity < 1


Value = tuple[str, str]
WATERFALL, CATHEDRAL = ("Q34038", "waterfall"), ("Q2977", "cathedral")
#: By landmark: values, revision, and letter that stands for the category.
Landmarks = Mapping[int, tuple[Sequence[Value], int, str]]

FIRST: Landmarks = {
    1: ([LAKE], 10, "a"),
    2: ([LAKE], 10, "a"),
    3: ([LAKE], 10, "a"),
    4: ([], 10, "a"),
    5: ([LAKE], 10, "a"),
    7: ([LAKE], 10, "a"),
    8: ([MOUNTAIN], 10, "a"),
    9: ([WIDE], 10, "a"),
    10: ([MOUNTAIN], 10, "a"),
    11: ([MOUNTAIN], 10, "a"),
    12: ([CHURCH], 10, "a"),
    13: ([ATTRACTION, LAKE], 10, "a"),
    14: ([BRIDGE], 10, "a"),
    15: ([CHURCH], 10, "a"),
}
SECOND: Landmarks = {
    1: ([LAKE], 11, "a"),
    2: ([CHURCH], 11, "a"),
    3: ([], 11, "a"),
    4: ([BRIDGE], 11, "a"),
    6: ([LAKE], 11, "a"),
    7: ([CHURCH], 11, "b"),
    8: ([MOUNTAIN], 10, "a"),
    9: ([WIDE], 10, "a"),
    10: ([WIDE], 11, "a"),
    11: ([LAKE], 11, "a"),
    12: ([WATERFALL], 11, "a"),
    13: ([ATTRACTION, LAKE], 10, "a"),
    14: ([BRIDGE], 10, "a"),
    15: ([CATHEDRAL], 11, "a"),
}


def build_in(
    folder: Path,
    landmarks: Landmarks,
    decided: Mapping[Value, str | None],
    *,
    irrelevant: str = "Q999999",
    natural: Sequence[str] = ("lake", "mountain"),
    names: Mapping[str, str] = {},
) -> Path:
    """Build a hierarchy with all tables before it in a folder, under names of this test's own."""
    folder.mkdir()
    rows = [
        scraped_row(number, values, name=f"L{number}{letter}", item=f"Q{number}", route="direct", revision=revision)
        for number, (values, revision, letter) in landmarks.items()
    ]
    table = pa.Table.from_pylist(rows, tables.SCRAPED.schema)
    tables.write_table(folder / "from_the_web.parquet", tables.SCRAPED, table, PROVENANCE)
    groups = ("lake", "mountain", "church", "bridge")
    roots = {key: "natural" if key in natural else "human-made" for key in groups}
    described = [Group(names.get(key, key), root, "Guideline.", (), key) for key, root in roots.items()]
    write_taxonomy(folder / "taxonomy.csv", described)
    decisions = [
        Decision(item, label, "group" if group else "drop", group, "ada", WHEN)
        for (item, label), group in decided.items()
    ]
    write_decisions(folder / "decided.csv", decisions)
    (folder / "irrelevant.csv").write_text(f"item,label,reason\n{irrelevant},x,says nothing\n")
    clean_file([folder / "from_the_web.parquet"], folder / "labels.parquet", irrelevant=folder / "irrelevant.csv")
    return build(folder / "hierarchy.parquet", BuildConfig(allow_undecided=True))


def build(out: Path, config: BuildConfig, **options: Any) -> Path:
    """Build a hierarchy beside the tables of :func:`build_in`."""
    files: dict[str, Any] = {"decisions": out.with_name("decided.csv"), "taxonomy": out.with_name("taxonomy.csv")}
    build_file(out.with_name("labels.parquet"), out, config, **files, **options)
    return out


@pytest.fixture
def versions(tmp_path: Path) -> tuple[Path, Path]:
    """Two versions, between which everything changed that can."""
    decided = {LAKE: "lake", MOUNTAIN: "mountain", CHURCH: "church", BRIDGE: "bridge", WIDE: None}
    first = build_in(tmp_path / "first", FIRST, decided, irrelevant=ATTRACTION[0])
    later = {**decided, MOUNTAIN: "lake", WIDE: "church", WATERFALL: "lake", CATHEDRAL: "church"}
    return first, build_in(tmp_path / "second", SECOND, later, natural=["lake", "mountain", "bridge"])


def changes_of(path: Path) -> dict[int, dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return {int(row["landmark_id"]): row for row in csv.DictReader(stream)}


def test_every_cause(versions: tuple[Path, Path], tmp_path: Path) -> None:
    comparison = compare_files(*versions, changes=tmp_path / "changes.csv")
    changes = changes_of(tmp_path / "changes.csv")
    assert {number: (row["change"], row["cause"]) for number, row in changes.items()} == {
        2: ("moved", "wikidata"),
        3: ("lost", "wikidata"),
        4: ("added", "wikidata"),
        5: ("lost", "list"),
        6: ("added", "list"),
        7: ("moved", "list"),
        8: ("moved", "decisions"),
        9: ("added", "decisions"),
        10: ("moved", "wikidata+decisions"),  # neither alone leads there
        11: ("moved", "wikidata+decisions"),  # each alone does
        12: ("moved", "wikidata"),
        13: ("lost", "cleaning"),
        14: ("root", "taxonomy"),
    }
    assert list(changes[2]) == COLUMNS
    assert list(changes[2].values()) == [
        *("train", "2", "moved", "lake", "church", "wikidata", "lake", "church building", "Q2", "Q2", "10", "11")
    ]
    assert (changes[3]["label_after"], changes[13]["label_after"]) == ("(unlabelled)", "(multiple)")
    assert (changes[14]["before"], changes[14]["after"]) == ("human-made", "natural")
    explanation = not_none(comparison.explanation)
    assert explanation.same_place == 1
    assert not explanation.missing
    assert [astuple(counts) for counts in explanation.causes] == [
        ("wikidata", 2, 0, 1, 1),
        ("list", 1, 0, 1, 1),
        ("decisions", 1, 0, 1, 0),
        ("wikidata+decisions", 2, 0, 0, 0),
        ("cleaning", 0, 0, 0, 1),
        ("taxonomy", 0, 1, 0, 0),
    ]


def test_renamed_group(tmp_path: Path) -> None:
    decided = {LAKE: "lake", CHURCH: "church"}
    first = build_in(tmp_path / "first", {1: ([LAKE], 1, "a"), 2: ([LAKE], 1, "a"), 3: ([CHURCH], 1, "a")}, decided)
    landmarks: Landmarks = {1: ([LAKE], 1, "a"), 2: ([CHURCH], 2, "a"), 3: ([LAKE], 2, "a")}
    second = build_in(tmp_path / "second", landmarks, decided, names={"lake": "still water"})
    compare_files(first, second, changes=tmp_path / "changes.csv")
    changes = changes_of(tmp_path / "changes.csv")
    assert {number: (row["after"], row["cause"]) for number, row in changes.items()} == {
        1: ("still water", "taxonomy"),
        2: ("church", "wikidata"),
        3: ("still water", "wikidata+taxonomy"),
    }


def test_groups_from_photographs_are_not_those_of_labels(tmp_path: Path) -> None:
    decided = {LAKE: "lake", WIDE: None}
    first = build_in(tmp_path / "first", {1: ([LAKE], 1, "a"), 2: ([LAKE], 1, "a"), 3: ([WIDE], 1, "a")}, decided)
    before = load_hierarchy(first), find_build_inputs(first)
    frame = before[0].to_pandas().iloc[:2].assign(label_source="instance_of")
    frame.loc[1, ["landmark_id", "supercategory", "hierarchical_label"]] = (3, "church", "church")
    frame.loc[1, ["natural_or_human_made", "label_source"]] = ("human-made", "photographs")
    landmarks: Landmarks = {1: ([LAKE], 1, "a"), 2: ([WIDE], 2, "a"), 3: ([WIDE], 1, "a")}
    second = build_in(tmp_path / "second", landmarks, decided)
    after = Hierarchy.from_pandas(frame), find_build_inputs(second)
    explained, _ = explain_changes(before, after)
    assert explained[["landmark_id", "change", "cause"]].to_numpy().tolist() == [
        [2, "lost", "wikidata"],
        [3, "added", "settings"],
    ]


def test_changed_settings(versions: tuple[Path, Path], tmp_path: Path) -> None:
    first, _ = versions
    other, irrelevant = first.with_name("several.parquet"), first.with_name("irrelevant.csv")
    scraped = [first.with_name("from_the_web.parquet")]
    irrelevant.write_text("item,label,reason\nQ999999,x,says nothing\n")
    clean_file(scraped, first.with_name("labels.parquet"), irrelevant=irrelevant, force=True)
    build(first, BuildConfig(allow_undecided=True), force=True)
    build(other, BuildConfig(multi=True, allow_undecided=True), scraped=scraped, irrelevant=irrelevant)
    compare_files(first, other, changes=tmp_path / "changes.csv")
    assert {number: row["cause"] for number, row in changes_of(tmp_path / "changes.csv").items()} == {13: "settings"}


def test_missing_tables_are_named(versions: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = versions
    (first.parent / "from_the_web.parquet").unlink()
    explanation = not_none(compare_files(first, second, changes=tmp_path / "changes.csv").explanation)
    changes = changes_of(tmp_path / "changes.csv")
    assert explanation.missing == (f"{first.parent} has no scraped table that {first} was made from",)
    assert {number: row["cause"] for number, row in changes.items() if row["cause"] != "unknown"} == {
        8: "decisions",
        9: "decisions",
        14: "taxonomy",
    }
    assert (changes[2]["item_before"], changes[2]["revision_after"]) == ("", "11")
    (first.parent / "labels.parquet").unlink()
    explanation = not_none(compare_files(first, second, changes=tmp_path / "changes.csv").explanation)
    assert changes_of(tmp_path / "changes.csv")[8]["cause"] == "decisions"
    assert explanation.same_place is None
    assert "has no clean table" in explanation.missing[0]


def test_tables_of_another_run_do_not_count(versions: tuple[Path, Path]) -> None:
    first, second = versions
    second.with_name("labels.parquet").write_bytes(first.with_name("labels.parquet").read_bytes())
    explanation = not_none(compare_files(first, second).explanation)
    assert explanation.missing == (f"{second.parent} has no clean table that {second} was made from",)


def test_tables_elsewhere_can_be_named(versions: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = versions
    alone = tmp_path / "alone" / "hierarchy.parquet"
    alone.parent.mkdir()
    alone.write_bytes(first.read_bytes())
    arguments = ["compare", str(alone), str(second), "--before-tables", str(first.parent)]
    result = run_hgld(*arguments, "--json")
    explanation = json.loads(result.output)["explanation"]
    assert not explanation["missing"]
    assert explanation["causes"][0] == {"cause": "wikidata", "moved": 2, "root": 0, "added": 1, "lost": 1}
    text = run_hgld(*arguments).output
    assert "train 2 moved: lake → church; label lake → church building; Q2, revision 10 → 11" in text
    assert "1 landmarks have another label in the same group" in text
    with pytest.raises(InputError, match="no such folder"):
        compare_files(alone, second, before_tables=tmp_path / "none")


def test_official_files_tell_decisions_only(tmp_path: Path) -> None:
    header = "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made\n"
    for name, group in (("a", "lake"), ("b", "river")):
        rows = f"1,,lake,{group},natural\n2,,{group},{group},natural\n"
        (tmp_path / f"train_{name}.csv").write_text(header + rows)
    compare_files(tmp_path / "train_a.csv", tmp_path / "train_b.csv", changes=tmp_path / "changes.csv")
    causes = {number: row["cause"] for number, row in changes_of(tmp_path / "changes.csv").items()}
    assert causes == {1: "decisions", 2: "unknown"}
    result = run_hgld("compare", tmp_path / "train_a.csv", tmp_path / "train_b.csv")
    assert "not known:" in result.output
    assert "train_a.csv does not record the files it was built from" in result.output


# -- against building again --------------------------------------------------------------------------------------

NAMES = ("w", "x", "y", "z")
GROUPS = ("lake", "sea", "")
Labels = tuple[str | None, ...]
Decided = Mapping[str, str]


def hierarchy_of(labels: Labels, decided: Decided) -> tuple[Hierarchy, BuildInputs]:
    """Build by the definition: the group of a landmark is the one decided for its label."""
    kept = [(number, label) for number, label in enumerate(labels) if label is not None]
    # One landmark more, which is in every hierarchy: there is none without landmarks.
    rows = [(number, decided[label]) for number, label in kept if decided[label]] + [(99, "hill")]
    frame = pd.DataFrame(rows, columns=["landmark_id", "hierarchical_label"])
    tree = Hierarchy.from_pandas(frame.assign(split="train", natural_or_human_made="natural"))
    clean = pa.table(
        {
            "split": ["train"] * len(kept),
            "landmark_id": pa.array([number for number, _ in kept], pa.int64()),
            "supercategory": pa.array([label for _, label in kept], pa.string()),
            "class_item": pa.array([f"Q{ord(label)}" for _, label in kept], pa.string()),
        }
    )
    scraped = pa.table(
        {
            "split": ["train"] * len(labels),
            "landmark_id": pa.array(range(len(labels)), pa.int64()),
            "title": [str(number) for number in range(len(labels))],
            "item": [f"Q{number}" for number in range(len(labels))],
            "revision": pa.array([1] * len(labels), pa.int64()),
            "instance_of": [label or "" for label in labels],
        }
    )
    decisions = DecisionIndex(
        Decision(f"Q{ord(label)}", label, "group" if group else "drop", group or None, "ada", WHEN)
        for label, group in decided.items()
    )
    return tree, BuildInputs({"decisions": str(sorted(decided.items()))}, clean, None, scraped, decisions)


def slow_cause(number: int, labels: tuple[Labels, Labels], decided: tuple[Decided, Decided]) -> str:
    """Build with either change alone."""

    def place(labels: Labels, decided: Decided) -> str:
        label = labels[number]
        return decided[label] if label is not None else ""

    goal = place(labels[1], decided[1])
    by_label, by_decision = place(labels[1], decided[0]) == goal, place(labels[0], decided[1]) == goal
    if by_label == by_decision:
        return "wikidata+decisions"
    return "wikidata" if by_label else "decisions"


some_labels = st.tuples(*[st.sampled_from((None, *NAMES))] * 5)
some_decisions = st.fixed_dictionaries({name: st.sampled_from(GROUPS) for name in NAMES})


@given(labels=st.tuples(some_labels, some_labels), decided=st.tuples(some_decisions, some_decisions))
def test_causes_are_those_of_building_with_either_change_alone(
    labels: tuple[Labels, Labels], decided: tuple[Decided, Decided]
) -> None:
    first, second = (hierarchy_of(*side) for side in zip(labels, decided, strict=True))
    changes, summary = explain_changes(first, second)
    assert dict(zip(changes["landmark_id"], changes["cause"], strict=True)) == {
        number: slow_cause(number, labels, decided) for number in changes["landmark_id"]
    }
    assert sum(row.moved + row.root + row.added + row.lost for row in summary.causes) == len(changes)
