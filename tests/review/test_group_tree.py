"""Groups of deep trees: their paths, the places that labels can have, and the parents of new groups."""

from pathlib import Path

import pytest

from hgld.review.decision_files import export_decisions
from hgld.review.group_tree import GroupTree
from hgld.review.session import InvalidActionError, LabelAction, ReviewSession
from hgld.taxonomy.decisions import read_decisions
from hgld.taxonomy.groups import Group, read_taxonomy, write_taxonomy
from tests.review.sessions import GROUPS, decide, open_session

LEVELS = ("kind", "family", "milk")


def group(*path: str) -> Group:
    """A group by its path, coarsest first; the last name is repeated at the levels without one."""
    names = [path[-1]] * (len(LEVELS) - len(path)) + list(reversed(path))
    return Group(names[0], names[-1], "", between=(names[1],), levels=LEVELS)


CHEESES = [
    group("cow", "hard", "Gruyère"),
    group("cow", "hard", "Comté"),
    group("cow", "cow blue", "Stilton"),
    group("sheep", "Feta"),
    group("sheep", "sheep blue", "Roquefort"),
    group("sheep", "sheep blue", "sheep blue"),
]


def tree(groups: list[Group]) -> GroupTree:
    return GroupTree({group.key: group for group in groups})


def test_places_of_a_deep_tree() -> None:
    places = [(" > ".join(place.path), place.choice) for place in tree(CHEESES).places()]
    assert places == [
        ("cow", "above:cow"),
        ("cow > hard", "above:cow > hard"),
        ("cow > hard > Gruyère", "group:Gruyère"),
        ("cow > hard > Comté", "group:Comté"),
        ("cow > cow blue", "above:cow > cow blue"),
        ("cow > cow blue > Stilton", "group:Stilton"),
        ("sheep", "above:sheep"),
        ("sheep > Feta", "group:Feta"),
        ("sheep > sheep blue", "group:sheep blue"),
        ("sheep > sheep blue > Roquefort", "group:Roquefort"),
    ]


def test_texts_of_a_deep_tree() -> None:
    cheeses = tree(CHEESES)
    assert cheeses.above("Comté") == "cow > hard"
    assert cheeses.above("Feta") == "sheep"
    assert cheeses.above("sheep blue") == "sheep, not known more exactly"
    assert cheeses.above("gone") == ""
    assert cheeses.titles()["Comté"] == "cow > hard > Comté"
    assert cheeses.titles()["sheep blue"] == "sheep > sheep blue, not known more exactly"
    assert list(cheeses.parents()) == [
        "cow", "cow > hard", "cow > cow blue", "sheep", "sheep > Feta", "sheep > sheep blue"
    ]  # fmt: skip


def test_natural_and_human_made_groups_have_icons_and_no_paths() -> None:
    landmarks = tree(GROUPS)
    assert landmarks.has_icons
    assert [place.choice for place in landmarks.places()] == ["group:church", "group:lake", "group:museum"]
    assert {landmarks.above(key) for key in landmarks.groups} == {""}
    assert landmarks.titles() == {"church": "church", "lake": "lake", "museum": "museum"}
    others = tree([Group("lake", "water", ""), Group("hill", "land", "")])
    assert not others.has_icons
    assert [(place.choice, others.above(place.key or "")) for place in others.places()] == [
        ("group:lake", "water"),
        ("group:hill", "land"),
    ]


def test_plain_list_of_groups_takes_new_groups(tmp_path: Path) -> None:
    groups = [Group(name, name, "", levels=("kind",)) for name in ("Comté", "Feta")]
    with open_session(tmp_path / "ada.sqlite", groups=groups) as session:
        assert session.tree().above("Feta") == ""
        session.propose_group("Brie", "", "White rind.")
        assert session.groups()["brie"].path == ("Brie",)


def chosen(session: ReviewSession, text: str, label_id: str) -> tuple[str, ...]:
    """Put a label into the group for a path above groups; return the path of that group."""
    key = session.catch_all_group(text)
    decide(session, LabelAction("group", key), label_id)
    return session.groups()[key].path


