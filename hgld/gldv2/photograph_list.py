"""Lists of photographs by id, and what is known about them: address, author and licence."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import InputError, indented_list
from hgld.gldv2.files import SUBSETS
from hgld.io.columns import SPREADSHEETS, locate_invalid_byte, preview, read_columns, text_column_names

#: Columns of GLDv2's train.csv and train_attribution.csv that say something about a photograph.
_FACTS = ("url", "author", "license")
_ID = re.compile("[0-9a-f]{16}")
_EXPECTED = (
    "expected ids such as 1272ef793ebba7a2, one a line, or a CSV or Parquet file with a column id; "
    f"lists that come with hgld are called {', '.join(SUBSETS)}"
)


@dataclass(frozen=True)
class PhotographList:
    """Ids of photographs, each once, with what lists say about them.

    Args:
        facts: Values of the columns ``url``, ``author`` and ``license`` of GLDv2's files by id, where there are any.
    """

    ids: Sequence[str]
    facts: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the ids in hexadecimal, whatever their order."""
        return hashlib.sha256("\n".join(sorted(self.ids)).encode()).hexdigest()

    def fact(self, image_id: str, name: str) -> str | None:
        """Return the value of a column for a photograph; None if it is not known."""
        return self.facts.get(image_id, {}).get(name)


def read_photograph_list(path: Path, urls: Path | None = None) -> PhotographList:
    """Read ids of photographs, and what is known about them.

    Args:
        path: A text file of ids, one a line; or a CSV or Parquet file with the column ``id`` and, if it has them,
            ``url``, ``author`` and ``license``, such as a part of GLDv2's train.csv.
        urls: CSV or Parquet file with these columns for the same and any other photographs, such as train.csv or
            train_attribution.csv; its values come first.
    """
    facts: dict[str, dict[str, str]] = {}
    if _is_plain(path):
        ids = list(_plain_ids(path))
    else:
        table = _read(path)
        ids = table["id"].to_pylist()
        _add_facts(facts, table)
    if not ids:
        raise InputError(f"{path}: no ids in this file; {_EXPECTED}")
    if bad := [str(value) for value in ids if value is None or not _ID.fullmatch(value)]:
        raise InputError(
            f"{path}: {len(bad):,} of {len(ids):,} ids are not those of GLDv2, which have 16 hexadecimal digits; "
            f"{_EXPECTED}\n{indented_list(bad)}"
        )
    ids = list(dict.fromkeys(ids))
    if urls is not None:
        table = _read(urls)
        _add_facts(facts, table.filter(pc.is_in(table["id"], value_set=pa.array(ids))))
    return PhotographList(ids, facts)


def _is_plain(path: Path) -> bool:
    """Return whether a file is a list without header: its first line is one word, and not ``id``."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {found}; {_EXPECTED}")
    if path.suffix.lower() in (".parquet", *SPREADSHEETS):
        return False
    with path.open("rb") as stream:
        first = stream.readline(2**16).removeprefix(b"\xef\xbb\xbf").strip()
    return b"," not in first and first.strip(b'"') != b"id"


def _plain_ids(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {locate_invalid_byte(path)}; {_EXPECTED}") from error
    return (line.strip() for line in text.splitlines() if line.strip())


def _read(path: Path) -> pa.Table:
    present = text_column_names(path)
    if "id" not in present:
        raise InputError(f"{path}: no column id; found {preview(present)}; {_EXPECTED}")
    names = ("id", *_FACTS)
    return read_columns(path, names, dict.fromkeys(names, pa.string()))


def _add_facts(facts: dict[str, dict[str, str]], table: pa.Table) -> None:
    names = [name for name in _FACTS if name in table.column_names]
    if names:
        for row in table.to_pylist():
            known = {name: row[name] for name in names if row[name]}
            facts[row["id"]] = facts.get(row["id"], {}) | known
