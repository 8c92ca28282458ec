"""Schemas of all tables that hgld writes.

Tables of landmarks have the columns of the published tables, such as ``landmark_id`` and
``natural_or_human_made``. In files of other lists, of species or paintings, these columns have the
names of :data:`NEUTRAL_COLUMNS`, splits and ids may have any value, and every level has a column.
:func:`hgld.tables.read_table` returns both kinds with the names for landmarks, so that stages need
not distinguish them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from hgld.tables.column_values import (
    ENTITY_STATUS_MEANINGS,
    LABEL_SOURCE_MEANINGS,
    MISSING_GROUP_REASON_MEANINGS,
    PHOTOGRAPH_STATUS_MEANINGS,
    REMOVAL_REASON_MEANINGS,
    ROUTE_SEPARATOR,
    ROUTE_STEP_MEANINGS,
    SCRAPE_SOURCE_MEANINGS,
    SCRAPE_STATUS_MEANINGS,
    SPLIT_MEANINGS,
    SPLITS,
)


def in_order(splits: Iterable[str]) -> list[str]:
    """Return the distinct splits: the splits of GLDv2 first, then other splits by name.

    >>> in_order(["west", "index", "train", "train"])
    ['train', 'index', 'west']
    """
    distinct = set(splits)
    known = [split for split in SPLITS if split in distinct]
    return known + sorted(distinct.difference(SPLITS))


#: Where the group of a landmark comes from: a decision on what it is an instance of, or its
#: photographs.
LABEL_SOURCES: tuple[str, ...] = tuple(LABEL_SOURCE_MEANINGS)

_TEXT = pa.string()
_INTEGER = pa.int64()
_REAL = pa.float64()
_TIME = pa.timestamp("ms", tz="UTC")


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


def _structs(**kinds: pa.DataType) -> pa.DataType:
    fields = [pa.field(name, kind, nullable=False) for name, kind in kinds.items()]
    return _list_of(pa.struct(fields))


#: "Instance of" values: the class's item, its label and the label's language. ``item`` is null if
#: the source does not show it, ``language`` if it is unknown or the label is the bare item id.
INSTANCE_OF = _list_of(
    pa.struct(
        [
            pa.field("item", _TEXT),
            pa.field("label", _TEXT, nullable=False),
            pa.field("language", _TEXT),
        ]
    )
)
TEXTS = _list_of(_TEXT)
#: Groups that a label may belong to, best first: the group, the calibrated probability that an
#: annotator chooses it (0 to 1) and the reason in words.
SUGGESTIONS = _structs(group=_TEXT, score=pa.float32(), reason=_TEXT)
#: Labelled landmarks, as in ``train/161``, or labels that are most similar to a landmark's
#: photographs, best first: the name, its group and the highest cosine similarity of a photograph.
NEAREST = _structs(name=_TEXT, group=_TEXT, similarity=pa.float32())
#: Fixed-size list of any length: the encoder decides it.
_EMBEDDING = pa.list_(pa.field("element", pa.float32(), nullable=False), 0)


@dataclass(frozen=True)
class TableSpec:
    """Schema of a table.

    Args:
        name: Name of the table, such as ``clean``.
        version: Version of the schema.
        row: What a row describes.
        command: Command that writes the table.
        columns: Required columns; see :func:`column`.
        key: Columns whose values together identify a row.
        optional_columns: Columns that may follow, in this order.
        free_columns: Types of further columns, whose names each table chooses; empty if further
            columns are not allowed.
    """

    name: str
    version: int
    row: str
    command: str
    columns: Sequence[pa.Field]
    key: tuple[str, ...]
    optional_columns: Sequence[pa.Field] = ()
    free_columns: tuple[pa.DataType, ...] = ()

    @property
    def about(self) -> str:
        """Description of a row, and the command that writes the table."""
        return f"{self.row}; written by ``{self.command}``."

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the required columns."""
        return pa.schema(self.columns)

    @cached_property
    def optional(self) -> pa.Schema:
        """Schema of the optional columns."""
        return pa.schema(self.optional_columns)

    @cached_property
    def neutral(self) -> TableSpec:
        """Schema for entities of any list, with :data:`NEUTRAL_COLUMNS`.

        A table without landmarks has only one schema.
        """
        names = {field.name for field in self.columns}
        if names.isdisjoint({"landmark_id", "landmarks_train"}):
            return self
        free_columns = self.free_columns
        if "hierarchical_label" in names:
            free_columns = (_TEXT,)
        return replace(
            self,
            columns=_neutral_columns(self.columns),
            key=tuple("id" if name == "landmark_id" else name for name in self.key),
            optional_columns=_neutral_columns(self.optional_columns),
            free_columns=free_columns,
        )

    def of_columns(self, names: Sequence[str]) -> TableSpec:
        """Return the schema that uses the column names of a table: this schema or the neutral one."""
        if "id" in names or "count" in names:
            return self.neutral
        return self

    @property
    def schema_id(self) -> str:
        """Value of ``hgld.table`` in a file's metadata, such as ``clean/1``."""
        return f"{self.name}/{self.version}"


