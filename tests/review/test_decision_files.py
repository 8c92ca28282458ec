"""One taxonomy from those of several annotators, and decisions of a store as files."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.review.decision_files import (
    GroupConflict,
    changed_groups,
    export_decisions,
    merge_taxonomies,
    write_changed_taxonomy,
)
from hgld.review.session import LabelAction
from hgld.review.state import apply_group_values, surviving_group
from hgld.taxonomy.decisions import Decision, read_decisions, write_decisions
from hgld.taxonomy.groups import Group, read_taxonomy, survivors, taxonomy_beside, write_taxonomy
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.review.conftest import NOON
from tests.review.sessions import GROUPS, decide, label, open_session

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
    present = {group.key: group.name for group in merged.groups}
    assert merged.conflicts == [GroupConflict(key, present[key], problem) for key, problem in problems.items()]
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


def test_exported_decisions_and_taxonomy(tmp_path: Path) -> None:
    write_taxonomy(tmp_path / "taxonomy.csv", GROUPS)
    with open_session(tmp_path / "a.sqlite", [label(n) for n in (1, 2)]) as session:
        session.rename_group("lake", "still water", 0)
        session.propose_group("quay", "human-made", "Where boats land.")
        decide(session, LabelAction("take"), "Q1")
    out = tmp_path / "out" / "a.csv"
    written = export_decisions(tmp_path / "a.sqlite", out, taxonomy=tmp_path / "taxonomy.csv")
    assert written.taxonomy == tmp_path / "out" / "a.taxonomy.csv"
    groups = read_taxonomy(written.taxonomy)
    assert [group.name for group in groups] == ["church", "still water", "museum", "quay"]
    assert groups[1].items == ("Q23397",)
    assert [group.key for group in groups] == ["church", "lake", "museum", "quay"]
    (row,) = read_decisions(out, {group.key for group in groups})
    assert (row.label_id, row.group, row.annotator) == ("Q1", "lake", "ada")


def test_decisions_command(tmp_path: Path) -> None:

    with open_session(tmp_path / "a.sqlite") as session:
        decide(session, LabelAction("drop"), "Q1", "Q2")
    out = tmp_path / "a.csv"
    assert run_hgld("decisions", tmp_path / "a.sqlite", "-o", out).output == f"2 labels decided by ada\n{out}\n"
    assert "no such file" in run_hgld("decisions", tmp_path / "b.sqlite", "-o", out, code=1).output


SEED = Decision("Q9", "pagoda", "drop", None, "seed", NOON)


def test_decisions_that_were_never_in_the_store_are_not_overwritten(tmp_path: Path) -> None:
    store, out = tmp_path / "a.sqlite", tmp_path / "final.csv"
    with open_session(store) as session:
        decide(session, LabelAction("drop"), "Q1")
    for row in (SEED, Decision("Q1", "label 1", "drop", None, "ada", NOON)):
        write_decisions(out, [row])
        before = out.read_bytes()
        with pytest.raises(ConfigurationError, match=rf"{out}: holds decisions by {row.annotator}, which would be l"):
            export_decisions(store, out)
        assert out.read_bytes() == before
    assert export_decisions(store, out, force=True).decisions == 1
    assert [row.label_id for row in read_decisions(out, None)] == ["Q1"]


def test_decisions_of_the_store_are_written_again(tmp_path: Path) -> None:
    """Also those of other people that the review started from, and those that were changed or undone since."""
    store, out = tmp_path / "a.sqlite", tmp_path / "a.csv"
    seed = [Decision(f"Q{n}", f"label {n}", "drop", None, "seed", NOON) for n in (1, 2)]
    with open_session(store) as session:
        session.import_decisions(seed)
        decide(session, LabelAction("drop"), "Q3")
    export_decisions(store, out)
    with open_session(store) as session:
        decide(session, LabelAction("group", "lake"), "Q1", "Q3")
        decide(session, LabelAction("clear"), "Q2")
    assert export_decisions(store, out).decisions == 2
    with open_session(store) as session:
        decide(session, LabelAction("clear"), "Q1", "Q3")
    for _ in range(2):
        assert export_decisions(store, out).decisions == 0
    newer = Decision("Q1", "label 1", "unsure", None, "seed", NOON + timedelta(days=1))
    write_decisions(out, [newer])
    with pytest.raises(ConfigurationError, match="holds decisions by seed"):
        export_decisions(store, out)


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    store = tmp_path / "a.sqlite"
    with open_session(store) as session:
        decide(session, LabelAction("drop"), "Q1")
    write_taxonomy(tmp_path / "taxonomy.csv", GROUPS)
    for force in (False, True):
        for path in (store, tmp_path / "taxonomy.csv"):
            with pytest.raises(ConfigurationError, match="is an input"):
                export_decisions(store, path, taxonomy=tmp_path / "taxonomy.csv", force=force)
    with pytest.raises(InputError, match="line 1: no column label_id"):
        export_decisions(store, tmp_path / "taxonomy.csv")
    assert read_taxonomy(tmp_path / "taxonomy.csv") == GROUPS


def test_groups_that_were_never_in_the_store_are_not_overwritten(tmp_path: Path) -> None:
    store, out = tmp_path / "a.sqlite", tmp_path / "a.csv"
    with open_session(store) as session:
        session.propose_group("quay", "human-made", "Where boats land.")
        session.rename_group("quay", "pier", session.state.field("group", "quay").version)
    base = tmp_path / "taxonomy.csv"
    write_taxonomy(base, GROUPS)
    export_decisions(store, out, taxonomy=base)
    with open_session(store) as session:
        session.merge_group("quay", "lake", session.state.field("group", "quay").version)
        merge = session.state.next_undo
    export_decisions(store, out, taxonomy=base)
    assert [group.merged for group in read_taxonomy(tmp_path / "a.taxonomy.csv")] == [(), ("quay",), ()]
    with open_session(store) as session:
        assert merge is not None
        session.undo(merge)
        for _ in range(2):
            step = not_none(session.state.next_undo)
            session.undo(step)
    assert export_decisions(store, out, taxonomy=base).taxonomy is None
    assert read_taxonomy(tmp_path / "a.taxonomy.csv") == GROUPS, "an outdated taxonomy does not stay behind"
    write_taxonomy(tmp_path / "a.taxonomy.csv", [replace(GROUPS[1], merged=("church",)), GROUPS[2]])
    with pytest.raises(ConfigurationError, match=r"never were in the store \(lake\)"):
        export_decisions(store, out, taxonomy=base)
    write_taxonomy(tmp_path / "a.taxonomy.csv", [*GROUPS, Group("tarn", "natural", "Small lakes.")])
    with pytest.raises(
        ConfigurationError, match=r"a.taxonomy.csv: holds groups that never were in the store \(tarn\)"
    ):
        export_decisions(store, out, taxonomy=base)
    export_decisions(store, out, taxonomy=base, force=True)
    assert read_taxonomy(tmp_path / "a.taxonomy.csv") == GROUPS
