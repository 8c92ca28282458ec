"""Schemas of all tables that hgld writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

#: Splits of GLDv2; each numbers its landmarks by itself.
SPLITS = ("train", "index")
#: Where the group of a landmark comes from: a decision on what it is an instance of, or its photographs.
LABEL_SOURCES = ("instance_of", "photographs")

#: "Instance of" values: the class's item, its label and the label's language. ``item`` is null where the source does
#: not show it, ``language`` where it is unknown or where the label is the bare item id.
INSTANCE_OF = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                pa.field("item", pa.string()),
                pa.field("label", pa.string(), nullable=False),
                pa.field("language", pa.string()),
            ]
        ),
        nullable=False,
    )
)
TEXTS = pa.list_(pa.field("element", pa.string(), nullable=False))
#: Groups that a label may belong to, best first: the group, the calibrated probability that an annotator chooses it
#: (0 to 1) and the reason in words.
SUGGESTIONS = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                pa.field("group", pa.string(), nullable=False),
                pa.field("score", pa.float32(), nullable=False),
                pa.field("reason", pa.string(), nullable=False),
            ]
        ),
        nullable=False,
    )
)
#: Labelled landmarks, as in ``train/161``, or labels that are most similar to a landmark's photographs, best first:
#: the name, its group and the highest cosine similarity of a photograph.
NEAREST = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                pa.field("name", pa.string(), nullable=False),
                pa.field("group", pa.string(), nullable=False),
                pa.field("similarity", pa.float32(), nullable=False),
            ]
        ),
        nullable=False,
    )
)
#: Fixed-size list of any length: the encoder decides it.
_EMBEDDING = pa.list_(pa.field("element", pa.float32(), nullable=False), 0)


@dataclass(frozen=True)
class TableSpec:
    """Schema of a table.

    Args:
        name: Name of the table.
        version: Version of its layout.
        schema: Required columns.
        key: Columns whose values together identify a row.
        optional: Columns that may follow, in this order.
        free_columns: Types that further columns, with names of the table's own choice, may have; empty if there are
            none.
    """

    name: str
    version: int
    schema: pa.Schema
    key: tuple[str, ...]
    optional: pa.Schema = field(default_factory=lambda: pa.schema([]))
    free_columns: tuple[pa.DataType, ...] = ()

    @property
    def schema_id(self) -> str:
        """Value of ``hgld.table`` in a file's metadata, such as ``clean/1``."""
        return f"{self.name}/{self.version}"


def required(name: str, kind: pa.DataType) -> pa.Field:
    """Return a field without nulls."""
    return pa.field(name, kind, nullable=False)


SCRAPED = TableSpec(
    "scraped",
    1,
    pa.schema(
        [
            required("split", pa.string()),
            required("landmark_id", pa.int64()),
            required("category", pa.string()),
            required("title", pa.string()),
            pa.field("resolved_title", pa.string()),
            pa.field("item", pa.string()),
            pa.field("route", pa.string()),
            pa.field("revision", pa.int64()),
            required("instance_of", INSTANCE_OF),
            required("status", pa.string()),
            required("source", pa.string()),
            # Parquet has no coarser unit.
            required("fetched_at", pa.timestamp("ms", tz="UTC")),
        ]
    ),
    key=("split", "landmark_id"),
)

CLASSES = TableSpec(
    "classes",
    3,
    pa.schema(
        [
            required("item", pa.string()),
            required("label", pa.string()),
            pa.field("language", pa.string()),
            # What tells the item from others of the same label, e.g. "body of still water".
            pa.field("description", pa.string()),
            required("subclass_of", TEXTS),
            # Last revision of the item; null where it was deleted.
            pa.field("revision", pa.int64()),
            # Items that redirect to this one, if statements name them; null without one.
            pa.field("redirected_from", TEXTS),
        ]
    ),
    key=("item",),
)

CLEAN = TableSpec(
    "clean",
    1,
    pa.schema(
        [
            required("split", pa.string()),
            required("landmark_id", pa.int64()),
            required("category", pa.string()),
            required("supercategory", pa.string()),
            pa.field("class_item", pa.string()),
        ]
    ),
    key=("split", "landmark_id"),
)

REMOVED = TableSpec(
    "removed",
    1,
    pa.schema(
        [
            required("split", pa.string()),
            required("landmark_id", pa.int64()),
            required("category", pa.string()),
            required("reason", pa.string()),
            required("instance_of", INSTANCE_OF),
        ]
    ),
    key=("split", "landmark_id"),
)

LABEL_EMBEDDINGS = TableSpec(
    "label_embeddings",
    1,
    pa.schema(
        [
            required("label_id", pa.string()),
            required("label", pa.string()),
            required("landmarks_train", pa.int64()),
            required("landmarks_index", pa.int64()),
            required("embedding", _EMBEDDING),
        ]
    ),
    key=("label_id",),
)

CLUSTERS = TableSpec(
    "clusters",
    2,
    pa.schema(
        [
            required("label_id", pa.string()),
            required("label", pa.string()),
            required("landmarks_train", pa.int64()),
            required("landmarks_index", pa.int64()),
            required("cluster", pa.int32()),
            required("cluster_name", pa.string()),
            required("subcluster", pa.int32()),
            required("distance", pa.float32()),
            pa.field("suggested_group", pa.string()),
            pa.field("suggestion_score", pa.float32()),
            # The two columns before repeat the first of these, for readers of flat tables.
            required("suggestions", SUGGESTIONS),
        ]
    ),
    key=("label_id",),
)

