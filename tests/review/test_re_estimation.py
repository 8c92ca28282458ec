"""Suggestions that are estimated again while an annotator decides."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hgld.labels.examples import EmbeddedLabels
from hgld.labels.suggest import SuggestionInputs, find_suggestion_files
from hgld.review.actions import LabelAction, StaleError
from hgld.review.label_order import LabelOrders
from hgld.review.re_estimation import ReEstimation, differs, estimate
from hgld.review.review_labels import Suggestion
from hgld.review.session import ReviewSession
from tests.review.sessions import GROUPS, decide, label, open_session

CHURCH = (Suggestion("church", 0.97, "decisions on others"),)
LAKE = (Suggestion("lake", 0.9, "because"),)


def seen(session: ReviewSession, label_id: str) -> dict[str, int]:
    return {label_id: session.version(label_id)}


def test_what_is_accepted_is_what_the_annotator_saw(tmp_path: Path) -> None:
    with open_session(tmp_path / "a.sqlite", [label(1), label(2), label(3)]) as session:
        session.updates.add({"Q1": CHURCH, "Q2": CHURCH}, n_decisions=7)
        accept, number = LabelAction("accept"), session.updates.last
        session.decide(seen(session, "Q1"), accept, {"Q1": 0})
        session.decide(seen(session, "Q2"), accept, {"Q2": number})
        session.decide(seen(session, "Q3"), accept, {"Q3": 0})
        assert [session.decision_value(key)["group"] for key in ("Q1", "Q2", "Q3")] == ["lake", "church", "lake"]


def test_suggestions_of_an_estimate_before_a_restart_are_not_taken_for_others(tmp_path: Path) -> None:
    with open_session(tmp_path / "a.sqlite", [label(1)]) as session:
        session.updates.add({"Q1": CHURCH}, n_decisions=7)
        before = {"Q1": session.updates.last}
    with open_session(tmp_path / "a.sqlite", [label(1)]) as session:
        with pytest.raises(StaleError):
            session.decide(seen(session, "Q1"), LabelAction("take"), before)
        session.decide(seen(session, "Q1"), LabelAction("drop"), before)
        assert session.is_decided("Q1"), "dropping a label takes no suggestion"


def test_changes_are_counted_since_what_a_page_shows(tmp_path: Path) -> None:
    with open_session(tmp_path / "a.sqlite", [label(1), label(2)]) as session:
        updates = session.updates
        assert updates.message_after(0) == ""
        updates.add({"Q1": CHURCH}, n_decisions=1200)
        first = updates.last
        updates.add({"Q1": LAKE, "Q2": CHURCH}, n_decisions=1250)
        assert updates.last > first > 0
        assert updates.changed_after(first) == ["Q1", "Q2"]
        assert updates.message_after(0) == "Suggestions re-estimated from 1,250 decisions: 2 changed."
        assert updates.message_after(updates.last) == ""


def test_the_order_by_settled_landmarks_follows_an_estimate(tmp_path: Path) -> None:
    labels = [
        replace(label(n, text), suggestions=LAKE) for n, text in ((1, "fort"), (2, "hill shrine"), (3, "shrine"))
    ]
    with open_session(tmp_path / "a.sqlite", labels) as session:
        orders = LabelOrders(session)
        assert orders.sort(session.labels, "settling") == ["Q3", "Q2", "Q1"]
        session.updates.add({"Q3": (Suggestion("church", 0.1, ""),)}, n_decisions=1)
        assert orders.sort(session.labels, "settling") == ["Q2", "Q3", "Q1"]


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (LAKE, False),
        ((Suggestion("lake", 0.905, "another reason"),), False),
        ((Suggestion("lake", 0.8, "because"),), True),
        (CHURCH, True),
        ((), True),
    ],
)
def test_small_changes_of_scores_do_not_count(new: tuple[Suggestion, ...], expected: bool) -> None:
    assert differs(replace(label(1), suggestions=LAKE), new) is expected


def test_decisions_on_labels_with_the_same_ending_change_the_suggestion(tmp_path: Path) -> None:
    texts = ["garden folly", "Gothic folly", "folly"]
    labels = [replace(label(n, text), suggestions=()) for n, text in enumerate(texts, 1)]
    ids = [each.row.label_id for each in labels]
    inputs = SuggestionInputs(
        pa.table({}), EmbeddedLabels(ids, texts, np.eye(3, 99)), np.ones(3, np.int64), GROUPS, [], [],
        lambda some: np.eye(99)[: len(some)],
    )  # fmt: skip
    with open_session(tmp_path / "a.sqlite", labels) as session:
        decide(session, LabelAction("group", "museum"), "Q1", "Q2")
        suggestions = estimate(inputs, list(session.groups().values()), session.decisions())
    assert suggestions["Q3"][0].group == "museum"
    assert suggestions["Q3"][0].reason.startswith("named like")


def test_suggestions_stay_where_the_process_cannot_work_and_the_log_says_so(
    tables: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The real process, with a damaged table of embeddings."""
    clusters = tables()
    clusters.with_name("label_embeddings.parquet").write_bytes(b"damaged")
    with open_session(tmp_path / "a.sqlite") as session, caplog.at_level(logging.WARNING):
        re_estimation = ReEstimation(session, find_suggestion_files(clusters), after_pause_s=0)
        re_estimation.step()
        assert not caplog.messages, "nothing to do before the first decision"
        decide(session, LabelAction("drop"), "Q1")
        end = time.monotonic() + 60
        while not caplog.messages and time.monotonic() < end:
            re_estimation.step()
            time.sleep(0.05)
        re_estimation.close()
        assert session.updates.last == 0
    assert "suggestions are not re-estimated" in caplog.text
    assert "label_embeddings.parquet" in caplog.text
