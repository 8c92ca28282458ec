"""A store under a new table of clusters: what still applies, what is reported, what is offered."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hgld.pages.server import ServerConfig
from hgld.review.labels import ReviewLabel
from hgld.review.page.serve import log_table_changes, serve_review
from hgld.review.session import LabelAction
from tests.review.conftest import Label
from tests.review.sessions import LABELS, decide, label, open_session


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
        for text in (
            "as they belong to another clustering (4):",
            'the name "waters" of cluster 1',
            "label 3 (Q3), m",
        ):
            assert text in caplog.text
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
            f"{path}: labels and clusters have changed since the last start:\n"
            "new labels (1):\n  label 6 (Q6)\n"
            "labels that are gone (1):\n  label 3 (Q3)\n"
            "decided labels that are gone, whose decisions are kept (1):\n  label 2 (Q2)\n"
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


def test_contradictory_earlier_decisions_are_not_offered(tmp_path: Path) -> None:
    twins = [label(1, "fort"), label(2, "fort")]
    with open_session(tmp_path / "a.sqlite", twins) as session:
        decide(session, LabelAction("drop"), "Q1")
        decide(session, LabelAction("group", "museum"), "Q2")
    with open_session(tmp_path / "a.sqlite", [label(3, "fort", suggested=None)]) as session:
        assert session.candidates(session.labels["Q3"], session.groups()) == []
        step = session.state.next_undo
        assert step is not None
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
