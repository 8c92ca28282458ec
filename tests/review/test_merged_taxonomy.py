"""One taxonomy from those of several annotators."""

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.review.decision_files import GroupConflict, changed_groups, merge_taxonomies, write_changed_taxonomy
from hgld.review.state import apply_group_values, surviving_group
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group, read_taxonomy, survivors, taxonomy_beside, write_taxonomy

LAKE = Group("lake", "natural", "Standing water.", ("Q23397",))
PARKS = Group("parks", "natural", "Green land.")
BASE = [LAKE, PARKS]
QUAY = Group("quay", "human-made", "Where boats land.")
NAMES = ["lake", "parks", "quay", "pier", "LAKE"]


def renamed(group: Group, name: str) -> Group:
    return replace(group, name=name)


@pytest.mark.parametrize(
    ("ada", "ben", "names", "problems"),
    [
        ([], [], ["lake", "parks"], {}),
        ([LAKE, renamed(PARKS, "green parks")], [], ["lake", "green parks"], {}),
        ([renamed(PARKS, "woods")], [renamed(PARKS, "woods")], ["lake", "woods"], {}),
        (
            [renamed(PARKS, "green parks")],
            [renamed(PARKS, "parkland")],
            ["lake", "parks"],
            {"parks": '"green parks" by ada, "parkland" by ben'},
        ),
        ([QUAY], [renamed(QUAY, "quay")], ["lake", "parks", "quay"], {}),
        (
            [renamed(QUAY, "pier")],
            [QUAY],
            ["lake", "parks", "pier"],
            {"quay": '"pier" (human-made) by ada, "quay" (human-made) by ben'},
        ),
        (
            [QUAY],
            [replace(QUAY, root="natural")],
            ["lake", "parks", "quay"],
            {"quay": '"quay" (human-made) by ada, "quay" (natural) by ben'},
        ),
        (
            [renamed(PARKS, "Quay")],
            [QUAY],
            ["lake", "Quay", "quay (2)"],
            {"quay": 'the new name "quay" is that of another group'},
        ),
        # Two annotators swap names: neither name is taken twice.
        ([renamed(LAKE, "parks"), renamed(PARKS, "lake")], [], ["parks", "lake"], {}),
    ],
)
def test_names_of_groups(ada: list[Group], ben: list[Group], names: list[str], problems: dict[str, str]) -> None:
    merged = merge_taxonomies(BASE, {"ada": ada, "ben": ben})
    assert [group.name for group in merged.groups] == names
    assert {conflict.key: conflict.problem for conflict in merged.conflicts} == problems
    assert merged.groups[0].items == LAKE.items


def test_preferred_and_settled_names() -> None:
    groups = {"ada": [renamed(PARKS, "green parks")], "ben": [renamed(PARKS, "parkland")]}
    for preferred, name in (("ada", "green parks"), ("ben", "parkland")):
        merged = merge_taxonomies(BASE, groups, preferred=preferred)
        assert (merged.groups[1].name, merged.conflicts) == (name, [])
    settled = [LAKE, renamed(PARKS, "woods"), QUAY]
    merged = merge_taxonomies(BASE, groups, settled=settled, preferred="ada")
    assert [group.name for group in merged.groups] == ["lake", "woods", "quay"]
    assert merged.conflicts == []


taxonomies = st.lists(
    st.builds(
        Group,
        st.sampled_from(NAMES),
        st.sampled_from(["natural", "human-made"]),
        st.just("x"),
        key=st.sampled_from(["lake", "parks", "quay", "pier"]),
    ),
    max_size=3,
    unique_by=lambda group: group.key,
)


@given(taxonomies, taxonomies, taxonomies, st.sampled_from([None, "ada", "ben"]))
def test_no_group_is_lost_and_every_name_is_unique(
    ada: list[Group], ben: list[Group], settled: list[Group], preferred: str | None
) -> None:
    merged = merge_taxonomies(BASE, {"ada": ada, "ben": ben}, settled=settled, preferred=preferred)
    keys = {group.key for group in (*BASE, *ada, *ben, *settled)}
    assert [group.key for group in merged.groups[:2]] == ["lake", "parks"]
    assert sorted(group.key for group in merged.groups) == sorted(keys)
    assert len({group.name.casefold() for group in merged.groups}) == len(keys)
    assert all(group.root == "natural" for group in merged.groups[:2])
    unsettled = {conflict.key for conflict in merged.conflicts}
    for group in merged.groups:
        names = {other.name for other in (*ada, *ben, *settled) if other.key == group.key}
        assert group.key in unsettled or group.name in names | {group.key}


GARDENS = Group("gardens", "human-made", "Planted land.", ("Q1107656",))
MERGING = replace(GARDENS, merged=("parks",))


