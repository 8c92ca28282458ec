"""Lists of photographs by id, with known facts about them: address, author and licence."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import InputError, indented_list
from hgld.gldv2.dataset_files import SUBSETS
from hgld.io.columns import (
    SPREADSHEETS,
    locate_invalid_byte,
    preview,
    read_columns,
    text_column_names,
)

#: Columns of GLDv2's train.csv and train_attribution.csv with facts about a photograph.
_FACTS = ("url", "author", "license")
_ID = re.compile("[0-9a-f]{16}")
_EXPECTED = (
    "expected ids such as 1272ef793ebba7a2, one a line, or a CSV or Parquet file with a column id; "
    f"lists that come with hgld are called {', '.join(SUBSETS)}"
)


@dataclass(frozen=True)
class PhotographList:
    """Distinct ids of photographs, and known facts about the photographs.

    Args:
        ids: Ids of the photographs.
        facts: Values of the columns ``url``, ``author`` and ``license`` of GLDv2's files, by id.
    """

    ids: Sequence[str]
    facts: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the sorted ids in hexadecimal."""
        return hashlib.sha256("\n".join(sorted(self.ids)).encode()).hexdigest()

    def fact(self, image_id: str, name: str) -> str | None:
        """Return the value of a column for a photograph; None if unknown."""
        return self.facts.get(image_id, {}).get(name)


def read_photograph_list(path: Path, urls: Path | None = None) -> PhotographList:
    """Read ids of photographs, and known facts about the photographs.

    Args:
        path: A text file of ids, one a line; or a CSV or Parquet file with the column ``id`` and
            optional columns ``url``, ``author`` and ``license``, such as a part of GLDv2's
            train.csv.
        urls: CSV or Parquet file with these columns for the same and other photographs, such as
            train.csv or train_attribution.csv; its values override the values of ``path``.
    """
    facts: dict[str, dict[str, str]] = {}
    if _is_plain(path):
        ids = _plain_ids(path)
    else:
        table = _read_facts(path)
        ids = table["id"].to_pylist()
        _add_facts(facts, table)
    if not ids:
        raise InputError(f"{path}: no ids in this file; {_EXPECTED}")
    invalid = [str(value) for value in ids if value is None or not _ID.fullmatch(value)]
    if invalid:
        raise InputError(
            f"{path}: {len(invalid):,} of {len(ids):,} ids are not those of GLDv2, which have 16 hexadecimal digits; "
            f"{_EXPECTED}\n{indented_list(invalid)}"
        )
    ids = list(dict.fromkeys(ids))
    if urls is not None:
        table = _read_facts(urls)
        _add_facts(facts, table.filter(pc.is_in(table["id"], value_set=pa.array(ids))))
    return PhotographList(ids, facts)


def _is_plain(path: Path) -> bool:
    """Return whether a file is a list without header: it begins with a word other than ``id``."""
    if not path.is_file():
        problem = "a folder" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {problem}; {_EXPECTED}")
    if path.suffix.lower() in (".parquet", *SPREADSHEETS):
        return False
    with path.open("rb") as stream:
        first_line = stream.readline(2**16).removeprefix(b"\xef\xbb\xbf").strip()
    return b"," not in first_line and first_line.strip(b'"') != b"id"


def _plain_ids(path: Path) -> list[str]:
    """Return the ids of a list without header, one a line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {locate_invalid_byte(path)}; {_EXPECTED}") from error
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line]


def _read_facts(path: Path) -> pa.Table:
    """Return the column id and the existing columns of facts of a table."""
    names = text_column_names(path)
    if "id" not in names:
        raise InputError(f"{path}: no column id; found {preview(names)}; {_EXPECTED}")
    columns = ("id", *_FACTS)
    return read_columns(path, columns, dict.fromkeys(columns, pa.string()))


def _add_facts(facts: dict[str, dict[str, str]], table: pa.Table) -> None:
    """Add the values of a table to facts by id; later values replace earlier values."""
    names = [name for name in _FACTS if name in table.column_names]
    if not names:
        return
    for row in table.to_pylist():
        facts_of_id = facts.setdefault(row["id"], {})
        for name in names:
            if row[name]:
                facts_of_id[name] = row[name]
