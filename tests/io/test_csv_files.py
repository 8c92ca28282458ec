"""CSV files that people edit: rows, problems by line, whole numbers, and formulas."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.io.columns import escape_formula, parse_whole_number, read_rows, unescape_formula


def parse(line: int, row: Mapping[str, str]) -> tuple[int, int]:
    return line, parse_whole_number("n", row["n"])


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_rows_come_with_their_line(tmp_path: Path) -> None:
    path = write(tmp_path, '\ufeffother, n \r\n"x\ny",1\r\n\r\nz,2\r\n  \r\n')
    assert read_rows(path, ["n"], parse) == [(3, 1), (5, 2)]


def test_all_invalid_rows_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_rows(write(tmp_path, "n\n1\nx\n2,3\n"), ["n"], parse)
    assert "2 bad rows, nothing was done" in str(error.value)
    assert 'line 3: the n is "x"; expected a whole number' in str(error.value)
    assert "line 4: 2 values, expected 1" in str(error.value)


def test_header_and_rows_can_share_the_first_line(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, "n1\n2\n"), ["n"], parse, parse_header=lambda values: [["n"], [values[0][1:]]])
    assert rows == [(1, 1), (2, 2)]


@pytest.mark.parametrize(("text", "number"), [("0", 0), (" 42 ", 42), ("0" * 17 + "1", 1)])
def test_whole_numbers(text: str, number: int) -> None:
    assert parse_whole_number("n", text) == number


@pytest.mark.parametrize("text", ["", "-1", "+7", "1.0", "1_000", "١", "1" * 19])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the n is .*; expected a whole number"):
        parse_whole_number("n", text)


@given(st.text(st.sampled_from("'=+-@\t\r\n＝＋－＠ab"), max_size=6))
def test_escaped_formulas_round_trip(text: str) -> None:
    escaped = escape_formula(text)
    assert unescape_formula(escaped) == text
    assert not escaped.startswith(tuple("=+-@\t\r\n＝＋－＠"))
