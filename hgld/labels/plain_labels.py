"""The stage ``labels``: plain labels become a ``clean`` table, and the spellings of a label become one."""

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
    """What became of a list.

    Args:
        rows: Number of rows.
        things: Number of things that the rows stand for.
        spellings: Number of different spellings.
        labels: Labels with the number of things, the most frequent first.
        variants: Spellings that became another label, then those that may be another.
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
        ConfigurationError: Decisions on spellings contradict one another, or ``variants`` would be replaced.
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
    """Return the ``clean`` table of a list and what was found; see :func:`label_file`."""
    columns = _read_columns(source, config)
    spellings = parse_rows(source, enumerate(columns["label"], 1), _parse_label, "row")
    n_rows = len(spellings)
    splits = columns.get("split") or [config.split or "all"] * n_rows
    ids = columns.get("id") or list(map(str, range(1, n_rows + 1)))
    _require_new_ids(source, splits, ids)
    counts, items = [1] * n_rows, list[str | None]([None] * n_rows)
    if "count" in columns:
        counts = parse_rows(
            source,
            enumerate(columns["count"], 1),
            lambda _, text: parse_whole_number("count", text or ""),
            "row",
        )
    if "item" in columns:
        items = parse_rows(
            source, enumerate(columns["item"], 1), lambda _, text: _item(text), "row"
        )
    decided = _decided_spellings(config, variants, spellings)
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
    name_of = dict(zip(spellings, names, strict=True))
    return table, PlainSummary(
        rows=n_rows,
        things=totals.total(),
        spellings=len(name_of),
        labels=[(label_names[identity], count) for identity, count in totals.most_common()],
        variants=_all_variants(name_of, dict(zip(labels, names, strict=True)), spelling_variants),
    )


def _all_variants(
    name_of: Mapping[str, str], name_of_label: Mapping[str, str], variants: Sequence[Variant]
) -> list[Variant]:
    """Return the variants of a list, given the names of labels that became one because they have the same item."""
    reasons = {row.variant: row.why for row in variants if row.merged}
    merged = []
    for spelling, name in name_of.items():
        if spelling != name:
            merged.append(Variant(spelling, name, reasons.get(spelling, "same item"), merged=True))
    proposed = []
    for row in variants:
        if not row.merged and name_of_label[row.variant] != name_of_label[row.label]:
            proposed.append(row)
    return merged + proposed


def _decided_spellings(
    config: PlainConfig, variants: Path | None, spellings: Sequence[str]
) -> DecidedSpellings:
    """Return what the option and the file of variants say."""
    known = {normalise_label(spelling): spelling for spelling in spellings}
    apart: list[tuple[str, str]] = []
    merged: list[Variant] = []
    for text in config.keep:
        names = split_names(text)
        for name in names:
            if normalise_label(name) not in known:
                similar = similar_names(name, known.values())
                question = f'; did you mean "{similar[0]}"?' if similar else ""
                raise ConfigurationError(
                    f'`keep` names "{name}", which is no label of the list{question}'
                )
        apart += combinations(names, 2)
    if variants is not None:
        for row in read_rows(
            variants, ("variant", "label", "merged"), _parse_variant, may_be_empty=True
        ):
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
    variant, label = (unescape_formula(row[name]) for name in ("variant", "label"))
    if not variant.strip() or not label.strip():
        raise ValueError(f"the {'label' if variant.strip() else 'variant'} is empty")
    answer = row["merged"].strip().lower()
    if answer not in _MERGED:
        raise ValueError(f'merged is "{row["merged"]}"; expected yes or no')
    return Variant(variant, label, row.get("why", ""), _MERGED[answer])


def _require_new_ids(source: Path, splits: Sequence[str], ids: Sequence[str]) -> None:
    """Raise unless each id stands in one row of its split."""
    first_rows: dict[tuple[str, str], int] = {}
    problems = []
    for row, key in enumerate(zip(splits, ids, strict=True), 1):
        first_row = first_rows.setdefault(key, row)
        if first_row != row:
            problems.append(f"{key[1]} (rows {first_row} and {row})")
    if problems:
        raise InputError(
            f"{source}: repeated ids within a split ({len(problems):,}): {preview(problems, 5)}; give each row an id "
            "of its own (`id`)"
        )


def _read_columns(source: Path, config: PlainConfig) -> dict[str, list[str]]:
    """Read the columns that a list has, by their use."""
    id_column = config.id or ("id" if "id" in text_column_names(source) else None)
    names = {"label": config.label, "id": id_column, "split": config.split_column}
    names |= {"count": config.count, "item": config.item}
    used = {use: name for use, name in names.items() if name is not None}
    columns = read_text_columns(
        source, list(dict.fromkeys(used.values())), may_be_missing=[config.item or ""]
    )
    return {use: columns[name].to_pylist() for use, name in used.items()}


def _item(text: str | None) -> str | None:
    return None if text is None else parse_item(text)


def _ids(texts: Sequence[str]) -> pa.Array:
    """Return ids as whole numbers if all are, and as texts otherwise, such as with leading zeros."""
    is_whole = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) for text in texts)
    return pa.array(map(int, texts), pa.int64()) if is_whole else pa.array(texts, pa.string())
