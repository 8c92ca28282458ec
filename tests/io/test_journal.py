"""Journals that are reopened, truncated or damaged."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.io.journal import Journal

ORIGIN = {"source": "api"}
BATCHES: list[tuple[str, int, dict[str, Any]]] = [
    ("page", 1, {"Category:Ä\n\u2028": ["found", None]}),
    ("item", 2, {"Q1": None, "Q2": [1, ["Q3"]]}),
    ("item", 3, {"Q4": [2, []]}),
]


def line(**changes: Any) -> bytes:
    """Return a line with a valid checksum."""
    record = {"origin": {"format": "hgld.journal/3", **ORIGIN}, "kind": "item", "at": 1, "facts": {"Q1": [1]}}
    text = json.dumps(record | changes).encode()
    return b"%08x %s" % (zlib.crc32(text), text)


def filled(path: Path) -> Path:
    with Journal(path, ORIGIN) as journal:
        for batch in BATCHES:
            journal.append(*batch)
    return path


def test_appended_batches_are_read_back(tmp_path: Path) -> None:
    with Journal(filled(tmp_path / "j"), ORIGIN) as journal:
        assert list(journal.batches()) == BATCHES
        journal.append("page", 3, {})
        assert list(journal.batches()) == [*BATCHES, ("page", 3, {})]


def test_batch_is_on_disk_before_the_journal_is_closed(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", ORIGIN) as journal:
        journal.append(*BATCHES[0])
        assert "Category:Ä" in (tmp_path / "j").read_text(encoding="utf-8")


@given(cut=st.integers(min_value=0, max_value=500))
def test_truncated_journal_keeps_its_complete_batches(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = filled(tmp_path_factory.mktemp("journal") / "j")
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    with Journal(path, ORIGIN) as journal:
        assert list(journal.batches()) == BATCHES[:kept]
        for batch in BATCHES[kept:]:
            journal.append(*batch)
    assert path.read_bytes() == whole


def test_journal_of_another_origin_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "j")
    before = path.read_bytes()
    with (
        Journal(path, {"source": "html"}) as journal,
        pytest.raises(InputError, match="line 1 .* another source.*`force`"),
    ):
        list(journal.batches())
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    "damage",
    [
        b"\x00\x00",
        b"",
        b"00000000 ",
        b"\xff\xfe\xfa",
        b"null",
        b'{"kind":"page","at":1,"facts":[]}',
        json.dumps({"origin": ORIGIN, "kind": "item", "at": 1, "facts": {"Q1": [1]}}).encode(),
        b"%08x []" % zlib.crc32(b"[]"),
        b"%08x {}" % zlib.crc32(b"{}"),
        line(origin="api"),
        line(kind=3),
        line(at="now"),
        line(facts=["Q1"]),
        line(facts={}, forgotten=3),
    ],
)
def test_damaged_line_loses_its_facts_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, damage: bytes
) -> None:
    path = filled(tmp_path / "j")
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = damage
    path.write_bytes(b"\n".join(lines))
    with Journal(path, ORIGIN) as journal:
        assert list(journal.batches()) == [*BATCHES[: number - 1], *BATCHES[number:]]
        journal.append(*BATCHES[0])
        assert list(journal.batches())[-1] == BATCHES[0]
    assert f"1 damaged lines are ignored, and their facts requested again: {number}" in caplog.text


def test_line_with_a_fact_that_cannot_be_read_is_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def read(kind: str, fact: Any) -> str:
        return f"{kind} {fact[0]}"

    with Journal(tmp_path / "j", ORIGIN) as journal:
        journal.append("page", 1, {"A": ["a"]})
        journal.append("page", 2, {"B": ["b"], "C": None})
        assert list(journal.batches(read)) == [("page", 1, {"A": "page a"})]
    assert "1 damaged lines are ignored, and their facts requested again: 2" in caplog.text


@given(position=st.integers(min_value=0, max_value=400), value=st.integers(min_value=0, max_value=255))
def test_any_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, position: int, value: int) -> None:
    path = filled(tmp_path_factory.mktemp("journal") / "j")
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(content)
    with Journal(path, ORIGIN) as journal:
        kept = list(journal.batches())
    assert all(batch in BATCHES for batch in kept)
    assert len(kept) >= len(BATCHES) - 2  # a line end that is gone merges two lines


def test_warning_names_the_first_damaged_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"damaged\n" * 12)
    with Journal(path, ORIGIN) as journal:
        assert not list(journal.batches())
    assert (
        "12 damaged lines are ignored, and their facts requested again: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"
        in caplog.text
    )


def test_forgotten_facts_are_left_out_until_they_arrive_again(tmp_path: Path) -> None:
    with Journal(filled(tmp_path / "j"), ORIGIN) as journal:
        journal.forget("item", ["Q2", "Q9"])
        assert dict(facts_by_kind(journal)) == {"page": BATCHES[0][2], "item": {"Q1": None, "Q4": [2, []]}}
        journal.append("item", 3, {"Q2": [5, ["forgotten"]]})
    with Journal(tmp_path / "j", ORIGIN) as journal:
        assert facts_by_kind(journal)["item"] == {"Q1": None, "Q4": [2, []], "Q2": [5, ["forgotten"]]}


def facts_by_kind(journal: Journal) -> dict[str, dict[str, Any]]:
    kinds: dict[str, dict[str, Any]] = {}
    for kind, _, facts in journal.batches():
        kinds.setdefault(kind, {}).update(facts)
    return kinds
