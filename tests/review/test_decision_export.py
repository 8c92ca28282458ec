from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hgld.errors import ConfigurationError, InputError
from hgld.review.decision_files import export_decisions
from hgld.review.session import LabelAction
from hgld.taxonomy.decisions import Decision, read_decisions, write_decisions
from hgld.taxonomy.groups import Group, read_taxonomy, write_taxonomy
from tests.commands import run_hgld
from tests.review.conftest import NOON
from tests.review.sessions import GROUPS, decide, label, open_session


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
            step = session.state.next_undo
            assert step is not None
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
