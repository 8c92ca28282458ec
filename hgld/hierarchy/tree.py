"""The hierarchy: landmarks, and the groups and roots above them, from a table whose columns are checked."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.arrays import AnyIntegers, Booleans, Floats, Integers
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy.label_matrix import LabelMatrix, LabelSets, column_of, relevance
from hgld.io.text_array import TextArray
from hgld.tables.parquet import with_neutral_names, without_neutral_names

if TYPE_CHECKING:
    import pandas as pd

GROUP, ROOT = "hierarchical_label", "natural_or_human_made"
_TYPES = {
    field.name: field.type for field in (*tables.HIERARCHY.schema, *tables.HIERARCHY.optional)
}
#: Returns the name of a row for error messages, given its number.
DescribeRow = Callable[[int], str]
#: Number of different parents of a name that an error message lists.
_MAX_PARENTS = 5

log = logging.getLogger(__name__)
#: A level by its number (1: coarsest) or by its name.
Level = int | str
#: Names of the finest level: of H-GLDv2, and of other lists.
_FINEST, _FINEST_NEUTRAL = "landmark", "entity"


def _check_columns(table: pa.Table) -> pa.Table:
    """Return the table cast to the types of the table ``hierarchy``."""
    names = table.column_names
    levels = tables.level_columns(names)
    problems = [
        f"no column {name}" for name in ("split", "landmark_id", *levels) if name not in names
    ]
    if not levels:
        problems.append(f"no column {GROUP}, and no other level")
    problems += [
        f"unknown column {name}" for name in names if name not in _TYPES and name not in levels
    ]
    problems += [
        f"{name} is missing in {table[name].null_count:,} of {len(table):,} rows"
        for name in names
        if table[name].null_count and not (name == "category" and GROUP not in names)
    ]
    if problems or not len(table):
        raise InputError(f"not a hierarchy:\n{indented_list(problems or ['no rows'])}")
    types = {**_TYPES, **dict.fromkeys(levels, pa.string())}
    if GROUP not in names and not pa.types.is_integer(table.schema.field("landmark_id").type):
        types["landmark_id"] = pa.string()
    try:
        return table.cast(pa.schema([(name, types[name]) for name in names]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"not a hierarchy: {error}") from error


def _check_unique_landmarks(
    splits: npt.NDArray[np.str_],
    landmark_ids: npt.NDArray[Any],
    rows: Integers,
    describe_row: DescribeRow,
) -> None:
    """Check that no landmark occurs twice."""
    repeated = np.flatnonzero((splits[1:] == splits[:-1]) & (landmark_ids[1:] == landmark_ids[:-1]))
    if len(repeated):
        problems = [
            f"{describe_row(rows[i])} occurs again in {describe_row(rows[i + 1])}" for i in repeated
        ]
        raise InputError(f"{len(repeated):,} landmarks occur twice:\n{indented_list(problems)}")


def encode_names(
    column: pa.Array | pa.ChunkedArray, name: str, describe_row: DescribeRow
) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    """Return a column as indices into its sorted names, and these names, without whitespace around them."""
    encoded = TextArray.repeated(column).without_unused()
    texts = pc.utf8_trim_whitespace(encoded.texts)
    empty = np.flatnonzero(
        pc.equal(texts, "").to_numpy(zero_copy_only=False)[encoded.positions]
    ).tolist()
    if empty:
        raise InputError(
            f"{name} is empty in {len(empty):,} rows:\n{indented_list([describe_row(row) for row in empty])}"
        )
    names = pc.unique(texts).sort()
    codes: npt.NDArray[np.int32] = pc.index_in(texts, value_set=names).to_numpy()
    return codes[encoded.positions], tuple(names.to_pylist())


def check_tree(
    level_names: Sequence[str],
    encoded: Sequence[tuple[AnyIntegers, Sequence[str]]],
    describe_row: DescribeRow,
) -> None:
    """Check that every name has one parent."""
    problems = []
    levels = list(zip(level_names, encoded, strict=True))
    for (level_name, (codes, names)), (parent_level, (parent_codes, parent_names)) in pairwise(
        levels
    ):
        parent_of = np.zeros(len(names), parent_codes.dtype)
        parent_of[codes] = parent_codes
        if np.array_equal(
            parent_of[codes], parent_codes
        ):  # most often so, and without sorting millions of rows
            continue
        import pandas as pd  # not for the help of commands that read hierarchies

        pairs = pd.DataFrame({"code": codes, "parent": parent_codes}).drop_duplicates()
        deviating = pairs[pairs.duplicated("code", keep=False)].sort_values(["code", "parent"])
        for code, parents in deviating.groupby("code")["parent"]:
            first = parents.head(_MAX_PARENTS)
            shown = [
                f'"{parent_names[parent]}" in {describe_row(row)}' for row, parent in first.items()
            ]
            listed = ", ".join([*shown, "…"] if len(parents) > len(first) else shown)
            problems.append(f'{level_name} "{names[code]}" has several {parent_level}: {listed}')
    if problems:
        advice = order_advice(level_names, [names for _, names in encoded])
        raise InputError(f"every name must have one parent{advice}:\n{indented_list(problems)}")


def order_advice(level_names: Sequence[str], names: Sequence[Sequence[str]]) -> str:
    """Return advice to order levels by decreasing numbers of names; empty if they have this order.

    >>> order_advice(["kind", "product"], [["fruit"], ["apple", "pear"]])
    '; levels are given finest first, which by their numbers of names is product, kind'
    """
    counts = dict(zip(level_names, map(len, names), strict=True))
    order = sorted(level_names, key=lambda level: -counts[level])
    if order == list(level_names):
        return ""
    return f"; levels are given finest first, which by their numbers of names is {', '.join(order)}"


def _extra_levels(table: pa.Table, describe_row: DescribeRow) -> list[pa.Array]:
    """Return the levels of the column extra_levels, finest first; an empty list without the column."""
    if "extra_levels" not in table.column_names:
        return []
    lengths = pc.list_value_length(table["extra_levels"]).to_numpy()
    deviating = np.flatnonzero(lengths != lengths[0])
    if len(deviating):
        raise InputError(
            f"extra_levels has {lengths[0]} values in {describe_row(0)}, but {lengths[deviating[0]]} in "
            f"{describe_row(deviating[0])}; {len(deviating):,} rows in all differ from the first"
        )
    values = pc.list_flatten(table["extra_levels"]).combine_chunks()
    return [values[level :: lengths[0]] for level in range(lengths[0])]


def _group_lists(table: pa.Table, rows: Integers) -> npt.NDArray[np.object_] | None:
    """Return the column hierarchical_labels as tuples, in the order of ``rows``; None without this column."""
    if "hierarchical_labels" not in table.column_names:
        return None
    lists = np.empty(len(rows), object)
    lists[:] = [
        tuple(name.strip() for name in names) for names in table["hierarchical_labels"].to_pylist()
    ]
    return lists[rows]


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy:
    """N landmarks or other entities and the levels above them; immutable, sorted by (split, landmark_id).

    H-GLDv2 has the levels landmark, hierarchical_label and natural_or_human_made. Other lists have the level entity
    and the columns of their table with no other meaning (:data:`hgld.tables.schemas.NEUTRAL_COLUMNS`), finest first.

    Create one with :func:`load_hierarchy`, :meth:`from_arrow` or :meth:`from_pandas`, which validate it.

    Args:
        splits: str, shape (N,); split of each landmark.
        landmark_ids: int64, or str for a list with such ids, shape (N,); unique within a split.
        labels: int64, shape (N, L), finest level first; column 0 numbers the landmarks by row, the others hold
            indices into :meth:`names` of their level.
        level_names: Names of the L levels, finest first.
        nodes: Sorted names of every level but the finest, finest level first.
        categories: str objects, shape (N,); URLs of Commons categories or Wikidata items, None if unknown.
        supercategories: str objects, shape (N,); the labels that are assigned to groups, None if unknown.
        hierarchical_labels: Tuples of str as objects, shape (N,); all groups of each landmark, the one in ``labels``
            first; None if only that one is known.
        label_sources: str objects, shape (N,); where the group of each landmark comes from, ``instance_of``,
            ``photographs`` or ``correction``; None if all come from "instance of".

    >>> table = pa.table(
    ...     {
    ...         "split": ["train", "train", "index"],
    ...         "landmark_id": [1, 2, 1],
    ...         "hierarchical_label": ["lake", "church", "lake"],
    ...         "natural_or_human_made": ["natural", "human-made", "natural"],
    ...     }
    ... )
    >>> hierarchy = Hierarchy.from_arrow(table)
    >>> hierarchy.counts("hierarchical_label"), hierarchy.parent("lake", 2)
    ({'lake': 2, 'church': 1}, 'natural')
    """

    splits: npt.NDArray[np.str_]
    landmark_ids: npt.NDArray[Any]
    labels: LabelMatrix
    level_names: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    categories: npt.NDArray[np.object_] | None = None
    supercategories: npt.NDArray[np.object_] | None = None
    hierarchical_labels: npt.NDArray[np.object_] | None = None
    label_sources: npt.NDArray[np.object_] | None = None

    def __post_init__(self) -> None:
        for values in vars(self).values():
            if isinstance(values, np.ndarray):
                values.flags.writeable = False

    # Construction

    @classmethod
    def from_arrow(
        cls, table: pa.Table, *, row_name: Callable[[int], str] | None = None
    ) -> Hierarchy:
        """Create a hierarchy from a table and validate it.

        Args:
            table: Columns of the table ``hierarchy``, with columns and rows in any order; category, supercategory,
                extra_levels, hierarchical_labels and label_source may be missing. Whitespace around names is removed.
            row_name: Returns the name of a row for error messages, given its number.

        Raises:
            InputError: A column is missing or unknown, a value is missing, a landmark occurs twice, a name has
                several parents (such as a group with two roots), or rows have different numbers of extra levels.
        """
        table = _check_columns(
            without_neutral_names(table, tables.HIERARCHY) if "id" in table.column_names else table
        )

        def describe(row: int) -> str:
            name = row_name(row) if row_name else f"row {row}"
            return f"{name} ({table['split'][row]} {table['landmark_id'][row]})"

        order = pc.sort_indices(
            table, sort_keys=[("split", "ascending"), ("landmark_id", "ascending")]
        )
        rows = order.to_numpy()
        splits = table["split"].take(order).to_numpy().astype(np.str_)
        landmark_ids = table["landmark_id"].take(order).to_numpy()
        if landmark_ids.dtype == object:
            landmark_ids = landmark_ids.astype(np.str_)
        _check_unique_landmarks(splits, landmark_ids, rows, describe)

        extra = _extra_levels(table, describe)
        group, *above = tables.level_columns(table.column_names)
        between = [f"extra_level_{n}" for n in range(1, len(extra) + 1)]
        level_names = (_FINEST if group == GROUP else _FINEST_NEUTRAL, group, *between, *above)
        columns = [table[group], *extra, *(table[name] for name in above)]
        encoded = [
            encode_names(column, name, describe)
            for name, column in zip(level_names[1:], columns, strict=True)
        ]
        check_tree(level_names[1:], encoded, describe)
        return cls(
            splits=splits,
            landmark_ids=landmark_ids,
            labels=np.stack([np.arange(len(rows)), *(codes[rows] for codes, _ in encoded)], axis=1),
            level_names=level_names,
            nodes=tuple(names for _, names in encoded),
            categories=_object_column(table, "category", order),
            supercategories=_object_column(table, "supercategory", order),
            hierarchical_labels=_group_lists(table, rows),
            label_sources=_object_column(table, "label_source", order),
        )

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> Hierarchy:
        """Create a hierarchy from a data frame as :meth:`to_pandas` returns it; see :meth:`from_arrow`."""
        return cls.from_arrow(
            pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
        )

    # Levels and names

    @property
    def n_levels(self) -> int:
        """Number of levels, L."""
        return len(self.level_names)

    @property
    def split_names(self) -> list[str]:
        """Names of the splits: those of GLDv2 first, then the others in alphabetical order."""
        return tables.in_order(self.splits.tolist())

    @property
    def group_level(self) -> str:
        """Name of the level that labels are assigned to."""
        return self.level_names[1]

    @property
    def root_level(self) -> str:
        """Name of the coarsest level."""
        return self.level_names[-1]

    def __len__(self) -> int:
        return len(self.landmark_ids)

    @property
    def nouns(self) -> tuple[str, str]:
        """Singular and plural of what the rows are, such as landmark and landmarks."""
        return tables.nouns(neutral=self.group_level != GROUP)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hierarchy):
            return NotImplemented
        return all(
            type(value) is type(theirs)
            and (
                np.array_equal(value, theirs) if isinstance(value, np.ndarray) else value == theirs
            )
            for value, theirs in zip(vars(self).values(), vars(other).values(), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # equality is by value, and values are large

    def __repr__(self) -> str:
        splits = ", ".join(
            f"{split} {count:,}" for split, count in sorted(Counter(self.splits.tolist()).items())
        )
        lines = [f"Hierarchy of {len(self):,} {self.nouns[1]} ({splits}) in {self.n_levels} levels"]
        width = max(map(len, self.level_names))
        for level, name in zip(range(self.n_levels, 0, -1), self.level_names, strict=True):
            counts = list(self.counts(level).items())
            line = f"  {level}  {name:<{width}}  {len(counts):>7,}"
            if level < self.n_levels:
                largest = ", ".join(f"{node} {count:,}" for node, count in counts[:4])
                line += f"  {largest}{', …' if len(counts) > 4 else ''}"
            lines.append(line)
        return "\n".join(lines)

    def column(self, level: Level) -> int:
        """Return the column of ``labels`` for a level, given by number (1: coarsest) or by name."""
        if isinstance(level, str):
            if level not in self.level_names:
                raise ConfigurationError(
                    f'there is no level "{level}"; there are {", ".join(self.level_names)}'
                )
            return self.level_names.index(level)
        return column_of(level, self.n_levels)

    def names(self, level: Level) -> tuple[str, ...]:
        """Return the names at a level, indexed by label; those of the finest level look like ``train/161``."""
        column = self.column(level)
        if column == 0:
            return tuple(map(self._landmark_name, range(len(self))))
        return self.nodes[column - 1]

    def names_by_row(self, level: Level, rows: Integers | slice = slice(None)) -> list[str]:
        """Return the name at a level of each landmark, or of those in ``rows``."""
        codes = self.labels[rows, self.column(level)]
        return list(np.array(self.names(level), object)[codes])

    def code(self, name: str, level: Level) -> int:
        """Return the label of a name at a level, its index in :meth:`names`."""
        names = self.names(level)
        if name not in names:
            raise ConfigurationError(
                f'there is no "{name}" at the level {self.level_names[self.column(level)]}'
            )
        return names.index(name)

    def counts(self, level: Level) -> dict[str, int]:
        """Return the number of landmarks below each name of a level, in descending order."""
        names = self.names(level)
        counts = np.bincount(self.labels[:, self.column(level)], minlength=len(names)).tolist()
        return dict(sorted(zip(names, counts, strict=True), key=lambda pair: (-pair[1], pair[0])))

    def children(self, name: str, level: Level) -> tuple[str, ...]:
        """Return the names one level finer that are below ``name`` of ``level``; none for a landmark."""
        column, rows = self.column(level), self._rows_below(name, level)
        if column == 0:
            return ()
        codes = np.unique(self.labels[rows, column - 1])
        if column == 1:
            return tuple(map(self._landmark_name, codes.tolist()))
        return tuple(self.nodes[column - 2][code] for code in codes)

    def ancestors(self, name: str, level: Level) -> tuple[str, ...]:
        """Return the names above ``name`` of ``level``, nearest first, root last."""
        row = self._rows_below(name, level)[0]
        coarser = range(self.column(level) + 1, self.n_levels)
        return tuple(self.nodes[column - 1][self.labels[row, column]] for column in coarser)

    def parent(self, name: str, level: Level) -> str | None:
        """Return the name one level coarser, None for a root."""
        ancestors = self.ancestors(name, level)
        return ancestors[0] if ancestors else None

    # Label matrices and relevance

    def contains(self, landmark_ids: npt.ArrayLike, split: str | None = None) -> Booleans:
        """Return whether each landmark is in the hierarchy: bool, shape (n,)."""
        return self._find(landmark_ids, split)[1]

    def labels_of(self, landmark_ids: npt.ArrayLike, split: str | None = None) -> LabelMatrix:
        """Return the labels of landmarks.

        Args:
            landmark_ids: int64, shape (n,); in any order and with repetitions, such as one per image.
            split: Split of the landmarks; may be omitted if the hierarchy has only one.

        Returns:
            int64, shape (n, L), finest level first. Column 0 is unique over both splits.

        Raises:
            InputError: Landmarks are not in the hierarchy, see :meth:`contains`.
        """
        rows, exists = self._find(landmark_ids, split)
        if not exists.all():
            missing = np.unique(np.asarray(landmark_ids)[~exists]).tolist()
            raise InputError(
                f"{len(missing):,} landmarks are not in the hierarchy ({split or self.splits[0]} "
                f"{', '.join(map(str, missing[:10]))}{', …' if len(missing) > 10 else ''}); exclude them with "
                "contains()"
            )
        return self.labels[rows]

    def label_sets_of(self, landmark_ids: Integers, split: str | None = None) -> LabelSets:
        """Return a label for each group of each landmark: the landmark, the group and the levels above it.

        A further group that is the first one of no landmark is excluded with a warning, as its ancestors are unknown:
        the table of a hierarchy has those of the first groups only.

        Args:
            landmark_ids: int64, shape (n,); in any order and with repetitions, such as one per image.
            split: Split of the landmarks; may be omitted if the hierarchy has only one.

        Returns:
            Label sets of n images; empty for landmarks that are not in the hierarchy.
        """
        assert self.hierarchical_labels is not None
        column = self.column(self.group_level)
        _, first = np.unique(self.labels[:, column], return_index=True)
        groups = self.names_by_row(self.group_level, first)
        above = dict(zip(groups, self.labels[first, column:].tolist(), strict=True))
        rows, known = self._find(landmark_ids, split)
        used = np.unique(rows[known]).tolist()
        if (
            unknown := {group for row in used for group in self.hierarchical_labels[row]}
            - above.keys()
        ):
            log.warning(
                "%d groups are excluded from the labels, as they are the first group of no landmark: %s",
                len(unknown),
                ", ".join(sorted(unknown)),
            )
        by_row = {
            row: [[row, *above[group]] for group in self.hierarchical_labels[row] if group in above]
            for row in used
        }
        images = [
            by_row[row] if exists else []
            for row, exists in zip(rows.tolist(), known.tolist(), strict=True)
        ]
        labels = np.array([label for image in images for label in image], np.int64).reshape(
            -1, self.n_levels
        )
        return LabelSets.from_rows(labels, np.array([len(image) for image in images]))

    def relevance(
        self,
        query_labels: LabelMatrix,
        gallery_labels: LabelMatrix | None = None,
        alpha: float = 1.0,
    ) -> Floats:
        """Return the relevance of gallery items; see :func:`relevance`. Default gallery: all landmarks."""
        return relevance(
            query_labels, self.labels if gallery_labels is None else gallery_labels, alpha
        )

    # Edited copies

    def filter(
        self,
        *,
        groups: Iterable[str] | None = None,
        roots: Iterable[str] | None = None,
        splits: Iterable[str] | None = None,
        label_sources: Iterable[str] | None = None,
        min_landmarks: int = 1,
    ) -> Hierarchy:
        """Return the landmarks of these groups, roots, splits and label sources.

        Only the first group of a landmark counts, not further ones in ``hierarchical_labels``.

        Args:
            label_sources: Some of ``instance_of``, ``photographs`` and ``correction``; all by default.
            min_landmarks: Minimum number of selected landmarks in a group; smaller groups are removed.
        """
        keep = np.ones(len(self), bool)
        for names, level in ((groups, self.group_level), (roots, self.root_level)):
            if names is not None:
                codes = [self.code(name, level) for name in _as_names(names)]
                keep &= np.isin(self.labels[:, self.column(level)], codes)
        sources = (
            np.full(len(self), "instance_of") if self.label_sources is None else self.label_sources
        )
        for noun, names, known, values in (
            ("split", splits, self.split_names, self.splits),
            ("label source", label_sources, tables.LABEL_SOURCES, sources),
        ):
            if names is not None:
                chosen = _as_names(names)
                unknown = sorted(set(chosen).difference(known))
                if unknown:
                    raise ConfigurationError(
                        f"there is no {noun} {', '.join(unknown)}; expected {' or '.join(known)}"
                    )
                keep &= np.isin(values, chosen)
        group = self.labels[:, self.column(self.group_level)]
        keep &= (
            np.bincount(group[keep], minlength=len(self.names(self.group_level)))[group]
            >= min_landmarks
        )
        if not keep.any():
            raise ConfigurationError("no landmark is left; filter less strictly")
        return Hierarchy.from_arrow(self.to_arrow().filter(pa.array(keep)))

    def merge(self, groups: Iterable[str], name: str) -> Hierarchy:
        """Merge groups into one."""
        ancestors = {group: self.ancestors(group, self.group_level) for group in _as_names(groups)}
        if len(set(ancestors.values())) > 1:
            parents = "; ".join(
                f'"{group}" is below {" / ".join(names)}' for group, names in ancestors.items()
            )
            raise ConfigurationError(f"the groups have different ancestors: {parents}")
        if name not in ancestors and name in self.names(self.group_level):
            raise ConfigurationError(f'there is a group "{name}" already; merge it too')

        def rename(group: str) -> str:
            return name if group in ancestors else group

        names = list(map(rename, self.names_by_row(self.group_level)))
        table = self.to_arrow()
        table = table.set_column(
            table.column_names.index(self.group_level), self.group_level, pa.array(names)
        )
        if self.hierarchical_labels is not None:
            lists = [
                list(dict.fromkeys(map(rename, groups))) for groups in self.hierarchical_labels
            ]
            further = (
                "hierarchical_labels" if "hierarchical_labels" in table.column_names else "groups"
            )
            table = table.set_column(table.column_names.index(further), further, pa.array(lists))
        return Hierarchy.from_arrow(table)

    # Export

    def to_arrow(self) -> pa.Table:
        """Return the table ``hierarchy``, sorted by key, without the columns that are unknown."""
        columns: dict[str, Any] = {
            "split": pa.array(self.splits.tolist()),
            "landmark_id": self.landmark_ids,
        }
        if self.categories is not None:
            columns["category"] = pa.array(self.categories, pa.string())
        if self.supercategories is not None:
            columns["supercategory"] = pa.array(self.supercategories, pa.string())
        levels = {name: pa.array(self.names_by_row(name)) for name in self.level_names[1:]}
        list_type = tables.HIERARCHY.optional.field("extra_levels").type
        if self.group_level == GROUP:
            columns |= {name: levels.pop(name) for name in (GROUP, ROOT)}
            if levels:
                lists = zip(*(names.to_pylist() for names in levels.values()), strict=True)
                columns["extra_levels"] = pa.array(lists, list_type)
                levels = {}
        if self.hierarchical_labels is not None:
            columns["hierarchical_labels"] = pa.array(self.hierarchical_labels.tolist(), list_type)
        if self.label_sources is not None:
            columns["label_source"] = pa.array(self.label_sources, pa.string())
        table = pa.table({**columns, **levels})
        return table if self.group_level == GROUP else with_neutral_names(table, tables.HIERARCHY)

    def to_pandas(self) -> pd.DataFrame:
        """Return :meth:`to_arrow` as a data frame, one row per landmark."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    # Lookup

    def _landmark_name(self, row: int) -> str:
        return f"{self.splits[row]}/{self.landmark_ids[row]}"

    def _rows_below(self, name: str, level: Level) -> Integers:
        return np.flatnonzero(self.labels[:, self.column(level)] == self.code(name, level))

    def _find(self, landmark_ids: npt.ArrayLike, split: str | None) -> tuple[Integers, Booleans]:
        """Return the row of each landmark, and whether it exists (if not, its row is meaningless)."""
        ids = np.asarray(landmark_ids)
        kind, expected = (
            (np.str_, "texts")
            if self.landmark_ids.dtype.kind == "U"
            else (np.integer, "whole numbers")
        )
        if ids.ndim != 1 or not (np.issubdtype(ids.dtype, kind) or not ids.size):
            raise ValueError(f"landmark_ids is {ids.dtype} {ids.shape}; expected {expected} (n,)")
        if split is None:
            if self.splits[0] != self.splits[-1]:
                raise ConfigurationError(
                    "the hierarchy has several splits; name the one of the landmark ids"
                )
            split = str(self.splits[0])
        begin, end = (np.searchsorted(self.splits, split, side) for side in ("left", "right"))
        if begin == end:
            raise ConfigurationError(f'there is no split "{split}" in the hierarchy')
        rows = begin + np.searchsorted(self.landmark_ids[begin:end], ids)
        rows = np.minimum(rows, end - 1)
        return rows, self.landmark_ids[rows] == ids


def _object_column(table: pa.Table, name: str, order: pa.Array) -> npt.NDArray[np.object_] | None:
    return table[name].take(order).to_numpy() if name in table.column_names else None


def _as_names(names: Iterable[str]) -> list[str]:
    """Return the names; a single string is one name, not an iterable of letters."""
    return [names] if isinstance(names, str) else list(names)
