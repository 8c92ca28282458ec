"""The stage ``labels``: plain labels become a ``clean`` table, and the spellings of a label become one.

Spellings of a label are found in two steps. Some differ in form alone: case, spaces and hyphens between words,
accents that are left out or written out, and the plural of a word. Then a label joins another one from which it
differs by one typing mistake in one long word, unless something speaks against it: the word is known, from another
label of the list or from the word list of the encoder minilm, where that is installed; or there are several labels
that it could be.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from hgld import tables
from hgld.errors import ConfigurationError
from hgld.io.columns import escape_formula, parse_rows, parse_whole_number, read_text_columns, text_column_names
from hgld.io.files import write_csv
from hgld.labels.clean import count_labels
from hgld.labels.encoders import word_list
from hgld.labels.wording import normalised_words
from hgld.stage import Stage
from hgld.tables.parquet import with_neutral_names
from hgld.taxonomy.label_identity import ITEM_ID, normalise_label, unify_labels

if TYPE_CHECKING:
    from scipy.cluster.hierarchy import DisjointSet

STAGE = Stage("labels", (tables.CLEAN,))
_ITEM_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?wikidata\.org/(?:wiki|entity)/")
_WRITTEN_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "æ": "ae", "œ": "oe"})
#: Fewest letters of a word with a typing mistake.
_LONG = 6


@dataclass(frozen=True)
class PlainConfig:
    """Settings of the stage ``labels``: the columns of the list, and which spellings are one label.

    Args:
        label: Column of the labels.
        id: Column of the ids. Default: the column id if there is one, else the number of the row from 1.
        split: Name of the split of all rows. Default: all.
        split_column: Column of the splits.
        count: Column that says for how many things a row stands; whole numbers.
        item: Column of the Wikidata items of the labels: Q ids or addresses; rows may be without.
        keep_mistakes: Keep labels that differ by one typing mistake apart.
    """

    label: str
    id: str | None = None
    split: str | None = None
    split_column: str | None = None
    count: str | None = None
    item: str | None = None
    keep_mistakes: bool = False

    def __post_init__(self) -> None:
        if self.split is not None and self.split_column is not None:
            raise ConfigurationError("`split` and `split_column` exclude each other; omit one of them")


class Variant(NamedTuple):
    """A spelling, the label that it became, and why."""

    variant: str
    label: str
    why: str


@dataclass(frozen=True)
class PlainSummary:
    """Numbers of rows, of things that they stand for and of different spellings; labels with counts; variants."""

    rows: int
    things: int
    spellings: int
    labels: Sequence[tuple[str, int]]
    variants: Sequence[Variant]


def label_file(source: Path, out: Path, config: PlainConfig, *, force: bool = False) -> PlainSummary | None:
    """Write the ``clean`` table of a list of labels, and the spellings that became another label as a CSV file.

    Args:
        source: CSV or Parquet file with a row per label.
        out: Clean table to write; X.variants.csv beside X.parquet lists the spellings that became another label, and
            why.
        force: Run although the output is up to date.
    """
    variants_file = out.with_suffix(".variants.csv")
    words = frozenset[str]() if config.keep_mistakes else word_list()

    def compute() -> tuple[Sequence[pa.Table], PlainSummary]:
        table, summary = clean_labels(source, config, words)
        write_csv(variants_file, Variant._fields, [[*map(escape_formula, row)] for row in summary.variants])
        return [with_neutral_names(table, tables.CLEAN)], summary

    return STAGE.run(
        {"out": out},
        compute,
        inputs={"source": source},
        parameters={**vars(config), "known_words": len(words)},
        further_files=[variants_file],
        force=force,
    )


def clean_labels(source: Path, config: PlainConfig, words: frozenset[str]) -> tuple[pa.Table, PlainSummary]:
    """Return the ``clean`` table of a list and what was found; see :func:`label_file`."""
    columns = _read_columns(source, config)
    spellings = columns["label"]
    n_rows = len(spellings)
    counts, items = [1] * n_rows, list[str | None]([None] * n_rows)
    if "count" in columns:
        counts = parse_rows(
            source, enumerate(columns["count"], 1), lambda _, text: parse_whole_number("count", text or ""), "row"
        )
    if "item" in columns:
        items = parse_rows(source, enumerate(columns["item"], 1), lambda _, text: _item(text), "row")
    labels, whys = unify_spellings(spellings, counts, words, with_mistakes=not config.keep_mistakes)
    names, unified = unify_labels(labels, items)
    table = pa.table(
        {
            "split": pa.array(columns.get("split") or [config.split or "all"] * n_rows, pa.string()),
            "landmark_id": _ids(ids) if (ids := columns.get("id")) else pa.array(range(1, n_rows + 1), pa.int64()),
            "category": pa.nulls(n_rows, pa.string()),
            "supercategory": pa.array(names, pa.string()),
            "class_item": pa.array(unified, pa.string()),
        }
    )
    if config.count is not None:
        table = table.append_column("count", pa.array(counts, pa.int64()))
    label_names, per_split = count_labels(table)
    totals = sum(per_split.values(), Counter())
    found = dict(zip(spellings, names, strict=True))
    return table, PlainSummary(
        rows=len(spellings),
        things=totals.total(),
        spellings=len(found),
        labels=[(label_names[identity], count) for identity, count in totals.most_common()],
        variants=[Variant(text, name, whys.get(text, "same item")) for text, name in found.items() if text != name],
    )


def _read_columns(source: Path, config: PlainConfig) -> dict[str, list[str]]:
    """Read the columns that a list has, by their use."""
    id_column = config.id or ("id" if "id" in text_column_names(source) else None)
    names = {"label": config.label, "id": id_column, "split": config.split_column}
    names |= {"count": config.count, "item": config.item}
    used = {use: name for use, name in names.items() if name is not None}
    columns = read_text_columns(source, list(dict.fromkeys(used.values())), may_be_missing=[config.item or ""])
    return {use: columns[name].to_pylist() for use, name in used.items()}


def unify_spellings(
    spellings: Sequence[str],
    counts: Sequence[int],
    words: frozenset[str] = frozenset(),
    *,
    with_mistakes: bool = True,
) -> tuple[list[str], dict[str, str]]:
    """Give all spellings of a label one of them: the most frequent, and of equally frequent ones the first.

    Args:
        spellings: Label of each row.
        counts: For how many things each row stands.
        words: Words that are not typing mistakes, in lower case.

    Returns:
        The label of each row, and by spelling why it has another label.

    >>> unify_spellings(["Muesli", "Müsli", "müsli ", "oat cookies", "Oat cookie"], [1, 2, 1, 2, 1])[0]
    ['Müsli', 'Müsli', 'Müsli', 'oat cookies', 'oat cookies']
    """
    from scipy.cluster.hierarchy import DisjointSet  # late, as the options of the command are made in this module

    frequency: Counter[str] = Counter()
    for text, count in zip(spellings, counts, strict=True):
        frequency[text] += count
    parts = DisjointSet(frequency)
    by_form: dict[str, str] = {}
    for text in frequency:
        for form in _forms(text):
            parts.merge(by_form.setdefault(form, text), text)
    mistaken = set[str]()
    if with_mistakes:
        forms = {text: _forms(text)[0] for text in frequency}
        for text, other in list(_mistakes(forms, parts, words)):
            parts.merge(other, text)
            # The list of words tells which of the two is the mistake.
            if not {*forms[text].split()} <= words and {*forms[other].split()} <= words:
                mistaken.add(text)
    members_of: defaultdict[str, list[str]] = defaultdict(list)
    for text in frequency:
        members_of[parts[text]].append(text)
    labels: dict[str, str] = {}
    for members in members_of.values():
        best = max(members, key=lambda text: (text not in mistaken, frequency[text], text == text.strip()))
        labels |= dict.fromkeys(members, " ".join(best.split()))
    whys = {text: _why(text, label) for text, label in labels.items() if text != label}
    return [labels[text] for text in spellings], whys


def _forms(text: str) -> list[str]:
    """Return the forms in which a label may have been written, in singular: accents written out, and left out.

    >>> _forms("Käse-Messer"), _forms("Tents")
    (['kaese messer', 'kase messer'], ['tent'])
    """
    plain = re.sub(r"[-_/]+", " ", normalise_label(text).replace("’", "'"))
    bare = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    # The singular of "cookies" may end in y, so that of "cookie" does, too.
    forms = (
        re.sub(r"(?<=\w\w)ie\b", "y", " ".join(normalised_words(each)) or each)
        for each in (plain.translate(_WRITTEN_OUT), bare)
    )
    return list(dict.fromkeys(forms))


def _mistakes(forms: Mapping[str, str], parts: DisjointSet, words: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield labels that differ from exactly one other by a typing mistake, with that label."""
    used = Counter(word for form in set(forms.values()) for word in form.split())
    by_gap: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for text, form in forms.items():
        for gap in _gaps(form):
            by_gap[gap].append(text)
    for text, form in forms.items():
        candidates = (other for gap in _gaps(form) for other in by_gap[gap])
        found = {parts[other]: other for other in candidates if _is_mistake(form, forms[other], used, words)}
        found.pop(parts[text], None)
        if len(found) == 1:
            yield text, next(iter(found.values()))


