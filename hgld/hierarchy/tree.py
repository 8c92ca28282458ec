"""Landmarks, and the groups and roots above them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.checks import GROUP, ROOT, check_keys, check_tree, checked, encode, flatten, group_lists
from hgld.hierarchy.label_matrix import LabelMatrix, column_of, lowest_common_level, relevance

if TYPE_CHECKING:
    import pandas as pd

#: A level by its number (1: coarsest) or by its name.
Level = int | str

_FINEST = "landmark"


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy:
    """Landmarks and the levels above them; immutable, sorted by (split, landmark_id).

    Make one with :func:`load_hierarchy`, :meth:`from_arrow` or :meth:`from_pandas`, which check it.

    Args:
        splits: str, shape (N,); the split of each landmark.
        landmark_ids: int64, shape (N,); unique within a split.
        labels: int64, shape (N, L), finest first: column 0 numbers the landmarks by row, any other column holds
            an index into :meth:`names` of its level.
        level_names: of the L levels, finest first.
        nodes: the names of every level but the finest, finest first, each sorted.
        categories: str objects, shape (N,): URLs of Commons categories; None where not known.
        supercategories: str objects, shape (N,): the labels that groups are made of; None where not known.
        hierarchical_labels: tuples of str as objects, shape (N,): all groups of each landmark, the one in
            ``labels`` first; None where only that is known.
    """

    splits: npt.NDArray[np.str_]
    landmark_ids: npt.NDArray[np.int64]
    labels: LabelMatrix
    level_names: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    categories: npt.NDArray[np.object_] | None = None
    supercategories: npt.NDArray[np.object_] | None = None
    hierarchical_labels: npt.NDArray[np.object_] | None = None

    def __post_init__(self) -> None:
        for values in vars(self).values():
            if isinstance(values, np.ndarray):
                values.flags.writeable = False

    # Making one

    @classmethod
    def from_arrow(cls, table: pa.Table, *, where: Callable[[int], str] | None = None) -> Hierarchy:
        """Check a table and make a hierarchy of it.

        Args:
            table: the columns of the table ``hierarchy`` in any order and with rows in any order; category,
                supercategory, extra_levels and hierarchical_labels may be missing. Names are stripped.
            where: names a row, given its number, in messages.

        Raises:
            InputError: a column is missing or unknown, a value is missing, a landmark stands twice, a name has
                two names above it (such as a group with two roots), rows have different numbers of extra
                levels, or the first of the hierarchical_labels is not the hierarchical_label.
        """
        table = checked(table)

        def place(row: int) -> str:
            return f"{where(row) if where else f'row {row}'} ({table['split'][row]} {table['landmark_id'][row]})"

        order = pc.sort_indices(table, sort_keys=[("split", "ascending"), ("landmark_id", "ascending")])
        rows = order.to_numpy()
        splits = table["split"].take(order).to_numpy().astype(np.str_)
        numbers = table["landmark_id"].take(order).to_numpy()
        check_keys(splits, numbers, rows, place)

        extra, n_extra = flatten(table, "extra_levels", place)
        level_names = (_FINEST, GROUP, *(f"extra_level_{n}" for n in range(1, n_extra + 1)), ROOT)
        texts = [table[GROUP], *(extra[n::n_extra] for n in range(n_extra)), table[ROOT]]
        coded = [encode(column, name, place) for name, column in zip(level_names[1:], texts, strict=True)]
        check_tree(level_names[1:], coded, place)
        return cls(
            splits=splits,
            landmark_ids=numbers,
            labels=np.stack([np.arange(len(rows)), *(codes[rows] for codes, _ in coded)], axis=1),
            level_names=level_names,
            nodes=tuple(names for _, names in coded),
            categories=_objects(table, "category", order),
            supercategories=_objects(table, "supercategory", order),
            hierarchical_labels=group_lists(table, rows, place),
        )

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> Hierarchy:
        """The inverse of :meth:`to_pandas`; see :meth:`from_arrow` for the columns and what is checked."""
        return cls.from_arrow(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata())

    # Looking around

    @property
    def n_levels(self) -> int:
        """The number of levels, L."""
        return len(self.level_names)

    def __len__(self) -> int:
        return len(self.landmark_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hierarchy):
            return NotImplemented
        ours, theirs = vars(self), vars(other)
        return all(_equal(ours[name], theirs[name]) for name in ours)

    __hash__ = None  # type: ignore[assignment]  # equality is by value, and values are large

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {count:,}" for split, count in sorted(Counter(self.splits.tolist()).items()))
        lines = [f"Hierarchy of {len(self):,} landmarks ({splits}) in {self.n_levels} levels"]
        width = max(map(len, self.level_names))
        for level, name in zip(range(self.n_levels, 0, -1), self.level_names, strict=True):
            line = f"  {level}  {name:<{width}}  {self._n_nodes(level):>7,}"
            if level < self.n_levels:
                most = list(self.counts(level).items())
                shown = ", ".join(f"{node} {count:,}" for node, count in most[:4])
                line += f"  {shown}{', …' if len(most) > 4 else ''}"
            lines.append(line)
        return "\n".join(lines)

    def column(self, level: Level) -> int:
        """The column of ``labels`` for a level, given by number (1: coarsest) or by name.

        Raises:
            ConfigurationError: there is no such level.
        """
        if isinstance(level, str):
            if level not in self.level_names:
                raise ConfigurationError(f'there is no level "{level}"; there are {", ".join(self.level_names)}')
            return self.level_names.index(level)
        return column_of(level, self.n_levels)

    def names(self, level: Level) -> tuple[str, ...]:
        """The names at a level, by label; those of the finest level are such as ``train/161``."""
        column = self.column(level)
        if column == 0:
            return tuple(map(self._landmark_name, range(len(self))))
        return self.nodes[column - 1]

    def counts(self, level: Level) -> dict[str, int]:
        """The number of landmarks below each name of a level, most first."""
        names = self.names(level)
        found = np.bincount(self.labels[:, self.column(level)], minlength=len(names)).tolist()
        return dict(sorted(zip(names, found, strict=True), key=lambda pair: (-pair[1], pair[0])))

    def children(self, name: str, level: Level) -> tuple[str, ...]:
        """The names one level finer that are below ``name`` of ``level``; none below a landmark."""
        column, rows = self.column(level), self._rows_below(name, level)
        if column == 0:
            return ()
        finer = np.unique(self.labels[rows, column - 1])
        if column == 1:
            return tuple(map(self._landmark_name, finer.tolist()))
        return tuple(self.nodes[column - 2][code] for code in finer)

    def ancestors(self, name: str, level: Level) -> tuple[str, ...]:
        """The names above ``name`` of ``level``, nearest first, root last."""
        row = self._rows_below(name, level)[0]
        above = range(self.column(level) + 1, self.n_levels)
        return tuple(self.nodes[column - 1][self.labels[row, column]] for column in above)

    def parent(self, name: str, level: Level) -> str | None:
        """The name one level coarser; None above a root."""
        above = self.ancestors(name, level)
        return above[0] if above else None

    # Labels and relevance

    def contains(self, landmark_ids: npt.ArrayLike, split: str | None = None) -> npt.NDArray[np.bool_]:
        """Whether each landmark is in the hierarchy: bool, shape (n,)."""
        return self._find(landmark_ids, split)[1]

    def labels_of(self, landmark_ids: npt.ArrayLike, split: str | None = None) -> LabelMatrix:
        """The labels of landmarks.

        Args:
            landmark_ids: int64, shape (n,), in any order and as often as needed, e.g. one per image.
            split: the split that the ids are of; may be left out where the hierarchy has only one.

        Returns:
            int64, shape (n, L), finest first. Column 0 is unique over both splits.

        Raises:
            InputError: landmarks are not in the hierarchy; :meth:`contains` tells which are.
        """
        rows, known = self._find(landmark_ids, split)
        if not known.all():
            unknown = np.unique(np.asarray(landmark_ids)[~known]).tolist()
            raise InputError(
                f"{len(unknown):,} landmarks are not in the hierarchy ({split or self.splits[0]} "
                f"{', '.join(map(str, unknown[:10]))}{', …' if len(unknown) > 10 else ''}); leave them out with "
                "contains()"
            )
        return self.labels[rows]

    def lowest_common_level(
        self, query_labels: LabelMatrix, gallery_labels: LabelMatrix | None = None
    ) -> npt.NDArray[np.int64]:
        """See :func:`lowest_common_level`; the gallery is by default every landmark once."""
        return lowest_common_level(query_labels, self.labels if gallery_labels is None else gallery_labels)

    def relevance(
        self, query_labels: LabelMatrix, gallery_labels: LabelMatrix | None = None, alpha: float = 1.0
    ) -> npt.NDArray[np.float64]:
        """See :func:`relevance`; the gallery is by default every landmark once."""
        return relevance(query_labels, self.labels if gallery_labels is None else gallery_labels, alpha)

    # Changing it

    def filter(
        self,
        *,
        groups: Iterable[str] | None = None,
        roots: Iterable[str] | None = None,
        splits: Iterable[str] | None = None,
        min_landmarks: int = 1,
    ) -> Hierarchy:
        """The landmarks of these groups, roots and splits, in groups that then have ``min_landmarks`` or more.

        Further groups (``hierarchical_labels``) do not count.

        Raises:
            ConfigurationError: there is no such group, root or split, or nothing is left.
        """
        keep = np.ones(len(self), bool)
        for wanted, level in ((groups, GROUP), (roots, ROOT)):
            if wanted is not None:
                codes = [self._code(name, level) for name in _several(wanted)]
                keep &= np.isin(self.labels[:, self.column(level)], codes)
        if splits is not None:
            if unknown := set(_several(splits)).difference(self.splits.tolist()):
                raise ConfigurationError(f"there is no split {', '.join(sorted(unknown))} in the hierarchy")
            keep &= np.isin(self.splits, list(_several(splits)))
        group = self.labels[:, self.column(GROUP)]
        keep &= np.bincount(group[keep], minlength=len(self.names(GROUP)))[group] >= min_landmarks
        if not keep.any():
            raise ConfigurationError("no landmark is left; filter by less")
        return Hierarchy.from_arrow(self.to_arrow().filter(pa.array(keep)))

    def split(self, group: str, parts: Mapping[str, Iterable[str]]) -> Hierarchy:
        """Take super-categories out of a group into groups of their own.

        A landmark whose *further* groups (``hierarchical_labels``) hold ``group`` keeps it there: which of its
        labels led to it is not known.

        Args:
            group: the group to divide; it keeps the super-categories that no part names.
            parts: super-categories by the name of their new group.

        Raises:
            ConfigurationError: super-categories are not known, there is no such group, it has no such
                super-category, one is named twice, or a new name is that of another group.
        """
        in_group = self.labels[:, self.column(GROUP)] == self._code(group, GROUP)
        if self.supercategories is None:
            raise ConfigurationError("this hierarchy does not know super-categories, so its groups cannot be split")
        new_name: dict[str, str] = {}
        for name, supercategories in parts.items():
            if name != group and name in self.names(GROUP):
                raise ConfigurationError(f'there is a group "{name}" already')
            for supercategory in _several(supercategories):
                if supercategory in new_name:
                    raise ConfigurationError(f'"{supercategory}" is named twice')
                new_name[supercategory] = name
        if unknown := set(new_name).difference(self.supercategories[in_group].tolist()):
            raise ConfigurationError(f'"{group}" has no super-category {", ".join(sorted(unknown))}')
        names = [
            new_name.get(supercategory, group) if inside else old
            for supercategory, inside, old in zip(
                self.supercategories, in_group, self._texts(self.column(GROUP)), strict=True
            )
        ]
        return self._with_groups(names, lambda further: further)

    def merge(self, groups: Iterable[str], name: str) -> Hierarchy:
        """Make one group of several.

        Raises:
            ConfigurationError: there is no such group, the groups are below different names, or the new name is
                that of another group.
        """
        old = list(_several(groups))
        above = {group: self.ancestors(group, GROUP) for group in old}
        if len(set(above.values())) > 1:
            found = "; ".join(f'"{group}" is below {" / ".join(names)}' for group, names in above.items())
            raise ConfigurationError(f"the groups have different names above them: {found}")
        if name not in old and name in self.names(GROUP):
            raise ConfigurationError(f'there is a group "{name}" already; merge it too')

        def renamed(group: str) -> str:
            return name if group in above else group

        return self._with_groups(list(map(renamed, self._texts(self.column(GROUP)))), renamed)

    # Giving it away

    def to_arrow(self) -> pa.Table:
        """The table ``hierarchy``, sorted by key, without the columns that are not known."""
        columns: dict[str, Any] = {"split": pa.array(self.splits.tolist()), "landmark_id": self.landmark_ids}
        if self.categories is not None:
            columns["category"] = pa.array(self.categories, pa.string())
        if self.supercategories is not None:
            columns["supercategory"] = pa.array(self.supercategories, pa.string())
        columns[GROUP] = pa.array(self._texts(1))
        columns[ROOT] = pa.array(self._texts(self.n_levels - 1))
        kind = tables.HIERARCHY.optional.field("extra_levels").type
        if extra := [self._texts(column) for column in range(2, self.n_levels - 1)]:
            columns["extra_levels"] = pa.array(zip(*extra, strict=True), kind)
        if self.hierarchical_labels is not None:
            columns["hierarchical_labels"] = pa.array(self.hierarchical_labels.tolist(), kind)
        return pa.table(columns)

    def to_pandas(self) -> pd.DataFrame:
        """The same as :meth:`to_arrow`, as a data frame: one row per landmark."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_networkx(self, *, landmarks: bool = False) -> Any:
        """The tree as a ``networkx.DiGraph`` with edges from coarse to fine.

        Nodes are ``(level, name)``, with the attributes level, level_name, name and n_landmarks; above the
        roots is ``(0, "all")``.

        Args:
            landmarks: have a node for every landmark, too.

        Raises:
            ConfigurationError: networkx is not installed.
        """
        try:
            import networkx as nx
        except ImportError as error:
            raise ConfigurationError('networkx is not installed; run pip install "hgld[networkx]"') from error
        graph = nx.DiGraph()
        graph.add_node((0, "all"), level=0, level_name="all", name="all", n_landmarks=len(self))
        for level in range(1, self.n_levels + landmarks):
            level_name = self.level_names[self.column(level)]
            column = self.column(level)
            names, first = self.names(level), np.unique(self.labels[:, column], return_index=True)[1]
            above = self._texts(column + 1, first) if level > 1 else ["all"] * len(names)
            found = np.bincount(self.labels[:, column]).tolist()
            for name, parent, count in zip(names, above, found, strict=True):
                graph.add_node((level, name), level=level, level_name=level_name, name=name, n_landmarks=count)
                graph.add_edge((level - 1, parent), (level, name))
        return graph

    # Inside

    def _n_nodes(self, level: int) -> int:
        column = self.column(level)
        return len(self.nodes[column - 1]) if column else len(self)

    def _landmark_name(self, row: int) -> str:
        return f"{self.splits[row]}/{self.landmark_ids[row]}"

    def _texts(self, column: int, rows: npt.NDArray[np.int64] | slice = slice(None)) -> list[str]:
        names: list[str] = np.array(self.nodes[column - 1], object)[self.labels[rows, column]].tolist()
        return names

    def _code(self, name: str, level: Level) -> int:
        """The label of a name; for a landmark ``split/id``, its row."""
        column = self.column(level)
        if column == 0:
            split, _, number = name.rpartition("/")
            if split in self.splits and number.isdecimal():
                rows, known = self._find([int(number)], split)
                if known[0]:
                    return int(rows[0])
        elif name in self.nodes[column - 1]:
            return self.nodes[column - 1].index(name)
        raise ConfigurationError(f'there is no "{name}" at the level {self.level_names[column]}')

    def _rows_below(self, name: str, level: Level) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.labels[:, self.column(level)] == self._code(name, level))

    def _find(
        self, landmark_ids: npt.ArrayLike, split: str | None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The row of each landmark, and whether it is there (else the row means nothing)."""
        wanted = np.asarray(landmark_ids)
        if wanted.ndim != 1 or not (np.issubdtype(wanted.dtype, np.integer) or not wanted.size):
            raise ValueError(f"landmark_ids is {wanted.dtype} {wanted.shape}; expected whole numbers (n,)")
        if split is None:
            if self.splits[0] != self.splits[-1]:
                raise ConfigurationError("the hierarchy has several splits; name the one that the ids are of")
            split = str(self.splits[0])
        begin, end = (np.searchsorted(self.splits, split, side) for side in ("left", "right"))
        if begin == end:
            raise ConfigurationError(f'there is no split "{split}" in the hierarchy')
        rows = begin + np.searchsorted(self.landmark_ids[begin:end], wanted)
        rows = np.minimum(rows, end - 1)
        return rows, self.landmark_ids[rows] == wanted

    def _with_groups(self, names: list[str], further: Callable[[str], str]) -> Hierarchy:
        """The same with another group per landmark, and the further groups renamed."""
        table = self.to_arrow()
        table = table.set_column(table.column_names.index(GROUP), GROUP, pa.array(names))
        if self.hierarchical_labels is not None:
            lists = [
                list(dict.fromkeys([name, *map(further, others[1:])]))
                for name, others in zip(names, self.hierarchical_labels, strict=True)
            ]
            table = table.set_column(
                table.column_names.index("hierarchical_labels"), "hierarchical_labels", pa.array(lists)
            )
        return Hierarchy.from_arrow(table)


def _objects(table: pa.Table, name: str, order: pa.Array) -> npt.NDArray[np.object_] | None:
    if name not in table.column_names:
        return None
    values: npt.NDArray[np.object_] = table[name].take(order).to_numpy()
    return values


def _equal(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and one == other


def _several(names: Iterable[str]) -> Iterable[str]:
    """The names; one given bare, whose letters were meant by no one, is one name."""
    return [names] if isinstance(names, str) else list(names)
