"""Vocabulary files in general."""

from pathlib import Path

import pytest

from hgld.errors import InputError
from hgld.taxonomy.groups import VocabularyTerm, read_vocabulary


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


def test_all_invalid_rows_are_reported_by_line(tmp_path: Path) -> None:
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