HIERARCHY = TableSpec(
    "hierarchy",
    1,
    pa.schema(
        [
            required("split", pa.string()),
            required("landmark_id", pa.int64()),
            required("category", pa.string()),
            required("supercategory", pa.string()),
            required("hierarchical_label", pa.string()),
            required("natural_or_human_made", pa.string()),
        ]
    ),
    key=("split", "landmark_id"),
    optional=pa.schema(
        [
            # Levels between hierarchical_label and natural_or_human_made, finest first; as many in every row.
            required("extra_levels", TEXTS),
            # All super-categories of the landmark, of which hierarchical_label is the first.
            required("hierarchical_labels", TEXTS),
            # Where the group comes from, one of LABEL_SOURCES.
            required("label_source", pa.string()),
        ]
    ),
)

COMPLETED = TableSpec(
    "completed",
    1,
    pa.schema(
        [
            required("split", pa.string()),
            required("landmark_id", pa.int64()),
            required("category", pa.string()),
            # Why the landmark has no group: a reason of the table removed, or "excluded" by the build.
            required("reason", pa.string()),
            required("photographs", pa.int64()),
            # Null for a landmark without photographs, as is the score: the probability that the group is right.
            pa.field("group", pa.string()),
            pa.field("score", pa.float32()),
            # Each photograph divides one vote among groups.
            required("votes", pa.float32()),
            pa.field("second_group", pa.string()),
            required("second_votes", pa.float32()),
            required("nearest", NEAREST),
        ]
    ),
    key=("split", "landmark_id"),
)

IMAGES = TableSpec(
    "images",
    1,
    pa.schema(
        [
            required("id", pa.string()),
            # Tar file, relative to the folder that was indexed, and position of the photograph's bytes in it.
            required("shard", pa.string()),
            required("offset", pa.int64()),
            required("size", pa.int64()),
        ]
    ),
    key=("id",),
)

PHOTOGRAPHS = TableSpec(
    "photographs",
    1,
    pa.schema(
        [
            required("id", pa.string()),
            # "ok", or why there is no photograph.
            required("status", pa.string()),
            # Address in GLDv2's lists, and page of the file on Commons, where it may have another name by now.
            pa.field("url", pa.string()),
            pa.field("page", pa.string()),
            pa.field("author", pa.string()),
            pa.field("licence", pa.string()),
            pa.field("licence_url", pa.string()),
            # Of the version of the file on Commons, which may be later than GLDv2's.
            pa.field("uploaded_at", pa.timestamp("ms", tz="UTC")),
            # Address or tar file that the bytes are from, and the tar file that they are in.
            pa.field("source", pa.string()),
            pa.field("shard", pa.string()),
            pa.field("width", pa.int64()),
            pa.field("height", pa.int64()),
            # Of the bytes, in hexadecimal.
            pa.field("sha1", pa.string()),
        ]
    ),
    key=("id",),
)

MANIFEST = TableSpec(
    "manifest",
    1,
    pa.schema(
        [
            required("id", pa.string()),
            # Image file, or tar file with the position of the image's bytes; relative to a folder given on use.
            required("path", pa.string()),
            pa.field("offset", pa.int64()),
            pa.field("size", pa.int64()),
            required("split", pa.string()),
        ]
    ),
    key=("id",),
    # Part of the image that counts, in pixels: left, top, right, bottom; null for the whole image.
    optional=pa.schema([pa.field("box", pa.list_(pa.float64(), 4))]),
    # A column per level, finest first; lists where images have several labels.
    free_columns=(pa.string(), TEXTS),
)

#: Result and cost of a run.
_RUN_COLUMNS = [
    # Seed of the random split; null for the splits of the manifest.
    pa.field("split", pa.int64()),
    required("seed", pa.int64()),
    required("metric", pa.string()),
    # From 0 to 1; NaN where no query has the metric.
    required("value", pa.float64()),
    required("steps", pa.int64()),
    required("train_seconds", pa.float64()),
    required("device", pa.string()),
    required("machine", pa.string()),
]

COMPARISON = TableSpec(
    "comparison",
    2,
    pa.schema(
        [
            required("method", pa.string()),
            required("title", pa.string()),
            required("baseline", pa.bool_()),
            *_RUN_COLUMNS,
        ]
    ),
    key=("method", "split", "seed", "metric"),
)

STUDY = TableSpec(
    "study",
    2,
    pa.schema(
        [
            required("curve", pa.string()),
            # Value of the setting that varies, as text.
            required("setting", pa.string()),
            required("method", pa.string()),
            *_RUN_COLUMNS,
        ]
    ),
    key=("curve", "setting", "split", "seed", "metric"),
)

TABLES: Mapping[str, TableSpec] = {
    spec.name: spec
    for spec in (
        SCRAPED,
        CLASSES,
        CLEAN,
        REMOVED,
        LABEL_EMBEDDINGS,
        CLUSTERS,
        HIERARCHY,
        COMPLETED,
        IMAGES,
        PHOTOGRAPHS,
        MANIFEST,
        COMPARISON,
        STUDY,
    )
}
