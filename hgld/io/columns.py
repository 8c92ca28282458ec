"""Read CSV and Parquet tables that people bring along or edit: columns of millions of rows by Arrow, and rows of CSV.

Problems of rows are reported together, each with its line.
"""

from __future__ import annotations

import codecs
import csv
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from hgld.arrays import Integers
from hgld.errors import InputError, bad_rows, indented_list

R = TypeVar("R")
T = TypeVar("T")
#: With one thread Arrow names the line that it cannot read, and is as fast.
_ONE_THREAD = pa_csv.ReadOptions(use_threads=False)
#: Suffixes of workbooks, which are refused by a message of their own.
SPREADSHEETS = (".xlsx", ".xls", ".ods")
#: First bytes of Parquet files, and those of workbooks, which are ZIP files.
PARQUET, ZIP = b"PAR1", b"PK\x03\x04"
#: Text that a spreadsheet runs as a formula, after any escapes; with East Asian settings full-width signs count, too.
_FORMULA = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")
#: Column in which pandas writes an index without a name, such as that of a filtered table.
_PANDAS_INDEX = re.compile(r"__index_level_[0-9]+__")
#: A whole number as a number with decimals is written, such as 20.0 or 2e+16.
_WHOLE_NUMBER = r"^-?[0-9]+(\.0+|(\.[0-9]+)?e\+[0-9]{2})$"