def _neutral_columns(columns: Sequence[pa.Field]) -> list[pa.Field]:
    """Replace columns by :data:`NEUTRAL_COLUMNS`, and drop columns that neutral tables lack."""
    fields = [NEUTRAL_COLUMNS.get(field.name, field) for field in columns]
    return [field for field in fields if field is not None]


def column(
    name: str,
    kind: pa.DataType,
    meaning: str,
    *,
    nullable: bool = False,
    values: Mapping[Any, str] | None = None,
    separator: str = "",
) -> pa.Field:
    """Return a column with its meaning in the metadata, which Arrow writes into files.

    Args:
        name: Name of the column.
        kind: Type of the values.
        meaning: Description of the values.
        nullable: Whether values may be null.
        values: Meaning of each allowed value. Default: any value is allowed.
        separator: Joins several allowed values in one text. Default: one value per text.
    """
    metadata = {"meaning": meaning}
    if values:
        metadata |= {"values": json.dumps(dict(values)), "separator": separator}
    return pa.field(name, kind, nullable, metadata)


def meaning_of(field: pa.Field) -> str:
    """Return the meaning of a column.

    >>> meaning_of(column("split", pa.string(), "Split of the landmark."))
    'Split of the landmark.'
    """
    return str((field.metadata or {}).get(b"meaning", b"").decode())


def values_of(field: pa.Field) -> Mapping[str, str]:
    """Return the meaning of each allowed value of a column; empty if any value is allowed.

    >>> list(values_of(column("split", pa.string(), "Split.", values=SPLIT_MEANINGS)))
    ['train', 'index']
    """
    values: dict[str, str] = json.loads((field.metadata or {}).get(b"values", b"{}"))
    return values


def unlisted_values(texts: pa.ChunkedArray, field: pa.Field) -> list[str]:
    """Return the values of a column that are not allowed, sorted.

    >>> split = column("split", pa.string(), "Split.", values=SPLIT_MEANINGS)
    >>> unlisted_values(pa.chunked_array([["train", "test", None]]), split)
    ['test']
    """
    values = values_of(field)
    if not values:
        return []
    separator = field.metadata[b"separator"].decode()
    present: set[str] = set()
    for text in texts.unique().to_pylist():
        if text is not None:
            present.update(text.split(separator) if separator else [text])
    return sorted(present - values.keys())


