"""Write a gallery as one Parquet file, with ids and labels, as Hugging Face's ``datasets`` and others read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hgld.datasets.label_columns import label_columns
from hgld.errors import ConfigurationError
from hgld.hierarchy.label_sets import LabelSets, take_images
from hgld.io.files import atomic_write
from hgld.search.embedding_blocks import unit_blocks
from hgld.search.gallery import Gallery
from hgld.tables import Provenance, with_provenance
from hgld.tables.schemas import TEXTS


def export_gallery(gallery: Gallery, out: Path, provenance: Provenance) -> None:
    """Write a gallery with the columns ``id``, a text for each level, finest first, and ``embedding``.

    Images with several labels have lists of texts, whose k-th entries make up a label.

    Embeddings are of length 1, float32, in lists of fixed size, and written in blocks. Labels of unlabelled images
    are null.

    Args:
        gallery: The gallery.
        out: Parquet file to write or replace.
        provenance: Command, parameters and inputs.

    Raises:
        ConfigurationError: A level has the name of another column.
    """
    if reserved := {"id", "embedding"} & set(gallery.level_names):
        raise ConfigurationError(f"a level is called {reserved.pop()}, as another column is; rename it in `labels`")
    kind = TEXTS if isinstance(gallery.labels, LabelSets) else pa.string()
    fields = [("id", pa.string()), *((name, kind) for name in gallery.level_names)]
    plain = pa.schema([*fields, ("embedding", pa.list_(pa.float32(), gallery.dim))])
    schema = with_provenance(plain, "exported_embeddings/1", provenance)
    start = 0
    with atomic_write(out) as draft, pq.ParquetWriter(draft, schema, compression="zstd") as writer:
        for block in unit_blocks(gallery.vectors):
            rows = slice(start, start + len(block))
            columns = [pa.array(gallery.ids[rows].tolist(), pa.string())]
            columns += label_columns(
                take_images(gallery.labels, np.arange(start, start + len(block))),
                gallery.level_names,
                gallery.class_names,
            ).values()
            values = pa.array(np.ascontiguousarray(block).ravel(), pa.float32())
            columns.append(pa.FixedSizeListArray.from_arrays(values, gallery.dim))
            writer.write_table(pa.table(columns, schema=schema))
            start += len(block)
