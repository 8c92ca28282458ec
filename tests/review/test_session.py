"""Actions of a review; and a store under a new table of clusters: what still applies, is reported, is offered."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hgld.errors import ConflictError, InputError
from hgld.pages.server import ServerConfig
from hgld.review.adjudication import open_labels
from hgld.review.decision_files import with_opinions
from hgld.review.labels import LIKELY_SCORE, SURE_SCORE, Candidate, ReviewLabel
from hgld.review.page.serve import log_table_changes, serve_review
from hgld.review.session import InvalidActionError, LabelAction, ReviewSession, StaleError
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group
from tests.assertions import not_none
from tests.review.conftest import NOON, Label
from tests.review.conftest import decide as opinions
from tests.review.sessions import GROUPS, LABELS, decide, label, open_session


def test_undo_by_key_after_a_redone_step_was_undone_in_the_history(session: ReviewSession) -> None:
    """The step itself and the one that redid it can both be undone, but only once."""
    earlier = decide(session, LabelAction("drop"), "Q1")
    step = not_none(decide(session, LabelAction("drop"), "Q2"))
    for _ in ("undo", "redo"):
        session.undo(session.state.next_redo or step)
    session.undo(step)
    assert session.state.next_undo == earlier
    session.undo(not_none(session.state.next_redo))
    assert [row.label_id for row in session.decisions()] == ["Q1", "Q2"]
    assert session.state.next_redo is None


def test_step_that_later_steps_rely_on_cannot_be_undone(session: ReviewSession) -> None:
    proposed = session.propose_group("quay", "human-made", "Where boats land.")
    (key,) = set(session.groups()) - {group.name for group in GROUPS}
    first = decide(session, LabelAction("group", key), "Q1", "Q2")
    decide(session, LabelAction("drop"), "Q2")
    reasons = {first: "a later step changed the same", proposed: "would no longer exist", 99: "no such step"}
    for step, reason in reasons.items():
        with pytest.raises(ConflictError, match=reason):
            session.undo(not_none(step))
    with pytest.raises(InvalidActionError, match='there is already a group "lake"'):
        session.rename_group(key, "lake", session.state.field("group", key).version)
    assert {row.label_id: row.group for row in session.decisions()} == {"Q1": "quay", "Q2": None}
    session.rename_group(key, "pier", session.state.field("group", key).version)
    assert {row.label_id: row.group for row in session.decisions()} == {"Q1": "quay", "Q2": None}
    assert session.groups()["quay"].name == "pier"


def test_action_on_changed_labels_is_refused_as_a_whole(session: ReviewSession) -> None:
    versions = {key: session.version(key) for key in ("Q1", "Q2")}
    decide(session, LabelAction("drop"), "Q2")
    with pytest.raises(StaleError) as caught:
        session.decide(versions, LabelAction("group", "lake"))
    assert caught.value.label_ids == ["Q2"]
    assert [row.label_id for row in session.decisions()] == ["Q2"]
    session.move({"Q1": 0}, 2)
    with pytest.raises(StaleError):
        session.move({"Q1": 0}, 2)
    session.rename_cluster(1, "first", 0)
    with pytest.raises(ConflictError, match="first"):
        session.rename_cluster(1, "second", 0)


def test_comment_is_no_decision_and_is_kept_by_one(session: ReviewSession) -> None:
    decide(session, LabelAction("comment", comment="look again"), "Q1")
    assert session.decisions() == []
    decide(session, LabelAction("take"), "Q1")
    (row,) = session.decisions()
    assert (row.decision, row.group, row.comment, row.annotator) == ("group", "lake", "look again", "ada")
    with pytest.raises(InvalidActionError, match="no suggestion"):
        decide(session, LabelAction("take"), "Q3")


def test_blind_session_has_no_suggestions_and_no_decisions_of_others(tmp_path: Path) -> None:
    gone = [label(8, "label 1"), label(9, "label 2")]
    others = Decision("Q8", "label 1", "group", "museum", "ben", NOON)
    with open_session(tmp_path / "a.sqlite", gone) as session:
        session.import_decisions([others])
        decide(session, LabelAction("drop"), "Q9")
    with open_session(tmp_path / "a.sqlite", blind=True) as session:
        candidates = {key: session.candidates(row, session.groups()) for key, row in session.labels.items()}
        assert {key: [row.annotator for row in rows] for key, rows in candidates.items() if rows} == {
            "Q2": ["ada, on Q9"]
        }
        for kind in ("accept", "take"):
            with pytest.raises(InvalidActionError, match="this review is blind"):
                decide(session, LabelAction(kind), "Q1")


def test_decision_and_group_must_fit_together(session: ReviewSession) -> None:
    for action in (LabelAction("group"), LabelAction("drop", "lake"), LabelAction("group", "nonsense")):
        with pytest.raises(InvalidActionError, match="group"):
            decide(session, action, "Q1")
    assert session.state.last_event == 0


def test_control_characters_are_left_out(session: ReviewSession) -> None:
    decide(session, LabelAction("drop", comment="a\x00b\nc"), "Q1")
    session.propose_group("qu\x7fay", "human-made", "Where\tboats land.")
    assert session.decisions()[0].comment == "ab\nc"
    assert session.groups()["quay"].guideline == "Where boats land."


def test_scores_that_actions_accept(tmp_path: Path) -> None:
    labels = [
        replace(label(number), suggestions=(Candidate("group", "church", "because", score),))
        for number, score in enumerate((SURE_SCORE, SURE_SCORE - 0.01, LIKELY_SCORE - 0.01), 1)
    ]
    with open_session(tmp_path / "a.sqlite", labels) as session:
        for kind, accepted in (("accept_sure", ["Q1"]), ("accept", ["Q1", "Q2"]), ("take", ["Q1", "Q2", "Q3"])):
            decide(session, LabelAction(kind), "Q1", "Q2", "Q3")
            assert [row.label_id for row in session.decisions()] == accepted
        decide(session, LabelAction("clear"), "Q2", "Q3")
        for kind, key, problem in (
            ("accept_sure", "Q2", "no suggestion of 90% or more to accept"),
            ("accept", "Q3", "of 50% or more to accept; take the first by its number"),
        ):
            with pytest.raises(InvalidActionError, match=problem):
                decide(session, LabelAction(kind), key)


def test_decisions_on_removed_labels_and_groups_are_kept(tmp_path: Path) -> None:
    with open_session(tmp_path / "a.sqlite") as session:
        decide(session, LabelAction("group", "museum"), "Q1", "Q4")
    with open_session(tmp_path / "a.sqlite", [label(1), label(9)], GROUPS[:2]) as session:
        assert {row.label_id: row.group for row in session.decisions()} == {"Q1": "museum", "Q4": "museum"}
        decide(session, LabelAction("take"), "Q9")
        session.propose_group("quay", "human-made", "Where boats land.")


def test_imported_decisions_keep_annotator_and_time_and_replace_nothing(session: ReviewSession) -> None:
    given_rows = [Decision(key, f"label {key[1:]}", "group", "museum", "seed", NOON, "") for key in ("Q1", "Q2")]
    decide(session, LabelAction("drop"), "Q2")
    session.import_decisions(given_rows)
    assert session.import_decisions(given_rows) is None
    rows = {row.label_id: row for row in session.decisions()}
    assert rows["Q1"] == given_rows[0]
    assert (rows["Q2"].decision, rows["Q2"].annotator) == ("drop", "ada")


def test_adjudication_takes_an_opinion(tmp_path: Path) -> None:
    both = [opinions("ada", "- lake unsure:lake drop"), opinions("ben", "- lake unsure:church museum - drop")]
    differing = with_opinions(LABELS, both, {row.label_id for row in open_labels(*both)})
    assert [label.label_id for label in differing] == ["Q2", "Q3", "Q5"], "labels that both are unsure about are open"
    assert (differing[2].opinions[0].annotator, differing[2].opinions[0].decision) == ("ada", None)
    with open_session(tmp_path / "final.sqlite", differing) as session:
        decide(session, LabelAction("take", candidate=2), "Q3")
        (row,) = session.decisions()
        assert (row.group, row.comment, row.annotator) == ("museum", "ben on 3", "ada")


def test_equal_opinions_settle_a_label(tmp_path: Path) -> None:
    """Only opinions that differ, or that are not sure, leave something to decide."""
    both = [
        opinions("ada", "- lake lake   drop (drop) unsure unsure -    lake"),
        opinions("ben", "- lake church drop drop   unsure lake   lake museum"),
    ]
    labels = with_opinions([label(number) for number in range(1, 9)], both, [f"Q{number}" for number in range(1, 9)])
    groups = [*GROUPS, Group("(drop)", "natural", "Called like a decision.")]
    with open_session(tmp_path / "final.sqlite", labels, groups) as session:

        def settled() -> list[str]:
            return [key for key, each in session.labels.items() if session.is_settled(each, None)]

        assert settled() == ["Q1", "Q3"]
        assert session.counts.counts[None]["settled"] == 2
        step = session.merge_group("church", "lake", 0)
        assert settled() == ["Q1", "Q2", "Q3"]
        session.undo(not_none(step))
        session.merge_group("(drop)", "museum", 0)
        assert settled() == ["Q1", "Q3"], "a group that is called like a decision is none"
        decide(session, LabelAction("unsure"), "Q2")
        decide(session, LabelAction("drop"), "Q4")
        assert session.counts.counts[None]["settled"] == 3, "an adjudicator who is unsure leaves a label open"


def test_key_of_a_proposed_group_is_its_first_name(tmp_path: Path) -> None:
    """Two annotators who propose the same name propose the same group."""
    for name, other in (("Fire  Lookout", "fire lookout"), ("fire lookout", "FIRE LOOKOUT")):
        with open_session(tmp_path / f"{name}.sqlite") as session:
            step = not_none(session.propose_group(name, "human-made", "Towers to watch for fires from."))
            with pytest.raises(InvalidActionError, match="there is already a group"):
                session.propose_group(other, "natural", "x")
            assert list(session.groups()) == ["church", "lake", "museum", "fire lookout"]
            session.undo(step)
            session.propose_group(name, "natural", "Again.")
            assert session.groups()["fire lookout"].root == "natural"
            # A renamed group keeps its key, so that a new group of that name needs another one.
            session.rename_group("lake", "still water", 0)
            session.propose_group("Lake", "natural", "Lakes only.")
            assert session.groups()["lake (2)"].name == "Lake"


def test_merged_groups(session: ReviewSession) -> None:
    for name in ("quay", "pier"):
        session.propose_group(name, "human-made", "Where boats land.")
    decide(session, LabelAction("group", "quay"), "Q1")
    decide(session, LabelAction("unsure", "pier"), "Q2")
    version = session.state.field("group", "quay").version
    first = session.merge_group("quay", "pier", version)
    with pytest.raises(ConflictError, match='changed in the meantime, and is called "pier"'):
        session.merge_group("pier", "museum", 0)
    with pytest.raises(InvalidActionError, match="does not exist"):
        session.merge_group("quay", "pier", version)
    with pytest.raises(InvalidActionError, match="choose another group"):
        session.merge_group("pier", "quay", session.state.field("group", "pier").version)
    session.merge_group("pier", "museum", session.state.field("group", "pier").version)
    assert {row.label_id: row.group for row in session.decisions()} == {"Q1": "museum", "Q2": "museum"}
    assert list(session.groups()) == ["church", "lake", "museum"]
    with pytest.raises(InvalidActionError, match="this group does not exist"):
        decide(session, LabelAction("group", "pier"), "Q3")
    session.undo(not_none(first))
    assert {row.label_id: row.group for row in session.decisions()} == {"Q1": "quay", "Q2": "museum"}


def test_two_merges_never_close_a_circle(session: ReviewSession) -> None:
    first = not_none(session.merge_group("lake", "museum", 0))
    back = not_none(session.undo(first))
    session.merge_group("museum", "lake", 0)
    with pytest.raises(ConflictError, match="would no longer exist"):
        session.undo(back)
    assert list(session.groups()) == ["church", "lake"]


def test_groups_of_decisions_to_start_from_are_taken_over(session: ReviewSession) -> None:
    renamed = [replace(GROUPS[1], name="still water"), Group("quay", "human-made", "Where boats land.")]
    session.import_decisions([], [GROUPS[0], *renamed])
    assert [group.name for group in session.groups().values()] == ["church", "still water", "museum", "quay"]
    session.rename_group("lake", "tarn", session.state.field("group", "lake").version)
    session.import_decisions([], renamed)
    assert session.groups()["lake"].name == "tarn", "groups that were touched in the store stay as they are"
    with pytest.raises(InputError, match='cannot be taken over: there is already a group "museum"'):
        session.import_decisions([], [Group("museum", "human-made", "x", key="house")])


def test_undone_proposal_is_made_again_for_decisions_that_need_it(session: ReviewSession) -> None:
    quay = Group("quay", "human-made", "Where boats land.")
    row = Decision("Q1", "label 1", "group", "quay", "ben", NOON)
    session.undo(not_none(session.propose_group("Quay", "human-made", "Mine.")))
    session.import_decisions([], [quay])
    assert "quay" not in session.groups(), "nothing needs it"
    session.import_decisions([row], [quay])
    assert session.decisions() == [row]
    assert session.groups()["quay"] == quay


def test_decisions_record_whether_they_were_made_blind(tmp_path: Path) -> None:
    def blind(session: ReviewSession) -> dict[str, bool | None]:
        return {row.label_id: row.blind for row in session.decisions()}

    path = tmp_path / "a.sqlite"
    with open_session(path) as session:
        decide(session, LabelAction("drop"), "Q1", "Q2")
        assert blind(session) == {"Q1": False, "Q2": False}
    with open_session(path, blind=True) as session:
        decide(session, LabelAction("drop"), "Q2", "Q3", "Q4")
        assert blind(session) == {"Q1": False, "Q2": False, "Q3": True, "Q4": True}, (
            "Q2 stays as it was first decided"
        )
        decide(session, LabelAction("unsure"), "Q1")
        assert blind(session)["Q1"] is True
    with open_session(path) as session:
        decide(session, LabelAction("comment", comment="large"), "Q3")
        decide(session, LabelAction("group", "lake"), "Q4")
        assert blind(session) == {"Q1": True, "Q2": False, "Q3": True, "Q4": False}
        for _ in range(3):  # the group, the comment, and "unsure"
            session.undo(session.state.next_undo or 0)
        assert blind(session) == {"Q1": False, "Q2": False, "Q3": True, "Q4": True}
        session.import_decisions([replace(session.decisions()[0], label_id="Q5", label="label 5", blind=None)])
        assert blind(session)["Q5"] is None


def clustered(names: dict[int, str], clusters: dict[int, int]) -> list[ReviewLabel]:
    """Return labels in other clusters: the number of each label's cluster, and the name of each cluster."""
    labels = [label(number, cluster=cluster) for number, cluster in clusters.items()]
    return [replace(one, cluster_name=names[one.cluster]) for one in labels]