def column_names(path: Path) -> list[str]:
    """Return the column names of a Parquet file, without an index of pandas, or of a CSV file with a header."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a CSV or Parquet file")
    try:
        if path.suffix == ".parquet":
            return [
                name for name in pq.read_schema(path).names if not _PANDAS_INDEX.fullmatch(name)
            ]
        with pa_csv.open_csv(path, read_options=_ONE_THREAD) as stream:
            return list(stream.schema.names)
    except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
        raise _unreadable(path, error) from error


def read_columns(
    path: Path, wanted: Sequence[str], types: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """Read those of the wanted columns, in this order, that a CSV or Parquet file has; no other column is loaded.

    Columns without a required type keep the one that they have in the file or, in CSV, that Arrow infers from values.

    Raises:
        InputError: The file does not exist, cannot be read, or has values that do not fit their type.
    """
    types = types or {}
    present = [name for name in wanted if name in column_names(path)]
    if not present:  # Arrow's CSV reader takes an empty list for all columns.
        return pa.table({})
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=present)
            for position, name in enumerate(present):  # Arrow would write 2e16 with an exponent
                if types.get(name) == pa.string() and pa.types.is_floating(table[name].type):
                    table = table.set_column(position, name, as_texts(table[name], name))
            return table.cast(
                pa.schema([(name, types.get(name, table.field(name).type)) for name in present])
            )
        table = pa_csv.read_csv(
            path,
            read_options=_ONE_THREAD,
            convert_options=pa_csv.ConvertOptions(include_columns=present, column_types=types),
        )
        if pa.binary() in table.schema.types:  # what Arrow infers from texts that are not UTF-8
            raise pa.ArrowInvalid("texts are not UTF-8")
        return table
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise _unreadable(path, error) from error


def text_column_names(path: Path) -> list[str]:
    """Return the column names of a CSV or Parquet table.

    Raises:
        InputError: The file does not exist, is no such table, is not UTF-8, has two columns of one name, or does not
            separate its columns by commas.
    """
    if path.suffix.lower() in SPREADSHEETS:
        raise InputError(f"{path}: a spreadsheet; save it as CSV (UTF-8)")
    is_utf16 = path.is_file() and (
        starts_with(path, codecs.BOM_UTF16_LE) or starts_with(path, codecs.BOM_UTF16_BE)
    )
    if is_utf16:
        raise InputError(
            f"{path}: its text is UTF-16, which spreadsheets call Unicode; save it as CSV (UTF-8)"
        )
    names = column_names(path)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(
            f"{path}: several columns are named {preview(repeated)}; give each a name of its own"
        )
    _require_commas(path, names)
    return names


def _require_commas(path: Path, names: Sequence[str]) -> None:
    """Raise unless the columns of a header are separated by commas."""
    header = ",".join(names)
    for separator in (";", "\t", "|"):
        if header.count(separator) >= len(names):
            raise InputError(
                f"{path}: its columns are separated by {separator!r}; save it with commas"
            )


def read_text_columns(
    path: Path,
    wanted: Sequence[str],
    *,
    may_be_missing: Sequence[str] = (),
    may_be_lists: Sequence[str] = (),
    as_is: Sequence[str] = (),
) -> pa.Table:
    """Read columns of a CSV or Parquet file as texts, see :func:`as_texts`.

    Those that ``may_be_missing`` may have rows without a value, which become null; values of those that
    ``may_be_lists`` may be lists, which become lists of texts. Texts of columns in ``as_is`` are not composed.

    Raises:
        InputError: The file cannot be read, lacks a column, has no rows, or values are missing.
    """
    present = text_column_names(path)
    absent = [name for name in wanted if name not in present]
    if absent:
        spaces = [name for name in present if name != name.strip() and name.strip() in absent]
        advice = (
            f"; remove the spaces around {preview([repr(name) for name in spaces])}"
            if spaces
            else ""
        )
        raise InputError(
            f"{path}: no column {preview(absent)}; its columns are {', '.join(present)}{advice}"
        )
    is_csv = path.suffix != ".parquet"
    table = read_columns(path, wanted, dict.fromkeys(wanted, pa.string()) if is_csv else None)
    if not len(table):
        raise InputError(f"{path}: no rows below the header")
    columns = {}
    for name in wanted:
        kind = table[name].type
        is_list = name in may_be_lists and (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        if is_list:
            texts = _as_text_lists(table[name], f"{path}: {name}")
        else:
            texts = as_texts(table[name], f"{path}: {name}", as_is=name in as_is)
        columns[name] = texts
        if texts.null_count and name not in may_be_missing:
            rows = pc.indices_nonzero(texts.is_null()).to_pylist()
            raise InputError(
                f"{path}: {name} is missing in {len(rows):,} of {len(table):,} rows; fill it in, or remove the rows: "
                f"{preview([_describe(table, row) for row in rows], 5)}"
            )
    return pa.table(columns)


def read_table_rows(
    path: Path, wanted: Sequence[str], parse: Callable[[int, Mapping[str, str]], T]
) -> list[T]:
    """Read a Parquet file as :func:`read_rows` reads CSV files, and these with it.

    Rows of Parquet files are numbered from 1, and missing values are empty texts.
    """
    if path.suffix != ".parquet":
        return read_rows(path, wanted, parse)
    rows = read_text_columns(path, wanted, may_be_missing=wanted).to_pylist()
    texts = ({name: text or "" for name, text in row.items()} for row in rows)
    return parse_rows(path, enumerate(texts, 1), parse, "row")


def as_texts(column: pa.ChunkedArray, name: str, *, as_is: bool = False) -> pa.ChunkedArray:
    """Convert a column of texts or numbers to texts in NFC without white space around them.

    Missing and empty texts are null.

    A column of whole numbers that are stored with decimals, as pandas does where values are missing, loses them. The
    column may have strings, numbers, booleans or dates, or a dictionary of them; ``name`` is for messages. With
    ``as_is``, texts are not composed, as those that name files.

    >>> as_texts(pa.chunked_array([[1.0, 2e16, None]]), "group").to_pylist()
    ['1', '20000000000000000', None]
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
        values = column.cast(pa.float64()).to_pylist()
        texts = pa.chunked_array(
            [[None if value is None else repr(value) for value in values]], pa.string()
        )
    else:
        try:
            texts = column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"{name} is {column.type}; expected texts or numbers") from error
    if not as_is:
        texts = pc.utf8_normalize(
            texts, form="NFC"
        )  # file systems of macOS decompose letters with accents
    texts = pc.utf8_trim_whitespace(texts)
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    if pc.all(pc.match_substring_regex(texts, _WHOLE_NUMBER)).as_py():
        whole = [text and _whole_number(text) for text in texts.to_pylist()]
        if not any(text and "." in text for text in whole):
            texts = pa.chunked_array([whole], pa.string())
    return texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([texts])


