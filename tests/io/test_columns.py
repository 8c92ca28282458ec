"""Columns of CSV and Parquet files, rows of CSV files, formulas in cells, and checks for missing values."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.io.columns import as_texts, column_names, read_columns, read_text_columns, require_non_null
from hgld.io.table_rows import escape_formula, parse_whole_number, read_rows, unescape_formula

TABLE = pa.table({"id": ["a", "b"], "landmark_id": [7, 3], "extra": [0.5, 1.5]})


@pytest.fixture(params=["csv", "parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"table.{request.param}"
    if request.param == "csv":
        pa_csv.write_csv(TABLE, path)
    else:
        pq.write_table(TABLE, path)
    return path


def test_existing_columns_are_read_in_the_order_asked_for(path: Path) -> None:
    assert column_names(path) == ["id", "landmark_id", "extra"]
    table = read_columns(path, ["landmark_id", "absent", "id"])
    assert table.to_pydict() == {"landmark_id": [7, 3], "id": ["a", "b"]}
    assert read_columns(path, ["absent"]).num_columns == 0


def test_types_are_enforced(path: Path) -> None:
    table = read_columns(path, ["landmark_id"], {"landmark_id": pa.string()})
    assert table["landmark_id"].to_pylist() == ["7", "3"]
    with pytest.raises(InputError, match="cannot be read as a table"):
        read_columns(path, ["id"], {"id": pa.int64()})


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(InputError, match="no such file; expected a CSV or Parquet file"):
            column_names(tmp_path / name)
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(InputError, match="cannot be read as a table"):
            column_names(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,n\na,1\nb,x\nc,3\n", "Row #3: CSV conversion error to int64"),
        ("id,n\na,1\nb\nc,3\n", "Row #3: Expected 2 columns, got 1"),
    ],
)
def test_lines_that_cannot_be_read_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=rf"a\.csv: cannot be read as a table: .*{message}"):
        read_columns(tmp_path / "a.csv", ["id", "n"], {"n": pa.int64()})


@pytest.mark.parametrize(("text", "line"), [("id,gr\xf6\xdfe\n1,a\n", 1), ("id,name\n1,a\n2,gr\xf6\xdfe\n", 3)])
@pytest.mark.parametrize("types", [None, {"name": pa.string()}])
def test_other_encodings_than_utf8_are_named_by_their_place(
    tmp_path: Path, text: str, line: int, types: dict[str, pa.DataType] | None
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(
        InputError, match=rf"table.csv: line {line}: not UTF-8 \(byte 0xf6\); save the file as UTF-8$"
    ):
        read_columns(path, ["id", "name"], types)


def test_missing_values_are_reported_by_column_and_row(tmp_path: Path) -> None:
    require_non_null(TABLE, tmp_path)
    with pytest.raises(InputError) as error:
        require_non_null(pa.table({"id": ["a", "", None], "n": [1, 2, None]}), tmp_path / "t.csv")
    assert "id is missing in 2 of 3 rows: rows 1, 2 (the first is row 0)" in str(error.value)
    assert "n is missing in 1 of 3 rows: rows 2" in str(error.value)


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id;n\n1;2\n", "its columns are separated by ';'; save it with commas"),
        ("id\tn\n1\t2\n", r"its columns are separated by '\\t'; save it with commas"),
        ("id;n, counted;x\n1;2,5;3\n", "its columns are separated by ';'; save it with commas"),
        ('id,n\n1,"a"\n2,"b" \n', "line 3: cannot be read as CSV: a value in quotation marks is followed by other"),
        ('id,n\n1,"a"\n2,"b\n3,c\n', "line 4: cannot be read as CSV: a quotation mark is not closed"),
    ],
)
def test_what_is_no_csv_is_named_with_its_cause(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_rows(tmp_path / "a.csv", ["id", "n"], lambda _line, row: row)
    if "separated" in message:
        with pytest.raises(InputError, match=message):
            read_text_columns(tmp_path / "a.csv", ["id", "n"])


def test_the_index_of_pandas_is_no_column(tmp_path: Path) -> None:
    rows = pd.DataFrame({"id": ["a", "b", "c"], "kind": ["x", "y", "x"]})
    rows[rows["kind"] == "x"].to_parquet(tmp_path / "rows.parquet")
    assert column_names(tmp_path / "rows.parquet") == ["id", "kind"]
    assert read_text_columns(tmp_path / "rows.parquet", ["id"])["id"].to_pylist() == ["a", "c"]


def test_spaces_around_column_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id , n\n1,2\n")
    assert read_rows(tmp_path / "a.csv", ["id", "n"], lambda _line, row: dict(row)) == [{"id": "1", "n": "2"}]
    with pytest.raises(InputError, match="no column id, n; .*; remove the spaces around 'id ', ' n'"):
        read_text_columns(tmp_path / "a.csv", ["id", "n"])


def test_header_and_rows_can_share_the_first_line(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, "n1\n2\n"), ["n"], parse, parse_header=lambda values: [["n"], [values[0][1:]]])
    assert rows == [(1, 1), (2, 2)]


@pytest.mark.parametrize(("text", "number"), [("0", 0), (" 42 ", 42), ("0" * 17 + "1", 1)])
def test_whole_numbers(text: str, number: int) -> None:
    assert parse_whole_number("n", text) == number


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1.0, 20.0, None], pa.float64(), ["1", "20", None]),
        ([1.0, 2e16, 1.2345678901234568e16], pa.float64(), ["1", "20000000000000000", "12345678901234568"]),
        ([2e16, -1e22], pa.float64(), ["20000000000000000", "-10000000000000000000000"]),
        ([7.0, float("nan")], pa.float32(), ["7", None]),
        ([7.0, 8.0], pa.float16(), ["7", "8"]),
        ([1.5, 2e16], pa.float64(), ["1.5", "2e+16"]),
        ([float("inf"), 1.0], pa.float64(), ["inf", "1.0"]),
        # CSV files that pandas wrote.
        (["1.0", "2e+16", "", " 3.0"], pa.string(), ["1", "20000000000000000", None, "3"]),
        (["12345678901234567.0"], pa.string(), ["12345678901234567"]),
        (["007.0", "1.50e+01"], pa.string(), ["007", "15"]),
        (["1.0", "a"], pa.string(), ["1.0", "a"]),
        (["1.0", "1"], pa.string(), ["1.0", "1"]),
        (["1.5e+00"], pa.string(), ["1.5e+00"]),
        (["3e5", "2e9"], pa.string(), ["3e5", "2e9"]),  # hashes
        ([], pa.float64(), []),
        ([None], pa.string(), [None]),
        ([2**60, 1], pa.int64(), [str(2**60), "1"]),
    ],
)
def test_whole_numbers_are_texts_without_decimals(
    values: list[float | str | None], kind: pa.DataType, expected: list[str | None]
) -> None:
    if kind == pa.float16():
        values = [np.float16(value) for value in values]
    assert as_texts(pa.chunked_array([pa.array(values, kind)]), "id").to_pylist() == expected


def test_ids_stored_as_numbers_with_decimals_are_texts_without(tmp_path: Path) -> None:
    path = tmp_path / "images.parquet"
    pq.write_table(pa.table({"landmark_id": [7, 3], "id": [1.0, 123456789012.0]}), path)
    assert read_columns(path, ["id"], {"id": pa.string()}).to_pydict() == {"id": ["1", "123456789012"]}


@pytest.mark.parametrize("text", ["", "-1", "+7", "1.0", "1_000", "١", "1" * 19])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the n is .*; expected a whole number"):
        parse_whole_number("n", text)


@given(st.text(st.sampled_from("'=+-@\t\r\n＝＋－＠ab"), max_size=6))
def test_escaped_formulas_round_trip(text: str) -> None:
    escaped = escape_formula(text)
    assert unescape_formula(escaped) == text
    assert not escaped.startswith(tuple("=+-@\t\r\n＝＋－＠"))
