import csv
import json
import math
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hgld.cli import app
from hgld.cli.hierarchy import format_comparison
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.build_inputs import BuildInputs
from hgld.hierarchy.compare import (
    GroupFlow,
    SplitChange,
    compare,
    explain_changes,
    partition_agreement,
    write_changes,
)
from tests.commands import run_hgld

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


def test_landmarks_are_matched_by_split_and_id() -> None:
    result = compare(BEFORE, AFTER)
    assert result.splits == (
        SplitChange("train", before=4, after=4, added=0, lost=0, moved=3, other_root=1),
        SplitChange("index", before=1, after=1, added=1, lost=1, moved=0, other_root=0),
    )
    assert result.common == 4
    assert not result.identical


def test_renamed_group_is_distinguished_from_moved_landmarks() -> None:
    assert compare(BEFORE, AFTER).flows == (
        GroupFlow("chapel", "mosque", 2, renamed=True),
        GroupFlow("lake", "church", 1, renamed=False),
    )


def test_a_hierarchy_is_identical_to_itself() -> None:
    result = compare(AFTER, AFTER)
    assert result.identical
    assert not result.flows
    assert all(set(vars(level).values()) == {1.0} for level in result.agreement.values())
    assert "identical" in format_comparison(result)


def test_disjoint_hierarchies_have_no_agreement() -> None:
    result = compare(hierarchy(("train", 1, "lake")), hierarchy(("index", 1, "lake")))
    assert (result.common, result.agreement, result.flows) == (0, {}, ())
    assert [(part.added, part.lost) for part in result.splits] == [(0, 1), (1, 0)]
    assert not result.identical


def test_texts_of_changes_are_no_formulas(tmp_path: Path) -> None:
    write_changes(tmp_path / "changes.csv", pd.DataFrame([["train", 1, "=1+1", "", "@SUM(A1)", None]]))
    assert (tmp_path / "changes.csv").read_text().splitlines()[1] == "train,1,'=1+1,,'@SUM(A1),"


def test_changes_are_written_to_csv(tmp_path: Path) -> None:
    changes, _ = explain_changes((BEFORE, BuildInputs()), (AFTER, BuildInputs()))
    write_changes(tmp_path / "changes.csv", changes)
    with (tmp_path / "changes.csv").open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
        assert header == [
            *("split", "landmark_id", "change", "before", "after", "cause", "label_before", "label_after"),
            *("item_before", "item_after", "revision_before", "revision_after"),
        ]
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
    files = [str(tmp_path / f"train_{name}.csv") for name in "ab"]
    picture, changes = tmp_path / "flows.png", tmp_path / "changes.csv"
    result = run_hgld("compare", *files, "-o", picture, "--changes", changes)
    assert "3 landmarks moved, in 2 flows between groups" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(changes.read_text().splitlines()) == 4
    result = CliRunner().invoke(app, ["compare", *files, "--json"])
    assert json.loads(result.output)["flows"][0] == {
        "source": "chapel",
        "target": "mosque",
        "landmarks": 2,
        "renamed": True,
    }


@pytest.mark.slow
def test_compare_released_labels_with_merged_groups(shared: Path) -> None:
    released = load_hierarchy(shared / "released")
    assert compare(released, released).identical
    merged = released.merge(["castle / fort", "palace"], "castle")
    result = compare(released, merged)
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