def test_names_and_moves_do_not_land_on_other_clusters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.sqlite"
    with open_session(path) as session:
        log_table_changes(session)
        session.rename_cluster(1, "waters", 0)
        session.move({"Q4": 0}, None, "islands")
        session.move({"Q3": 0}, 2)
    with open_session(path) as session:
        log_table_changes(session)
        assert caplog.text == "", "nothing has changed"
        assert [session.cluster_name(number) for number in (1, 2, 3)] == ["waters", "name 2", "islands"]
        assert [session.cluster(f"Q{number}") for number in (3, 4)] == [2, 3]

    other = clustered({1: "churches", 2: "towers", 3: "lakes"}, {1: 3, 2: 3, 3: 1, 4: 2, 5: 2})
    with open_session(path, other) as session:
        log_table_changes(session)
        assert [session.cluster_name(number) for number in (1, 2, 3)] == ["churches", "towers", "lakes"]
        assert [session.cluster(f"Q{number}") for number in (3, 4)] == [1, 2]
        session.rename_cluster(3, "still waters", session.state.field("name", "3").version)
        assert session.cluster_name(3) == "still waters"
    caplog.clear()
    with open_session(path) as session:
        log_table_changes(session)
        assert [session.cluster_name(number) for number in (1, 2)] == ["waters", "name 2"], "the earlier table again"
        assert session.cluster("Q3") == 2


