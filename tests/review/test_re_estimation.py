"""Suggestions that are estimated again while an annotator decides."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from hgld.errors import InputError
from hgld.labels.embed import embed_file
from hgld.labels.examples import EmbeddedLabels
from hgld.labels.suggest import SuggestionInputs, find_suggestion_files, suggest_file
from hgld.review.actions import LabelAction, StaleError
from hgld.review.inputs import find_inputs
from hgld.review.label_order import LabelOrders
from hgld.review.re_estimation import ReEstimation, differ, estimate, re_estimation_files
from hgld.review.review_labels import Suggestion, review_labels
from hgld.review.session import ReviewSession
from hgld.taxonomy.decisions import Decision, write_decisions
from tests.review.conftest import NOON, Label
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
    assert differ(LAKE, new) is expected


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


class LetterEncoder:
    """Encodes a text by how often it has each letter."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[text.lower().count(letter) for letter in ascii_lowercase] for text in texts], np.float32)


def load_letters(_name: str, _device: str | None) -> LetterEncoder:
    return LetterEncoder()


@pytest.fixture
def suggested(tables: Callable[..., Path]) -> Path:
    """Clusters with suggestions, beside the embeddings that these were made from."""
    labels = [Label(f"Q{n}", text) for n, text in enumerate(("garden folly", "Gothic folly", "folly"), 1)]
    clusters = tables(labels)
    embed_file(clusters.with_name("clean.parquet"), clusters.with_name("label_embeddings.parquet"), load=load_letters)
    suggest_file(clusters, clusters, load=load_letters)
    return clusters


def steps(re_estimation: ReEstimation, is_done: Callable[[], object]) -> None:
    """Let the process work until something is done."""
    end = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < end, "the process does not answer"
        re_estimation.step()
        time.sleep(0.05)


@pytest.mark.slow
def test_a_process_estimates_from_the_decisions(suggested: Path, tmp_path: Path) -> None:
    inputs = find_inputs(suggested)
    with open_session(tmp_path / "a.sqlite", review_labels(*inputs.read_tables()), inputs.read_groups()) as session:
        re_estimation = ReEstimation(session, re_estimation_files(inputs), after_pause_s=0, load=load_letters)
        others = set(multiprocessing.active_children())  # of pools that earlier tests have used
        re_estimation.step()
        assert set(multiprocessing.active_children()) <= others, "nothing to do before the first decision"
        decide(session, LabelAction("group", "museum"), "Q1", "Q2")
        steps(re_estimation, lambda: session.updates.last)
        assert session.labels["Q3"].suggestions[0].group == "museum"
        assert session.labels["Q1"].estimate == 0, "decided already"
        re_estimation.close()
        assert set(multiprocessing.active_children()) <= others


def test_suggestions_that_were_made_from_other_files_are_not_estimated_again(suggested: Path, tmp_path: Path) -> None:
    decided = tmp_path / "decided.csv"
    write_decisions(decided, [Decision("Q1", "garden folly", "drop", None, "ada", NOON)])
    suggest_file(suggested, suggested, decisions=[decided], load=load_letters)
    with pytest.raises(InputError, match=r"made from other files \(decisions.0\)"):
        re_estimation_files(find_inputs(suggested))


@pytest.mark.slow
def test_suggestions_stay_where_the_process_cannot_work_and_the_log_says_so(
    tables: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The real process, with a damaged table of embeddings."""
    clusters = tables()
    clusters.with_name("label_embeddings.parquet").write_bytes(b"damaged")
    with open_session(tmp_path / "a.sqlite") as session, caplog.at_level(logging.WARNING):
        re_estimation = ReEstimation(session, find_suggestion_files(clusters), after_pause_s=0)
        decide(session, LabelAction("drop"), "Q1")
        steps(re_estimation, lambda: caplog.messages)
        re_estimation.close()
        assert session.updates.last == 0
    assert "suggestions are not re-estimated" in caplog.text
    assert "label_embeddings.parquet" in caplog.text
