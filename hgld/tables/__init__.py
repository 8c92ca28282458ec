"""Tables that stages exchange: schemas, provenance, and validated, atomic reading and writing.

A table on disk is complete and valid, or it is absent: it is written to a temporary file that is then renamed, and
rows that do not fit the schema are refused on writing as on reading. The Arrow metadata of a file hold the schema id
(``hgld.table``, such as ``clean/1``) and the provenance (``hgld.provenance``: command, version of hgld, parameters,
and the SHA-256 of every input), so that a stage can skip work that is already done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.tables.locations import classes_path, find_scraped_tables
    from hgld.tables.parquet import read_table, repeated_keys, write_table
    from hgld.tables.provenance import (
        Provenance,
        input_digests,
        is_up_to_date,
        read_provenance,
        with_provenance,
    )
    from hgld.tables.schemas import (
        CLASSES,
        CLEAN,
        CLUSTERS,
        COMPARISON,
        COMPLETED,
        HIERARCHY,
        IMAGES,
        INSTANCE_OF,
        LABEL_EMBEDDINGS,
        LABEL_SOURCES,
        MANIFEST,
        NEAREST,
        PHOTOGRAPHS,
        REMOVED,
        SCRAPED,
        SPLITS,
        STUDY,
        SUGGESTIONS,
        TABLES,
        TableSpec,
    )

__all__ = [
    "CLASSES",
    "CLEAN",
    "CLUSTERS",
    "COMPARISON",
    "COMPLETED",
    "HIERARCHY",
    "IMAGES",
    "INSTANCE_OF",
    "LABEL_EMBEDDINGS",
    "LABEL_SOURCES",
    "MANIFEST",
    "NEAREST",
    "PHOTOGRAPHS",
    "REMOVED",
    "SCRAPED",
    "SPLITS",
    "STUDY",
    "SUGGESTIONS",
    "TABLES",
    "Provenance",
    "TableSpec",
    "classes_path",
    "find_scraped_tables",
    "input_digests",
    "is_up_to_date",
    "read_provenance",
    "read_table",
    "repeated_keys",
    "with_provenance",
    "write_table",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CLASSES": "schemas",
        "CLEAN": "schemas",
        "CLUSTERS": "schemas",
        "COMPARISON": "schemas",
        "COMPLETED": "schemas",
        "HIERARCHY": "schemas",
        "IMAGES": "schemas",
        "INSTANCE_OF": "schemas",
        "LABEL_EMBEDDINGS": "schemas",
        "LABEL_SOURCES": "schemas",
        "MANIFEST": "schemas",
        "NEAREST": "schemas",
        "PHOTOGRAPHS": "schemas",
        "Provenance": "provenance",
        "REMOVED": "schemas",
        "SCRAPED": "schemas",
        "SPLITS": "schemas",
        "STUDY": "schemas",
        "SUGGESTIONS": "schemas",
        "TABLES": "schemas",
        "TableSpec": "schemas",
        "classes_path": "locations",
        "find_scraped_tables": "locations",
        "input_digests": "provenance",
        "is_up_to_date": "provenance",
        "read_provenance": "provenance",
        "read_table": "parquet",
        "repeated_keys": "parquet",
        "with_provenance": "provenance",
        "write_table": "parquet",
    },
)