def test_clusters_that_stay_keep_their_names_when_labels_are_added(tmp_path: Path) -> None:
    with open_session(tmp_path / "a.sqlite") as session:
        session.rename_cluster(1, "waters", 0)
        session.move({"Q3": 0}, 2)
    with open_session(tmp_path / "a.sqlite", [*LABELS, label(6, cluster=3)]) as session:
        assert session.cluster_name(1) == "waters"
        assert session.cluster("Q3") == 2


def test_new_gone_and_renumbered_labels_are_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.sqlite"
    with open_session(path) as session:
        log_table_changes(session)
        decide(session, LabelAction("group", "museum", comment="a reason"), "Q1")
        decide(session, LabelAction("drop"), "Q2")
    labels = [label(11, "Label  1", suggested="lake"), label(4, cluster=2), label(5, cluster=2), label(6)]
    with open_session(path, labels) as session:
        log_table_changes(session)
        assert caplog.messages == [
            f"{path}: labels have changed since the last start:\n"
            "new labels (1):\n  label 6 (Q6)\n"
            "labels that are gone, whose decisions are kept (2):\n  label 2 (Q2)\n  label 3 (Q3)\n"
            "labels with another id, for which the decisions on the old ids are offered (1):\n"
            "  label 1 (Q1, now Q11)"
        ]
        first, second = session.candidates(labels[0], session.groups())
        assert (first.group, first.annotator, first.reason) == ("museum", "ada, on Q1", "a reason")
        assert second.group == "lake"
        decide(session, LabelAction("accept"), "Q11")
        taken = {row.label_id: (row.group, row.comment) for row in session.decisions()}
        assert taken == {"Q1": ("museum", "a reason"), "Q2": (None, ""), "Q11": ("museum", "a reason")}
        assert [candidate.group for candidate in session.candidates(labels[0], session.groups())] == ["lake"]
    caplog.clear()
    with open_session(path, labels) as session:
        log_table_changes(session)
    assert not caplog.messages, "the changes are listed once"