_LANDMARK = [
    column("split", _TEXT, "Split of the landmark.", values=SPLIT_MEANINGS),
    column(
        "landmark_id",
        _INTEGER,
        "Number of the landmark in its split; the same number is another landmark in another split.",
    ),
    column("category", _TEXT, "Address of the landmark's category on Wikimedia Commons."),
]
_LABEL = [
    column(
        "label_id",
        _TEXT,
        "Wikidata item of the class where it is known, else ``label-`` and a hash of the normalised label.",
    ),
    column("label", _TEXT, "Label of the class."),
    column(
        "landmarks_train", _INTEGER, "Number of landmarks of the split train that have the label."
    ),
    column(
        "landmarks_index", _INTEGER, "Number of landmarks of the split index that have the label."
    ),
]
#: Column in tables of other lists by the name in tables of landmarks; None if other lists lack the
#: column.
NEUTRAL_COLUMNS: Mapping[str, pa.Field | None] = {
    "split": column("split", _TEXT, "Split of the entity."),
    "landmark_id": column("id", _TEXT, "Id of the entity in its split, text or a whole number."),
    "category": column("page", _TEXT, "Address of the entity's item or category.", nullable=True),
    "status": column(
        "status", _TEXT, "Whether values were found, or why not.", values=ENTITY_STATUS_MEANINGS
    ),
    "instance_of": column(
        "values", INSTANCE_OF, "Values of the property: item, label, language of the label."
    ),
    "supercategory": column("label", _TEXT, "Label of the entity."),
    "landmarks_train": column("count", _INTEGER, "Number of entities that have the label."),
    "landmarks_index": None,
    "hierarchical_label": None,
    "natural_or_human_made": None,
    "extra_levels": None,
    "hierarchical_labels": column(
        "groups", TEXTS, "All groups of the entity; the finest level has the first."
    ),
    "label_source": column(
        "label_source",
        _TEXT,
        "Where the group comes from; if from photographs, label repeats the group.",
        values={
            name: text.replace("landmark", "entity") for name, text in LABEL_SOURCE_MEANINGS.items()
        },
    ),
}
#: Result and cost of a run.
_RUN_COLUMNS = [
    column(
        "split",
        _INTEGER,
        "Seed of the random split; null for the splits of the manifest.",
        nullable=True,
    ),
    column("seed", _INTEGER, "Seed of the training."),
    column("metric", _TEXT, "Name of the metric."),
    column("value", _REAL, "Value from 0 to 1; NaN where no query has the metric."),
    column("steps", _INTEGER, "Number of steps of the training."),
    column("train_seconds", _REAL, "Duration of the training in seconds."),
    column("device", _TEXT, "Device of the training."),
    column("machine", _TEXT, "Machine of the training."),
]

SCRAPED = TableSpec(
    "scraped",
    1,
    'A landmark and the values of "instance of" (P31) that its item has',
    "hgld scrape",
    [
        *_LANDMARK,
        column("title", _TEXT, "Title of the category, normalised."),
        column(
            "resolved_title",
            _TEXT,
            "Title after all redirects; null where there is no such page.",
            nullable=True,
        ),
        column("item", _TEXT, "Wikidata item of the landmark.", nullable=True),
        column(
            "route",
            _TEXT,
            "Steps from the category to the item, joined by ``+``; null where there is no item.",
            nullable=True,
            values=ROUTE_STEP_MEANINGS,
            separator=ROUTE_SEPARATOR,
        ),
        column("revision", _INTEGER, "Revision of the item.", nullable=True),
        column(
            "instance_of",
            INSTANCE_OF,
            'Values of "instance of": item, null where it is not shown; label; language of the label.',
        ),
        column(
            "status", _TEXT, "Whether values were found, or why not.", values=SCRAPE_STATUS_MEANINGS
        ),
        column("source", _TEXT, "Where the values are from.", values=SCRAPE_SOURCE_MEANINGS),
        column(
            "fetched_at",
            _TIME,
            "Time of the latest response that the row rests on; after an update, when its revision was checked.",
        ),
    ],
    key=("split", "landmark_id"),
)

CLASSES = TableSpec(
    "classes",
    3,
    "A class that landmarks are instances of, or an ancestor of one, beside each table ``scraped``",
    "hgld scrape",
    [
        column("item", _TEXT, "Wikidata item of the class."),
        column("label", _TEXT, "Label of the class; its item where it has none."),
        column("language", _TEXT, "Language of the label.", nullable=True),
        column(
            "description",
            _TEXT,
            'What tells the item from others with the same label, such as "body of still water".',
            nullable=True,
        ),
        column(
            "subclass_of",
            TEXTS,
            "Items that it is a subclass of (P279); for a merged item, the one that it was merged into.",
        ),
        column(
            "revision", _INTEGER, "Revision of the item; null where it was deleted.", nullable=True
        ),
        column(
            "redirected_from",
            TEXTS,
            "Items that statements still name instead of this one, with which they were merged.",
            nullable=True,
        ),
    ],
    key=("item",),
    optional_columns=[
        column(
            "rank",
            _TEXT,
            "Label of its taxon rank (P105), where superclasses are parent taxa.",
            nullable=True,
        ),
    ],
)