@pytest.mark.parametrize(
    ("ada", "ben", "settled", "preferred", "merged", "problems"),
    [
        ([LAKE, MERGING], [], [], None, {}, {"parks": 'merged into "gardens" by ada, kept by ben'}),
        ([LAKE, MERGING], [], [], "ben", {}, {}),
        ([LAKE, MERGING], [], [], "ada", {"parks": "gardens"}, {}),
        ([LAKE, MERGING], [LAKE, MERGING], [], None, {"parks": "gardens"}, {}),
        ([], [], [LAKE, MERGING], None, {"parks": "gardens"}, {}),
        (
            [LAKE, MERGING],
            [replace(LAKE, merged=("parks",)), GARDENS],
            [],
            None,
            {},
            {"parks": 'merged into "gardens" by ada, merged into "lake" by ben'},
        ),
        # The first proposed a group and merged it, the second never had it.
        ([LAKE, PARKS, replace(GARDENS, merged=("quay",))], [], [], None, {"quay": "gardens"}, {}),
        # Merges in two steps, by different people.
        (
            [LAKE, MERGING],
            [LAKE, MERGING],
            [replace(LAKE, merged=("gardens",)), PARKS],
            None,
            {"gardens": "lake", "parks": "lake"},
            {},
        ),
        # Merges against each other never close a circle.
        (
            [LAKE, MERGING],
            [LAKE, replace(PARKS, merged=("gardens",))],
            [LAKE, MERGING],
            "ben",
            {"parks": "gardens"},
            {"gardens": 'merged into "parks" by ben, kept by ada'},
        ),
    ],
)
def test_merges(
    ada: list[Group],
    ben: list[Group],
    settled: list[Group],
    preferred: str | None,
    merged: dict[str, str],
    problems: dict[str, str],
) -> None:
    result = merge_taxonomies([*BASE, GARDENS], {"ada": ada, "ben": ben}, settled=settled, preferred=preferred)
    assert survivors(result.groups) == merged
    assert {conflict.key: conflict.problem for conflict in result.conflicts} == problems
    assert {group.key for group in result.groups} == {"lake", "parks", "gardens"} - merged.keys()


values = st.dictionaries(
    st.sampled_from(NAMES[:4]), st.builds(lambda key: {"merged_into": key}, st.sampled_from(NAMES[:4])), max_size=3
)


@given(values, values, values, st.sampled_from([None, "ada", "ben"]))
def test_every_key_leads_to_a_group(
    ada: dict[str, Any], ben: dict[str, Any], settled: dict[str, Any], preferred: str | None
) -> None:
    original = [*BASE, QUAY, replace(GARDENS, name="pier", key="pier")]

    def after(merges: dict[str, Any]) -> list[Group]:
        survivor = {key: surviving_group(merges, key) for key in merges}
        possible = {key: value for key, value in merges.items() if survivor[key] not in merges}
        return list(apply_group_values(possible, original).values())

    by_annotator = {"ada": after(ada), "ben": after(ben)}
    result = merge_taxonomies(original, by_annotator, settled=after(settled), preferred=preferred)
    rows = [Decision(key, key, "group", key, "ada", datetime.now(timezone.utc)) for key in NAMES[:4]]
    present = {group.key for group in result.groups}
    assert {row.group for row in result.with_survivors(rows)} <= present
    assert present | survivors(result.groups).keys() == result.keys == {*NAMES[:4]}
    assert survivors(after(settled)).items() <= survivors(result.groups).items() or ada or ben
    items = [item for group in result.groups for item in group.items]
    assert sorted(items) == sorted(item for group in original for item in group.items)


def test_taxonomy_beside_decisions_is_written_only_if_groups_changed(tmp_path: Path) -> None:
    decisions = tmp_path / "ada.csv"
    assert not write_changed_taxonomy(BASE, BASE, decisions)
    assert changed_groups(decisions) == []
    for groups in ([LAKE, renamed(PARKS, "woods"), QUAY], BASE):
        assert write_changed_taxonomy(groups, BASE, decisions), "also when a rename was undone"
        assert not write_changed_taxonomy(groups, BASE, decisions)
        assert changed_groups(decisions) == groups
    write_taxonomy(taxonomy_beside(decisions), [QUAY])
    assert read_taxonomy(tmp_path / "ada.taxonomy.csv") == [QUAY]


def test_conflict_keeps_the_original_name() -> None:
    groups = {"ada": [renamed(PARKS, "green parks")], "ben": [renamed(PARKS, "parkland")]}
    (conflict,) = merge_taxonomies(BASE, groups).conflicts
    assert conflict == GroupConflict("parks", "parks", '"green parks" by ada, "parkland" by ben')