def _gaps(form: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of a label with one letter of a long one left out, which labels one mistake apart share."""
    split = form.split()
    for number, word in enumerate(split):
        if len(word) >= _LONG - 1:
            for letter in range(len(word)):
                yield (*split[:number], word[:letter] + word[letter + 1 :], *split[number + 1 :])
            yield tuple(split)


def _is_mistake(form: str, other: str, used: Mapping[str, int], words: frozenset[str]) -> bool:
    """Return whether a label is another one with one mistyped word, which no other label has and no list knows."""
    pairs = [(word, right) for word, right in zip(form.split(), other.split(), strict=False) if word != right]
    if len(form.split()) != len(other.split()) or len(pairs) != 1:
        return False
    word, right = pairs[0]
    if max(len(word), len(right)) < _LONG or any(c.isdigit() for c in word + right) or word in words:
        return False
    is_known = right in words or used[right] > 1 or min(len(word), len(right)) >= _LONG
    return used[word] == 1 and is_known and _distance_is_one(word, right)


def _distance_is_one(word: str, other: str) -> bool:
    """Return whether a letter after the first was added, left out or exchanged with the next one.

    Words that differ by another letter are seldom mistakes: tannery and cannery, tower and power.
    """
    start = next((n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    first, second = word[start:], other[start:]
    exchanged = first[:2] == second[1::-1] and first[2:] == second[2:]
    return start > 0 and (first[1:] == second or first == second[1:] or exchanged)


def _why(text: str, label: str) -> str:
    """Say in which way a spelling differs from its label."""
    if normalise_label(text) == normalise_label(label):
        return "case or spaces"
    if not {*_forms(text)} & {*_forms(label)}:
        return "typing mistake"
    return "plural" if len(text) != len(label) and text.isascii() == label.isascii() else "accents or hyphens"


def _item(text: str | None) -> str | None:
    item = None if text is None else _ITEM_ADDRESS.sub("", text)
    if item is not None and not ITEM_ID.fullmatch(item):
        raise ValueError(f'the item is "{text}"; expected one such as Q144 or https://www.wikidata.org/wiki/Q144')
    return item


def _ids(texts: Sequence[str]) -> pa.Array:
    """Return ids as whole numbers if all are, and as texts otherwise, such as with leading zeros."""
    is_whole = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) for text in texts)
    return pa.array(map(int, texts), pa.int64()) if is_whole else pa.array(texts, pa.string())
