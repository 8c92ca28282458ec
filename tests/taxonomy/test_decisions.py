"""Decision files and the look-up of decisions."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.names import stored_name
from hgld.taxonomy.decisions import (
    Decision,
    DecisionIndex,
    format_time,
    parse_time,
    read_decisions,
    read_surviving_decisions,
    write_decisions,
)
from hgld.taxonomy.groups import read_taxonomy, read_vocabulary

GROUPS = ("lake", "castle / fort")
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
HEADER = "label_id,label,decision,group,annotator,decided_at,blind,comment\n"

# Texts that neither a CSV reader nor the normalisation of values changes.
characters = st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"])
texts = st.text(characters, min_size=1, max_size=20).map(stored_name).filter(bool)
choices = st.one_of(
    st.tuples(st.just("group"), st.sampled_from(GROUPS)),
    st.tuples(st.just("drop"), st.none()),
    st.tuples(st.just("unsure"), st.one_of(st.none(), st.sampled_from(GROUPS))),
)
times = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(timezone.utc))


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    decision, group = draw(choices)
    time = draw(times).replace(microsecond=0)
    comment = draw(st.one_of(st.just(""), texts))
    blind = draw(st.sampled_from([None, True, False]))
    return Decision(draw(texts), draw(texts), decision, group, draw(texts), time, comment, blind)


@given(st.lists(decisions(), min_size=1, unique_by=lambda row: row.label_id))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[Decision]) -> None:
    path = tmp_path_factory.mktemp("decisions") / "a.csv"
    write_decisions(path, rows)
    assert sorted(read_decisions(path, GROUPS), key=repr) == sorted(rows, key=repr)
    before = path.read_bytes()
    write_decisions(path, reversed(rows))
    assert path.read_bytes() == before


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("taxonomy_form", ["NFC", "NFD"])
def test_names_are_composed_where_they_enter(tmp_path: Path, form: Literal["NFC", "NFD"], taxonomy_form: Any) -> None:
    """File systems and programs of macOS decompose letters with accents."""
    taxonomy, path = tmp_path / "taxonomy.csv", tmp_path / "ada.csv"
    taxonomy.write_text(normalize(taxonomy_form, "group,root,guideline\nch\u00e2teau,b\u00e2ti,\n"), encoding="utf-8")
    row = "\u00e9-1,\u00e9glise,group,ch\u00e2teau,am\u00e9lie,2026-03-01T12:00:00Z,,\n"
    path.write_text(normalize(form, HEADER + row), encoding="utf-8")
    groups = read_taxonomy(taxonomy)
    assert [(group.key, group.path) for group in groups] == [("ch\u00e2teau", ("ch\u00e2teau", "b\u00e2ti"))]
    (decision,) = read_surviving_decisions(path, groups)
    assert (decision.label_id, decision.label, decision.group) == ("\u00e9-1", "\u00e9glise", "ch\u00e2teau")
    assert decision.annotator == "am\u00e9lie"
    vocabulary = tmp_path / "vocabulary.csv"
    vocabulary.write_text(normalize(form, "term,group,items\nch\u00e2telet,ch\u00e2teau,\n"), encoding="utf-8")
    assert [term.group for term in read_vocabulary(vocabulary, {"ch\u00e2teau"})] == ["ch\u00e2teau"]


def test_no_decisions(tmp_path: Path) -> None:
    write_decisions(tmp_path / "a.csv", [])
    assert read_decisions(tmp_path / "a.csv", GROUPS) == []


def test_columns_of_what_may_be_empty_are_optional(tmp_path: Path) -> None:
    """As in files of hgld 0.1, and of people who write their own."""
    text = "annotator,label_id,label,decision,group,decided_at\nada,Q1,quay,group,lake,2026-03-01T12:00:00Z\n"
    (tmp_path / "a.csv").write_text(text)
    assert read_decisions(tmp_path / "a.csv", GROUPS) == [Decision("Q1", "quay", "group", "lake", "ada", NOON)]
    for column in ("decided_at", "group", "annotator"):
        (tmp_path / "a.csv").write_text(text.replace(column, "x"))
        with pytest.raises(InputError, match=f"no column {column}; found .*, expected label_id,.*decided_at$"):
            read_decisions(tmp_path / "a.csv", GROUPS)


def test_any_group_is_accepted_without_a_taxonomy(tmp_path: Path) -> None:
    rows = [Decision("Q1", "quay", "group", "a proposed one", "ada", NOON)]
    write_decisions(tmp_path / "a.csv", rows)
    assert read_decisions(tmp_path / "a.csv", None) == rows


def test_formulas_are_escaped(tmp_path: Path) -> None:
    rows = [Decision("Q1", "=1+1", "unsure", None, "ada", NOON, "-not sure")]
    write_decisions(tmp_path / "a.csv", rows)
    assert "Q1,'=1+1,unsure,,ada,2026-03-01T12:00:00Z,,'-not sure" in (tmp_path / "a.csv").read_text()
    assert read_decisions(tmp_path / "a.csv", GROUPS) == rows


@pytest.mark.parametrize("line_break", ["\r", "\n", "\r\n"])
def test_comments_may_have_line_breaks(tmp_path: Path, line_break: str) -> None:
    row = Decision("Q1", "lake", "drop", None, "ada", NOON, f"one{line_break}two")
    write_decisions(tmp_path / "a.csv", [row])
    (read,) = read_decisions(tmp_path / "a.csv", None)
    assert read == replace(row, comment="one\ntwo")


def test_all_invalid_rows_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        f"{HEADER}Q1,pond,group,lake,ada,2026-03-01T12:00:00Z,,\nQ1,pond,group,lake,ada,2026-03-01T12:00:00Z,,\n"
        "Q2,x,group,,ada,2026-03-01T12:00:00Z,,\nQ3,x,drop,lake,ada,2026-03-01T12:00:00Z,,\n"
        "Q4,x,group,sea,ada,2026-03-01T12:00:00Z,,\nQ5,x,maybe,,ada,2026-03-01T12:00:00Z,,\n"
        "Q6,x,drop,,ada,yesterday,,\nQ7,x,drop,,,2026-03-01T12:00:00Z,,\n"
        "Q8,x,drop,,ada,2026-03-01T12:00:00Z,maybe,\n"
    )
    with pytest.raises(InputError) as error:
        read_decisions(path, GROUPS)
    message = str(error.value)
    assert "8 bad rows" in message
    for problem in (
        'line 3: Q1 ("pond") is decided in line 2 already',
        'line 4: Q2 ("x"): decided as group, but no group is given',
        'line 5: Q3 ("x"): dropped, but it has the group "lake"',
        'line 6: Q4 ("x"): the taxonomy has no group "sea"',
        'line 7: Q5 ("x"): the decision is "maybe"; expected one of group, drop, unsure',
        'line 8: the time is "yesterday"; expected e.g. 2026',
        "line 9: the annotator is empty",
        'line 10: blind is "maybe"; expected yes, no, or nothing if it was not recorded',
    ):
        assert problem in message


def test_times_are_utc() -> None:
    east = datetime(2026, 3, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(east) == "2026-03-01T12:00:00Z"
    assert parse_time("2026-03-01T14:00:00+02:00") == NOON
    with pytest.raises(ValueError, match="expected e.g."):
        parse_time("2026-03-01T12:00:00")


def test_decision_is_found_by_id_then_by_text() -> None:
    lake = Decision("Q23397", "lake", "group", "lake", "ada", NOON)
    same = Decision("label-1", "Lake ", "group", "lake", "ada", NOON)
    fort = Decision("Q1785071", "fort", "group", "castle / fort", "ada", NOON)
    other = Decision("Q2", "fort", "drop", None, "ada", NOON)
    index = DecisionIndex([lake, same, fort, other])
    assert index.find("Q23397", "renamed") is lake
    assert index.find("label-9", "LAKE") is lake
    assert index.find("label-9", "fort") is None  # two classes of that name were decided differently
    assert index.find("Q2", "fort") is other
    assert index.find("label-9", "pond") is None


def test_decisions_with_another_taxonomy_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "cheeses.csv"
    rows = [
        f"Q{n},x,group,{group},ada,2026-03-01T12:00:00Z" for n, group in enumerate(("blue", "hard", "soft", "lake"))
    ]
    path.write_text("\n".join(["label_id,label,decision,group,annotator,decided_at", *rows]))
    with pytest.raises(InputError) as error:
        read_decisions(path, GROUPS)
    assert str(error.value) == (
        f"{path}: 3 of its 4 groups are not in the taxonomy, such as blue, hard, soft; give the taxonomy that these "
        "decisions were made with as `taxonomy`"
    )