def _whole_number(text: str) -> str:
    """Return a number without an exponent and, if it is whole, without decimals."""
    number = f"{Decimal(text):f}" if "e" in text else text
    return re.sub(r"\.0+$", "", number)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is that of lists."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _as_text_lists(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Convert lists of texts or numbers to lists of texts, see :func:`as_texts`; empty lists become null."""
    array = column.combine_chunks()
    texts = as_texts(pa.chunked_array([array.flatten()]), name).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = pa.array([0, *pc.cumulative_sum(lengths).to_pylist()], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, texts)
    return pa.chunked_array([pc.if_else(pc.equal(lengths, 0), None, lists)])


def starts_with(path: Path, signature: bytes) -> bool:
    """Return whether the first bytes of a file are these."""
    with path.open("rb") as stream:
        return stream.read(len(signature)) == signature


def _describe(table: pa.Table, row: int) -> str:
    values = (
        str(column[row].as_py())
        for column in table.columns
        if column[row].as_py() not in (None, "")
    )
    return f"row {row + 1} ({preview(list(values), 3)})"


def require_non_null(table: pa.Table, path: Path) -> None:
    """Raise an InputError, which names columns and rows, if a value is null or an empty string."""
    problems = []
    for name in table.column_names:
        missing = pc.is_null(table[name])
        if pa.types.is_string(table[name].type):
            missing = pc.or_kleene(missing, pc.equal(table[name], ""))
        if len(rows := pc.indices_nonzero(missing)):
            problems.append(
                f"{name} is missing in {len(rows):,} of {len(table):,} rows: {preview_rows(rows.to_numpy())}"
            )
    if problems:
        raise InputError(
            f"{path}: values are missing; fill them in, or remove the rows:\n{indented_list(problems)}"
        )


def preview_rows(rows: Integers) -> str:
    """Format the first row numbers for a message.

    >>> import numpy as np
    >>> preview_rows(np.array([3, 7]))
    'rows 3, 7 (the first is row 0)'
    """
    return f"rows {preview(rows.tolist())} (the first is row 0)"


def preview(values: Sequence[object], limit: int = 10) -> str:
    """Format the first values for a message.

    >>> preview(["b", "a", "c"], limit=2)
    'b, a, …'
    """
    return ", ".join(map(str, values[:limit])) + (", …" if len(values) > limit else "")


def _unreadable(path: Path, error: Exception) -> InputError:
    if (
        path.suffix != ".parquet"
        and not isinstance(error, OSError)
        and (place := locate_invalid_byte(path))
    ):
        return InputError(f"{path}: {place}; save the file as UTF-8")
    return InputError(f"{path}: cannot be read as a table: {error}")


# Rows of CSV files


def read_rows(
    path: Path,
    columns: Sequence[str],
    parse: Callable[[int, Mapping[str, str]], T],
    *,
    parse_header: Callable[[list[str]], list[list[str]]] = lambda values: [values],
    may_be_empty: bool = False,
) -> list[T]:
    """Read a CSV file in UTF-8.

    Additional columns are ignored; blank lines and a byte order mark are skipped.

    Args:
        columns: Columns that the file must have, in any order.
        parse: Called for each row with its line number and its values by column. A ValueError that it raises is
            reported as the problem of the row.
        parse_header: Called with the values of the first line; returns the header, followed by any rows that stand
            in the same line.
        may_be_empty: Accept a file without rows below the header.

    Returns:
        The results of ``parse`` in the order of the file.

    Raises:
        InputError: The file is missing, not UTF-8, not CSV, lacks the header, a column or (unless it may be empty)
            any row; or rows are invalid, in which case none is used.
    """
    problem = _problem_of_csv(path)
    if problem:
        raise InputError(
            f"{path}: {problem}; expected a CSV file with the columns {','.join(columns)}"
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, strict=True)
            first = next(rows, None)
            names, *rows_in_first_line = [first] if first is None else parse_header(first)
            header = _check_header(path, names, columns)
            all_rows = chain(rows_in_first_line, rows)
            numbered = (
                (rows.line_num, row) for row in all_rows if row and "".join(row).strip()
            )  # no blank lines
            parsed = parse_rows(
                path, numbered, lambda line, row: parse(line, _by_column(row, header)), "line"
            )
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {locate_invalid_byte(path)}; save the file as UTF-8") from error
    except csv.Error as error:
        raise InputError(
            f"{path}: line {rows.line_num}: cannot be read as CSV: {_csv_problem(error)}"
        ) from error
    if not parsed and not may_be_empty:
        raise InputError(f"{path}: no rows below the header")
    return parsed


