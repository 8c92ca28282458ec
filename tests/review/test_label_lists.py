"""Lists of labels by filters, a search and an order, against the obvious loop over all labels."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.review.label_lists import ORDERS, LabelLists, Order, View, parse_view
from hgld.review.labels import Candidate, ReviewLabel
from hgld.review.session import LabelAction, ReviewSession
from hgld.review.state import FILTERS
from tests.assertions import not_none
from tests.review.sessions import decide, label, open_session

LABELS = [
    label(1, "Église"),
    label(2, "church of wood", suggested="church"),
    label(3, "chapel", suggested=None),
    label(4, "LAKE", cluster=2),
    label(5, "museum", cluster=2, suggested="museum"),
    replace(label(6, "pond", cluster=2), suggestions=(Candidate("group", "lake", "", 0.3),)),
    replace(label(7, "tarn", cluster=2), suggestions=(Candidate("group", "lake"),)),
]

views = st.builds(
    View,
    filters=st.sets(st.sampled_from(list(FILTERS))).map(
        lambda names: tuple(name for name in FILTERS if name in names)
    ),
    group=st.sampled_from(["", "lake", "castle / fort"]),
    below=st.none() | st.integers(0, 100),
    text=st.sampled_from(["", "lake", "a & b=c", "Église 湖"]),
    order=st.sampled_from(ORDERS),
    as_of=st.none() | st.integers(0, 10**6),
)


def shown(session: ReviewSession, query: str) -> str:
    """Return the numbers of the labels in a list."""
    view = not_none(parse_view(query))
    return " ".join(label_id[1:] for label_id in LabelLists(session).label_ids(view))


@given(views)
def test_view_is_read_from_its_own_query(view: View) -> None:
    listed = replace(view, order="landmarks") if view == View() else view
    assert parse_view(listed.query) == listed
    assert parse_view([*parse_qsl(listed.query), ("label", "Q1"), ("q", "")]) == listed


@pytest.mark.parametrize(
    ("query", "view"),
    [
        ("", None),
        ("q=&filter=&group=&label=Q1", None),
        ("cluster=3&filter=unsure", View(3)),
        ("cluster=-3", None),
        ("cluster=²&order=table", View()),
        ("filter=unheard&filter=unsure&filter=unsure", View(filters=("unsure",))),
        ("order=unheard&below=x&as_of=" + "9" * 5000, View()),
        ("q=%FF%00", View(text="\ufffd\x00")),
    ],
)
def test_values_that_mean_nothing_are_ignored(query: str, view: View | None) -> None:
    assert parse_view(query) == view


def test_filters(session: ReviewSession) -> None:
    session.propose_group("quay", "human-made", "Where boats land.")
    decide(session, LabelAction("take"), "Q1")
    decide(session, LabelAction("drop"), "Q2")
    decide(session, LabelAction("unsure", "lake"), "Q4")
    decide(session, LabelAction("group", "quay"), "Q5")
    decide(session, LabelAction("comment", comment="look again"), "Q6")
    expected = {
        "undecided": "3 6 7",
        "decided": "1 2 4 5",
        "unsure": "4",
        "dropped": "2",
        "commented": "6",
        "proposed": "5",
        "differs": "2 5",
    }
    assert {name: shown(session, f"filter={name}") for name in FILTERS} == expected
    assert LabelLists(session).counts() == {name: len(labels.split()) for name, labels in expected.items()}
    assert shown(session, "group=lake") == "1 4"
    assert shown(session, "group=lake&filter=unsure") == "4"
    assert shown(session, "filter=undecided&filter=decided") == ""
    assert shown(session, "below=90") == "3 6 7"
    assert shown(session, "below=50&filter=undecided") == "3 6"


def test_filters_follow_merged_groups(session: ReviewSession) -> None:
    lists = LabelLists(session)
    decide(session, LabelAction("take"), "Q4")
    decide(session, LabelAction("group", "museum"), "Q6")
    assert lists.label_ids(View(filters=("differs",))) == ["Q6"]
    session.merge_group("lake", "museum", 0)
    assert lists.label_ids(View(filters=("differs",))) == []
    assert lists.label_ids(View(group="museum")) == ["Q4", "Q6"]
    assert lists.label_ids(View(group="lake")) == []


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("eglise", "1"),
        ("ÉGLISE", "1"),
        ("wood CHURCH", "2"),
        ("q6", "6"),
        ("example lake", "4"),
        ("kind of", "1 2 3 4 5 6 7"),
        ("churches", ""),
    ],
)
def test_search_ignores_case_accents_and_the_order_of_words(session: ReviewSession, text: str, labels: str) -> None:
    view = View(text=text)
    assert " ".join(label_id[1:] for label_id in LabelLists(session).label_ids(view)) == labels


def test_orders(session: ReviewSession) -> None:
    assert shown(session, "order=table") == "1 2 3 4 5 6 7"
    session.move({"Q1": 0}, 2)
    assert shown(session, "order=table") == "2 3 1 4 5 6 7", "by present cluster"
    assert shown(session, "order=landmarks") == "7 6 5 4 3 2 1"
    assert shown(session, "order=uncertain") == "3 6 7 5 4 2 1"
    assert shown(session, "order=settling") == "6 7 3 5 4 2 1", "landmarks times what the score leaves open"


def test_list_as_of_an_event_keeps_labels_that_were_decided_since(session: ReviewSession) -> None:
    decide(session, LabelAction("drop"), "Q1")
    moment = session.state.last_event
    decide(session, LabelAction("drop"), "Q2", "Q3")
    decide(session, LabelAction("unsure"), "Q2")
    session.undo(1)
    now = "filter=undecided&order=landmarks"
    assert shown(session, f"{now}&as_of={moment}") == "7 6 5 4 3 2"
    assert shown(session, now) == "7 6 5 4 1"
    assert shown(session, f"{now}&as_of=999") == "7 6 5 4 1"
    assert shown(session, f"filter=dropped&as_of={moment}") == "1"


def test_cluster_is_shown_as_a_whole(session: ReviewSession) -> None:
    decide(session, LabelAction("drop"), "Q4")
    assert shown(session, "cluster=2&filter=undecided") == "4 5 6 7"
    assert shown(session, "cluster=77") == ""


def test_blind_review_offers_nothing_about_suggestions(tmp_path: Path) -> None:
    with open_session(tmp_path / "ada.sqlite", LABELS, blind=True) as session:
        lists = LabelLists(session)
        assert not lists.filters.keys() & {"differs"}
        assert lists.orders == ["table", "landmarks"]
        assert shown(session, "filter=differs&below=50&order=uncertain") == "1 2 3 4 5 6 7"
        assert "differs" not in lists.counts()


@given(
    actions=st.lists(st.tuples(st.sampled_from(["drop", "unsure", "clear", "undo"]), st.integers(1, 7)), max_size=12)
)
def test_kept_rows_equal_those_of_a_new_start(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]]
) -> None:
    """Lists that were asked for after every action are those that a new object finds, also as of earlier events."""
    with open_session(tmp_path_factory.mktemp("lists") / "ada.sqlite", LABELS) as session:
        lists, undecided, moments = LabelLists(session), View(filters=("undecided",)), []
        for kind, number in actions:
            moments.append((session.state.last_event, lists.label_ids(undecided)))
            if kind != "undo":
                decide(session, LabelAction(kind), f"Q{number}")
            elif session.state.next_undo is not None:
                session.undo(session.state.next_undo)
            slow = [key for key, row in session.labels.items() if not session.is_decided(row.label_id)]
            assert lists.label_ids(undecided) == slow
        for event, listed in moments:
            assert lists.label_ids(replace(undecided, as_of=event)) == listed


def made_label(number: int, text: str, landmarks: int, score: float) -> ReviewLabel:
    """A label with a number of landmarks, whose suggestion has a score."""
    return replace(
        label(number, text), landmarks=landmarks, suggestions=(Candidate("group", "lake", "because", score),)
    )


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_of_some_labels_is_that_of_all_without_the_others(tmp_path: Path, order: Order) -> None:
    labels = [made_label(n, f"{'wooden' if n % 2 else 'stone'} thing {n % 3}", n % 5, n / 20) for n in range(20)]
    with open_session(tmp_path / "a.sqlite", labels) as session:
        orders = LabelLists(session)
        some = {f"Q{number}" for number in range(0, 20, 3)}
        assert orders.sort(some, order) == [key for key in orders.sort(session.labels, order) if key in some]
