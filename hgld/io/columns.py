"""Read columns of users' CSV and Parquet tables with Arrow, as typed columns or as texts.

:mod:`hgld.io.table_rows` reads tables row by row.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from hgld.arrays import Integers
from hgld.errors import InputError, indented_list

#: With one thread Arrow names the line that it cannot read; several threads are not faster.
_ONE_THREAD = pa_csv.ReadOptions(use_threads=False)
#: Suffixes of workbooks, which are refused with advice.
SPREADSHEETS = (".xlsx", ".xls", ".ods")
#: First bytes of Parquet files.
PARQUET = b"PAR1"
#: First bytes of workbooks, which are ZIP files.
ZIP = b"PK\x03\x04"
#: Column in which pandas writes an index without a name, such as the index of a filtered table.
_PANDAS_INDEX = re.compile(r"__index_level_[0-9]+__")
#: Whole number written as a floating-point number, such as 20.0 or 2e+16.
_WHOLE_NUMBER = r"^-?[0-9]+(\.0+|(\.[0-9]+)?e\+[0-9]{2})$"


def column_names(path: Path) -> list[str]:
    """Return the column names of a CSV or Parquet file, without an unnamed index of pandas."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a CSV or Parquet file")
    try:
        if path.suffix == ".parquet":
            names = pq.read_schema(path).names
            return [name for name in names if not _PANDAS_INDEX.fullmatch(name)]
        with pa_csv.open_csv(path, read_options=_ONE_THREAD) as stream:
            return list(stream.schema.names)
    except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
        raise _unreadable(path, error) from error


