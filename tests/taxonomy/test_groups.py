"""The shipped taxonomy and its vocabulary, and such files in general."""

import csv
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from hgld.errors import InputError
from hgld.io.table_rows import read_rows
from hgld.labels.wording import guideline_terms, normalised_words
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import read_decisions
from hgld.taxonomy.groups import (
    Group,
    VocabularyTerm,
    find_taxonomy,
    read_taxonomy,
    read_vocabulary,
    survivors,
    write_taxonomy,
)
from hgld.taxonomy.label_identity import ITEM_ID


def test_shipped_taxonomy_has_the_released_groups_and_roots(shared: Path) -> None:
    with (shared / "released/index_label_to_hierarchical.csv").open(encoding="utf-8", newline="") as stream:
        released = {row["hierarchical_label"].strip(): row["natural_or_human_made"] for row in csv.DictReader(stream)}
    assert {group.name: group.root for group in read_taxonomy(annotation_file("taxonomy.csv"))} == released


def test_guidelines_contradict_no_group_that_the_release_is_consistent_about(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    released_groups = pytest.importorskip("released_groups")
    landmarks = released_groups.read_landmarks(shared / "released/train_sample.csv")
    terms = released_groups.group_of_terms(read_taxonomy(annotation_file("taxonomy.csv")))
    assert not released_groups.contradictions(landmarks, terms)
    assert released_groups.contradictions(landmarks, {**terms, ("arboretum",): "garden", ("menhir",): "church"}) == [
        (("arboretum",), {"tree": 8, "garden": 2})
    ]
    assert released_groups.agreement(landmarks, terms).guideline > 0.86


def test_shipped_taxonomy_is_complete_and_sorted() -> None:
    groups = read_taxonomy(annotation_file("taxonomy.csv"))
    assert Counter(group.root for group in groups) == {"human-made": 60, "natural": 18}
    assert [group.name for group in groups] == sorted(group.name for group in groups)
    assert len({group.guideline for group in groups}) == 78
    assert max(len(group.guideline) for group in groups) < 250  # one line


def test_additional_columns_and_a_byte_order_mark_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "taxonomy.csv"
    path.write_text("\ufeffnumber,group,root,guideline\n1,lake ,natural,Standing water.\n", encoding="utf-8")
    assert read_taxonomy(path) == [Group("lake", "natural", "Standing water.")]


def test_items_are_read_and_groups_round_trip(tmp_path: Path) -> None:
    formula = "=cmd|'/C calc'!A0"
    groups = [
        Group("lake", "natural", "Standing water.", ("Q23397", "Q131681")),
        Group(formula, "human-made", "-1+1", key="dam", merged=("@a", "b")),
    ]
    write_taxonomy(tmp_path / "taxonomy.csv", groups)
    assert read_taxonomy(tmp_path / "taxonomy.csv") == groups
    assert (tmp_path / "taxonomy.csv").read_text().splitlines()[2] == f"'{formula},human-made,,'-1+1,dam,\"'@a"


def test_key_column_is_written_only_where_a_key_differs_from_the_name(tmp_path: Path) -> None:
    groups = [Group("still water", "natural", "Lakes.", key="lake"), Group("dam", "human-made", "x")]
    path = tmp_path / "taxonomy.csv"
    write_taxonomy(path, groups)
    assert path.read_text() == (
        "group,root,items,guideline,key\nstill water,natural,,Lakes.,lake\ndam,human-made,,x,\n"
    )
    assert read_taxonomy(path) == groups
    assert [group.key for group in read_taxonomy(annotation_file("taxonomy.csv"))] == [
        group.name for group in read_taxonomy(annotation_file("taxonomy.csv"))
    ]
    path.write_text("group,root,guideline,key\nlake,natural,x,\ntarn,natural,x,Lake\n")
    with pytest.raises(InputError, match='line 3: the key "Lake" is in line 2 already'):
        read_taxonomy(path)


def test_merged_groups_are_read_and_written(tmp_path: Path) -> None:
    groups = [Group("lake", "natural", "x", merged=("small pond", "a;b, c")), Group("dam", "human-made", "x")]
    path = tmp_path / "taxonomy.csv"
    write_taxonomy(path, groups)
    assert path.read_text().startswith("group,root,items,guideline,merged\n")
    assert read_taxonomy(path) == groups
    assert survivors(groups) == {"small pond": "lake", "a;b, c": "lake"}
    path.write_text("group,root,guideline,merged\nlake,natural,x,Dam\ndam,human-made,x,\n")
    with pytest.raises(InputError, match='line 3: the key "dam" is in line 2 already'):
        read_taxonomy(path)


def test_taxonomy_beside_decisions_is_found(tmp_path: Path) -> None:
    decisions, given = tmp_path / "final.csv", tmp_path / "given.csv"
    assert (
        find_taxonomy(None, decisions) == find_taxonomy(None, decisions, decisions) == annotation_file("taxonomy.csv")
    )
    (tmp_path / "final.taxonomy.csv").touch()
    assert find_taxonomy(None, tmp_path / "clusters.parquet", decisions) == tmp_path / "final.taxonomy.csv"
    assert find_taxonomy(given, tmp_path / "clusters.parquet", decisions) == given


def test_all_invalid_rows_are_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "taxonomy.csv"
    path.write_text(
        'group,root,items,guideline\nlake,natural,Q1,"Standing\nwater."\nLake,natural,,x\n,natural,,x\n'
        "dam,,,x\nriver,natural,, \nsea\npond,natural,Q2 Q1,x\nbay,natural,Q0,x\n"
    )
    with pytest.raises(InputError) as error:
        read_taxonomy(path)
    message = str(error.value)
    assert "6 bad rows" in message
    assert 'line 6: the root of "dam" is empty' in message
    assert 'line 4: the group "Lake" is in line 3 already' in message
    assert "line 5: the group is empty" in message
    assert "line 8: 1 values, expected 4 (group,root,items,guideline)" in message
    assert "line 9: the item Q1 is in line 3 already" in message
    assert 'line 10: "Q0" is not a Wikidata item' in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "the file is empty; expected the header guideline"),
        (b"group,root\nlake,natural\n", "line 1: no column guideline; found group,root"),
        (b"id,path,guideline\n1,Food > Bread,\n", "taxonomy.csv: a tree of paths, not yet a taxonomy; make one with"),
        (b"PAR1", "taxonomy.csv: a Parquet file; expected a CSV file with the columns guideline"),
        (b"PK\x03\x04", "taxonomy.csv: a spreadsheet; expected a CSV file"),
        (b"group,root,guideline\n", "no rows below the header"),
        (b"group,root,guideline\nch\xe2teau,natural,x\n", "not UTF-8"),
        (b'group,root,guideline\n"lake,natural,x\n', "cannot be read as CSV"),
    ],
)
def test_invalid_files(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "taxonomy.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_taxonomy(path)


def test_terms_of_other_taxonomies_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.csv"
    path.write_text(
        "term,group,items\npost mill,windmill,Q1 Q2\nparish,,\ntarn , lake ,\nkiosk,shop,\n", encoding="utf-8-sig"
    )
    assert read_vocabulary(path, {"windmill", "lake"}) == [
        VocabularyTerm("post mill", "windmill", ("Q1", "Q2")),
        VocabularyTerm("parish", None),
        VocabularyTerm("tarn", "lake"),
    ]


def test_all_invalid_terms_are_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.csv"
    path.write_text("term,group,items\ntarn,lake,Q1\nTarn,,\n,lake,\nmere,lake,Q1\npond,lake,q2\nmeer,lake\n")
    with pytest.raises(InputError) as error:
        read_vocabulary(path, {"lake"})
    message = str(error.value)
    assert "5 bad rows" in message
    assert 'line 3: the term "tarn" is in line 2 already' in message
    assert "line 4: the term is empty" in message
    assert "line 5: the item Q1 is in line 2 already" in message
    assert 'line 6: "q2" is not a Wikidata item' in message
    assert "line 7: 2 values, expected 3" in message


Words = tuple[str, ...]


class Row(NamedTuple):
    term: str
    group: str
    items: tuple[str, ...]


@pytest.fixture(scope="module")
def vocabulary() -> list[Row]:
    return read_rows(
        annotation_file("vocabulary.csv"),
        ("term", "group", "items"),
        lambda line, row: Row(row["term"], row["group"], tuple(row["items"].split())),
    )


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    return read_taxonomy(annotation_file("taxonomy.csv"))


def test_every_group_of_the_taxonomy_has_terms_and_there_are_no_others(
    vocabulary: list[Row], groups: list[Group]
) -> None:
    assert {row.group for row in vocabulary} == {group.name for group in groups} | {""}


def test_terms_are_sorted_and_unique_in_the_form_that_labels_are_compared_in(vocabulary: list[Row]) -> None:
    keys = [(row.group, row.term.casefold(), row.term) for row in vocabulary]
    assert keys == sorted(keys)
    repeated = [words for words, n in Counter(normalised_words(row.term) for row in vocabulary).items() if n > 1]
    assert repeated == []


def test_terms_repeat_and_contradict_no_guideline_and_no_decision(vocabulary: list[Row], groups: list[Group]) -> None:
    decided: dict[Words, str] = {
        normalised_words(name): group.name for group in groups for name in group.name.split(" / ")
    }
    for group in groups:
        decided |= {normalised_words(term): group.name for term in guideline_terms(group.guideline)}
    for decision in read_decisions(annotation_file("decisions/final.csv"), [group.name for group in groups]):
        decided[normalised_words(decision.label)] = decision.group or ""
    assert [row for row in vocabulary if normalised_words(row.term) in decided] == []


def test_items_are_wikidata_classes_that_nothing_else_is_linked_to(
    vocabulary: list[Row], groups: list[Group]
) -> None:
    items = [item for row in vocabulary for item in row.items]
    linked = [item for group in groups for item in group.items]
    assert all(ITEM_ID.fullmatch(item) for item in items)
    assert [item for item, n in Counter(items + linked).items() if n > 1] == []


@pytest.mark.parametrize(
    ("term", "group"),
    [
        ("tower house", "castle / fort"),
        ("gas holder", "factory"),
        ("dovecote tower", "agricultural land"),
        ("cave church", "church"),
        ("church ruins", "church"),
        ("railway museum", "museum"),
        ("post mill", "windmill"),
        ("beer garden", "restaurant"),
        ("gurdwara", ""),
        ("reef", ""),
    ],
)
def test_terms_whose_last_word_misleads(term: str, group: str, vocabulary: list[Row]) -> None:
    assert {row.term: row.group for row in vocabulary}[term] == group