def test_candidates_with_groups_that_are_gone_are_not_offered(tmp_path: Path) -> None:
    with open_session(tmp_path / "a.sqlite", [label(1, suggested="lake")]) as session:
        (row,) = session.labels.values()
        assert [candidate.group for candidate in session.candidates(row, session.groups())] == ["lake"]
        others = {key: group for key, group in session.groups().items() if key != "lake"}
        assert session.candidates(row, others) == []


def test_contradictory_earlier_decisions_are_not_offered(tmp_path: Path) -> None:
    twins = [label(1, "fort"), label(2, "fort")]
    with open_session(tmp_path / "a.sqlite", twins) as session:
        decide(session, LabelAction("drop"), "Q1")
        decide(session, LabelAction("group", "museum"), "Q2")
    with open_session(tmp_path / "a.sqlite", [label(3, "fort", suggested=None)]) as session:
        assert session.candidates(session.labels["Q3"], session.groups()) == []
        step = not_none(session.state.next_undo)
        session.undo(step)
        (candidate,) = session.candidates(session.labels["Q3"], session.groups())
        assert candidate.decision == "drop"


def test_changes_are_logged_at_the_start(
    tmp_path: Path, tables: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    for labels in ([Label("Q1", "lake")], [Label("Q1", "lake"), Label("Q2", "pond")]):
        serve_review(tables(labels), tmp_path / "a.sqlite", "ada", ServerConfig(), on_address=print)
    assert caplog.messages[-1].endswith("new labels (1):\n  pond (Q2)")