CLEAN = TableSpec(
    "clean",
    1,
    "A landmark with the one label that is relevant",
    "hgld clean or hgld labels",
    [
        *_LANDMARK,
        column("supercategory", _TEXT, "Label of the class."),
        column("class_item", _TEXT, "Wikidata item of the class.", nullable=True),
    ],
    key=("split", "landmark_id"),
    optional_columns=[
        column("count", _INTEGER, "Number of things that the row stands for, from ``hgld labels``.")
    ],
)

REMOVED = TableSpec(
    "removed",
    1,
    "A landmark without a label, and why",
    "hgld clean",
    [
        *_LANDMARK,
        column("reason", _TEXT, "Why the landmark has no label.", values=REMOVAL_REASON_MEANINGS),
        column("instance_of", INSTANCE_OF, "Values of the landmark, as in the table scraped."),
    ],
    key=("split", "landmark_id"),
)

LABEL_EMBEDDINGS = TableSpec(
    "label_embeddings",
    1,
    "A label with its vector",
    "hgld embed",
    [
        *_LABEL,
        column("embedding", _EMBEDDING, "Vector of the label, of length 1."),
    ],
    key=("label_id",),
)

CLUSTERS = TableSpec(
    "clusters",
    2,
    "A label with its cluster and, after ``hgld suggest``, its groups",
    "hgld cluster",
    [
        *_LABEL,
        column("cluster", pa.int32(), "Number of the cluster."),
        column("cluster_name", _TEXT, "Labels that are most typical of the cluster."),
        column("subcluster", pa.int32(), "Number of the subcluster within its cluster."),
        column("distance", pa.float32(), "Distance from the centre of the cluster."),
        column(
            "suggested_group",
            _TEXT,
            "First group of ``suggestions``, for readers of flat tables.",
            nullable=True,
        ),
        column("suggestion_score", pa.float32(), "Score of that group.", nullable=True),
        column(
            "suggestions",
            SUGGESTIONS,
            "Groups that the label may belong to, best first: group, score (NaN if unknown), reason.",
        ),
    ],
    key=("label_id",),
)

HIERARCHY = TableSpec(
    "hierarchy",
    1,
    "A landmark with its labels at all levels",
    "hgld build",
    [
        *_LANDMARK,
        column("supercategory", _TEXT, "Label of the class that the landmark is an instance of."),
        column("hierarchical_label", _TEXT, "Group of the label, one of the taxonomy."),
        column("natural_or_human_made", _TEXT, "Root of the group."),
    ],
    key=("split", "landmark_id"),
    optional_columns=[
        column(
            "extra_levels",
            TEXTS,
            "Levels between hierarchical_label and natural_or_human_made, finest first; as many in every row.",
        ),
        column(
            "hierarchical_labels",
            TEXTS,
            "All groups of the landmark, of which hierarchical_label is the first.",
        ),
        column(
            "label_source",
            _TEXT,
            "Where the group comes from; if from photographs, supercategory repeats the group.",
            values=LABEL_SOURCE_MEANINGS,
        ),
    ],
)