def test_label_that_is_not_known_more_exactly_goes_above_the_leaves(tmp_path: Path) -> None:
    taxonomy = tmp_path / "taxonomy.csv"
    write_taxonomy(taxonomy, CHEESES)
    with open_session(tmp_path / "ada.sqlite", groups=CHEESES) as session:
        assert chosen(session, "cow > hard", "Q1") == ("hard", "hard", "cow")
        assert chosen(session, "cow", "Q2") == ("cow", "cow", "cow")
        assert chosen(session, "sheep > sheep blue", "Q3") == ("sheep blue", "sheep blue", "sheep")
        n_events = session.state.last_event
        assert chosen(session, "cow > hard", "Q1") == ("hard", "hard", "cow")
        assert session.state.last_event == n_events, "the group exists and the decision stays"
        choices = [place.choice for place in session.tree().places() if place.is_inner]
        assert choices == ["group:cow", "group:hard", "above:cow > cow blue", "above:sheep", "group:sheep blue"]
        with pytest.raises(InvalidActionError, match='the tree has no "goat"'):
            session.catch_all_group("goat")
        with pytest.raises(InvalidActionError, match='the tree has no "sheep > Feta"'):
            session.catch_all_group("sheep > Feta")
    export_decisions(tmp_path / "ada.sqlite", tmp_path / "ada.csv", taxonomy=taxonomy)
    groups = {group.key: group.path for group in read_taxonomy(tmp_path / "ada.taxonomy.csv")}
    decided = {row.label_id: groups[row.group or ""] for row in read_decisions(tmp_path / "ada.csv", groups)}
    assert decided == {
        "Q1": ("hard", "hard", "cow"),
        "Q2": ("cow", "cow", "cow"),
        "Q3": ("sheep blue", "sheep blue", "sheep"),
    }


def test_name_above_groups_that_a_group_elsewhere_has(tmp_path: Path) -> None:
    cheeses = [*CHEESES, group("goat", "other", "hard"), group("goat", "cow", "Cowgirl")]
    with open_session(tmp_path / "ada.sqlite", groups=cheeses) as session:
        assert chosen(session, "cow > hard", "Q1") == ("hard (general)", "hard", "cow")
        assert chosen(session, "cow", "Q2") == ("cow (general)", "cow (general)", "cow")
        n_events = session.state.last_event
        assert chosen(session, "cow", "Q2") == ("cow (general)", "cow (general)", "cow")
        assert session.state.last_event == n_events
        write_taxonomy(tmp_path / "changed.csv", session.groups().values())
    read_taxonomy(tmp_path / "changed.csv")


def test_labels_of_two_levels_need_a_group(tmp_path: Path) -> None:
    with (
        open_session(tmp_path / "ada.sqlite") as session,
        pytest.raises(InvalidActionError, match='choose a group below "natural"; labels need one'),
    ):
        session.catch_all_group("natural")


def test_new_groups_are_added_below_a_path(tmp_path: Path) -> None:
    cheeses = [*CHEESES, group("goat", "hard goat", "Majorero"), group("goat", "young", "Picodon")]
    with open_session(tmp_path / "ada.sqlite", groups=cheeses) as session:
        session.propose_group("Cheddar", "cow > hard", "Cheddared.")
        session.propose_group("Ricotta", "sheep", "Of whey.")
        paths = [group.path for group in session.groups().values()][-2:]
        assert paths == [("Cheddar", "hard", "cow"), ("Ricotta", "Ricotta", "sheep")]
        with pytest.raises(InvalidActionError, match='the tree has no "hard"'):
            session.propose_group("Emmental", "hard", "With holes.")
        with pytest.raises(InvalidActionError, match='already a group "young"'):
            session.propose_group("young", "cow", "Not ripe.")
        write_taxonomy(tmp_path / "changed.csv", session.groups().values())
    read_taxonomy(tmp_path / "changed.csv")
