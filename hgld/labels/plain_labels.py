"""The stage ``labels``: turn a list of labels into a ``clean`` table, and unify spellings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pyarrow as pa

from hgld import tables
from hgld.errors import ConfigurationError, InputError, similar_names
from hgld.io.columns import preview, read_text_columns, text_column_names
from hgld.io.files import write_csv
from hgld.io.table_rows import (
    escape_formula,
    parse_rows,
    parse_whole_number,
    read_rows,
    unescape_formula,
)
from hgld.labels.clean import count_labels
from hgld.labels.encoders import word_list
from hgld.labels.settings import PlainConfig, split_names
from hgld.labels.spellings import DecidedSpellings, Variant, unify_spellings
from hgld.names import stored_name
from hgld.stage import Stage
from hgld.tables.parquet import with_neutral_names
from hgld.taxonomy.label_identity import normalise_label, parse_item, unify_labels

STAGE = Stage("labels", (tables.CLEAN,))
_MERGED = {"yes": True, "no": False}


@dataclass(frozen=True)
class PlainSummary:
    """Counts of a list.

    Args:
        rows: Number of rows.
        things: Number of things that the rows stand for.
        spellings: Number of different spellings.
        labels: Labels with the number of things, the most frequent first.
        variants: Spellings that were replaced by a label, then spellings that may be variants.
    """

    rows: int
    things: int
    spellings: int
    labels: Sequence[tuple[str, int]]
    variants: Sequence[Variant]


def label_file(
    source: Path,
    out: Path,
    config: PlainConfig,
    *,
    variants: Path | None = None,
    force: bool = False,
) -> PlainSummary | None:
    """Write the ``clean`` table of a list of labels, and a CSV file of spellings.

    ``hgld labels`` describes the parameters.

    Raises:
        InputError: A file is missing or invalid.
        ConfigurationError: Decisions on spellings contradict one another, or ``variants`` would be
            replaced.
    """
    variants_file = out.with_suffix(".variants.csv")
    if variants is not None and variants.resolve() == variants_file.resolve():
        raise ConfigurationError(
            f"{variants}: would be replaced; give a copy of it under another name as `variants`"
        )
    words = word_list()

    def compute() -> tuple[Sequence[pa.Table], PlainSummary]:
        table, summary = clean_labels(source, config, words, variants)
        rows = []
        for row in summary.variants:
            spellings = [escape_formula(row.variant), escape_formula(row.label)]
            rows.append([*spellings, row.why, "yes" if row.merged else "no"])
        write_csv(variants_file, Variant._fields, rows)
        return [with_neutral_names(table, tables.CLEAN)], summary

    return STAGE.run(
        {"out": out},
        compute,
        inputs={"source": source, "variants": variants},
        parameters={**vars(config), "keep": list(config.keep), "known_words": len(words)},
        further_files=[variants_file],
        force=force,
    )


def clean_labels(
    source: Path, config: PlainConfig, words: frozenset[str], variants: Path | None = None
) -> tuple[pa.Table, PlainSummary]:
    """Return the ``clean`` table of a list, and its counts.

    Args:
        source: CSV or Parquet file with the list.
        config: Columns of the list, and labels to keep apart.
        words: Words that are not typing mistakes, in lower case.
        variants: CSV file of decisions on spellings.
    """
    columns = _read_columns(source, config)
    spellings = parse_rows(source, enumerate(columns["label"], 1), _parse_label, "row")
    n_rows = len(spellings)
    splits = columns.get("split") or [config.split or "all"] * n_rows
    ids = columns.get("id") or [str(row) for row in range(1, n_rows + 1)]
    _require_unique_ids(source, splits, ids)
    counts = [1] * n_rows
    if "count" in columns:
        counts = parse_rows(source, enumerate(columns["count"], 1), _parse_count, "row")
    items: list[str | None] = [None] * n_rows
    if "item" in columns:
        items = parse_rows(source, enumerate(columns["item"], 1), _parse_optional_item, "row")
    decided = _read_decisions(config, variants, spellings)
    labels, spelling_variants = unify_spellings(spellings, counts, words, decided)
    names, unified = unify_labels(labels, items)
    table = pa.table(
        {
            "split": pa.array(splits, pa.string()),
            "landmark_id": _ids(ids),
            "category": pa.nulls(n_rows, pa.string()),
            "supercategory": pa.array(names, pa.string()),
            "class_item": pa.array(unified, pa.string()),
        }
    )
    if config.count is not None:
        table = table.append_column("count", pa.array(counts, pa.int64()))
    label_names, per_split = count_labels(table)
    totals = sum(per_split.values(), Counter())
    name_of_spelling = dict(zip(spellings, names, strict=True))
    name_of_label = dict(zip(labels, names, strict=True))
    return table, PlainSummary(
        rows=n_rows,
        things=totals.total(),
        spellings=len(name_of_spelling),
        labels=[(label_names[identity], count) for identity, count in totals.most_common()],
        variants=_all_variants(name_of_spelling, name_of_label, spelling_variants),
    )


def _all_variants(
    name_of_spelling: Mapping[str, str],
    name_of_label: Mapping[str, str],
    variants: Sequence[Variant],
) -> list[Variant]:
    """Return the variants of a list, including labels that were unified since they have the same item.

    Args:
        name_of_spelling: Final label of each spelling in the list.
        name_of_label: Final label of each label after spellings were unified.
        variants: Variants that :func:`~hgld.labels.spellings.unify_spellings` found.
    """
    reasons = {row.variant: row.why for row in variants if row.merged}
    merged = []
    for spelling, name in name_of_spelling.items():
        if spelling != name:
            merged.append(Variant(spelling, name, reasons.get(spelling, "same item"), merged=True))
    proposed = []
    for row in variants:
        if not row.merged and name_of_label[row.variant] != name_of_label[row.label]:
            proposed.append(row)
    return merged + proposed


def _read_decisions(
    config: PlainConfig, variants: Path | None, spellings: Sequence[str]
) -> DecidedSpellings:
    """Return the decisions on spellings in the option ``keep`` and in the file of variants."""
    known = {normalise_label(spelling): spelling for spelling in spellings}
    apart: list[tuple[str, str]] = []
    merged: list[Variant] = []
    for text in config.keep:
        names = split_names(text)
        for name in names:
            if normalise_label(name) not in known:
                question = ""
                similar = similar_names(name, known.values())
                if similar:
                    question = f'; did you mean "{similar[0]}"?'
                raise ConfigurationError(
                    f'`keep` names "{name}", which is no label of the list{question}'
                )
        apart += combinations(names, 2)
    if variants is not None:
        columns = ("variant", "label", "merged")
        for row in read_rows(variants, columns, _parse_variant, may_be_empty=True):
            if row.merged:
                merged.append(row)
            else:
                apart.append((row.variant, row.label))
    return DecidedSpellings(apart, merged)


def _parse_label(_row: int, text: str) -> str:
    if not stored_name(text):
        raise ValueError("the label has no visible character")
    return text


def _parse_variant(_line: int, row: Mapping[str, str]) -> Variant:
    variant = unescape_formula(row["variant"])
    label = unescape_formula(row["label"])
    if not variant.strip():
        raise ValueError("the variant is empty")
    if not label.strip():
        raise ValueError("the label is empty")
    answer = row["merged"].strip().lower()
    if answer not in _MERGED:
        raise ValueError(f'merged is "{row["merged"]}"; expected yes or no')
    return Variant(variant, label, row.get("why", ""), _MERGED[answer])


def _require_unique_ids(source: Path, splits: Sequence[str], ids: Sequence[str]) -> None:
    """Raise an InputError if an id occurs in several rows of a split."""
    first_rows: dict[tuple[str, str], int] = {}
    problems = []
    for row, (split, item_id) in enumerate(zip(splits, ids, strict=True), 1):
        first_row = first_rows.setdefault((split, item_id), row)
        if first_row != row:
            problems.append(f"{item_id} (rows {first_row} and {row})")
    if problems:
        raise InputError(
            f"{source}: repeated ids within a split ({len(problems):,}): {preview(problems, 5)}; give each row an id "
            "of its own (`id`)"
        )


def _read_columns(source: Path, config: PlainConfig) -> dict[str, list[str]]:
    """Read the columns that the settings name, by their use."""
    names = {"label": config.label}
    if config.id is not None:
        names["id"] = config.id
    elif "id" in text_column_names(source):
        names["id"] = "id"
    if config.split_column is not None:
        names["split"] = config.split_column
    if config.count is not None:
        names["count"] = config.count
    if config.item is not None:
        names["item"] = config.item
    wanted = list(dict.fromkeys(names.values()))
    columns = read_text_columns(source, wanted, may_be_missing=[config.item or ""])
    return {use: columns[name].to_pylist() for use, name in names.items()}


def _parse_count(_row: int, text: str | None) -> int:
    return parse_whole_number("count", text or "")


def _parse_optional_item(_row: int, text: str | None) -> str | None:
    if text is None:
        return None
    return parse_item(text)


def _ids(texts: Sequence[str]) -> pa.Array:
    """Return ids as int64 if all are whole numbers without leading zeros, and as texts otherwise."""
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) for text in texts):
        return pa.array([int(text) for text in texts], pa.int64())
    return pa.array(texts, pa.string())