def _problem_of_csv(path: Path) -> str:
    """Say what a path is if it is not that of a text; empty if it may be one."""
    if path.is_dir():
        return "a folder"
    if not path.is_file():
        return "no such file"
    if starts_with(path, PARQUET):
        return "a Parquet file"
    if starts_with(path, ZIP):
        return "a spreadsheet"
    return ""


def _csv_problem(error: csv.Error) -> str:
    """Say in other words than those of the module csv why a line cannot be read."""
    if "expected after" in str(error):
        return "a value in quotation marks is followed by other characters, such as a space; remove them"
    if "unexpected end of data" in str(error):
        return "a quotation mark is not closed, in this line or in one above it"
    return str(error)


def parse_rows(
    path: Path, rows: Iterable[tuple[int, R]], parse: Callable[[int, R], T], unit: str
) -> list[T]:
    """Parse numbered rows, or raise an InputError with what is wrong with them by ``unit``, such as line."""
    parsed, problems = [], []
    for number, row in rows:
        try:
            parsed.append(parse(number, row))
        except ValueError as problem:
            problems.append(f"{unit} {number}: {problem}")
    if problems:
        raise InputError(f"{path}: {bad_rows(problems, ', nothing was done')}")
    return parsed


def parse_whole_number(column: str, text: str) -> int:
    """Parse a non-negative whole number in a column.

    Raises:
        ValueError: The text has other characters than the digits 0 to 9, or more than 18 digits, which might not fit
            into int64.

    >>> parse_whole_number("landmark_id", "6347")
    6347
    """
    # int() alone takes "1_000", "+7" and digits of any script.
    digits = text.strip()
    if not (text.isascii() and digits.isdecimal() and len(digits) <= 18):
        raise ValueError(f'the {column} is "{text}"; expected a whole number such as 6347')
    return int(text)


def escape_formula(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula.

    >>> escape_formula("=1+1"), escape_formula("lake"), escape_formula("'-5")
    ("'=1+1", 'lake', "''-5")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unescape_formula(text: str) -> str:
    """Undo :func:`escape_formula`.

    >>> unescape_formula("'=1+1"), unescape_formula("'tis"), unescape_formula("=1+1")
    ('=1+1', "'tis", '=1+1')
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def unify_line_breaks(text: str) -> str:
    r"""Return a text with line feeds for carriage returns, which writers with ``lineterminator="\n"`` do not quote.

    >>> unify_line_breaks("one\r\ntwo\rthree")
    'one\ntwo\nthree'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_control_characters(text: str) -> str:
    r"""Return a text without control characters, which many readers of CSV refuse, but for white space.

    >>> without_control_characters("a\x00b\tc")
    'ab\tc'
    """
    return "".join(c for c in text if c.isspace() or unicodedata.category(c) != "Cc")


def _check_header(path: Path, names: list[str] | None, columns: Sequence[str]) -> list[str]:
    expected = ",".join(columns)
    if names is None:
        raise InputError(
            f"{path}: the file is empty; expected the header {expected} and rows below it"
        )
    _require_commas(path, names)
    header = [name.strip() for name in names]
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(
            f"{path}: line 1: no column {', '.join(missing)}; found {','.join(names)}, "
            f"expected {expected}"
        )
    return header


def _by_column(row: Sequence[str], header: Sequence[str]) -> Mapping[str, str]:
    if len(row) != len(header):
        raise ValueError(
            f"{len(row)} values, expected {len(header)} ({','.join(header)}); is a value with a comma not in quotes?"
        )
    return dict(zip(header, row, strict=True))


def locate_invalid_byte(path: Path) -> str:
    """Describe where a file is not UTF-8: the line and the byte; empty if it is."""
    for line, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return f"line {line}: not UTF-8 (byte 0x{raw[error.start]:02x})"
    return ""
