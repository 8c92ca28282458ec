"""The hierarchy: landmarks with the groups and roots above them, from a validated table."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from hgld import tables
from hgld.arrays import AnyIntegers, Booleans, Floats, Integers
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy.label_matrix import LabelMatrix, column_of, relevance
from hgld.hierarchy.label_sets import LabelSets
from hgld.hierarchy.level_encoding import DescribeRow, check_tree, encode_names
from hgld.tables.parquet import with_neutral_names, without_neutral_names

if TYPE_CHECKING:
    import pandas as pd

GROUP = "hierarchical_label"
ROOT = "natural_or_human_made"

log = logging.getLogger(__name__)
#: A level by its number (1: coarsest) or by its name.
Level = int | str
#: int64, or str in lists with such ids.
Ids = NDArray[Any]
#: str.
Texts = NDArray[np.str_]
#: str, or tuples of str; None for unknown values.
Objects = NDArray[np.object_]
#: Name of the finest level of H-GLDv2.
_FINEST = "landmark"
#: Name of the finest level of other lists.
_FINEST_NEUTRAL = "entity"


def _check_columns(table: pa.Table) -> pa.Table:
    """Return the table cast to the types of the table ``hierarchy``."""
    names = table.column_names
    levels = tables.level_columns(names)
    types = {field.name: field.type for field in tables.HIERARCHY.schema}
    types |= {field.name: field.type for field in tables.HIERARCHY.optional}
    types |= dict.fromkeys(levels, pa.string())
    problems = []
    for name in ("split", "landmark_id", *levels):
        if name not in names:
            problems.append(f"no column {name}")
    if not levels:
        problems.append(f"no column {GROUP}, and no other level")
    for name in names:
        if name not in types:
            problems.append(f"unknown column {name}")
    for name in names:
        n_missing = table[name].null_count
        may_be_missing = name == "category" and GROUP not in names
        if n_missing and not may_be_missing:
            problems.append(f"{name} is missing in {n_missing:,} of {len(table):,} rows")
    if not problems and not len(table):
        problems.append("no rows")
    if problems:
        raise InputError(f"not a hierarchy:\n{indented_list(problems)}")
    if GROUP not in names and not pa.types.is_integer(table.schema.field("landmark_id").type):
        types["landmark_id"] = pa.string()
    try:
        return table.cast(pa.schema([(name, types[name]) for name in names]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"not a hierarchy: {error}") from error


def _check_unique_landmarks(
    splits: Texts,
    landmark_ids: Ids,
    rows: Integers,
    describe_row: DescribeRow,
) -> None:
    """Check that no landmark occurs twice."""
    same_split = splits[1:] == splits[:-1]
    same_id = landmark_ids[1:] == landmark_ids[:-1]
    problems = []
    for place in np.flatnonzero(same_split & same_id):
        row = describe_row(rows[place])
        problems.append(f"{row} occurs again in {describe_row(rows[place + 1])}")
    if problems:
        raise InputError(f"{len(problems):,} landmarks occur twice:\n{indented_list(problems)}")


def _extra_levels(table: pa.Table, describe_row: DescribeRow) -> list[pa.Array]:
    """Return the levels of the column extra_levels, finest first; empty without the column."""
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


def _group_lists(table: pa.Table, rows: Integers) -> Objects | None:
    """Return the column hierarchical_labels as tuples in the order of ``rows``, or None."""
    if "hierarchical_labels" not in table.column_names:
        return None
    lists = np.empty(len(rows), object)
    for row, names in enumerate(table["hierarchical_labels"].to_pylist()):
        lists[row] = tuple(name.strip() for name in names)
    return lists[rows]


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy:
    """N landmarks or other entities and the levels above them; immutable, sorted by split and id.

    H-GLDv2 has the levels landmark, hierarchical_label and natural_or_human_made. Other lists have
    the level entity, and a level for each column of their table that has no other meaning
    (:data:`hgld.tables.schemas.NEUTRAL_COLUMNS`), finest first.

    Create a hierarchy with :func:`load_hierarchy`, :meth:`from_arrow` or :meth:`from_pandas`, which
    validate it.

    Args:
        splits: str, shape (N,); split of each landmark.
        landmark_ids: int64, or str for a list with such ids, shape (N,); unique within a split.
        labels: int64, shape (N, L), finest level first; column 0 numbers the landmarks by row,
            other columns hold indices into :meth:`names` of their level.
        level_names: Names of the L levels, finest first.
        nodes: Sorted names of every level except the finest, finest level first.
        categories: str objects, shape (N,); URLs of Commons categories or Wikidata items, None if
            unknown.
        supercategories: str objects, shape (N,); the labels that are assigned to groups, None if
            unknown.
        hierarchical_labels: Tuples of str as objects, shape (N,); all groups of each landmark,
            starting with the group in ``labels``; None if only the first group is known.
        label_sources: str objects, shape (N,); source of the group of each landmark,
            ``instance_of``, ``photographs`` or ``correction``; None if all groups come from
            "instance of".

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

    splits: Texts
    landmark_ids: Ids
    labels: LabelMatrix
    level_names: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    categories: Objects | None = None
    supercategories: Objects | None = None
    hierarchical_labels: Objects | None = None
    label_sources: Objects | None = None

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
            table: Columns of the table ``hierarchy``, with columns and rows in any order; category,
                supercategory, extra_levels, hierarchical_labels and label_source may be missing.
                Whitespace around names is removed.
            row_name: Returns the name of a row for error messages, given its number.

        Raises:
            InputError: A column is missing or unknown, a value is missing, a landmark occurs twice,
                a name has several parents (such as a group with two roots), or rows have different
                numbers of extra levels.
        """
        if "id" in table.column_names:
            table = without_neutral_names(table, tables.HIERARCHY)
        table = _check_columns(table)

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

        group_level, *coarser_levels = tables.level_columns(table.column_names)
        level_columns = {group_level: table[group_level]}
        for number, column in enumerate(_extra_levels(table, describe), 1):
            level_columns[f"extra_level_{number}"] = column
        for name in coarser_levels:
            level_columns[name] = table[name]
        encoded = []
        label_columns = [np.arange(len(rows))]
        for name, column in level_columns.items():
            codes, names = encode_names(column, name, describe)
            encoded.append((codes, names))
            label_columns.append(codes[rows])
        check_tree(list(level_columns), encoded, describe)
        finest_level = _FINEST if group_level == GROUP else _FINEST_NEUTRAL
        return cls(
            splits=splits,
            landmark_ids=landmark_ids,
            labels=np.stack(label_columns, axis=1),
            level_names=(finest_level, *level_columns),
            nodes=tuple(names for _, names in encoded),
            categories=_object_column(table, "category", order),
            supercategories=_object_column(table, "supercategory", order),
            hierarchical_labels=_group_lists(table, rows),
            label_sources=_object_column(table, "label_source", order),
        )

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> Hierarchy:
        """Create a hierarchy from a data frame of :meth:`to_pandas`; see :meth:`from_arrow`."""
        table = pa.Table.from_pandas(frame, preserve_index=False)
        return cls.from_arrow(table.replace_schema_metadata())

    # Levels and names

    @property
    def n_levels(self) -> int:
        """Number of levels, L."""
        return len(self.level_names)

    @property
    def split_names(self) -> list[str]:
        """Names of the splits: splits of GLDv2 first, then other splits in alphabetical order."""
        return tables.in_order(self.splits.tolist())

    @property
    def group_level(self) -> str:
        """Name of the level of groups, to which labels are assigned."""
        return self.level_names[1]

    @property
    def root_level(self) -> str:
        """Name of the coarsest level."""
        return self.level_names[-1]

    def __len__(self) -> int:
        return len(self.landmark_ids)

    @property
    def nouns(self) -> tuple[str, str]:
        """Singular and plural noun for the entities of the rows, such as landmark and landmarks."""
        return tables.nouns(neutral=self._is_neutral)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hierarchy):
            return NotImplemented
        for name, value in vars(self).items():
            other_value = getattr(other, name)
            if isinstance(value, np.ndarray) and isinstance(other_value, np.ndarray):
                is_equal = np.array_equal(value, other_value)
            else:
                is_equal = type(value) is type(other_value) and value == other_value
            if not is_equal:
                return False
        return True

    __hash__ = None  # type: ignore[assignment]  # equality is by value, and values are large

    def __repr__(self) -> str:
        n_by_split = sorted(Counter(self.splits.tolist()).items())
        splits = ", ".join(f"{split} {count:,}" for split, count in n_by_split)
        lines = [f"Hierarchy of {len(self):,} {self.nouns[1]} ({splits}) in {self.n_levels} levels"]
        width = max(map(len, self.level_names))
        for column, name in enumerate(self.level_names):
            level = self.n_levels - column
            counts = list(self.counts(level).items())
            line = f"  {level}  {name:<{width}}  {len(counts):>7,}"
            if column > 0:
                line += "  " + ", ".join(f"{node} {count:,}" for node, count in counts[:4])
                if len(counts) > 4:
                    line += ", …"
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
        """Return the names at a level, indexed by label; ``train/161`` at the finest level."""
        column = self.column(level)
        if column == 0:
            return tuple(map(self._landmark_name, range(len(self))))
        return self.nodes[column - 1]

    def names_by_row(self, level: Level, rows: Integers | slice = slice(None)) -> list[str]:
        """Return the name at a level of all landmarks, or of the landmarks in ``rows``."""
        codes = self._codes(level)[rows]
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
        counts = np.bincount(self._codes(level), minlength=len(names)).tolist()
        return dict(sorted(zip(names, counts, strict=True), key=lambda pair: (-pair[1], pair[0])))

    def children(self, name: str, level: Level) -> tuple[str, ...]:
        """Return the names directly below ``name`` of ``level``; empty for a landmark."""
        column = self.column(level)
        rows = self._rows_below(name, level)
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
        """Return the name directly above ``name`` of ``level``; None for a root."""
        ancestors = self.ancestors(name, level)
        return ancestors[0] if ancestors else None

    # Label matrices and relevance

    def contains(self, landmark_ids: ArrayLike, split: str | None = None) -> Booleans:
        """Return whether each landmark is in the hierarchy: bool, shape (n,)."""
        _, exists = self._find(landmark_ids, split)
        return exists

    def labels_of(self, landmark_ids: ArrayLike, split: str | None = None) -> LabelMatrix:
        """Return the labels of landmarks.

        Args:
            landmark_ids: int64, shape (n,); in any order and with repetitions, such as one per
                image.
            split: Split of the landmarks; may be omitted if the hierarchy has only one.

        Returns:
            int64, shape (n, L), finest level first. Column 0 is unique over both splits.

        Raises:
            InputError: Landmarks are not in the hierarchy, see :meth:`contains`.
        """
        rows, exists = self._find(landmark_ids, split)
        if not exists.all():
            missing = np.unique(np.asarray(landmark_ids)[~exists]).tolist()
            listed = ", ".join(map(str, missing[:10]))
            if len(missing) > 10:
                listed += ", …"
            raise InputError(
                f"{len(missing):,} landmarks are not in the hierarchy ({split or self.splits[0]} {listed}); exclude "
                "them with contains()"
            )
        return self.labels[rows]

    def label_sets_of(self, landmark_ids: Integers, split: str | None = None) -> LabelSets:
        """Return a label for each group of each landmark: landmark, group and levels above.

        The table of a hierarchy has the ancestors of the first group of each landmark only. A group
        that is not the first group of any landmark is excluded with a warning, as its ancestors are
        unknown.

        Args:
            landmark_ids: int64, shape (n,); in any order and with repetitions, such as one per
                image.
            split: Split of the landmarks; may be omitted if the hierarchy has only one.

        Returns:
            Label sets of n images; empty for landmarks that are not in the hierarchy.
        """
        assert self.hierarchical_labels is not None
        column = self.column(self.group_level)
        _, first_rows = np.unique(self.labels[:, column], return_index=True)
        groups = self.names_by_row(self.group_level, first_rows)
        group_labels = dict(zip(groups, self.labels[first_rows, column:].tolist(), strict=True))
        rows, exists = self._find(landmark_ids, split)
        unknown = set()
        labels_of_row: dict[int, list[list[int]]] = {}
        for row in np.unique(rows[exists]).tolist():
            labels_of_row[row] = []
            for group in self.hierarchical_labels[row]:
                if group in group_labels:
                    labels_of_row[row].append([row, *group_labels[group]])
                else:
                    unknown.add(group)
        if unknown:
            log.warning(
                "%d groups are excluded from the labels, as they are the first group of no landmark: %s",
                len(unknown),
                ", ".join(sorted(unknown)),
            )
        labels: list[list[int]] = []
        counts = np.zeros(len(rows), np.int64)
        for image in np.flatnonzero(exists).tolist():
            image_labels = labels_of_row[rows[image]]
            counts[image] = len(image_labels)
            labels += image_labels
        return LabelSets.from_rows(np.array(labels, np.int64).reshape(-1, self.n_levels), counts)

    def relevance(
        self,
        query_labels: LabelMatrix,
        gallery_labels: LabelMatrix | None = None,
        alpha: float = 1.0,
    ) -> Floats:
        """Return the relevance of gallery items, by default of all landmarks."""
        if gallery_labels is None:
            gallery_labels = self.labels
        return relevance(query_labels, gallery_labels, alpha)

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

        Only the first group of a landmark counts, not the other groups in ``hierarchical_labels``.

        Args:
            groups: Groups to keep. Default: all.
            roots: Roots to keep. Default: all.
            splits: Splits to keep. Default: all.
            label_sources: Some of ``instance_of``, ``photographs`` and ``correction``; all by
                default.
            min_landmarks: Minimum number of selected landmarks in a group; smaller groups are
                removed.
        """
        keep = np.ones(len(self), bool)
        if groups is not None:
            keep &= self._is_below(groups, self.group_level)
        if roots is not None:
            keep &= self._is_below(roots, self.root_level)
        if splits is not None:
            split_names = _known_names(splits, self.split_names, "split")
            keep &= np.isin(self.splits, split_names)
        if label_sources is not None:
            source_names = _known_names(label_sources, tables.LABEL_SOURCES, "label source")
            if self.label_sources is not None:
                keep &= np.isin(self.label_sources, source_names)
            elif "instance_of" not in source_names:
                keep[:] = False
        codes = self._codes(self.group_level)
        group_sizes = np.bincount(codes[keep], minlength=len(self.names(self.group_level)))
        keep &= group_sizes[codes] >= min_landmarks
        if not keep.any():
            raise ConfigurationError("no landmark is left; filter less strictly")
        return Hierarchy.from_arrow(self.to_arrow().filter(pa.array(keep)))

    def _is_below(self, names: Iterable[str], level: Level) -> Booleans:
        """Return which landmarks are below any of some names of a level: bool, shape (N,)."""
        codes = [self.code(name, level) for name in _as_names(names)]
        return np.isin(self._codes(level), codes)

    def merge(self, groups: Iterable[str], name: str) -> Hierarchy:
        """Merge groups into one group of a given name."""
        ancestors = {group: self.ancestors(group, self.group_level) for group in _as_names(groups)}
        if len(set(ancestors.values())) > 1:
            places = []
            for group, names in ancestors.items():
                places.append(f'"{group}" is below {" / ".join(names)}')
            raise ConfigurationError(f"the groups have different ancestors: {'; '.join(places)}")
        if name not in ancestors and name in self.names(self.group_level):
            raise ConfigurationError(f'there is a group "{name}" already; merge it too')
        new_names = dict.fromkeys(ancestors, name)
        table = self.to_arrow()
        groups_by_row = self.names_by_row(self.group_level)
        renamed = [new_names.get(group, group) for group in groups_by_row]
        table = _with_column(table, self.group_level, renamed)
        if self.hierarchical_labels is not None:
            lists = []
            for row_groups in self.hierarchical_labels:
                unique = dict.fromkeys(new_names.get(group, group) for group in row_groups)
                lists.append(list(unique))
            column = "groups" if self._is_neutral else "hierarchical_labels"
            table = _with_column(table, column, lists)
        return Hierarchy.from_arrow(table)

    # Export

    def to_arrow(self) -> pa.Table:
        """Return the table ``hierarchy``, sorted by key, without unknown columns."""
        columns: dict[str, Any] = {
            "split": pa.array(self.splits.tolist()),
            "landmark_id": self.landmark_ids,
        }
        if self.categories is not None:
            columns["category"] = pa.array(self.categories, pa.string())
        if self.supercategories is not None:
            columns["supercategory"] = pa.array(self.supercategories, pa.string())
        list_type = tables.HIERARCHY.optional.field("extra_levels").type
        if not self._is_neutral:
            columns[GROUP] = pa.array(self.names_by_row(GROUP))
            columns[ROOT] = pa.array(self.names_by_row(ROOT))
            extra_levels = [self.names_by_row(name) for name in self.level_names[2:-1]]
            if extra_levels:
                columns["extra_levels"] = pa.array(zip(*extra_levels, strict=True), list_type)
        if self.hierarchical_labels is not None:
            columns["hierarchical_labels"] = pa.array(self.hierarchical_labels.tolist(), list_type)
        if self.label_sources is not None:
            columns["label_source"] = pa.array(self.label_sources, pa.string())
        if self._is_neutral:
            for name in self.level_names[1:]:
                columns[name] = pa.array(self.names_by_row(name))
            return with_neutral_names(pa.table(columns), tables.HIERARCHY)
        return pa.table(columns)

    def to_pandas(self) -> pd.DataFrame:
        """Return :meth:`to_arrow` as a data frame, one row per landmark."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    # Lookup

    @property
    def _is_neutral(self) -> bool:
        """Whether the list is not H-GLDv2, so that its table has the neutral column names."""
        return self.group_level != GROUP

    def _landmark_name(self, row: int) -> str:
        return f"{self.splits[row]}/{self.landmark_ids[row]}"

    def _codes(self, level: Level) -> AnyIntegers:
        """Return the label of each landmark at a level, shape (N,)."""
        return self.labels[:, self.column(level)]

    def _rows_below(self, name: str, level: Level) -> Integers:
        return np.flatnonzero(self._codes(level) == self.code(name, level))

    def _find(self, landmark_ids: ArrayLike, split: str | None) -> tuple[Integers, Booleans]:
        """Return the row of each landmark, and whether it exists; missing landmarks get any row."""
        ids = np.asarray(landmark_ids)
        kind: type = np.integer
        expected = "whole numbers"
        if self.landmark_ids.dtype.kind == "U":
            kind = np.str_
            expected = "texts"
        has_kind = np.issubdtype(ids.dtype, kind) or not ids.size
        if ids.ndim != 1 or not has_kind:
            raise ValueError(f"landmark_ids is {ids.dtype} {ids.shape}; expected {expected} (n,)")
        if split is None:
            if self.splits[0] != self.splits[-1]:
                raise ConfigurationError(
                    "the hierarchy has several splits; name the one of the landmark ids"
                )
            split = str(self.splits[0])
        begin = np.searchsorted(self.splits, split, "left")
        end = np.searchsorted(self.splits, split, "right")
        if begin == end:
            raise ConfigurationError(f'there is no split "{split}" in the hierarchy')
        rows = begin + np.searchsorted(self.landmark_ids[begin:end], ids)
        rows = np.minimum(rows, end - 1)
        return rows, self.landmark_ids[rows] == ids


def _object_column(table: pa.Table, name: str, order: pa.Array) -> Objects | None:
    return table[name].take(order).to_numpy() if name in table.column_names else None


def _with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    """Return the table with other values in a column."""
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def _as_names(names: Iterable[str]) -> list[str]:
    """Return the names; a single string is one name, not an iterable of letters."""
    if isinstance(names, str):
        return [names]
    return list(names)


def _known_names(names: Iterable[str], known: Sequence[str], noun: str) -> list[str]:
    """Return the names after a check that all are known."""
    name_list = _as_names(names)
    unknown = sorted(set(name_list).difference(known))
    if unknown:
        raise ConfigurationError(
            f"there is no {noun} {', '.join(unknown)}; expected {' or '.join(known)}"
        )
    return name_list