def read_columns(
    path: Path, wanted: Sequence[str], types: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """Read columns of a CSV or Parquet file; no other column is loaded.

    Args:
        path: The file.
        wanted: Names of the columns, in the order of the result; columns that the file lacks are
            left out.
        types: Required type of columns by name. Other columns keep their type in the file; in CSV
            files Arrow infers the type from the values.

    Raises:
        InputError: The file does not exist, cannot be read, or has values that do not fit their
            type.
    """
    types = types or {}
    present = [name for name in wanted if name in column_names(path)]
    if not present:
        # Arrow's CSV reader takes an empty list for all columns.
        return pa.table({})
    try:
        if path.suffix == ".parquet":
            return _cast_columns(pq.read_table(path, columns=present), types)
        convert = pa_csv.ConvertOptions(include_columns=present, column_types=types)
        table = pa_csv.read_csv(path, read_options=_ONE_THREAD, convert_options=convert)
        # Arrow infers binary values from texts that are not UTF-8.
        if pa.binary() in table.schema.types:
            raise pa.ArrowInvalid("texts are not UTF-8")
        return table
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise _unreadable(path, error) from error


def _cast_columns(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Convert the columns of a table that have a required type."""
    columns = {}
    for name in table.column_names:
        column = table[name]
        required = types.get(name, column.type)
        # Arrow would write 2e16 with an exponent.
        if required == pa.string() and pa.types.is_floating(column.type):
            column = as_texts(column, name)
        columns[name] = column.cast(required)
    return pa.table(columns)


def text_column_names(path: Path) -> list[str]:
    """Return the column names of a CSV or Parquet table.

    Raises:
        InputError: The file does not exist, is not a table, is not UTF-8, has two columns of one
            name, or does not separate its columns by commas.
    """
    if path.suffix.lower() in SPREADSHEETS:
        raise InputError(f"{path}: a spreadsheet; save it as CSV (UTF-8)")
    if path.is_file() and _is_utf16(path):
        raise InputError(
            f"{path}: its text is UTF-16, which spreadsheets call Unicode; save it as CSV (UTF-8)"
        )
    names = column_names(path)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(
            f"{path}: several columns are named {preview(repeated)}; give each a name of its own"
        )
    require_commas(path, names)
    return names


def require_commas(path: Path, names: Sequence[str]) -> None:
    """Raise an InputError if a header separates its columns by another character than commas."""
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
    """Read columns of a CSV or Parquet file as texts; see :func:`as_texts`.

    Args:
        path: The file.
        wanted: Names of the columns, in the order of the result.
        may_be_missing: Columns that may lack values; missing values become null.
        may_be_lists: Columns whose values may be lists, which become lists of texts.
        as_is: Columns whose texts are not normalised to NFC.

    Raises:
        InputError: The file cannot be read, lacks a column, has no rows, or values are missing.
    """
    present = text_column_names(path)
    absent = [name for name in wanted if name not in present]
    if absent:
        advice = ""
        spaced = [repr(name) for name in present if name != name.strip() and name.strip() in absent]
        if spaced:
            advice = f"; remove the spaces around {preview(spaced)}"
        raise InputError(
            f"{path}: no column {preview(absent)}; its columns are {', '.join(present)}{advice}"
        )
    types = None
    if path.suffix != ".parquet":
        types = dict.fromkeys(wanted, pa.string())
    table = read_columns(path, wanted, types)
    if len(table) == 0:
        raise InputError(f"{path}: no rows below the header")
    columns = {}
    for name in wanted:
        column = table[name]
        has_lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        if has_lists and name in may_be_lists:
            texts = _as_text_lists(column, f"{path}: {name}")
        else:
            texts = as_texts(column, f"{path}: {name}", as_is=name in as_is)
        columns[name] = texts
        if texts.null_count and name not in may_be_missing:
            rows = pc.indices_nonzero(texts.is_null()).to_pylist()
            described = preview([_describe_row(table, row) for row in rows], 5)
            raise InputError(
                f"{path}: {name} is missing in {len(rows):,} of {len(table):,} rows; fill it in, or remove the rows: "
                f"{described}"
            )
    return pa.table(columns)


def as_texts(column: pa.ChunkedArray, name: str, *, as_is: bool = False) -> pa.ChunkedArray:
    """Convert a column to texts in NFC without white space around them.

    Missing and empty texts become null.     Whole numbers that are stored as floating-point
    numbers, as pandas does if values are missing, become texts without decimals.

    Args:
        column: Strings, numbers, booleans or dates, or a dictionary of such values.
        name: Name of the column in error messages.
        as_is: Do not normalise texts to NFC; for names of files.

    >>> as_texts(pa.chunked_array([[1.0, 2e16, None]]), "group").to_pylist()
    ['1', '20000000000000000', None]
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
        values = []
        for value in column.cast(pa.float64()).to_pylist():
            values.append(None if value is None else repr(value))
        texts = pa.chunked_array([values], pa.string())
    else:
        try:
            texts = column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"{name} is {column.type}; expected texts or numbers") from error
    if not as_is:
        # Texts from macOS may have letters that are decomposed into a letter and an accent.
        texts = pc.utf8_normalize(texts, form="NFC")
    texts = pc.utf8_trim_whitespace(texts)
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    if pc.all(pc.match_substring_regex(texts, _WHOLE_NUMBER)).as_py():
        numbers = [text and _without_exponent(text) for text in texts.to_pylist()]
        if not any(number and "." in number for number in numbers):
            texts = pa.chunked_array([numbers], pa.string())
    if isinstance(texts, pa.ChunkedArray):
        return texts
    return pa.chunked_array([texts])


def _without_exponent(text: str) -> str:
    """Return a number without an exponent and, if it is whole, without decimals."""
    if "e" in text:
        text = f"{Decimal(text):f}"
    return re.sub(r"\.0+$", "", text)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list type."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _as_text_lists(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Convert lists of texts or numbers to lists of texts (:func:`as_texts`); empty lists become null."""
    array = column.combine_chunks()
    texts = as_texts(pa.chunked_array([array.flatten()]), name).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = pa.array([0, *pc.cumulative_sum(lengths).to_pylist()], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, texts)
    return pa.chunked_array([pc.if_else(pc.equal(lengths, 0), None, lists)])


def starts_with(path: Path, signature: bytes) -> bool:
    """Return whether a file begins with these bytes."""
    with path.open("rb") as stream:
        return stream.read(len(signature)) == signature


def _is_utf16(path: Path) -> bool:
    """Return whether a file begins with a byte order mark of UTF-16."""
    return starts_with(path, codecs.BOM_UTF16_LE) or starts_with(path, codecs.BOM_UTF16_BE)


def _describe_row(table: pa.Table, row: int) -> str:
    """Return the number of a row, from 1, and its first values."""
    values = []
    for column in table.columns:
        value = column[row].as_py()
        if value not in (None, ""):
            values.append(str(value))
    return f"row {row + 1} ({preview(values, 3)})"


def require_non_null(table: pa.Table, path: Path) -> None:
    """Raise an InputError, which names columns and rows, if a value is null or an empty string."""
    problems = []
    for name in table.column_names:
        missing = pc.is_null(table[name])
        if pa.types.is_string(table[name].type):
            missing = pc.or_kleene(missing, pc.equal(table[name], ""))
        rows = pc.indices_nonzero(missing).to_numpy()
        if len(rows):
            problems.append(
                f"{name} is missing in {len(rows):,} of {len(table):,} rows: {preview_rows(rows)}"
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
    listed = ", ".join(map(str, values[:limit]))
    if len(values) > limit:
        return f"{listed}, …"
    return listed


def _unreadable(path: Path, error: Exception) -> InputError:
    """Return the error for a file that Arrow cannot read; it names the first byte that is not UTF-8."""
    if path.suffix != ".parquet" and not isinstance(error, OSError):
        place = locate_invalid_byte(path)
        if place:
            return InputError(f"{path}: {place}; save the file as UTF-8")
    return InputError(f"{path}: cannot be read as a table: {error}")


def locate_invalid_byte(path: Path) -> str:
    """Describe the line and the value of the first byte that is not UTF-8; "" for UTF-8 files."""
    for line, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return f"line {line}: not UTF-8 (byte 0x{raw[error.start]:02x})"
    return ""
