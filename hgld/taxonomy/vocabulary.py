"""The vocabulary: kinds of landmarks with the group that the guideline gives them, or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from hgld.io.csv_files import read_rows
from hgld.taxonomy.label_identity import ITEM_ID, normalise_label

_COLUMNS = ("term", "group", "items")


class VocabularyTerm(NamedTuple):
    """A kind of landmark.

    Args:
        text: Its name in English, such as "post mill".
        group: Key of its group; None if labels of this kind are dropped.
        items: Ids of the Wikidata classes with this meaning.
    """

    text: str
    group: str | None
    items: tuple[str, ...] = ()


def read_vocabulary(path: Path, groups: Collection[str]) -> list[VocabularyTerm]:
    """Read and validate a vocabulary: a CSV file in UTF-8 with the columns term, group and items.

    An empty group means that labels of this kind are dropped. Items are separated by spaces.

    Returns:
        Terms in the order of the file, without those of groups that the taxonomy does not have.

    Raises:
        InputError: See :func:`hgld.io.csv_files.read_rows`. A row is invalid if it has no term, the term or an item
            of an earlier row, or an invalid item.
    """
    first_lines: dict[str, int] = {}

    def parse(line: int, row: Mapping[str, str]) -> VocabularyTerm:
        term = VocabularyTerm(row["term"].strip(), row["group"].strip() or None, tuple(row["items"].split()))
        if not term.text:
            raise ValueError("the term is empty")
        for item in term.items:
            if not ITEM_ID.fullmatch(item):
                raise ValueError(
                    f'"{item}" is not a Wikidata item; expected e.g. Q23397, several separated by spaces'
                )
        for name in (f'term "{normalise_label(term.text)}"', *(f"item {item}" for item in term.items)):
            first_line = first_lines.setdefault(name, line)
            if first_line != line:
                raise ValueError(f"the {name} is in line {first_line} already")
        return term

    return [term for term in read_rows(path, _COLUMNS, parse) if term.group is None or term.group in groups]
