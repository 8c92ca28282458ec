"""Orders of labels: by landmarks, by certainty, and by what a decision settles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.review.label_lists import ORDERS, LabelLists, Order, relations_of, settling_order
from hgld.review.labels import ReviewLabel, Suggestion
from hgld.review.session import LabelAction
from tests.review.sessions import decide, label, open_session


def made_label(
    number: int, text: str, landmarks: int, score: float | None, parents: str = "", group: str = "lake"
) -> ReviewLabel:
    """A label with a number of landmarks, whose suggestion has a score; none without a score."""
    suggestions = () if score is None else (Suggestion(group, score, "because"),)
    return replace(label(number, text), landmarks=landmarks, parents=parents, suggestions=suggestions)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("table", ["Q1", "Q2", "Q3", "Q4"]),
        ("landmarks", ["Q4", "Q2", "Q3", "Q1"]),
        ("uncertain", ["Q3", "Q4", "Q2", "Q1"]),
        ("settling", ["Q4", "Q2", "Q3", "Q1"]),
    ],
)
def test_labels_in_every_order(tmp_path: Path, order: Order, expected: list[str]) -> None:
    labels = [
        made_label(1, "lake", 1, 0.9),
        made_label(2, "inn", 5, 0.8),
        made_label(3, "pile", 2, None),
        made_label(4, "fort", 9, 0.7),
    ]
    with open_session(tmp_path / "a.sqlite", labels) as session:
        assert LabelLists(session).sort(reversed(session.labels), order) == expected


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_of_some_labels_is_that_of_all_without_the_others(tmp_path: Path, order: Order) -> None:
    labels = [made_label(n, f"{'wooden' if n % 2 else 'stone'} thing {n % 3}", n % 5, n / 20) for n in range(20)]
    with open_session(tmp_path / "a.sqlite", labels) as session:
        orders = LabelLists(session)
        some = {f"Q{number}" for number in range(0, 20, 3)}
        assert orders.sort(some, order) == [key for key in orders.sort(session.labels, order) if key in some]


def test_the_order_does_not_jump_while_one_decides(tmp_path: Path) -> None:
    labels = [made_label(n, f"thing {n}", 20 - n, 0.5, parents="wat") for n in range(6)]
    with open_session(tmp_path / "a.sqlite", labels) as session:
        orders = LabelLists(session)
        before = orders.sort(session.labels, "settling")
        decide(session, LabelAction("drop"), "Q3")
        assert orders.sort(session.labels, "settling") == before
        assert LabelLists(session).sort(session.labels, "settling")[0] == "Q3"


def test_a_decision_for_many_comes_before_one_with_more_landmarks_of_its_own() -> None:
    chapels = [made_label(n, f"{word} shrine", 4, 0.5) for n, word in enumerate(("forest", "village", "wayside"))]
    order = settling_order([made_label(9, "geyser", 6, 0.5), *chapels])
    assert order[:2] == ["Q0", "Q9"], "the first shrine settles the others; the second one less than the geyser"


def test_a_decision_settles_nothing_of_labels_whose_suggestions_are_sure() -> None:
    sure = [made_label(n, f"{word} fort", 4, 0.999) for n, word in enumerate(("hill", "star"))]
    unsure = [made_label(n, f"{word} wat", 3, 0.1) for n, word in enumerate(("forest", "cave"), 2)]
    assert settling_order([*sure, *unsure]) == ["Q2", "Q0", "Q1", "Q3"]


def test_relations_are_superclasses_and_last_words() -> None:
    relations = relations_of(
        made_label(1, "Wooden stave churches in Norway", 1, None, parents="church building, wood")
    )
    assert relations == [
        ("parent", "church building"),
        ("parent", "wood"),
        ("two words", "stave church"),
        ("last word", "church"),
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fort", "hill fort", "old hill fort", "lake"]),
            st.integers(0, 9),
            st.one_of(st.none(), st.floats(0, 1)),
            st.sampled_from(["", "castle", "castle, ruin"]),
        ),
        max_size=12,
    ),
    st.sets(st.integers(0, 11)),
)
def test_every_label_is_ranked_once_and_decided_labels_come_first(
    rows: list[tuple[str, int, float | None, str]], numbers: set[int]
) -> None:
    labels = [made_label(number, *row) for number, row in enumerate(rows)]
    decided = {f"Q{number}" for number in numbers}
    order = settling_order(labels, decided)
    assert sorted(order) == sorted(made.label_id for made in labels)
    first = [label_id for label_id in order if label_id in decided]
    assert order[: len(first)] == first