def level_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the levels among the columns of a table ``hierarchy``, finest first: H-GLDv2's, or any others.

    >>> level_columns(["split", "landmark_id", "supercategory", "genus", "family", "order"])
    ('genus', 'family', 'order')
    """
    known = {*HIERARCHY.schema.names, *HIERARCHY.optional.names}
    published = ("hierarchical_label", "natural_or_human_made")
    return (
        published if published[0] in names else tuple(name for name in names if name not in known)
    )


COMPLETED = TableSpec(
    "completed",
    1,
    "A landmark without a group, and the group that its photographs suggest",
    "hgld complete",
    [
        *_LANDMARK,
        column(
            "reason", _TEXT, "Why the landmark has no group.", values=MISSING_GROUP_REASON_MEANINGS
        ),
        column("photographs", _INTEGER, "Number of its photographs."),
        column(
            "group",
            _TEXT,
            "Group with most votes; null for a landmark without photographs.",
            nullable=True,
        ),
        column(
            "score",
            pa.float32(),
            "Probability that the group is right, 0 to 1; null for a landmark without photographs.",
            nullable=True,
        ),
        column(
            "votes",
            pa.float32(),
            "Votes for the group; each photograph divides one vote among groups.",
        ),
        column("second_group", _TEXT, "Group with the second most votes.", nullable=True),
        column("second_votes", pa.float32(), "Votes for that group."),
        column(
            "nearest",
            NEAREST,
            "Labelled landmarks or labels that are most similar to the photographs: name, group, similarity.",
        ),
    ],
    key=("split", "landmark_id"),
)

IMAGES = TableSpec(
    "images",
    1,
    "A photograph in a tar file",
    "hgld index-images",
    [
        column("id", _TEXT, "Id of the photograph."),
        column("shard", _TEXT, "Tar file, relative to the folder that was indexed."),
        column("offset", _INTEGER, "Position of the photograph's bytes in the tar file."),
        column("size", _INTEGER, "Number of these bytes."),
    ],
    key=("id",),
)

PHOTOGRAPHS = TableSpec(
    "photographs",
    1,
    "A photograph that was asked for, where it is from and who made it",
    "hgld fetch gldv2 --ids",
    [
        column("id", _TEXT, "Id of the photograph."),
        column(
            "status",
            _TEXT,
            "Whether there is a photograph, or why not.",
            values=PHOTOGRAPH_STATUS_MEANINGS,
        ),
        column("url", _TEXT, "Address of the file in GLDv2's lists.", nullable=True),
        column(
            "page",
            _TEXT,
            "Page of the file on Commons, where it may have another name by now.",
            nullable=True,
        ),
        column("author", _TEXT, "Author, as Commons names them.", nullable=True),
        column("licence", _TEXT, "Short name of the licence.", nullable=True),
        column("licence_url", _TEXT, "Address of the licence.", nullable=True),
        column(
            "uploaded_at",
            _TIME,
            "When the version of the file on Commons was uploaded, which may be later than GLDv2's.",
            nullable=True,
        ),
        column("source", _TEXT, "Address or tar file that the bytes are from.", nullable=True),
        column("shard", _TEXT, "Tar file that the bytes are in.", nullable=True),
        column("width", _INTEGER, "Width in pixels.", nullable=True),
        column("height", _INTEGER, "Height in pixels.", nullable=True),
        column("sha1", _TEXT, "SHA-1 of the bytes, in hexadecimal.", nullable=True),
    ],
    key=("id",),
)

MANIFEST = TableSpec(
    "manifest",
    1,
    "An image with its split and a label for each level, finest first",
    "hgld manifest",
    [
        column("id", _TEXT, "Id of the image."),
        column(
            "path", _TEXT, "Image file, or tar file; relative to a folder that is named on use."
        ),
        column("offset", _INTEGER, "Position of the image's bytes in the tar file.", nullable=True),
        column("size", _INTEGER, "Number of these bytes.", nullable=True),
        column("split", _TEXT, "Split of the image, such as train or test."),
    ],
    key=("id",),
    optional_columns=[
        column(
            "box",
            pa.list_(_REAL, 4),
            "Part of the image that counts, in pixels: left, top, right, bottom; null for the whole image.",
            nullable=True,
        ),
    ],
    # A column per level, finest first; lists where images have several labels.
    free_columns=(_TEXT, TEXTS),
)

COMPARISON = TableSpec(
    "comparison",
    2,
    "A metric of one training",
    "hgld benchmark",
    [
        column("method", _TEXT, "Name of the method in the settings."),
        column("title", _TEXT, "Title of the method."),
        column("baseline", pa.bool_(), "Whether other methods are compared with this one."),
        *_RUN_COLUMNS,
    ],
    key=("method", "split", "seed", "metric"),
)

STUDY = TableSpec(
    "study",
    2,
    "A metric of one training of a sweep",
    "hgld benchmark --sweep",
    [
        column("curve", _TEXT, "Name of the curve."),
        column("setting", _TEXT, "Value of the setting that varies, as text."),
        column("method", _TEXT, "Name of the method in the settings."),
        *_RUN_COLUMNS,
    ],
    key=("curve", "setting", "split", "seed", "metric"),
)

#: Every table, by name.
TABLES: Mapping[str, TableSpec] = {
    spec.name: spec for spec in list(globals().values()) if isinstance(spec, TableSpec)
}
